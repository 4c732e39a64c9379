"""Vector file options of `toprank search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

QueryVectors = Annotated[
    list[str] | None,
    typer.Option(
        "--query-vectors",
        metavar="[NAME=]FILE",
        help="Query vectors: .npy with one row per query in order, or .npz with ids and vectors. NAME is the name of "
        "the document vectors, needed if the index has several.",
    ),
]


def vectors_of_documents(given: list[str] | None) -> dict[str, str] | None:
    """Return document vector files by name."""
    pairs = [_named_file(text) for text in given or ()]
    return _by_name([(name or Path(file).stem, file) for name, file in pairs], "--vectors")


def vectors_of_queries(opened: Any, given: list[str] | None) -> dict[str, str] | None:
    """Return query vector files by the name of the document vectors."""
    known = list(opened.vectors)
    if given and not known:
        raise typer.BadParameter("The index has no document vectors. Index the collection with --vectors.")
    pairs = [_named_file(text) for text in given or ()]
    if len(known) > 1 and not all(name for name, _ in pairs):
        raise typer.BadParameter(
            f"The index has the vectors {' and '.join(known)}. Name them, as in --query-vectors {known[0]}=FILE."
        )
    return _by_name([(name or known[0], file) for name, file in pairs], "--query-vectors")


def _named_file(given: str) -> tuple[str, str]:
    """Split NAME=FILE, unless the whole text is an existing file."""
    name, equals, file = given.partition("=")
    return ("", given) if not equals or Path(given).exists() else (name.strip(), file)


def _by_name(pairs: list[tuple[str, str]], option: str) -> dict[str, str] | None:
    for place, (name, _) in enumerate(pairs):
        if name in [other for other, _ in pairs[:place]]:
            raise typer.BadParameter(
                f"{option} uses the name '{name}' twice. Give each file a unique name, as in NAME=FILE."
            )
    return dict(pairs) or None
