"""`Roles`: which column of a table is the query id, the label, a weight and so on.

A role is given by the caller, taken over from `like=` (data or a ranker), or inferred from the name of the column.
Inference accepts only a few names, because a wrong query or weight column would silently change every result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

from toprank.data.texts import TextRoles
from toprank.errors import DataError, Remedy, join_parts

Choice = str | Literal[False] | None
"""Column name of a role; False if no column has the role, None if undecided."""


class Role(NamedTuple):
    """Definition of a role that one column can have."""

    field: str
    """Name of the field of `Roles`."""
    description: str
    """Description of the content of the column."""
    inferred_from: tuple[str, ...] = ()
    """Case-insensitive column names from which the role is inferred."""


ROLES = {
    "label": Role("label", "labels", ("label", "relevance", "grade")),
    "qid": Role("query", "query ids", ("qid", "query_id", "search_id", "session_id")),
    "document_id": Role("document_id", "document ids", ("document_id", "docid", "doc_id", "docno", "did")),
    "weight": Role("weight", "document weights"),
    "query_weight": Role("query_weight", "query weights"),
    "position": Role("position", "positions", ("position",)),
    "teacher": Role("teacher", "a teacher's scores, to learn from", ("teacher", "teacher_score")),
}
"""Roles by the keyword of `from_frame`, which is also the name of the command-line option."""
PRODUCT_NAMES = ("product_id", "productid", "item_id", "itemid", "sku", "asin")
"""Further names from which document ids are inferred, if no column has one of the usual names."""
_MAX_NAMES, _MAX_LETTERS = 30, 40


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The columns of a table by their roles.

    Args:
        query: column of query ids; False if all rows belong to one query.
        label: column of labels; False if no document is judged.
        document_id: column of document ids.
        weight: column of document weights.
        query_weight: column of query weights.
        position: column of the positions at which documents were shown.
        teacher: column of another ranker's scores.
        metadata: columns that are kept with the rows but are not features; None if undecided.
        text: columns of text; False if there are none, None if undecided.
        inferred: keywords of the roles that were inferred from column names.

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
        """Return roles without any column, so that every column can be a feature."""
        columns: dict[str, Any] = {role.field: False for role in ROLES.values()}
        return cls(**columns, metadata=(), text=False)

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of `from_frame` that give these roles."""
        columns = {keyword: self.column(keyword) for keyword in ROLES}
        return columns | {"metadata": None if self.metadata is None else list(self.metadata), "text": self.text}

    def column(self, keyword: str) -> Choice:
        """Return the column of the role with this keyword."""
        choice: Choice = getattr(self, ROLES[keyword].field)
        return choice

    @property
    def columns(self) -> dict[str, str]:
        """Columns that have a role, by the keyword of the role."""
        return {keyword: name for keyword in ROLES if isinstance(name := self.column(keyword), str) and name}

    @property
    def names(self) -> tuple[str, ...]:
        """All columns with a role, including metadata and text."""
        text = () if self.words is None else self.words.columns
        return tuple(dict.fromkeys([*self.columns.values(), *(self.metadata or ()), *text]))

    @property
    def words(self) -> TextRoles | None:
        """The text columns, or None."""
        return self.text or None

    @property
    def all_metadata(self) -> tuple[str, ...]:
        """Metadata columns followed by text columns."""
        return tuple(dict.fromkeys([*(self.metadata or ()), *(self.text.columns if self.text else ())]))

    def decided(self, **columns: Choice) -> Self:
        """Return a copy with the columns of some roles, given by keyword, replaced."""
        changes: dict[str, Any] = {ROLES[keyword].field: choice for keyword, choice in columns.items()}
        return replace(self, **changes)

    def only_in(self, names: Iterable[str]) -> Self:
        """Return a copy without the columns that are missing from a table with these column names."""
        there = set(names)
        gone: dict[str, Choice] = {keyword: None for keyword, name in self.columns.items() if name not in there}
        metadata = None if self.metadata is None else tuple(name for name in self.metadata if name in there)
        text = self.text if self.text and set(self.text.columns) <= there else None
        return replace(self.decided(**gone), metadata=metadata or None, text=text)

    def in_words(self) -> tuple[str, ...]:
        """Describe the inferred roles, each with its column.

        >>> Roles(query="qid", label="grade", inferred=("label", "qid")).in_words()
        ("label 'grade'", "query 'qid'")
        """
        return tuple(f"{_called(keyword)} '{self.column(keyword)}'" for keyword in self.inferred)

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serializable description; see `from_plain`."""
        lists = {"metadata": list(self.metadata or ()), "inferred": list(self.inferred)}
        text = {"text": self.text.plain()} if self.text else {}
        return self.columns | {name: values for name, values in lists.items() if values} | text

    @classmethod
    def from_plain(cls, described: Any) -> Self | None:
        """Read the description that `plain` returned; None if there is none. Invalid entries are ignored."""
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
    """Return the name of a role for messages.

    >>> _called("qid"), _called("document_id")
    ('query', 'document id')
    """
    return ROLES[keyword].field.replace("_", " ")


def known_roles(like: Any) -> Roles | None:
    """Return the column roles of data or of a fitted ranker; None if unknown."""
    roles = getattr(like, "roles", None)
    if isinstance(roles, Roles):
        return roles
    training = getattr(like, "training_", None)
    return Roles.from_plain(training.get("columns")) if isinstance(training, Mapping) else None


def infer_roles(given: Roles, names: Sequence[str], *, needed: Iterable[str] = ()) -> Roles:
    """Infer undecided roles from column names.

    A column gets a role only if its name is listed in `ROLES` and no other column has a listed name for this role.
    Weights are never inferred; neither are ambiguous names such as ``query`` or ``group``.

    Args:
        given: the roles so far; None marks undecided roles.
        names: the columns without a role.
        needed: keywords of required roles.

    Returns:
        The roles, all decided; `Roles.inferred` lists those that were inferred.

    Raises:
        DataError: several columns could have a role, or no column has a required role.
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
"""Callback for the roles of each table with inferred roles; commands use it to print them."""


