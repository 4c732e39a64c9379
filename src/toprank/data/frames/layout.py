"""Which column of a table plays which role: label, query id, document id, weight … or feature."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.data.checks import precision, refuse_repeated
from toprank.data.encoding import TRAINING, Column, Encoding, is_text, kind_of, levels_of
from toprank.data.texts import TextRoles
from toprank.errors import DataError, Remedy, UnknownNameError, joined, warn_user

Choice = str | Literal[False] | None

USUAL_NAMES = {
    "label": ("label", "relevance", "grade", "rel", "y", "target"),
    "qid": ("qid", "query_id", "query", "q_id", "group"),
    "document_id": ("document_id", "docid", "doc_id", "docno", "did"),
    "weight": ("weight",),
    "query_weight": ("query_weight",),
    "position": ("position",),
    "teacher": ("teacher", "teacher_score"),
}
FIELDS = {
    "label": "labels",
    "document_id": "document_ids",
    "weight": "document_weights",
    "position": "positions",
    "teacher": "teacher",
}
"""The field of `RankingData` that a column becomes, by its role: those with one value for each document."""
PRODUCT_NAMES = ("product_id", "productid", "item_id", "itemid", "sku", "asin")
"""Names of document ids too, where no column has one of the others."""
MOST_LEVELS = 0.5
"""A column of text with more distinct values than this share of its cells is no category, unless it is asked for.

A level then has fewer than two cells on average: what is learned of one is not seen again.
"""
METADATA_KEY = b"toprank"


@dataclass(frozen=True)
class Layout:
    """Which column plays which role, which columns are features, and the precision of X."""

    roles: dict[str, str]
    features: tuple[str, ...]
    dtype: np.dtype[Any]
    carried: tuple[str, ...] = ()
    ours: bool = False
    """Whether toprank wrote the table: then an empty text is an id, elsewhere it is an empty cell."""
    encoding: Encoding | None = None
    """What the features are, where some are no plain numbers."""
    to_learn: tuple[str, ...] = ()
    """Categories whose levels are not known yet; see `learnt`."""
    may_go: tuple[str, ...] = ()
    """Those of them that are left out where they have too many levels."""
    text: TextRoles | None = None
    """Which of the carried columns hold the words of queries and documents."""

    @property
    def columns(self) -> list[str]:
        """Every column that is used."""
        return list(dict.fromkeys([*self.roles.values(), *self.features, *self.carried]))

    def is_text(self, name: str) -> bool:
        """Whether a column holds words that queries are matched with."""
        return self.text is not None and name in self.text.columns

    def refuse_text(self) -> None:
        """Refuse words on a cluster, where nobody matches them."""
        if self.text is not None:
            raise DataError(
                f"A cluster does not match the words of queries ('{self.text.query}') with those of documents; train "
                "on one machine, or on features that were made of them before."
            )

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features; None where they are the numbers that `to_frame` gives to features without one."""
        return None if self.encoding is None and self.features == numbered(len(self.features)) else self.features


