"""Static pages of the service without external resources. The page at / ranks pasted documents and explains pairs."""

from __future__ import annotations

from collections.abc import Mapping
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


def read_pages(package: str, parts: Mapping[str, tuple[str, bytes]]) -> dict[str, tuple[bytes, bytes]]:
    """Return the content type and bytes, by path, of files in the `assets` folder of a package."""
    assets = resources.files(package) / "assets"
    return {path: (kind, (assets / name).read_bytes()) for path, (name, kind) in parts.items()}
