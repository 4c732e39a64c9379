"""Assignment of roles to table columns: label, query id, document id, weight and so on, or feature."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.data.arrays import precision, refuse_repeated
from toprank.data.encoding import TRAINING, Column, Encoding, is_text, kind_of
from toprank.data.frames.options import TableOptions
from toprank.data.roles import ROLES, Roles, infer_roles, known_roles
from toprank.data.texts import TextRoles
from toprank.errors import DataError, Remedy, UnknownNameError

FIELDS = {
    "label": "labels",
    "document_id": "document_ids",
    "weight": "document_weights",
    "position": "positions",
    "teacher": "teacher",
}
"""Fields of `RankingData` with one value per document, by role."""
METADATA_KEY = b"toprank"


@dataclass(frozen=True)
class Layout:
    """Roles of the columns, feature columns, and precision of X."""

    assigned: Roles
    features: tuple[str, ...]
    dtype: np.dtype[Any]
    ours: bool = False
    """Whether toprank wrote the table; only then is an empty text a valid id instead of a missing value."""
    encoding: Encoding | None = None
    """Encoding of the features, if some are not numbers."""
    to_learn: tuple[str, ...] = ()
    """Categories whose levels are still unknown; see `learn_levels`."""
    may_go: tuple[str, ...] = ()
    """Categories that are dropped if they have too many levels."""

    @property
    def roles(self) -> dict[str, str]:
        """Columns with a role, by keyword."""
        return self.assigned.columns

    @property
    def metadata(self) -> tuple[str, ...]:
        """Metadata and text columns."""
        return self.assigned.all_metadata

    @property
    def text(self) -> TextRoles | None:
        """Text columns of queries and documents."""
        return self.assigned.words

    @property
    def columns(self) -> list[str]:
        """All used columns."""
        return list(dict.fromkeys([*self.roles.values(), *self.features, *self.metadata]))

    def is_text(self, name: str) -> bool:
        """Return whether a column is a text column."""
        return self.text is not None and name in self.text.columns

    def refuse_text(self) -> None:
        """Raise an error for text columns, which a cluster does not support."""
        if self.text is not None:
            raise DataError(
                f"A cluster does not support text columns such as '{self.text.query}'; train on one machine, or "
                "compute the text features beforehand."
            )

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features; None for the default names of `to_frame`."""
        return None if self.encoding is None and self.features == numbered(len(self.features)) else self.features


def layout_of(
    schema: Any, options: TableOptions, holding: Callable[[str], str] | None = None, where: str = TRAINING
) -> Layout:
    """Assign roles to the columns of an Arrow schema; see `from_frame` for the rules.

    Args:
        schema: the schema.
        options: options of the caller.
        holding: function that describes the type of a column as its library does. Default: Arrow's types.
        where: description of `options.like` for messages.
    """
    names = refuse_repeated(list(schema.names))
    given, like = options.roles, options.like
    expected, known = known_columns(like)
    features = expected if options.features is None else options.features
    absent = [] if expected is None or features is not expected else [name for name in expected if name not in names]
    if absent:
        (known or Encoding(tuple(Column(name) for name in absent))).check_columns(
            {name: Column(name) for name in names}
        )
    wanted = None if features is None else tuple(str(name) for name in features)
    stored = _remembered(schema)
    for name in (*(wanted or ()), *given.all_metadata, *given.columns.values()):
        if name not in names:
            raise UnknownNameError("column", name, names)
    assigned = _assigned(given, like, stored, names, wanted or ())
    roles, metadata, words = assigned.columns, assigned.all_metadata, assigned.words
    apart = [name for name in metadata if words is None or name != words.query or roles.get("qid") != name]
    taken = [*roles.values(), *(wanted or ()), *apart]
    if len(set(taken)) < len(taken):
        twice = next(name for name in taken if taken.count(name) > 1)
        raise DataError(f"Column '{twice}' has two roles; give each role its own column.")
    if holding is not None:
        _check_in_words(schema, roles, metadata, holding)
    left_out = {*taken, *(stored.roles.metadata or () if stored else ()), *index_columns(schema)}
    chosen = tuple(name for name in names if name not in left_out) if wanted is None else wanted
    layout = _encoded(schema, chosen, known or (stored and stored.encoding), holding, where)
    features_are_named = wanted is not None
    return replace(
        layout,
        assigned=assigned,
        ours=stored is not None,
        dtype=_precision(schema, chosen, options.dtype, layout.encoding),
        may_go=() if features_are_named else tuple(name for name in layout.to_learn if not _is_declared(schema, name)),
    )


