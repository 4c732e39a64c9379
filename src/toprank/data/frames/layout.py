"""Which column of a table plays which role: label, query id, document id, weight … or feature."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from toprank.data.checks import precision
from toprank.errors import DataError, Remedy, UnknownNameError

Choice = str | Literal[False] | None

USUAL_NAMES = {
    "label": ("label", "relevance", "grade", "rel", "y", "target"),
    "qid": ("qid", "query_id", "query", "q_id", "group"),
    "document_id": ("document_id", "docid", "doc_id", "docno", "did"),
    "weight": ("weight",),
    "query_weight": ("query_weight",),
    "position": ("position",),
}
METADATA_KEY = b"toprank"


@dataclass(frozen=True)
class Layout:
    """Which column plays which role, which columns are features, and the precision of X."""

    roles: dict[str, str]
    features: tuple[str, ...]
    dtype: np.dtype[Any]

    @property
    def columns(self) -> list[str]:
        """Every column that is used."""
        return [*self.roles.values(), *self.features]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features; None where they are the numbers that `to_frame` gives to features without one."""
        return None if self.features == numbered(len(self.features)) else self.features


def layout_of(
    schema: Any, given: dict[str, Choice], features: Sequence[str] | None, dtype: npt.DTypeLike | None
) -> Layout:
    """Decide the roles of the columns of an Arrow schema; see `from_frame` for the rules."""
    names = refuse_repeated(list(schema.names))
    wanted = None if features is None else tuple(str(name) for name in features)
    for name in (*(wanted or ()), *(choice for choice in given.values() if choice)):
        if name not in names:
            raise UnknownNameError("column", name, names)
    free = [name for name in names if name not in (wanted or ())]
    stored = _stored_roles(schema)
    guessed = {role: _guess(role, free, stored) if choice is None else choice for role, choice in given.items()}
    roles = {role: name for role, name in guessed.items() if name}
    taken = list(roles.values()) + list(wanted or ())
    if len(set(taken)) < len(taken):
        twice = next(name for name in taken if taken.count(name) > 1)
        raise DataError(f"Column '{twice}' is asked to play two roles; give each role a column of its own.")
    left_out = {*taken, *index_columns(schema)}
    chosen = tuple(name for name in names if name not in left_out) if wanted is None else wanted
    return Layout(roles, chosen, _precision(schema, chosen, dtype))


def refuse_repeated(names: list[str]) -> list[str]:
    """The names, which must differ."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Two columns are called '{twice}'; rename one of them.")
    return names


def _guess(role: str, names: list[str], stored: dict[str, str] | None) -> str | None:
    """The column that plays a role which the caller did not give."""
    if stored is not None and (stored.get(role) in names or role not in ("label", "qid")):
        return stored.get(role) if stored.get(role) in names else None
    found = [name for name in names if name.lower() in USUAL_NAMES[role]]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"'{name}'" for name in found)
        raise DataError(
            f"Several columns could be the {role}: {listed}. Say which with",
            remedy=Remedy(f"{role}='...'.", f"--{role.replace('_', '-')} COLUMN."),
        )
    if role not in ("label", "qid"):
        return None
    meaning = "for unjudged documents" if role == "label" else "if all rows are one query"
    shown = ", ".join(names[:30]) + (f" … and {len(names) - 30} more" if len(names) > 30 else "")
    raise DataError(
        f"No column looks like the {role}. The columns are: {shown}. Give",
        remedy=Remedy(f"{role}='...', or {role}=False {meaning}.", f"--{role} COLUMN, or --{role} '' {meaning}."),
    )


def _stored_roles(schema: Any) -> dict[str, str] | None:
    """The roles that toprank wrote into a table's metadata; None for a table from elsewhere."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return None
    try:
        roles = json.loads(text)["roles"]
        return {str(role): str(name) for role, name in roles.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError("The table's 'toprank' metadata is damaged; remove it or write the table again.") from None


def index_columns(schema: Any) -> set[str]:
    """Columns that were the index of a pandas frame: they may play a role, but are no features unless asked for."""
    try:
        found = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return {name for name in found if isinstance(name, str)}  # a plain range is described, not stored
    except (ValueError, AttributeError, TypeError, RecursionError):  # pandas' metadata are not ours to judge
        return set()


def _precision(schema: Any, features: Sequence[str], dtype: npt.DTypeLike | None) -> np.dtype[Any]:
    """The dtype of X, once every feature column is known to hold numbers."""
    import pyarrow as pa

    small = {pa.float16(), pa.float32(), pa.bool_(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.null()}
    kinds = {name: schema.field(name).type for name in features}
    for name, kind in kinds.items():
        if not is_number(kind):
            remedy = Remedy("features=[...], or encode it as numbers.", "--features A,B,..., or encode it as numbers.")
            raise DataError(f"Column '{name}' holds {kind}, not numbers. Leave it out with", remedy=remedy)
    if dtype is not None:
        return precision(dtype)
    fits = bool(kinds) and all(kind in small for kind in kinds.values())
    return np.dtype(np.float32 if fits else np.float64)


def is_number(kind: Any) -> bool:
    """Whether an Arrow type holds numbers or truth values (or nothing at all)."""
    from pyarrow import types

    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(is_one(kind) for is_one in numeric)


def numbered(width: int) -> tuple[str, ...]:
    """The names of features that have none."""
    return tuple(f"feature_{number}" for number in range(1, width + 1))