def is_inferable(keyword: str, name: str) -> bool:
    """Return whether the role is inferred from this column name."""
    return name.lower() in ROLES[keyword].inferred_from


def _infer(keyword: str, names: Sequence[str], needed: bool, given: Roles) -> Choice:
    """Return the column from whose name the role is inferred; False if there is none."""
    matches = [name for name in names if is_inferable(keyword, name)]
    if keyword == "document_id" and not matches:
        matches = [name for name in names if name.lower() in PRODUCT_NAMES]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(f"'{name}'" for name in matches)
        raise DataError(
            f"Several columns could be the {keyword}: {listed}.",
            remedy=Remedy(f"Choose one with {{{keyword}}}.", "Rename all but one.", **{keyword: "COLUMN"}),
        )
    if not needed:
        return False
    meaning = "for unjudged documents" if keyword == "label" else "if all rows belong to one query"
    words = given.text.query if keyword == "qid" and given.text else None
    raise DataError(
        f"No column looks like the {keyword}. The columns are: {in_short(names)}. Only a column called "
        f"{_either(ROLES[keyword].inferred_from)} is recognized automatically.",
        remedy=join_parts(
            Remedy(f"Give {{{keyword}}},", f"Call it '{keyword}'.", **{keyword: "COLUMN"}),
            Remedy(f"or {{{keyword}}} {meaning}.", "", **{keyword: False}),
            *(
                []
                if words is None
                else [Remedy("If rows with the same text are one query, give {qid}.", "", qid=words)]
            ),
        ),
    )


def _either(names: Sequence[str]) -> str:
    """Join names with "or".

    >>> _either(("label", "relevance", "grade"))
    "'label', 'relevance' or 'grade'"
    """
    *first, last = (f"'{name}'" for name in names)
    return f"{', '.join(first)} or {last}"


def in_short(names: Sequence[str]) -> str:
    """List column names for a message, with long lists and long names truncated.

    >>> in_short(["query", "x" * 100])
    'query, xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'
    """
    shown = [name if len(name) <= _MAX_LETTERS else f"{name[:_MAX_LETTERS]}…" for name in names[:_MAX_NAMES]]
    return ", ".join(shown) + (f" … and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")
