"""Reading of text files in any common encoding, and extraction of titles and bodies from Markdown and HTML."""

from __future__ import annotations

import codecs
import html
import re
from html.parser import HTMLParser
from pathlib import Path

from toprank.data.bytesource import open_bytes
from toprank.errors import FormatError
from toprank.search.collections.collection import whole_text

_BINARY_CHECK_BYTES = 1 << 16  # a file with a zero byte in this range is binary
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_STATED = re.compile(rb"<(?:\?xml|meta)\b[^>]*?\b(?:encoding|charset)\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_ENCODING_BYTES = 1024  # range in which markup declares its encoding
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
    """Read a text file as UTF-8, in its declared encoding, or as Windows-1252; also .gz and .zst.

    Raises:
        FormatError: if the file is binary.
    """
    return read_text_and_certainty(path)[0]


def read_text_and_certainty(path: Path) -> tuple[str, bool]:
    """Return the text of a file as `read_text` does, and whether its encoding was guessed."""
    content = open_bytes(path).text.tobytes()
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return whole_text(content.decode(encoding, "replace")), False
    if b"\0" in content[:_BINARY_CHECK_BYTES]:
        raise FormatError(
            "This is a binary file: it contains zero bytes. Remove it from the folder, or convert it to text.",
            path=path,
        )
    try:
        return content.decode("utf-8"), False
    except UnicodeDecodeError:
        stated = _STATED.search(content[:_ENCODING_BYTES])
    try:
        if stated is not None:
            return whole_text(content.decode(stated[1].decode("ascii"), "replace")), False
    except (LookupError, ValueError):  # unknown encoding, or not a text encoding
        pass
    return content.decode("cp1252", "replace"), True


def plain_parts(text: str, name: str) -> tuple[str, str]:
    """Return title and body of plain text: the file name, and the text."""
    return name, text


def markdown_parts(text: str, name: str) -> tuple[str, str]:
    r"""Return title and body of Markdown; the title is taken from front matter, first heading or file name.

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
    """Return title and body of HTML, without markup, scripts and styles.

    >>> html_parts("<title>Cats &amp; dogs</title><style>p{}</style><p>They<br>meet.</p>", "pets.html")
    ('Cats & dogs', 'They meet.')
    """
    parser = _TextParser()
    parser.feed(text)
    parser.close()
    body = " ".join("".join(parser.words).split())
    return " ".join("".join(parser.title).split()) or name, body


class _TextParser(HTMLParser):
    """Parser that collects visible text."""

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
    """Remove tags from SGML or XML text and resolve character references."""
    return html.unescape(re.sub(r"<[^>]*>", " ", text))
