"""The BEIR layout: a folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/train.tsv``, ``test.tsv`` …."""

from __future__ import annotations

from pathlib import Path

from toprank.data.trec import Qrels
from toprank.errors import DataError, FileError, FormatError
from toprank.search.collections.collection import Collection, SourceSignature, Topics
from toprank.search.collections.folders import json_lines
from toprank.search.collections.judgments import read_judgments
from toprank.search.collections.topics import read_topics

_SUFFIXES = ("", ".gz", ".zst")


def _file(path: Path, name: str) -> Path | None:
    return next((path / f"{name}{suffix}" for suffix in _SUFFIXES if (path / f"{name}{suffix}").is_file()), None)


def is_beir(path: Path) -> bool:
    """Return whether a folder has the BEIR layout."""
    return _file(path, "corpus.jsonl") is not None


def beir(path: Path) -> Collection:
    """Read documents, queries and judgments by split, as far as the files exist."""
    corpus, queries = _file(path, "corpus.jsonl"), _file(path, "queries.jsonl")
    if corpus is None:
        raise FileError(f"{path} contains no corpus.jsonl.")
    documents = json_lines(corpus)
    topics: Topics | None = None if queries is None else read_topics(queries)
    parts: dict[str, Qrels] = {}
    notes: dict[str, None] = {}
    for file in sorted((path / "qrels").glob("*.tsv*")) if topics is not None else ():
        try:
            parts[file.name.split(".")[0]], remarks = read_judgments(file, topics)
            notes |= dict.fromkeys(remarks)
        except FormatError:
            raise
        except DataError as problem:  # judgments of other queries; the documents and the other splits remain usable
            notes[f"The judgments {file.name} are skipped. {problem}"] = None
    fields = {name: texts for name, texts in documents.fields.items() if name != "metadata"}
    signature = SourceSignature.from_files(path, [corpus])
    return Collection(path.resolve().name, documents.ids, fields, topics, parts, (*documents.notes, *notes), signature)
