"""`Record`: base class of results; their JSON form and data frame are derived from their fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from toprank.display.tables import DisplayMixin, Kind, frame_of


class JsonObject:
    """Dataclass whose JSON form has an entry for every public field and for selected properties.

    Subclasses can change the defaults:

    - `json_names`: field → JSON key, if they differ.
    - `json_fields`: fields to include. Default: all public fields.
    - `json_hidden`: fields to exclude, such as fitted rankers and per-query values.
    - `json_properties`: properties to include; ``"snippet.text"`` refers to an attribute of an attribute.
    """

    json_names: ClassVar[Mapping[str, str]] = {}
    json_fields: ClassVar[tuple[str, ...] | None] = None
    json_hidden: ClassVar[frozenset[str]] = frozenset()
    json_properties: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON; non-finite numbers become None."""
        public = [field.name for field in fields(self) if not field.name.startswith("_")]  # type: ignore[arg-type]
        names = [*(public if self.json_fields is None else self.json_fields), *self.json_properties]
        return {
            self.json_names.get(name, name): self._json_value(attrgetter(name)(self))
            for name in names
            if name not in self.json_hidden
        }

    def _json_value(self, value: Any) -> Any:
        """Return the JSON form of a value."""
        return to_json(value)


class Record(JsonObject, DisplayMixin):
    """Frozen dataclass that holds a result.

    `to_dict` is derived from the fields, see `JsonObject`, and includes the summary. `to_frame` has the columns of
    `_columns`. The display in terminals and notebooks is defined by `_parts`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, repr=False)
    ... class Gain(Record):
    ...     metric: str
    ...     value: float
    ...     per_query: np.ndarray
    ...     json_hidden = frozenset({"per_query"})
    ...     def _parts(self):
    ...         return [f"{self.metric} gains {self.value:+.2f}."]
    >>> Gain("ndcg@10", float("nan"), np.zeros(9)).to_dict()
    {'metric': 'ndcg@10', 'value': None, 'summary': 'ndcg@10 gains +nan.'}
    """

    json_properties: ClassVar[tuple[str, ...]] = ("summary",)

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """Return the rows of the result as a frame of pandas or polars, or an Arrow table."""
        return frame_of(self._columns(), kind)

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        """Return the columns of the frame."""
        raise TypeError(f"{type(self).__name__} has no rows, so it cannot be converted to a frame.")


def columns_of(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return rows as columns: one attribute (or entry, for mappings) of every row per column.

    >>> columns_of([{"rank": 1}, {"rank": 2}], ["rank"])
    {'rank': [1, 2]}
    """
    return {name: [row[name] if isinstance(row, Mapping) else attrgetter(name)(row) for row in rows] for name in names}


def to_json(value: Any, describe: Callable[[Any], Any] | None = None) -> Any:
    """Convert a value to plain values for JSON.

    Arrays and tuples become lists, named tuples and dataclasses become objects, keys become strings, and non-finite
    numbers become None. Objects with a `to_dict` method are converted by it.

    Args:
        value: the value.
        describe: function for values other than numbers, strings, lists and mappings, in place of the rules above.

    Raises:
        TypeError: if the value cannot be converted.

    >>> to_json({"l2": np.float64(0.5), 3: (1, math.inf), "names": np.array(["a"])})
    {'l2': 0.5, '3': [1, None], 'names': ['a']}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    if describe is not None and not isinstance(value, Mapping | list | tuple):
        return describe(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item, describe) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item, describe) for item in value]
    if isinstance(value, frozenset | set):
        return sorted(to_json(item) for item in value)
    raise TypeError(f"A {type(value).__name__} cannot be converted to JSON.")
