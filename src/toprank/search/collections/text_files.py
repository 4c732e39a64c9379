"""Text as people keep it: files in whatever encoding, and what is no text refused in a sentence."""

from __future__ import annotations

import codecs
import html
import re
from html.parser import HTMLParser
from pathlib import Path

from toprank.data.bytesource import open_bytes
from toprank.errors import FormatError
from toprank.search.collections.collection import whole_text

_LOOKED_AT = 1 << 16  # bytes in which a file that is no text shows a zero byte
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_STATED = re.compile(rb"<(?:\?xml|meta)\b[^>]*?\b(?:encoding|charset)\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_HEAD = 1024  # bytes in which markup says its encoding
_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figcaption", "figure", "footer",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section",
    "table", "td", "th", "tr", "ul",
})  # fmt: skip
_HEADING = re.compile(r"^(?:#{1,6}[ \t]+(.+?)[ \t]*#*|([^\n]*\S[^\n]*)\n(?:=+|-+))[ \t]*$", re.MULTILINE)
_LINK, _MARKUP = re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), re.compile(r"(?m)^\s{0,3}(?:#{1,6}\s|>\s|```.*$|~~~.*$)|[*`]+")
_FRONT = re.compile(r"\A---\n(.*?)\n(?:---|\.\.\.)\n", re.DOTALL)


def read_text(path: Path) -> str:
    """The text of a file: UTF-8, or what it says that it is, else Windows' Western encoding; also .gz and .zst.

    Raises:
        FormatError: the file is no text.
    """
    return text_and_doubt(path)[0]


def text_and_doubt(path: Path) -> tuple[str, bool]:
    """The text of a file as `read_text` has it, and whether its encoding is a guess."""
    content = open_bytes(path).text.tobytes()
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return whole_text(content.decode(encoding, "replace")), False
    if b"\0" in content[:_LOOKED_AT]:
        raise FormatError(
            "This is a binary file, not text: it holds zero bytes. Move it elsewhere, or give its text instead.",
            path=path,
        )
    try:
        return content.decode("utf-8"), False
    except UnicodeDecodeError:
        stated = _STATED.search(content[:_HEAD])
    try:
        if stated is not None:
            return whole_text(content.decode(stated[1].decode("ascii"), "replace")), False
    except (LookupError, ValueError):  # an encoding that nobody knows, or none of text
        pass
    return content.decode("cp1252", "replace"), True


def plain_parts(text: str, name: str) -> tuple[str, str]:
    """Title and body of plain text: the name of the file, and the text."""
    return name, text


def markdown_parts(text: str, name: str) -> tuple[str, str]:
    r"""Title and body of Markdown: the title that its front matter gives, its first heading or its name; its words.

    >>> markdown_parts("# Cats\n\nSee [dogs](dogs.md).", "cats.md")
    ('Cats', 'See dogs.')
    """
    front = _FRONT.match(text)
    stated = re.search(r"(?m)^title:\s*[\"']?(.*?)[\"']?\s*$", front[1]) if front else None
    body = text[front.end() :] if front else text
    heading = _HEADING.search(body)
    title = stated[1] if stated else (heading[1] or heading[2]) if heading else name
    if heading and not stated:
        body = body[: heading.start()] + body[heading.end() :]
    words = _MARKUP.sub("", _LINK.sub(r"\1", body)).strip()
    return _MARKUP.sub("", _LINK.sub(r"\1", title)).strip(), words


def html_parts(text: str, name: str) -> tuple[str, str]:
    """Title and body of HTML, without markup, scripts and styles.

    >>> html_parts("<title>Cats &amp; dogs</title><style>p{}</style><p>They<br>meet.</p>", "pets.html")
    ('Cats & dogs', 'They meet.')
    """
    parser = _Words()
    parser.feed(text)
    parser.close()
    body = " ".join("".join(parser.words).split())
    return " ".join("".join(parser.title).split()) or name, body


class _Words(HTMLParser):
    """Collects what a browser would show as text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.words: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in _SKIPPED or tag == "title":
            self._inside.append(tag)
        elif tag in _BLOCKS:
            self.words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            del self._inside[self._inside.index(tag) :]
        elif tag in _BLOCKS:
            self.words.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)
        elif self._inside == ["title"]:
            self.title.append(data)


def unmarked(text: str) -> str:
    """Text of SGML or XML without its tags and character references."""
    return html.unescape(re.sub(r"<[^>]*>", " ", text))
