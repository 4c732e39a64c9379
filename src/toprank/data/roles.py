"""Roles of a table's columns: `Roles` is the one value that says which column is the query, the label, a weight …

A role is given by the caller, remembered by what the table is to be like (data or a ranker), or inferred from the
column's name. Inference is narrow on purpose: a wrong query or weight changes every number without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

from toprank.data.texts import TextRoles
from toprank.errors import DataError, Remedy, join_parts

Choice = str | Literal[False] | None
"""The column of a role: its name; False if there is none; None if that is not decided."""


class Role(NamedTuple):
    """A role that one column plays."""

    field: str
    """The field of `Roles`."""
    description: str
    """The content of the column, in words."""
    inferred_from: tuple[str, ...] = ()
    """Names (in any case) of columns that take the role without being asked."""


ROLES = {
    "label": Role("label", "labels", ("label", "relevance", "grade")),
    "qid": Role("query", "query ids", ("qid", "query_id", "search_id", "session_id")),
    "document_id": Role("document_id", "document ids", ("document_id", "docid", "doc_id", "docno", "did")),
    "weight": Role("weight", "document weights"),
    "query_weight": Role("query_weight", "query weights"),
    "position": Role("position", "positions", ("position",)),
    "teacher": Role("teacher", "a teacher's scores, to learn from", ("teacher", "teacher_score")),
}
"""The roles by the keyword of `from_frame`, which is also the option of a command."""
PRODUCT_NAMES = ("product_id", "productid", "item_id", "itemid", "sku", "asin")
"""Names of document ids too, if no column has one of the others."""
_MAX_NAMES, _MAX_LETTERS = 30, 40


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The columns of a table by their roles.

    Args:
        query: column of query ids. False: all rows belong to one query.
        label: column of labels. False: no document is judged.
        document_id: column of document ids.
        weight: column of document weights.
        query_weight: column of query weights.
        position: column of the positions at which documents were shown.
        teacher: column of another ranker's scores.
        metadata: columns kept with the rows but not learned from. None if not decided.
        text: columns of words. False: none; None: not decided.
        inferred: keywords of the roles that were inferred from names of columns.

    >>> Roles.from_keywords({"qid": "search_id", "metadata": ["device"], "dtype": "float32"}).columns
    {'qid': 'search_id'}
    """

    query: Choice = None
    label: Choice = None
    document_id: Choice = None
    weight: Choice = None
    query_weight: Choice = None
    position: Choice = None
    teacher: Choice = None
    metadata: tuple[str, ...] | None = None
    text: TextRoles | Literal[False] | None = None
    inferred: tuple[str, ...] = ()

    @classmethod
    def from_keywords(cls, options: Mapping[str, Any]) -> Self:
        """Build roles from the keywords of `from_frame`; other keywords are ignored."""
        columns: dict[str, Any] = {role.field: options.get(keyword) for keyword, role in ROLES.items()}
        metadata, text = options.get("metadata"), options.get("text")
        if metadata is not None:
            metadata = (metadata,) if isinstance(metadata, str) else tuple(str(name) for name in metadata)
        return cls(**columns, metadata=metadata, text=TextRoles.from_value(text) if text else text)

    @classmethod
    def none(cls) -> Self:
        """Return roles that no column plays: every column may be a feature."""
        columns: dict[str, Any] = {role.field: False for role in ROLES.values()}
        return cls(**columns, metadata=(), text=False)

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of `from_frame` that give these roles."""
        columns = {keyword: self.column(keyword) for keyword in ROLES}
        return columns | {"metadata": None if self.metadata is None else list(self.metadata), "text": self.text}

    def column(self, keyword: str) -> Choice:
        """Return the column of a role, by its keyword."""
        choice: Choice = getattr(self, ROLES[keyword].field)
        return choice

    @property
    def columns(self) -> dict[str, str]:
        """The columns that play a role, by its keyword."""
        return {keyword: name for keyword in ROLES if isinstance(name := self.column(keyword), str) and name}

    @property
    def words(self) -> TextRoles | None:
        """The columns of words, or None."""
        return self.text or None

    @property
    def all_metadata(self) -> tuple[str, ...]:
        """Metadata columns, then columns of words: all that is kept without being a feature or a role."""
        return tuple(dict.fromkeys([*(self.metadata or ()), *(self.text.columns if self.text else ())]))

    def decided(self, **columns: Choice) -> Self:
        """Return the roles with some replaced, by their keywords."""
        changes: dict[str, Any] = {ROLES[keyword].field: choice for keyword, choice in columns.items()}
        return replace(self, **changes)

    def only_in(self, names: Iterable[str]) -> Self:
        """Return the roles without columns that a table with these names does not have."""
        there = set(names)
        gone: dict[str, Choice] = {keyword: None for keyword, name in self.columns.items() if name not in there}
        metadata = None if self.metadata is None else tuple(name for name in self.metadata if name in there)
        text = self.text if self.text and set(self.text.columns) <= there else None
        return replace(self.decided(**gone), metadata=metadata or None, text=text)

    def in_words(self) -> tuple[str, ...]:
        """Return each role that was inferred, with its column.

        >>> Roles(query="qid", label="grade", inferred=("label", "qid")).in_words()
        ("label 'grade'", "query 'qid'")
        """
        return tuple(f"{_called(keyword)} '{self.column(keyword)}'" for keyword in self.inferred)

    def plain(self) -> dict[str, Any]:
        """Return the roles as JSON can hold them; see `from_plain`."""
        lists = {"metadata": list(self.metadata or ()), "inferred": list(self.inferred)}
        text = {"text": self.text.plain()} if self.text else {}
        return self.columns | {name: values for name, values in lists.items() if values} | text

    @classmethod
    def from_plain(cls, described: Any) -> Self | None:
        """Return the roles that a file remembers; None if it remembers none. Entries that make no sense are ignored."""
        if not isinstance(described, Mapping):
            return None
        columns: dict[str, Any] = {
            role.field: described[keyword] for keyword, role in ROLES.items() if _is_name(described.get(keyword))
        }
        metadata, inferred = (
            tuple(name for name in names if _is_name(name)) if isinstance(names, list) else ()
            for names in (described.get("metadata"), described.get("inferred"))
        )
        try:
            text = None if described.get("text") is None else TextRoles.from_value(described["text"])
        except DataError:
            text = None
        known = tuple(keyword for keyword in inferred if keyword in ROLES and ROLES[keyword].field in columns)
        return cls(**columns, metadata=metadata or None, text=text, inferred=known)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _called(keyword: str) -> str:
    """Return a role in words.

    >>> _called("qid"), _called("document_id")
    ('query', 'document id')
    """
    return ROLES[keyword].field.replace("_", " ")


def known_roles(like: Any) -> Roles | None:
    """Return the roles of the columns that data were read by, or that a fitted ranker remembers; None if unknown."""
    roles = getattr(like, "roles", None)
    if isinstance(roles, Roles):
        return roles
    training = getattr(like, "training_", None)
    return Roles.from_plain(training.get("columns")) if isinstance(training, Mapping) else None


def infer_roles(given: Roles, names: Sequence[str], *, needed: Iterable[str] = ()) -> Roles:
    """Decide the roles that are not decided yet, by the names of columns.

    Only a name listed in `ROLES` is taken, and only if no other column has one, too. Weights are never inferred, nor is
    a column such as ``query`` or ``group``, which may hold words or anything else.

    Args:
        given: the roles that are decided, and those that are not (None).
        names: the columns that are free to play one.
        needed: keywords of roles that must be found.

    Returns:
        all roles, decided; `Roles.inferred` lists those that were found by a name.

    Raises:
        DataError: several columns could play a role, or none could play one that is needed.
    """
    undecided = [keyword for keyword in ROLES if given.column(keyword) is None]
    found = {keyword: _infer(keyword, names, keyword in needed, given) for keyword in undecided}
    new = tuple(keyword for keyword, name in found.items() if name)
    roles = replace(given.decided(**found), inferred=(*given.inferred, *new))
    if new and (listener := INFERENCE_LISTENER.get()) is not None:
        listener(roles)
    return roles


Listener = Callable[[Roles], None]
INFERENCE_LISTENER: ContextVar[Listener | None] = ContextVar("called with the roles of a table", default=None)
"""A function that is called with the roles of each table in which some were inferred; commands print them."""


def is_inferable(keyword: str, name: str) -> bool:
    """Return whether a column of this name takes a role without being asked."""
    return name.lower() in ROLES[keyword].inferred_from


def _infer(keyword: str, names: Sequence[str], needed: bool, given: Roles) -> Choice:
    """Return the column whose name gives it the role; False if there is none."""
    matches = [name for name in names if is_inferable(keyword, name)]
    if keyword == "document_id" and not matches:
        matches = [name for name in names if name.lower() in PRODUCT_NAMES]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(f"'{name}'" for name in matches)
        raise DataError(
            f"Several columns could be the {keyword}: {listed}.",
            remedy=Remedy(f"Say which with {{{keyword}}}.", "Rename all but one.", **{keyword: "COLUMN"}),
        )
    if not needed:
        return False
    meaning = "for unjudged documents" if keyword == "label" else "if all rows are one query"
    words = given.text.query if keyword == "qid" and given.text else None
    raise DataError(
        f"No column looks like the {keyword}. The columns are: {in_short(names)}. Only one called "
        f"{_either(ROLES[keyword].inferred_from)} is taken without being asked.",
        remedy=join_parts(
            Remedy(f"Give {{{keyword}}},", f"Call it '{keyword}'.", **{keyword: "COLUMN"}),
            Remedy(f"or {{{keyword}}} {meaning}.", "", **{keyword: False}),
            *([] if words is None else [Remedy("If rows with equal words are one query, give {qid}.", "", qid=words)]),
        ),
    )


def _either(names: Sequence[str]) -> str:
    """Return names as alternatives.

    >>> _either(("label", "relevance", "grade"))
    "'label', 'relevance' or 'grade'"
    """
    *first, last = (f"'{name}'" for name in names)
    return f"{', '.join(first)} or {last}"


def in_short(names: Sequence[str]) -> str:
    """Write names of columns for a sentence: of many the first, of long ones the start.

    >>> in_short(["query", "x" * 100])
    'query, xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'
    """
    shown = [name if len(name) <= _MAX_LETTERS else f"{name[:_MAX_LETTERS]}…" for name in names[:_MAX_NAMES]]
    return ", ".join(shown) + (f" … and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")