def layout_of(
    schema: Any,
    choices: Mapping[str, Choice],
    features: Sequence[str] | None,
    dtype: npt.DTypeLike | None,
    carry: Sequence[str] | None = None,
    like: Any = None,
    holding: Callable[[str], str] | None = None,
    where: str = TRAINING,
    text: Any = None,
) -> Layout:
    """Decide the roles of the columns of an Arrow schema; see `from_frame` for the rules.

    Args:
        schema: the schema.
        choices: the column of each role.
        features: the columns that are features.
        dtype: the precision.
        carry: the columns that go along.
        like: whose features they are to be; see `known_columns`.
        holding: what a column holds, in the words of the library that it comes from. Default: Arrow's.
        where: what `like` is, in words.
        text: the columns of words; see `TextRoles`. False: there are none.
    """
    names = refuse_repeated(list(schema.names))
    expected, known = known_columns(like)
    if features is None and expected is not None:
        features = expected
    absent = [] if expected is None or features is not expected else [name for name in expected if name not in names]
    if absent:
        (known or Encoding(tuple(Column(name) for name in absent))).check_columns(
            {name: Column(name) for name in names}
        )
    wanted = None if features is None else tuple(str(name) for name in features)
    stored = _remembered(schema)
    remembered = [name for name in (stored.carried if stored else ()) if name in names and name not in (wanted or ())]
    words = _text_roles(text, like, stored, names)
    carried = _carried(carry, [name for name in remembered if name not in choices.values()])
    carried += tuple(name for name in (() if words is None else words.columns) if name not in carried)
    for name in (*(wanted or ()), *carried, *(choice for choice in choices.values() if choice)):
        if name not in names:
            raise UnknownNameError("column", name, names)
    free = [name for name in names if name not in (*(wanted or ()), *carried, *remembered)]
    if words is not None and not any(name.lower() in USUAL_NAMES["qid"] for name in free):
        free.append(words.query)  # one query a text: then it may be called as the queries usually are
    needed = ("qid",) if hasattr(like, "feature_names_in_") else ("label", "qid")  # what a ranker scores has no labels
    guessed = {
        role: _guess(role, free, stored.roles if stored else None, role in needed) if choice is None else choice
        for role, choice in choices.items()
    }
    roles = {role: name for role, name in guessed.items() if name}
    apart = [name for name in carried if words is None or name != words.query or roles.get("qid") != name]
    taken = [*roles.values(), *(wanted or ()), *apart]
    if len(set(taken)) < len(taken):
        twice = next(name for name in taken if taken.count(name) > 1)
        raise DataError(f"Column '{twice}' is asked to play two roles; give each role a column of its own.")
    if holding is not None:
        _check_in_words(schema, roles, carried, holding)
    left_out = {*taken, *remembered, *index_columns(schema)}
    chosen = tuple(name for name in names if name not in left_out) if wanted is None else wanted
    layout = _encoded(schema, chosen, known or (stored and stored.encoding), holding, where)
    features_are_named = wanted is not None
    return replace(
        layout,
        roles=roles,
        carried=carried,
        text=words,
        ours=stored is not None,
        dtype=_precision(schema, chosen, dtype, layout.encoding),
        may_go=() if features_are_named else tuple(name for name in layout.to_learn if not _is_declared(schema, name)),
    )


def _text_roles(text: Any, like: Any, stored: _Remembered | None, names: Sequence[str]) -> TextRoles | None:
    """Which columns hold words: those given, else those of what the table is to be like, else those it remembers."""
    if text is not None:
        return TextRoles.of(text) if text else None
    known = known_text(like)
    if known is not None:
        absent = [name for name in known.columns if name not in names]
        if absent:
            raise DataError(
                f"There is no column {', '.join(repr(name) for name in absent)}, whose words were matched with those "
                "of the query in the training data; the columns are: " + ", ".join(names[:30]) + "."
            )
        return known
    learnt = None if stored is None else stored.text
    return learnt if learnt is not None and set(learnt.columns) <= set(names) else None


def known_text(like: Any) -> TextRoles | None:
    """Which columns hold the words that data carry, or that a ranker matches."""
    roles = getattr(like.text_, "roles", None) if hasattr(like, "text_") else getattr(like, "text", None)
    return roles if isinstance(roles, TextRoles) else None


def unreadable() -> Any:
    """The Arrow type that stands for whatever Arrow cannot hold, in columns of a frame that are not looked at."""
    import pyarrow as pa

    return pa.binary(1)


def _check_in_words(
    schema: Any, roles: Mapping[str, str], carried: Sequence[str], holding: Callable[[str], str]
) -> None:
    """Refuse columns that cannot play their roles, in the words of the library that they come from."""
    for role, name in roles.items():
        expected, fits = role_takes(role, schema.field(name).type)
        if not fits:
            raise DataError(f"Column '{name}' plays the role '{role}' and must hold {expected}, not {holding(name)}.")
    for name in carried:
        if schema.field(name).type == unreadable():
            raise DataError(f"Column '{name}' is to be carried along, but holds {holding(name)}; give it one type.")


def role_takes(role: str, type: Any) -> tuple[str, bool]:
    """Return what a column with this role must hold, in words, and whether one of this Arrow type does."""
    from pyarrow import types

    inside = type.value_type if types.is_dictionary(type) else type
    if role in ("qid", "document_id"):
        return "whole numbers or text", is_number(inside) or is_text(inside)
    return "numbers", is_number(inside)