def _assigned(
    given: Roles, like: Any, stored: _Remembered | None, names: Sequence[str], features: Sequence[str]
) -> Roles:
    """Assign the given roles, then those stored in the table or in `like`, then those inferred from names."""
    taken = {*features, *given.columns.values(), *(given.metadata or ())}
    free = [name for name in names if name not in taken]
    own = None if stored is None else stored.roles.only_in(free)
    remembered = (known_roles(like) or Roles()).only_in(free)
    roles = replace(given, text=_text_roles(given, like, own, names))
    if roles.metadata is None:
        of_table = () if own is None else own.metadata or ()
        roles = replace(roles, metadata=of_table or remembered.metadata or ())
    free = [name for name in free if name not in roles.all_metadata and not (own and name in (own.metadata or ()))]
    decided = {} if own is None else {keyword: own.column(keyword) or False for keyword in ROLES}
    if own is not None:  # without stored label and query, treat it like a foreign table
        decided = {keyword: choice for keyword, choice in decided.items() if choice or keyword not in ("label", "qid")}
    for keyword in ROLES:
        column = decided.get(keyword) or remembered.column(keyword)
        fits = isinstance(column, str) and (column in free or (keyword == "qid" and column in roles.all_metadata))
        if roles.column(keyword) is None and (fits or decided.get(keyword) is False):
            roles = roles.decided(**{keyword: column if fits else False})
    free = [name for name in free if name not in roles.columns.values()]
    # Data to be scored by a ranker have no labels.
    return infer_roles(roles, free, needed=("qid",) if hasattr(like, "feature_names_in_") else ("label", "qid"))


def _text_roles(given: Roles, like: Any, own: Roles | None, names: Sequence[str]) -> TextRoles | Literal[False]:
    """Return the text columns that are given, or used by `like`, or stored in the table."""
    if given.text is not None:
        return given.text
    known = known_text(like)
    if known is not None:
        absent = [name for name in known.columns if name not in names]
        if absent:
            raise DataError(
                f"The text column {', '.join(repr(name) for name in absent)} of the training data is missing; the "
                "columns are: " + ", ".join(names[:30]) + "."
            )
        return known
    return (own and own.text) or False


def known_text(like: Any) -> TextRoles | None:
    """Return the text columns of data or of a ranker."""
    roles = getattr(like.text_, "roles", None) if hasattr(like, "text_") else getattr(like, "text", None)
    return roles if isinstance(roles, TextRoles) else None


def unreadable() -> Any:
    """Return the Arrow type that marks unused columns of types without an Arrow equivalent."""
    import pyarrow as pa

    return pa.binary(1)


def _check_in_words(
    schema: Any, roles: Mapping[str, str], metadata: Sequence[str], holding: Callable[[str], str]
) -> None:
    """Raise an error for columns whose types do not fit their roles, with the types as their library names them."""
    for role, name in roles.items():
        expected, fits = role_takes(role, schema.field(name).type)
        if not fits:
            raise DataError(f"Column '{name}' has the role '{role}' and must contain {expected}, not {holding(name)}.")
    for name in metadata:
        if schema.field(name).type == unreadable():
            raise DataError(f"The metadata column '{name}' contains {holding(name)}; convert it to one type.")


def role_takes(role: str, type: Any) -> tuple[str, bool]:
    """Describe the content required for a role, and return whether an Arrow type has it."""
    from pyarrow import types

    inside = type.value_type if types.is_dictionary(type) else type
    if role in ("qid", "document_id"):
        return "whole numbers or text", is_number(inside) or is_text(inside)
    return "numbers", is_number(inside)


def known_columns(like: Any) -> tuple[tuple[str, ...] | None, Encoding | None]:
    """Return the feature names and the encoding of data, a ranker or an encoding; None if unknown.

    Named features that are all numbers have an encoding, too.
    """
    if like is None or isinstance(like, Encoding):
        return (None, None) if like is None else (like.names, like)
    if getattr(like, "text_", None) is not None:  # text features are computed, not read
        like = like.text_.original
    of_data, of_ranker = getattr(like, "feature_names", None), getattr(like, "feature_names_in_", None)
    names = of_data if of_data is not None else of_ranker
    if names is None:
        return None, None
    encoding = getattr(like, "encoding", None) or getattr(like, "encoding_", None)
    return tuple(names), encoding or Encoding(tuple(Column(str(name)) for name in names))


