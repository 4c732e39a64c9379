"""The documentation of the Python that runs: a collection that every installation has, with queries and judgments.

A document is the docstring of a module, class, function or method of the standard library, read from the source by
`ast`: nothing is imported. Its title is the qualified name.

Queries are known items: the summary sentence of a docstring is taken out of its document, before anything is learned
from the documents, and asked for. The document itself has grade 2, the others of its module have grade 1.
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
"""What the collection is called, as a source."""
_QUERIES = 300
_TARGET, _SAME_MODULE = 2.0, 1.0
_SHORTEST, _LONGEST = 5, 30  # words of a sentence that is asked for
_LEFT = 10  # words that a document keeps at least
_ELSEWHERE = frozenset({
    "site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test", "__pycache__", "lib2to3", "lib-dynload",
    "turtledemo", "ensurepip", "pydoc_data", "encodings",
})  # fmt: skip
_SENTENCE = re.compile(r"\s*(.+?[.!?])(?:\s|$)", re.DOTALL)
_WORD = re.compile(r"[^\W_]+")


class _Entry(NamedTuple):
    name: str
    module: str
    text: str


def python_docs(queries: int = _QUERIES, seed: int = 0, root: Path | None = None) -> Collection:
    """The docstrings of the standard library, and known-item queries about them.

    Args:
        queries: how many summary sentences to take out and ask for.
        seed: decides which.
        root: another folder of Python sources.
    """
    where = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    entries = list(_entries(where))
    if not entries:
        raise DataError(f"There is no documentation of Python in {where}: no source below it has a docstring.")
    asked = _held_out(entries, queries, seed)
    texts = [
        _without(entry.text, asked[place]) if place in asked else entry.text for place, entry in enumerate(entries)
    ]
    topics, judged = None, {}
    if asked:
        topics = Topics(tuple(f"q{place}" for place in asked), tuple(_asked_as(text) for text in asked.values()))
        judged = {ALL: _judgments(entries, asked)}
    notes = (
        f"Known-item queries: {len(asked):,} summary sentences, removed from their documents. Grade 2 is the document "
        "that lost the sentence, grade 1 any other of its module.",
    )
    ids = [entry.name for entry in entries]
    name = f"Python {platform.python_version()}" if root is None else where.name
    return Collection(name, ids, {"title": ids, "body": texts}, topics, judged, notes if asked else ())


def _entries(root: Path) -> Iterator[_Entry]:
    """Every docstring, in the order of files and lines; of two things of one name the first."""
    seen: set[str] = set()
    for path in _sources(root):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # odd escapes in the sources of others
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue  # templates and samples of tools are not all Python
        for name, node in _documented(tree, module):
            text = node.body[0].value.value.strip()  # type: ignore[attr-defined]
            if text and name not in seen:
                seen.add(name)
                yield _Entry(name, module, whole_text(inspect.cleandoc(text)))


def _sources(root: Path) -> list[Path]:
    paths = (path for path in root.rglob("*.py") if path.is_file())
    parts = ((path, path.relative_to(root).parts) for path in paths)
    return sorted(
        path for path, of in parts if not _ELSEWHERE & set(of) and not any("-" in folder for folder in of[:-1])
    )


def _documented(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """What has a docstring, with its qualified name: modules, and public classes and functions in them."""
    body: Sequence[ast.stmt] = getattr(node, "body", ())
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        yield name, node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return  # functions inside of functions are nobody's documentation
    for inner in body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
            yield from _documented(inner, f"{name}.{inner.name}")


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def summary_of(text: str) -> str | None:
    """The first sentence of a docstring, as it stands there."""
    match = _SENTENCE.match(text.split("\n\n")[0])
    return match[1] if match else None


def _held_out(entries: Sequence[_Entry], queries: int, seed: int) -> dict[int, str]:
    """The places of the entries that are asked for, and their sentences.

    A sentence that several documents have would be found in the others; one that is all its document says leaves
    nothing to find.
    """
    summaries = [summary_of(entry.text) for entry in entries]
    often = Counter(_words(sentence) for entry in entries for sentence in re.split(r"(?<=[.!?])\s+|\n\n", entry.text))
    fits: list[tuple[bytes, int]] = []
    for place, (entry, summary) in enumerate(zip(entries, summaries, strict=True)):
        if summary is None or ">>>" in summary:
            continue
        words = _words(summary)
        length, left = words.count(" ") + 1, len(_WORD.findall(_without(entry.text, summary)))
        if _SHORTEST <= length <= _LONGEST and left >= _LEFT and often[words] == 1:
            chance = hashlib.blake2b(f"{seed}\0{entry.name}".encode(), digest_size=8).digest()
            fits.append((chance, place))
    return {place: str(summaries[place]) for _, place in sorted(sorted(fits)[:queries], key=lambda pair: pair[1])}


def _without(text: str, sentence: str) -> str:
    """The text without the sentence, wherever it stands in it, however its words are spaced and spelled."""
    words = [re.escape(word) for word in sentence.split()]
    return re.sub(r"\s+".join(words), " ", text, flags=re.IGNORECASE).strip()


def _asked_as(sentence: str) -> str:
    """The sentence as somebody would type it: on one line, without marks of reStructuredText."""
    return " ".join(sentence.replace("`", "").replace("*", "").split())


def _judgments(entries: Sequence[_Entry], asked: dict[int, str]) -> Qrels:
    of_module: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        of_module.setdefault(entry.module, []).append(place)
    rows = [
        (f"q{place}", entries[other].name, _TARGET if other == place else _SAME_MODULE)
        for place in asked
        for other in of_module[entries[place].module]
    ]
    return qrels_of_rows(rows)
