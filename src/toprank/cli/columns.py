"""The options that say which columns of a table are what, shared by the commands that read data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

__all__ = ["GUESSED", "Columns", "reads_data"]

Columns = dict[str, Any]
"""Which column is what, as keywords of `toprank.read`: those that were given."""
GUESSED: Columns = {}
"""Nothing was given: the columns are told by their names."""


def _column(role: str) -> Any:
    return typer.Option(metavar="COLUMN", help=f"Column of a table that holds {role}; '' for none.", show_default=False)


_OPTIONS = {
    "label": Annotated[str | None, _column("labels")],
    "qid": Annotated[str | None, _column("query ids")],
    "features": Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns of a table that are features, in this order.")
    ],
    "document_id": Annotated[str | None, _column("document ids")],
}


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --label, --qid, --features and --document-id in the place of its parameter `columns`."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        if one.name != "columns":
            parameters.append(one)
            continue
        parameters += [
            inspect.Parameter(name, one.kind, default=None, annotation=option) for name, option in _OPTIONS.items()
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        texts = {name: given.pop(name) for name in _OPTIONS}
        command(**given, columns=_chosen(texts))

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _chosen(texts: dict[str, str | None]) -> Columns:
    """The keywords of `toprank.read`.

    >>> _chosen({"label": "clicks", "qid": "", "features": "bm25, age", "document_id": None})
    {'label': 'clicks', 'qid': False, 'features': ['bm25', 'age']}
    """
    columns: Columns = {name: text or False for name, text in texts.items() if text is not None}
    if texts["features"] is not None:
        names = [name.strip() for name in texts["features"].split(",") if name.strip()]
        if not names:
            raise typer.BadParameter("--features takes names of columns, separated by commas.")
        columns["features"] = names
    return columns
