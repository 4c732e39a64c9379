"""Text features of tables: computed from text columns and appended to the numeric columns of ranking data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from toprank.compute import offsets_of
from toprank.data.dataset import RankingData
from toprank.data.encoding import Column, Encoding, listed
from toprank.data.frames.layout import numbered
from toprank.data.texts import TextRoles
from toprank.errors import DataError
from toprank.text.documents import EncodedDocuments
from toprank.text.features import MatchFeatures
from toprank.text.statistics import Statistics
from toprank.text.words import Analyzer


class OriginalColumns(NamedTuple):
    """Names and encoding of the columns of the data before text features are appended."""

    feature_names: tuple[str, ...] | None
    encoding: Encoding | None


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Text statistics of the training documents, and the matching features computed from them."""

    roles: TextRoles
    original: OriginalColumns
    n_original: int
    match: MatchFeatures

    @classmethod
    def fit(cls, data: RankingData) -> tuple[Self, RankingData]:
        """Fit statistics on the document texts; return the features, and the data with the feature columns."""
        assert data.text is not None
        _refuse_several_texts(data, data.text)
        distinct, rows = _distinct(_texts_of(data, data.text))
        known, encoded = Statistics.fit_and_encode(distinct, Analyzer(data.text.language))
        made = cls(data.text, OriginalColumns(data.feature_names, data.encoding), data.n_features, MatchFeatures(known))
        return made, made._append(data, made._columns(_document_column(data, data.text.query), encoded, rows))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the text features. A name that the data already have gets the suffix `` (text)``."""
        taken = set(self.original.feature_names or ())
        made = []
        for name in self.match.names:
            while name in taken:
                name = f"{name} (text)"
            made.append(name)
        return tuple(made)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all input columns of a ranker: the original columns, then the text features."""
        return (*(self.original.feature_names or numbered(self.n_original)), *self.names)

    @property
    def encoding(self) -> Encoding | None:
        """Encoding of all columns, or None."""
        return None if self.original.encoding is None else self._extended(self.original.encoding)

    def _extended(self, encoding: Encoding) -> Encoding:
        return Encoding((*encoding.columns, *(Column(name) for name in self.names)))

    def transform(self, data: RankingData) -> RankingData:
        """Append the text features to data, and drop the texts."""
        if data.text is None:
            raise DataError(
                "The data have no text roles. Name the text columns, as in text={'query': …, 'document': …}."
            )
        if len(data.text.document) != len(self.roles.document):
            raise DataError(
                f"The ranker was trained with the document texts {listed(self.roles.document)}, but these data name "
                f"{listed(data.text.document)}. Name the same columns."
            )
        if set(data.text.document) != set(self.roles.document):
            raise DataError(
                f"The ranker was trained with the document texts {listed(self.roles.document)}, but these data have "
                f"{listed(data.text.document)}. Rename the columns as in the training data."
            )
        return self._append(data, self.columns(_document_column(data, data.text.query), _texts_of(data, data.text)))

    def columns(self, queries: Sequence[str], texts: Mapping[str, Sequence[str]]) -> npt.NDArray[np.float32]:
        """Return the features of query-document pairs, given by their texts."""
        distinct, rows = _distinct({name: texts[name] for name in self.roles.document})
        return self._columns(queries, self.match.statistics.encode(distinct), rows)

    def _columns(
        self, queries: Sequence[str], documents: EncodedDocuments, rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        """Return the features of `queries[i]` and the encoded document `rows[i]`, for each i."""
        numbers: dict[str, int] = {}
        query_of_row = np.fromiter((numbers.setdefault(query, len(numbers)) for query in queries), np.int64, len(rows))
        order = np.argsort(query_of_row, kind="stable")
        offsets = offsets_of(np.bincount(query_of_row, minlength=len(numbers)))
        out = np.empty((len(rows), len(self.match.names)), dtype=np.float32)
        out[order] = self.match.matrix(list(numbers), documents, rows[order], offsets)
        return out

    def _append(self, data: RankingData, made: npt.NDArray[np.float32]) -> RankingData:
        """Append feature columns to data."""
        names = data.feature_names or numbered(data.n_features)
        encoding = None if data.encoding is None else self._extended(data.encoding)
        return data._with_validated(
            X=append_columns(data.X, made),
            feature_names=(*names, *self.names),
            first_feature_id=None,
            metadata=data.metadata.without_text(),
            encoding=encoding,
        )

    def descriptions(self) -> dict[str, str]:
        """Return the description of each feature, for reimplementation in other systems."""
        return dict(zip(self.names, self.match.descriptions, strict=True))

    def sentence(self, name: str, value: str) -> str | None:
        """Describe a feature value in words, or return None if the number is clearer."""
        try:
            plain = self.match.names[self.names.index(name)]
        except ValueError:
            return None
        field = next((column for column in self.roles.document if plain.startswith(f"{column} ")), None)
        if field is None and len(self.roles.document) == 1:
            field = self.roles.document[0]
        elif field is not None:
            plain = plain.removeprefix(f"{field} ")
        return _describe_value(plain, self.roles.document if field is None else (field,), value)

    def same_as(self, other: Any) -> bool:
        """Return whether both were fitted on the same texts with the same settings."""
        if not isinstance(other, TextFeatures) or other.plain() != self.plain():
            return False
        mine, theirs = self.match.statistics.arrays(), other.match.statistics.arrays()
        return all(np.array_equal(array, theirs[name]) for name, array in mine.items())

    def plain(self) -> dict[str, Any]:
        """Return the JSON-compatible part; `arrays` returns the rest."""
        return {
            "columns": self.roles.plain(),
            "own": self.n_original,
            "named": self.original.feature_names is not None,
            "statistics": self.match.statistics.plain(),
        }

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the numeric arrays, and the words as UTF-8 bytes."""
        return self.match.statistics.arrays()

    @classmethod
    def restore(
        cls, plain: Any, arrays: Mapping[str, Any], names: Sequence[str] | None, encoding: Encoding | None
    ) -> Self:
        """Restore text features from `plain` and `arrays`; `names` and `encoding` describe all columns."""
        if not isinstance(plain, dict) or type(plain.get("own")) is not int or type(plain.get("named")) is not bool:
            raise DataError("the description of the texts is damaged")
        roles, n_original = TextRoles.from_value(plain.get("columns")), plain["own"]
        known = Statistics.restore(plain.get("statistics"), arrays)
        if known.fields != roles.document or known.analyzer.language != roles.language:
            raise DataError("the text fields differ from the fields of the statistics")
        if names is None or not 0 <= n_original <= len(names):
            raise DataError("the number of text columns does not match the features")
        own = tuple(names[:n_original]) if plain["named"] else None
        columns = None if encoding is None else Encoding(encoding.columns[:n_original])
        made = cls(roles, OriginalColumns(own, columns), n_original, MatchFeatures(known))
        if made.all_names != tuple(names):
            raise DataError("the names of the text columns do not match the features")
        return made


def append_columns(X: Any, made: npt.NDArray[np.float32]) -> Any:
    """Append columns to a dense or sparse matrix."""
    if isinstance(X, np.ndarray):
        out = np.empty((X.shape[0], X.shape[1] + made.shape[1]), dtype=X.dtype if X.shape[1] else np.float32)
        out[:, : X.shape[1]], out[:, X.shape[1] :] = X, made
        return out
    from scipy import sparse

    return sparse.hstack([X, sparse.csr_matrix(made.astype(X.dtype))], format="csr")


def _texts_of(data: RankingData, roles: TextRoles) -> dict[str, list[str]]:
    """Return the texts of each document by field."""
    return {name: _document_column(data, name) for name in roles.document}


def _document_column(data: RankingData, name: str) -> list[str]:
    """Return a text column with one text per document, also if it is stored with one text per query."""
    column = data.metadata[name]
    return list((column if len(column) == data.n_documents else data.queries.broadcast(column)).tolist())


def _refuse_several_texts(data: RankingData, roles: TextRoles) -> None:
    """Raise an error if a training query has several texts."""
    column = data.metadata[roles.query]
    if len(column) == data.n_queries:
        return
    texts = column.tolist()
    for query, (first, last) in enumerate(zip(data.queries.offsets, data.queries.offsets[1:], strict=False)):
        if len(set(texts[first:last])) > 1:
            some = sorted(set(texts[first:last]))[:2]
            raise DataError(
                f"Query {data.qids[query]} has several texts in column '{roles.query}': '{some[0]:.40}' and "
                f"'{some[1]:.40}'. Use the same text in all rows of a query."
            )


def _distinct(texts: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], npt.NDArray[np.int64]]:
    """Return the distinct documents in order of first appearance, and the number of the document of each row."""
    numbers: dict[tuple[str, ...], int] = {}
    keys = list(zip(*texts.values(), strict=True))
    rows = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(keys))
    columns = list(zip(*numbers, strict=True)) if numbers else [()] * len(texts)
    return {name: list(column) for name, column in zip(texts, columns, strict=True)}, rows


def _describe_value(what: str, fields: Sequence[str], value: str) -> str | None:
    """Describe one value in words; None if the number is clearer."""
    number, several = float(value), len(fields) > 1
    if what in ("exact", "phrase"):
        whole = what == "exact"
        if several or number:
            where = f"the {fields[0]}" if not several else "a field" if number else "no field"
            return f"{where} {'is the query and nothing else' if whole else 'has the query word for word'}"
        return f"the {fields[0]} {'is not just the query' if whole else 'lacks the query word for word'}"
    if what not in ("coverage", "idf coverage"):
        return None
    where = f"{', '.join(fields[:-1])} and {fields[-1]} together cover" if several else f"the {fields[0]} covers"
    if number in (0.0, 1.0):
        return f"{where} {'all words' if number else 'no word'} of the query"
    return f"{where} {100 * number:.0f} % of {'the words' if what == 'coverage' else 'the weight of the words'}"
