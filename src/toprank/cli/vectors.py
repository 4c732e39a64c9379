"""Files of vectors behind the options of `toprank search`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

QueryVectors = Annotated[
    list[str] | None,
    typer.Option(
        "--query-vectors",
        metavar="[NAME=]FILE",
        help="Vectors of the queries: .npy with one row per query, in order, or .npz with ids and vectors. NAME says "
        "which vectors of documents they go with, where the index has several.",
    ),
]


def vectors_of_documents(given: list[str] | None) -> dict[str, str] | None:
    """Files of vectors by name."""
    pairs = [_named_file(text) for text in given or ()]
    return _by_name([(name or Path(file).stem, file) for name, file in pairs], "--vectors")


def vectors_of_queries(opened: Any, given: list[str] | None) -> dict[str, str] | None:
    """Files of vectors, by the names of those of documents."""
    known = list(opened.vectors)
    if given and not known:
        raise typer.BadParameter("the index holds no vectors of documents; index them with --vectors.")
    pairs = [_named_file(text) for text in given or ()]
    if len(known) > 1 and not all(name for name, _ in pairs):
        raise typer.BadParameter(
            f"the index holds the vectors {' and '.join(known)}; say whose these are: --query-vectors {known[0]}=FILE."
        )
    return _by_name([(name or known[0], file) for name, file in pairs], "--query-vectors")


def _named_file(given: str) -> tuple[str, str]:
    """NAME=FILE; a file that is there may have an equals sign in its own name."""
    name, equals, file = given.partition("=")
    return ("", given) if not equals or Path(given).exists() else (name.strip(), file)


def _by_name(pairs: list[tuple[str, str]], option: str) -> dict[str, str] | None:
    for place, (name, _) in enumerate(pairs):
        if name in [other for other, _ in pairs[:place]]:
            raise typer.BadParameter(f"{option} names '{name}' twice; give each file its own name, as in NAME=FILE.")
    return dict(pairs) or None
