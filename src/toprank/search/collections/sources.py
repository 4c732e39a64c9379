"""`read`: read a document collection in any supported layout, which is detected by content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from toprank.data.arrays import is_missing
from toprank.data.bytesource import head_of, os_errors
from toprank.data.trec import Qrels
from toprank.errors import DataError, FileError, FormatError
from toprank.search.collections.beir import beir, is_beir
from toprank.search.collections.collection import ALL, Collection, SourceSignature, Topics, whole_text
from toprank.search.collections.folders import folder, json_lines, text_files_in
from toprank.search.collections.judgments import read_judgments
from toprank.search.collections.python_docs import PYTHON_DOCS, python_docs
from toprank.search.collections.smart import is_smart, smart_documents
from toprank.search.collections.topics import read_topics
from toprank.search.collections.trec_text import is_documents, is_topics, trec_documents

_QUERIES = re.compile(r"(?i)qry|quer|topic")
_JUDGMENTS = re.compile(r"(?i)\.rel$|qrel")
_SPLITS = {part: re.compile(f"(?i)(?<![a-z]){part}(?![a-z])") for part in ("train", "dev", "valid", "test")}
_README = re.compile(r"(?i)readme|\.md$|\.old$|\.html?$")


def read(
    source: str | os.PathLike[str] | Collection | Mapping[str, Any] = PYTHON_DOCS,
    fields: Sequence[str] | None = None,
) -> Collection:
    """Read a collection of documents.

    | source | layout |
    |---|---|
    | ``"python-docs"`` | docstrings of the running Python, with known-item queries |
    | folder with ``corpus.jsonl`` | BEIR |
    | folder of SMART or TREC files | documents, queries and judgments, detected by content and file name |
    | any other folder | one document per text, Markdown or HTML file, including subfolders |
    | file | SMART (``.I``), TREC (``<doc>``) or JSON lines |
    | ``{id: text}`` or ``{id: {field: text}}`` | mapping of documents |

    Args:
        source: source of the documents, see the table.
        fields: fields to keep. Default: all text fields.

    >>> read({"a": "wing in a slipstream", "b": "boundary layer"})
    Collection('documents', 2 documents)
    """
    collection = _read(source, fields)
    return collection if fields is None else collection.only(list(fields))


def changed(signature: SourceSignature) -> bool:
    """Return whether files were added, removed or modified since the signature was taken."""
    path = Path(signature.path)
    try:
        files = [path / name for name in signature.names] if signature.names else text_files_in(path)[0]
        return SourceSignature.from_files(path, files, whole_folder=not signature.names).digest != signature.digest
    except OSError:
        return True


def _read(source: Any, fields: Sequence[str] | None) -> Collection:
    if isinstance(source, Collection):
        return source
    if isinstance(source, Mapping):
        return _from_mapping(source)
    if not isinstance(source, str | os.PathLike):
        raise DataError(f"Documents must be a folder, a file or {{id: text}}, not {type(source).__name__}.")
    path = Path(source)
    if not path.exists():
        if os.fspath(source) == PYTHON_DOCS:
            return python_docs()
        raise FileError(
            f"{source} does not exist. Pass an existing path, or '{PYTHON_DOCS}' for the Python documentation."
        )
    try:
        with os_errors(path, "read"):
            return _from_folder(path) if path.is_dir() else _from_file(path, fields)
    except FormatError:
        raise
    except DataError as problem:
        raise DataError(f"{path}: {problem.args[0]}") from None


def _from_mapping(documents: Mapping[Any, Any]) -> Collection:
    ids = [whole_text(str(name)) for name in documents]
    rows = [value if isinstance(value, Mapping) else {"body": value} for value in documents.values()]
    names = dict.fromkeys(chain.from_iterable(rows))
    return Collection("documents", ids, {str(name): [_text_of(row.get(name)) for row in rows] for name in names})


def _text_of(value: Any) -> str:
    """Convert a value to text; missing values (None, NaN) become empty."""
    is_array = getattr(value, "ndim", 0) > 0
    return "" if not is_array and is_missing(value) else whole_text(str(value))


def _from_file(path: Path, fields: Sequence[str] | None = None) -> Collection:
    head = head_of(path)
    if is_smart(head):
        ids, texts = smart_documents(path)
    elif is_documents(head):
        ids, texts = trec_documents(path)
    elif head.lstrip()[:1] == b"{":
        return json_lines(path, fields)
    else:
        if b"\0" in head:
            raise FormatError("This is a binary file. Documents must be text files.", path=path)
        raise FormatError(
            "This file has no supported layout: SMART ('.I 1'), TREC ('<doc>') or JSON lines ('{\"id\": …}'). To index "
            "text files, pass their folder.",
            path=path,
        )
    return Collection(path.stem, ids, texts, signature=SourceSignature.from_files(path.parent, [path]))


def _from_folder(path: Path) -> Collection:
    if is_beir(path):
        return beir(path)
    judged = _test_collection(path)
    return folder(path) if judged is None else judged


def _test_collection(path: Path) -> Collection | None:
    """Read a folder of SMART or TREC documents with queries and judgments, or return None if it is none."""
    files = _classify(path, sorted(path.iterdir()))
    if not files.documents:
        files = _find_in_subfolders(path)
    if not files.documents:
        return None
    parts = [_from_file(file) for file in files.documents]
    fields = {
        name: _concatenate(parts, name) for name in dict.fromkeys(chain.from_iterable(part.fields for part in parts))
    }
    topics: Topics | None = None
    judgments: dict[str, Qrels] = {}
    notes: tuple[str, ...] = ()
    if len(files.queries) > 1:
        named = " and ".join(file.name for file in files.queries)
        raise DataError(f"{named} both contain queries. Keep only one of these files in the folder.")
    if files.queries:
        topics = read_topics(files.queries[0])
        judgments, notes = _judgments(files.judgments, topics)
    ids = list(chain.from_iterable(part.ids for part in parts))
    return Collection(
        path.resolve().name, ids, fields, topics, judgments, notes, SourceSignature.from_files(path, files.documents)
    )


class _Files(NamedTuple):
    """The files of a test collection by role."""

    documents: list[Path]
    queries: list[Path]
    judgments: list[Path]


def _classify(path: Path, files: Iterable[Path]) -> _Files:
    """Classify files: documents and queries by content, judgments by path; readme files are skipped."""
    kept = [file for file in files if file.is_file() and not file.name.startswith(".")]
    heads = {file: head_of(file, 4096) for file in kept if not _README.search(file.name)}
    names = {file: file.relative_to(path).as_posix() for file in heads}
    queries = [
        file for file, head in heads.items() if is_topics(head) or (is_smart(head) and _QUERIES.search(names[file]))
    ]
    documents = [f for f, head in heads.items() if f not in queries and (is_smart(head) or is_documents(head))]
    judgments = [f for f in heads if _JUDGMENTS.search(names[f]) and f not in documents and f not in queries]
    return _Files(documents, queries, judgments)


def _find_in_subfolders(path: Path) -> _Files:
    """Find a test collection spread over subfolders; empty if there are further text files."""
    files = sorted(file for file in path.rglob("*") if not any(part[0] == "." for part in file.relative_to(path).parts))
    names = [file.relative_to(path).as_posix() for file in files]
    nothing = _Files([], [], [])
    if not any(map(_QUERIES.search, names)) or not any(map(_JUDGMENTS.search, names)):
        return nothing
    parts = _classify(path, files)
    others = {file for file in text_files_in(path)[0] if not _README.search(file.name)}
    return parts if parts.queries and others <= set(chain(*parts)) else nothing


def _judgments(files: Sequence[Path], topics: Topics) -> tuple[dict[str, Qrels], tuple[str, ...]]:
    """Read judgments by split; several files must have the split in their names."""
    if len(files) == 1:
        judged, notes = read_judgments(files[0], topics)
        return {ALL: judged}, notes
    parts = [next((part for part, name in _SPLITS.items() if name.search(file.name)), "") for file in files]
    if not all(parts) or len(set(parts)) < len(parts):
        named = ", ".join(file.name for file in files)
        sentence = "Judgments are skipped, because several files may contain them and their names have no split"
        return {}, (f"{sentence}: {named}.",) if files else ()
    read = {part: read_judgments(file, topics) for part, file in zip(parts, files, strict=True)}
    return {part: judged for part, (judged, _) in read.items()}, tuple(
        dict.fromkeys(note for _, notes in read.values() for note in notes)
    )


def _concatenate(parts: Sequence[Collection], name: str) -> list[str]:
    return [text for part in parts for text in part.fields.get(name, [""] * len(part))]
