"""How a table is read: the keywords that users type, and the one value that readers take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict

import numpy.typing as npt

from toprank.data.roles import Choice, Roles


class TableKeywords(TypedDict, total=False):
    """Keywords of `from_frame` and `read_table`; see `from_frame` for what they mean."""

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
    """How a table is read.

    Attributes:
        roles: roles that the caller decided.
        features: columns that are features. None: all without a role.
        dtype: precision of X. None: what holds every feature exactly.
        like: data or a ranker whose features and roles the columns are to have.
        regroup: whether scattered rows of a query are brought together.
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
    """Refuse keywords that are not `TableKeywords`, as Python does."""
    for name in keywords:
        if name not in TABLE_KEYWORDS:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