def _carried(carry: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to carry along: those given, by default those that the table remembers."""
    if carry is None:
        return tuple(known)
    return (carry,) if isinstance(carry, str) else tuple(str(name) for name in carry)


_SHOWN, _LETTERS = 30, 40


def in_short(names: Sequence[str]) -> str:
    """Write names of columns for a sentence: of many the first, of long ones the start.

    >>> in_short(["query", "x" * 100])
    'query, xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'
    """
    shown = [name if len(name) <= _LETTERS else f"{name[:_LETTERS]}…" for name in names[:_SHOWN]]
    return ", ".join(shown) + (f" … and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def known_columns(like: Any) -> tuple[tuple[str, ...] | None, Encoding | None]:
    """Return the names of the features of data, a ranker or an encoding, and their encoding; None if unknown.

    If all features are plain numbers with names, that is an encoding, too.
    """
    if like is None or isinstance(like, Encoding):
        return (None, None) if like is None else (like.names, like)
    if getattr(like, "text_", None) is not None:  # what the words give is made, and not read
        like = like.text_.own
    of_data, of_ranker = getattr(like, "feature_names", None), getattr(like, "feature_names_in_", None)
    names = of_data if of_data is not None else of_ranker
    if names is None:
        return None, None
    encoding = getattr(like, "encoding", None) or getattr(like, "encoding_", None)
    return tuple(names), encoding or Encoding(tuple(Column(str(name)) for name in names))


def _encoded(
    schema: Any, features: Sequence[str], known: Encoding | None, holding: Callable[[str], str] | None, where: str
) -> Layout:
    """The layout of the features alone, each as it is known, or as its type says."""
    holding = holding or (lambda name: str(schema.field(name).type))
    kinds = {name: kind_of(schema.field(name).type) for name in features}
    unusable = [f"'{name}' ({holding(name)})" for name, kind in kinds.items() if kind is None]
    if unusable:
        raise DataError(
            f"{'This column cannot be a feature' if len(unusable) == 1 else 'These columns cannot be features'}: "
            f"{', '.join(unusable)}. "
            "Numbers, truth values, text, categories of text or numbers, dates and durations can. Turn "
            f"{'it' if len(unusable) == 1 else 'each'} into one of these, or leave "
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
    return Layout({}, tuple(features), np.dtype(np.float64), encoding=described, to_learn=to_learn)


def _is_empty(schema: Any, name: str) -> bool:
    from pyarrow import types

    kind = schema.field(name).type
    return bool(types.is_null(kind) or (types.is_dictionary(kind) and types.is_null(kind.value_type)))


def _is_declared(schema: Any, name: str) -> bool:
    """Whether the table itself says that a column is a category."""
    from pyarrow import types

    return bool(types.is_dictionary(schema.field(name).type))


class ColumnsLeftOutWarning(UserWarning):
    """Columns of text have nearly as many values as cells, like titles and ids, and are no features."""


def learnt(layout: Layout, batches: Iterable[Any]) -> Layout:
    """The layout with the levels of its categories; `batches` hold at least the columns `to_learn`.

    Columns with too many levels are left out, with a warning.
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
    gone = left_out({name: (len(levels[name]), cells[name]) for name in layout.may_go})
    columns = tuple(
        Column.learnt(column.name, column.kind, levels[column.name]) if column.name in levels else column
        for column in layout.encoding.columns
        if column.name not in gone
    )
    encoding = Encoding(columns)
    features = tuple(column.name for column in columns)
    return replace(layout, features=features, encoding=None if encoding.is_plain else encoding, to_learn=(), may_go=())


def learning(layout: Layout) -> Layout:
    """The layout for reading only the columns whose levels are to be learned."""
    assert layout.encoding is not None
    columns = tuple(column for column in layout.encoding.columns if column.name in layout.to_learn)
    return Layout({}, layout.to_learn, layout.dtype, encoding=Encoding(columns))


def left_out(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the columns of text that are titles or ids, by their numbers of levels and cells, and warn of them."""
    columns = {
        name: f"'{name}' ({levels:,} values in {cells:,} cells)"
        for name, (levels, cells) in counts.items()
        if levels > MOST_LEVELS * cells
    }
    if not columns:
        return []
    single = len(columns) == 1
    warn_user(
        joined(
            f"{'A column of text is' if single else 'Columns of text are'} left out, since nearly every cell holds "
            f"another value, as in titles and ids: {', '.join(columns.values())}. To have {'it' if single else 'them'} "
            f"as {'a category' if single else 'categories'},",
            Remedy(
                "name the features with {features}; for splits and slices, {carry}; to match its words with those of "
                "the query, {text}.",
                "name the features with {features}; to match its words with those of the query, {document_text} and "
                "{query_text}.",
                "name the features with {features}.",
                features=[...],
                carry=list(columns),
                text={"query": ..., "document": list(columns)},
                query_text=...,
                document_text=list(columns),
            ),
        ),
        ColumnsLeftOutWarning,
    )
    return list(columns)


def _guess(role: str, names: list[str], stored: dict[str, str] | None, needed: bool) -> str | None:
    """The column that plays a role which the caller did not give."""
    if stored is not None and (stored.get(role) in names or role not in ("label", "qid")):
        return stored.get(role) if stored.get(role) in names else None
    matches = [name for name in names if name.lower() in USUAL_NAMES[role]]
    if role == "document_id" and not matches:
        matches = [name for name in names if name.lower() in PRODUCT_NAMES]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(f"'{name}'" for name in matches)
        raise DataError(
            f"Several columns could be the {role}: {listed}.",
            remedy=joined(
                Remedy(f"Say which with {{{role}}}.", "Rename all but one.", **{role: "COLUMN"}),
                *_as_words(role, matches),
            ),
        )
    if not needed:
        return None
    meaning = "for unjudged documents" if role == "label" else "if all rows are one query"
    raise DataError(
        f"No column looks like the {role}. The columns are: {in_short(names)}.",
        remedy=joined(
            Remedy(f"Give {{{role}}},", f"Call it '{role}'.", **{role: "COLUMN"}),
            Remedy(f"or {{{role}}} {meaning}.", "", **{role: False}),
        ),
    )


def _as_words(role: str, matches: list[str]) -> list[str]:
    """What to do if one of several columns of queries holds their words, and not an id."""
    words = next((name for name in matches if role == "qid" and name.lower() == "query"), None)
    if words is None:
        return []
    return [
        Remedy(
            f"If '{words}' holds the words of the query, say so with {{text}}, or it is a feature.",
            f"If '{words}' holds the words of the query, say so with {{query_text}} and {{document_text}}, or it is a "
            "feature.",
            "",
            text={"query": words, "document": ...},
            query_text=words,
            document_text=...,
        )
    ]


class _Remembered(NamedTuple):
    """What toprank wrote into a table's metadata."""

    roles: dict[str, str]
    carried: tuple[str, ...]
    encoding: Encoding | None
    text: TextRoles | None = None


def _remembered(schema: Any) -> _Remembered | None:
    """Return what a table that toprank wrote says of its columns; None for other tables."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return None
    try:
        about = json.loads(text)
        roles = {str(role): str(name) for role, name in about["roles"].items()}
        described = about.get("columns")
        encoding = None if described is None else Encoding.from_plain(described)
        text = None if about.get("text") is None else TextRoles.of(about["text"])
        return _Remembered(roles, tuple(str(name) for name in about.get("carried", ())), encoding, text)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        why = f" ({problem})" if isinstance(problem, DataError) else ""
        raise DataError(
            f"The table's 'toprank' metadata is damaged{why}; remove it or write the table again."
        ) from None


def index_columns(schema: Any) -> set[str]:
    """Columns that were the index of a pandas frame: they may play a role, but are no features unless asked for.

    Arrow tells them in its metadata; where these are lost, as through polars, an index without a name is known by the
    name that Arrow gave it.
    """
    by_name = index_names(schema.names)
    try:
        columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        return by_name | {name for name in columns if isinstance(name, str)}  # a plain range is described, not stored
    except (ValueError, AttributeError, TypeError, RecursionError):  # pandas' metadata are not ours to judge
        return by_name


def index_names(names: Iterable[str]) -> set[str]:
    """Return the names among these that Arrow gives to an index without a name."""
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
    """Whether an Arrow type holds numbers or truth values (or nothing at all)."""
    return kind_of(kind) == "number"


def numbered(width: int) -> tuple[str, ...]:
    """The names of features that have none."""
    return tuple(f"feature_{number}" for number in range(1, width + 1))