def _encoded(
    schema: Any, features: Sequence[str], known: Encoding | None, holding: Callable[[str], str] | None, where: str
) -> Layout:
    """Return the layout of the features; features without a known encoding get one from their type."""
    holding = holding or (lambda name: str(schema.field(name).type))
    kinds = {name: kind_of(schema.field(name).type) for name in features}
    unusable = [f"'{name}' ({holding(name)})" for name, kind in kinds.items() if kind is None]
    if unusable:
        raise DataError(
            f"{'This column cannot be a feature' if len(unusable) == 1 else 'These columns cannot be features'}: "
            f"{', '.join(unusable)}. "
            "Features are numbers, booleans, text, categories of text or numbers, dates or durations. Convert "
            f"{'it' if len(unusable) == 1 else 'each'}, or leave "
            f"{'it' if len(unusable) == 1 else 'them'} out with",
            remedy=Remedy("{features}.", features=[...]),
        )
    known_here = {} if known is None else {column.name: column for column in known.columns}
    for name, column in known_here.items():
        if name in kinds and _is_empty(schema, name):
            kinds[name] = column.kind
    overlap = Encoding(tuple(known_here[name] for name in features if name in known_here))
    overlap.check_columns({name: Column(name, kind) for name, kind in kinds.items() if kind}, holding, where)
    columns = tuple(known_here.get(name) or Column(name, kind) for name, kind in kinds.items() if kind)
    encoding = Encoding(columns)
    to_learn = tuple(column.name for column in columns if column.is_category and column.name not in known_here)
    described = None if encoding.is_plain else encoding
    return Layout(Roles.none(), tuple(features), np.dtype(np.float64), encoding=described, to_learn=to_learn)


def _is_empty(schema: Any, name: str) -> bool:
    from pyarrow import types

    kind = schema.field(name).type
    return bool(types.is_null(kind) or (types.is_dictionary(kind) and types.is_null(kind.value_type)))


def _is_declared(schema: Any, name: str) -> bool:
    """Return whether a column has a categorical type."""
    from pyarrow import types

    return bool(types.is_dictionary(schema.field(name).type))


class _Remembered(NamedTuple):
    """Roles and encoding that toprank stored in the schema metadata of a table."""

    roles: Roles
    encoding: Encoding | None


def _remembered(schema: Any) -> _Remembered | None:
    """Read the roles and encoding of a table written by toprank; None for other tables."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return None
    try:
        about = json.loads(text)
        roles = {str(role): str(name) for role, name in about["roles"].items()}
        described = about.get("columns")
        encoding = None if described is None else Encoding.from_plain(described)
        text = None if about.get("text") is None else TextRoles.from_value(about["text"])
        words = () if text is None else text.columns
        metadata = tuple(str(name) for name in about.get("carried", ()) if name not in words)
        return _Remembered(replace(Roles.from_keywords(roles), metadata=metadata, text=text), encoding)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        why = f" ({problem})" if isinstance(problem, DataError) else ""
        raise DataError(
            f"The table's 'toprank' metadata is damaged{why}; remove it or write the table again."
        ) from None


def index_columns(schema: Any) -> set[str]:
    """Return the columns that were the index of a pandas frame, which are features only on request.

    Arrow lists them in its schema metadata. If these are lost, for example through polars, an unnamed index is
    recognized by the name that Arrow gave it.
    """
    by_name = index_names(schema.names)
    try:
        columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return by_name | {
            name for name in columns if isinstance(name, str)
        }  # a range index is a description, not a column
    except (ValueError, AttributeError, TypeError, RecursionError):  # ignore damaged metadata of pandas
        return by_name


def index_names(names: Iterable[str]) -> set[str]:
    """Return the names that Arrow gives to an unnamed index."""
    return {name for name in names if re.fullmatch(r"__index_level_\d+__", name)}


def _precision(
    schema: Any, features: Sequence[str], dtype: npt.DTypeLike | None, encoding: Encoding | None
) -> np.dtype[Any]:
    """The dtype of X."""
    import pyarrow as pa

    small = {pa.float16(), pa.float32(), pa.bool_(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.null()}
    if dtype is not None:
        return precision(dtype)
    coded = () if encoding is None else [encoding.names[place] for place in encoding.categories]
    fits = bool(features) and all(schema.field(name).type in small for name in features if name not in coded)
    fits = fits and (encoding is None or encoding.fits_single)
    return np.dtype(np.float32 if fits else np.float64)


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is numeric, boolean or null."""
    return kind_of(kind) == "number"


def numbered(width: int) -> tuple[str, ...]:
    """The names of features that have none."""
    return tuple(f"feature_{number}" for number in range(1, width + 1))
