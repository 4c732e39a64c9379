"""The documentation of the running Python, a test collection that is available in every installation.

A document is the docstring of a module, class, function or method of the standard library, read from source with `ast`
without importing it. Its title is the qualified name.

Queries are known-item queries: the summary sentence of a docstring is removed from its document and used as query. The
document itself has grade 2, other documents of its module have grade 1.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toprank.data.trec import Qrels
from toprank.errors import DataError
from toprank.search.collections.collection import ALL, Collection, Topics, qrels_of_rows, whole_text

PYTHON_DOCS = "python-docs"
"""Name of the collection as a source."""
_N_QUERIES = 300
_TARGET, _SAME_MODULE = 2.0, 1.0
_MIN_QUERY_WORDS, _MAX_QUERY_WORDS = 5, 30
_MIN_DOCUMENT_WORDS = 10  # after removal of the query sentence
_SKIPPED_FOLDERS = frozenset({
    "site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test", "__pycache__", "lib2to3", "lib-dynload",
    "turtledemo", "ensurepip", "pydoc_data", "encodings",
})  # fmt: skip
_SENTENCE = re.compile(r"\s*(.+?[.!?])(?:\s|$)", re.DOTALL)
_WORD = re.compile(r"[^\W_]+")


class _Entry(NamedTuple):
    name: str
    module: str
    text: str


def python_docs(queries: int = _N_QUERIES, seed: int = 0, root: Path | None = None) -> Collection:
    """Read the docstrings of the standard library and create known-item queries.

    Args:
        queries: number of queries. Default: 300.
        seed: random seed for the selection of queries. Default: 0.
        root: folder of Python sources. Default: the standard library.
    """
    where = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    entries = list(_entries(where))
    if not entries:
        raise DataError(f"No Python source below {where} has a docstring. Pass another folder.")
    selected = _select_queries(entries, queries, seed)
    texts = [
        _remove_sentence(entry.text, selected[place]) if place in selected else entry.text
        for place, entry in enumerate(entries)
    ]
    topics, judged = None, {}
    if selected:
        topics = Topics(tuple(f"q{place}" for place in selected), tuple(_to_query(text) for text in selected.values()))
        judged = {ALL: _judgments(entries, selected)}
    notes = (
        f"Known-item queries: {len(selected):,} summary sentences, removed from their documents. Grade 2 marks the "
        "source document, grade 1 other documents of its module.",
    )
    ids = [entry.name for entry in entries]
    name = f"Python {platform.python_version()}" if root is None else where.name
    return Collection(name, ids, {"title": ids, "body": texts}, topics, judged, notes if selected else ())


def _entries(root: Path) -> Iterator[_Entry]:
    """Yield all docstrings in file and line order; of duplicate names only the first."""
    seen: set[str] = set()
    for path in _sources(root):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escape sequences in source files
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue  # some templates and samples are not valid Python
        for name, node in _documented(tree, module):
            text = node.body[0].value.value.strip()  # type: ignore[attr-defined]
            if text and name not in seen:
                seen.add(name)
                yield _Entry(name, module, whole_text(inspect.cleandoc(text)))


def _sources(root: Path) -> list[Path]:
    paths = (path for path in root.rglob("*.py") if path.is_file())
    parts = ((path, path.relative_to(root).parts) for path in paths)
    return sorted(
        path for path, of in parts if not _SKIPPED_FOLDERS & set(of) and not any("-" in folder for folder in of[:-1])
    )


def _documented(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield modules, public classes and public functions with docstrings, with their qualified names."""
    body: Sequence[ast.stmt] = getattr(node, "body", ())
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        yield name, node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return  # nested functions are not documentation
    for inner in body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
            yield from _documented(inner, f"{name}.{inner.name}")


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def summary_of(text: str) -> str | None:
    """Return the first sentence of a docstring verbatim."""
    match = _SENTENCE.match(text.split("\n\n")[0])
    return match[1] if match else None


def _select_queries(entries: Sequence[_Entry], queries: int, seed: int) -> dict[int, str]:
    """Select the summary sentences to use as queries; return them by the index of their entry.

    A sentence must be unique, since other documents could match it otherwise, and its document must contain further
    words.
    """
    summaries = [summary_of(entry.text) for entry in entries]
    often = Counter(_words(sentence) for entry in entries for sentence in re.split(r"(?<=[.!?])\s+|\n\n", entry.text))
    fits: list[tuple[bytes, int]] = []
    for place, (entry, summary) in enumerate(zip(entries, summaries, strict=True)):
        if summary is None or ">>>" in summary:
            continue
        words = _words(summary)
        length, left = words.count(" ") + 1, len(_WORD.findall(_remove_sentence(entry.text, summary)))
        if _MIN_QUERY_WORDS <= length <= _MAX_QUERY_WORDS and left >= _MIN_DOCUMENT_WORDS and often[words] == 1:
            chance = hashlib.blake2b(f"{seed}\0{entry.name}".encode(), digest_size=8).digest()
            fits.append((chance, place))
    return {place: str(summaries[place]) for _, place in sorted(sorted(fits)[:queries], key=lambda pair: pair[1])}


def _remove_sentence(text: str, sentence: str) -> str:
    """Remove all occurrences of a sentence from a text, ignoring case and spacing."""
    words = [re.escape(word) for word in sentence.split()]
    return re.sub(r"\s+".join(words), " ", text, flags=re.IGNORECASE).strip()


def _to_query(sentence: str) -> str:
    """Turn a sentence into a query: one line without reStructuredText markup."""
    return " ".join(sentence.replace("`", "").replace("*", "").split())


def _judgments(entries: Sequence[_Entry], selected: dict[int, str]) -> Qrels:
    of_module: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        of_module.setdefault(entry.module, []).append(place)
    rows = [
        (f"q{place}", entries[other].name, _TARGET if other == place else _SAME_MODULE)
        for place in selected
        for other in of_module[entries[place].module]
    ]
    return qrels_of_rows(rows)
