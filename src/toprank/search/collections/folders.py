"""Collections from a folder of text, Markdown or HTML files (one document each), or from JSON lines."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toprank.data.bytesource import open_bytes, os_errors, plain_name
from toprank.errors import FormatError
from toprank.search.collections.collection import Collection, SourceSignature, whole_text
from toprank.search.collections.text_files import html_parts, markdown_parts, plain_parts, read_text_and_certainty

_READERS: dict[str, Callable[[str, str], tuple[str, str]]] = {
    ".txt": plain_parts, ".text": plain_parts, ".rst": plain_parts, ".md": markdown_parts, ".markdown": markdown_parts,
    ".html": html_parts, ".htm": html_parts, ".xhtml": html_parts,
}  # fmt: skip
ID_NAMES = ("_id", "id", "doc_id", "doc-id", "docid", "document_id", "docno", "pid", "uuid", "key")
_MAX_SUFFIXES_SHOWN = 5


def text_files_in(path: Path) -> tuple[list[Path], Counter[str]]:
    """Return text files below a folder, and the number of other files by suffix; hidden files are skipped."""
    files: list[Path] = []
    others: Counter[str] = Counter()
    with os_errors(path, "read"):
        for where, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if name.startswith("."):
                    continue
                file = Path(where, name)
                if not file.is_file():
                    others["broken link" if file.is_symlink() else "special file"] += 1
                elif plain_name(name).suffix.lower() in _READERS:
                    files.append(file)
                else:
                    others[file.suffix.lower() or "no suffix"] += 1
    return files, others


def folder(path: Path) -> Collection:
    """Read all text, Markdown and HTML files below a folder; ids are relative paths."""
    files, others = text_files_in(path)
    if not files:
        known = ", ".join(_READERS)
        raise FormatError(
            f"This folder contains no text files ({known}). Pass a folder of text files, a JSON lines file, or a test "
            "collection (see docs/search.md).",
            path=path,
        )
    signature = SourceSignature.from_files(path, files, whole_folder=True)
    titles, bodies, n_guessed = [], [], 0
    for file in files:
        parts = _READERS[plain_name(file).suffix.lower()]
        text, doubt = read_text_and_certainty(file)
        title, body = parts(text, plain_name(file).stem.replace("_", " "))
        titles.append(title)
        bodies.append(body)
        n_guessed += doubt
    notes: tuple[str, ...] = ()
    if others:
        named = ", ".join(f"{count:,} × {suffix}" for suffix, count in others.most_common(_MAX_SUFFIXES_SHOWN))
        notes = (f"Skipped files that are not text, Markdown or HTML: {named}.",)
    if n_guessed:
        notes += (
            f"Read {n_guessed:,} of {len(files):,} files as Windows-1252, since they are not UTF-8 and declare no "
            "encoding.",
        )
    ids = [file.relative_to(path).as_posix() for file in files]
    return Collection(path.resolve().name, ids, {"title": titles, "body": bodies}, notes=notes, signature=signature)


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and object of each JSON line; also reads .gz and .zst files."""
    for number, line in open_bytes(path).lines():
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            start = line[:40].decode("utf-8", "replace")
            raise FormatError(f"Expected one JSON object per line, but found {start!r}.", path=path, line=number)
        yield number, value


def id_of(value: Mapping[str, Any], path: Path, line: int, name: str | None) -> str:
    """Return the id of an object, or its line number if objects have no ids (`name` is None)."""
    if name is None:
        return str(line)
    given = value.get(name)
    if not isinstance(given, str | int) or isinstance(given, bool) or given == "":
        raise FormatError(f"This object has no id: '{name}' must be text or a whole number.", path=path, line=line)
    return whole_text(str(given))


def id_name(value: Mapping[str, Any], usual: Sequence[str] = ID_NAMES) -> str | None:
    """Return the key of the id, one of `usual` ignoring case, or None."""
    return next((key for name in usual for key in value if key.lower() == name), None)


def json_lines(path: Path, fields: Sequence[str] | None = None) -> Collection:
    """Read one document per JSON line; its fields are the text values of the object, or the keys in `fields`."""
    ids: list[str] = []
    texts: dict[str, list[str]] = {name: [] for name in fields or ()}
    lines: dict[str, int] = {}
    name: str | None = None
    for line, value in json_objects(path):
        if not ids:
            name = id_name(value)
        own = id_of(value, path, line, name)
        if own in lines:
            raise FormatError(
                f"The id '{own}' was already used in line {lines[own]}. Ids must be unique.", path=path, line=line
            )
        lines[own] = line
        known = {key: _text_of(item) for key, item in value.items() if key != name}
        wanted = texts if fields else known
        for key in wanted:
            text = known.get(key)
            if text is not None:
                column = texts.setdefault(key, [])
                column.extend([""] * (len(ids) - len(column)))
                column.append(text)
        ids.append(own)
    for column in texts.values():
        column.extend([""] * (len(ids) - len(column)))
    for key in fields or ():
        if ids and not any(texts[key]):
            raise FormatError(f"No object has text in field '{key}'. Check the name of the field.", path=path)
    if ids and not texts:
        raise FormatError("The objects contain only ids. Add at least one text field.", path=path)
    notes = () if name else (f"No object has an id ({', '.join(ID_NAMES)}), so line numbers are used as ids.",)
    return Collection(
        plain_name(path).stem, ids, texts, notes=notes, signature=SourceSignature.from_files(path.parent, [path])
    )


def _text_of(value: Any) -> str | None:
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return whole_text("\n".join(value))
    return None
