"""The page at /: paste documents, see their ranking, ask why. Nothing comes from anywhere else."""

from __future__ import annotations

from functools import cache
from importlib import resources

PARTS = {
    "/": ("page.html", b"text/html; charset=utf-8"),
    "/page.js": ("page.js", b"text/javascript; charset=utf-8"),
    "/page.css": ("page.css", b"text/css; charset=utf-8"),
}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'"
)
HEADERS = ((b"content-security-policy", _POLICY), (b"referrer-policy", b"no-referrer"))


@cache
def part(path: str) -> tuple[bytes, bytes]:
    """The type and the bytes of a part of the page."""
    name, kind = PARTS[path]
    return kind, (resources.files("toprank.serving") / "assets" / name).read_bytes()
