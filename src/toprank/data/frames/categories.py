"""Levels of categories, collected from a table; text columns with too many levels are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from toprank.data.encoding import Column, Encoding, levels_of
from toprank.data.frames.layout import Layout
from toprank.data.roles import Roles
from toprank.errors import Remedy, join_parts, warn_user

MAX_LEVEL_SHARE = 0.5
"""Maximum ratio of distinct values to cells in a text column that is a category by default.

Above this ratio, levels have fewer than two cells on average, so a level rarely recurs in new data.
"""


class ColumnsLeftOutWarning(UserWarning):
    """Text columns with nearly as many distinct values as cells, like titles and ids, are not used as features."""


def learn_levels(layout: Layout, batches: Iterable[Any]) -> Layout:
    """Return the layout with the levels of its categories; `batches` have at least the columns `to_learn`.

    Columns with too many levels are dropped with a warning.
    """
    if layout.encoding is None or not layout.to_learn:
        return layout
    levels: dict[str, set[str]] = {name: set() for name in layout.to_learn}
    cells = dict.fromkeys(layout.to_learn, 0)
    for batch in batches:
        for name in layout.to_learn:
            seen, count = levels_of(batch.column(name))
            levels[name] |= seen
            cells[name] += count
    gone = drop_identifiers({name: (len(levels[name]), cells[name]) for name in layout.may_go})
    columns = tuple(
        Column.from_levels(column.name, column.kind, levels[column.name]) if column.name in levels else column
        for column in layout.encoding.columns
        if column.name not in gone
    )
    encoding = Encoding(columns)
    features = tuple(column.name for column in columns)
    return replace(layout, features=features, encoding=None if encoding.is_plain else encoding, to_learn=(), may_go=())


def layout_to_learn(layout: Layout) -> Layout:
    """Return a layout of only the columns whose levels are still unknown."""
    assert layout.encoding is not None
    columns = tuple(column for column in layout.encoding.columns if column.name in layout.to_learn)
    return Layout(Roles.none(), layout.to_learn, layout.dtype, encoding=Encoding(columns))


def drop_identifiers(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the text columns that are titles or ids, by numbers of levels and cells, and warn about them."""
    columns = {
        name: f"'{name}' ({levels:,} values in {cells:,} cells)"
        for name, (levels, cells) in counts.items()
        if levels > MAX_LEVEL_SHARE * cells
    }
    if not columns:
        return []
    single = len(columns) == 1
    warn_user(
        join_parts(
            f"{'A text column is' if single else 'Text columns are'} left out, because nearly every cell has a "
            f"distinct value, as in titles and ids: {', '.join(columns.values())}. To use {'it' if single else 'them'} "
            f"as {'a category' if single else 'categories'},",
            Remedy(
                "name the features with {features}; for splits and slices, use {metadata}; to match the text with the "
                "query, use {text}.",
                "name the features with {features}; to match the text with the query, use {document_text} and "
                "{query_text}.",
                "name the features with {features}.",
                features=[...],
                metadata=list(columns),
                text={"query": ..., "document": list(columns)},
                query_text=...,
                document_text=list(columns),
            ),
        ),
        ColumnsLeftOutWarning,
    )
    return list(columns)
