"""Options for reading tables: the keywords of users, and the value for readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict

import numpy.typing as npt

from toprank.data.roles import Choice, Roles


class TableKeywords(TypedDict, total=False):
    """Keywords of `from_frame` and `read_table`; documented in `from_frame`."""

    label: Choice
    qid: Choice
    features: Sequence[str] | None
    document_id: Choice
    weight: Choice
    query_weight: Choice
    position: Choice
    teacher: Choice
    dtype: npt.DTypeLike | None
    metadata: Sequence[str] | None
    text: Any
    regroup: bool | None
    like: Any


TABLE_KEYWORDS = tuple(TableKeywords.__annotations__)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options for reading a table.

    Attributes:
        roles: roles given by the caller.
        features: feature columns; None for all columns without a role.
        dtype: dtype of X; None for one that is exact for all features.
        like: data or a ranker whose features and roles to use.
        regroup: whether to group scattered rows of a query; None for the default of the reader.
    """

    roles: Roles = field(default_factory=Roles)
    features: Sequence[str] | None = None
    dtype: npt.DTypeLike | None = None
    like: Any = None
    regroup: bool | None = None

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Build options from `TableKeywords`; other keywords are ignored."""
        own = {name: keywords.get(name) for name in ("features", "dtype", "like", "regroup")}
        return cls(roles=Roles.from_keywords(keywords), **own)


def check_keywords(function: str, keywords: Mapping[str, Any]) -> None:
    """Raise a TypeError for keywords that are not in `TableKeywords`."""
    for name in keywords:
        if name not in TABLE_KEYWORDS:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
