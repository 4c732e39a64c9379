"""`Index`: an open search index, with search, training and evaluation."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.compute import FloatArray, IntArray, offsets_of
from toprank.data.arguments import check_whole
from toprank.data.dataset import RankingData
from toprank.data.trec import Qrels
from toprank.errors import DataError, FileError, FormatError, ToprankError, warn_user
from toprank.search.collections import Topics
from toprank.search.collections.collection import SourceSignature
from toprank.search.collections.sources import changed
from toprank.search.documents import Documents
from toprank.search.features import CandidateFeatures, CandidateLists, FeatureFunction
from toprank.search.first_stage import MAX_QUERY_WORDS, Engine, FusedRuns, open_engine
from toprank.search.first_stage.engines import Hits
from toprank.search.judged_queries import queries_and_judgments, stored_judgments, stored_topics
from toprank.search.model_file import ModelFile, training_record
from toprank.search.results import Hit, SearchResults
from toprank.search.snippets import MAX_CHARACTERS, snippet
from toprank.search.storage import IndexFolder
from toprank.search.vectors import query_vectors
from toprank.text import EncodedDocuments, Statistics

if TYPE_CHECKING:
    from toprank.clicks.log import ClickLog
    from toprank.explanations.pairs import Explanation
    from toprank.rankers.base import Ranker
    from toprank.search.evaluation import SearchEvaluation
    from toprank.search.training import SearchTraining

_MAX_OPEN_ATTEMPTS = 20  # attempts to open an index that other processes keep replacing
_MAX_QUERY_CHARACTERS = 20_000  # longer queries are truncated: a pasted page would block other requests
_MAX_TITLE_CHARACTERS = 300  # longer titles would make a result page unreadable


class Index:
    """An open search index: `search`, `train`, `evaluate`.

    Threads may share an index. An open index keeps using the files that it opened, even if a new index replaces them. A
    model trained meanwhile, by this or another process, is used from the next search on.

    Args:
        path: folder written by `toprank.search.index`.
        functions: custom features, ``{name: function of (query, candidates)}``. A model trained with custom features
            needs the same functions again.
        verify: whether to compare every file with its recorded hash. Default: False.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        functions: Mapping[str, FeatureFunction] | None = None,
        verify: bool = False,
    ) -> None:
        self.path = Path(path)
        for _ in range(_MAX_OPEN_ATTEMPTS):
            self.folder = IndexFolder(path, verify=verify)
            try:
                self._open_parts(self.folder)
            except ToprankError:
                if self.folder.is_current():
                    raise
            if self.folder.is_current():  # otherwise it was replaced while it was read, and parts of two may be mixed
                break
        else:
            raise FileError(f"{path} was replaced repeatedly while it was being opened. Try again later.")
        self.features = CandidateFeatures(
            self.documents, self.encoded, self.runs, self.vectors, _checked_functions(functions or {})
        )
        self._model_file = ModelFile(self.folder, self.features.names)

    def _open_parts(self, folder: IndexFolder) -> None:
        """Open all parts except the model."""
        try:
            self.name, self.n_candidates = str(folder.entry("name", str)), int(folder.entry("pool", int))
            self.notes = tuple(map(str, folder.entry("notes", list)))
            self.documents = Documents(folder)
            self.statistics = Statistics.restore(folder.entry("statistics", dict), folder.arrays("statistics."))
            self.encoded = EncodedDocuments.restore(self.statistics, folder.arrays("words."))
            self._open_rest(folder)
        except FormatError:
            raise
        except (DataError, KeyError, TypeError, ValueError) as problem:
            raise folder.fault(f"This index is damaged: {str(problem).rstrip('.')}.") from None

    def _open_rest(self, folder: IndexFolder) -> None:
        """Open the first stage and the vectors, and check that their sizes match the documents."""
        n, fields = len(self.documents), self.documents.fields
        if len(self.encoded) != n or self.statistics.fields != fields or folder.entry("documents", int) != n:
            raise DataError("its parts belong to different collections")
        names = [str(name) for name in folder.entry("vectors", list)]
        self.vectors = {name: folder.array(f"vectors.{place}", "f") for place, name in enumerate(names)}
        if any(array.ndim != 2 or len(array) != n for array in self.vectors.values()):
            raise DataError("the number of vectors differs from the number of documents")
        kind = str(folder.entry("first_stage", str))
        self.engine: Engine | None = None
        self.runs: FusedRuns | None = None
        if kind == "runs":
            runs = {str(name): folder.path / "runs" / f"{at}.run" for at, name in enumerate(folder.entry("runs", list))}
            self.runs = FusedRuns(runs, self.documents)
        else:
            self.engine = open_engine(kind, folder, fields, folder.entry("weights", dict))

    def __len__(self) -> int:
        return len(self.documents)

    def __repr__(self) -> str:
        model = self.model
        trained = "" if model is None else f", {type(model).__name__}"
        return f"Index({self.name!r}, {len(self):,} documents{trained})"

    # ---- queries and judgments of the collection ----

    @cached_property
    def topics(self) -> Topics | None:
        """The queries of the collection, or None."""
        return stored_topics(self.folder)

    @cached_property
    def judgments(self) -> dict[str, Qrels]:
        """The judgments of the collection by split: ``train``, ``test`` …, or ``all``."""
        return stored_judgments(self.folder)

    def queries_and_judgments(self, queries: Any, qrels: Any, part: str) -> tuple[Topics, Qrels, tuple[str, ...]]:
        """Return queries and judgments, either those given or the collection's; see `toprank.search.judged_queries`."""
        return queries_and_judgments(self, queries, qrels, part)

    def has_changed(self) -> bool:
        """Return whether files of the source were added, removed or changed after indexing."""
        signature = self.folder.meta.get("source")
        if not isinstance(signature, dict) or not {"path", "files", "digest"} <= set(signature):
            return False
        return changed(
            SourceSignature(str(signature["path"]), tuple(map(str, signature["files"])), str(signature["digest"]))
        )

    # ---- candidates ----

    def words(self, query: str) -> list[str]:
        """Return the query terms for the first stage; of a very long query, only the rarest terms.

        A repeated term counts repeatedly, as in BM25.
        """
        words = self.statistics.analyzer.words(query[:_MAX_QUERY_CHARACTERS])
        if len(words) > MAX_QUERY_WORDS:
            idf = self.statistics.idf(self.statistics.vocabulary.numbers(words))
            kept = np.sort(np.argsort(-idf, kind="stable")[:MAX_QUERY_WORDS])
            words = [words[place] for place in kept.tolist()]
        return words

    def candidates(self, query: str, k: int, qid: str | None = None) -> Hits:
        """Return the top k documents of the first stage: an engine looks up words, runs look up the query id."""
        if self.engine is None:
            assert self.runs is not None
            return self.runs.find(self._resolve_query(query)[0] if qid is None else qid, k)
        hits = self.engine.find(self.words(query), k)
        if len(hits.rows) and (hits.rows.min() < 0 or hits.rows.max() >= len(self)):
            raise self.folder.fault(
                "The first stage of this index is damaged: it returned documents that do not exist."
            )
        return hits

    def _resolve_query(self, query: str) -> tuple[str, str]:
        """Return id and text of a query; if runs are the first stage, `query` may be either of the two."""
        if self.runs is None:
            return query, query
        pairs = [] if self.topics is None else list(zip(self.topics.ids, self.topics.texts, strict=True))
        if query in self.runs.queries:
            return query, dict(pairs).get(query, query)
        for name, words in pairs:
            if words == query and name in self.runs.queries:
                return name, words
        raise DataError(
            f"The first stage of this index consists of runs, and {query!r:.60} is not among their queries. Search by "
            "the id of a query in the runs, or index the collection with an engine."
        )

    def candidate_lists(self, topics: Topics, k: int | None = None) -> CandidateLists:
        """Retrieve the candidates of several queries."""
        if k is not None:
            check_whole("n_candidates", k, least=1)
        hits = [
            self.candidates(text, k or self.n_candidates, qid)
            for qid, text in zip(topics.ids, topics.texts, strict=True)
        ]
        sizes = [len(of_query.rows) for of_query in hits]
        return CandidateLists(
            topics.ids, [text[:_MAX_QUERY_CHARACTERS] for text in topics.texts],
            offsets_of(sizes),
            np.concatenate([of_query.rows for of_query in hits]).astype(np.int64),
            np.concatenate([of_query.scores for of_query in hits]).astype(np.float64),
        )  # fmt: skip

    def data(
        self,
        topics: Topics | Mapping[str, str],
        qrels: Any = None,
        *,
        n_candidates: int | None = None,
        vectors: Mapping[str, Any] | None = None,
    ) -> RankingData:
        """Return the candidates of queries as ranking data with all features. Queries without candidates are dropped.

        Args:
            topics: queries.
            qrels: judgments. Candidates without a judgment or with a negative grade are irrelevant. Default: no labels.
            n_candidates: candidates per query. Default: the index's own number.
            vectors: query vectors by name of the embedding model, one row per query, or files as in `train`.
        """
        queries = Topics.from_source(topics)
        candidates = self.candidate_lists(queries, n_candidates)
        matrix = self.features.matrix(candidates, query_vectors(vectors, queries.ids, self.vectors))
        sizes = np.diff(candidates.offsets)
        if not sizes.any():
            raise DataError(
                "The first stage found no document for any query. Check that queries and documents are in the same "
                "language."
            )
        qids = np.repeat(np.array(queries.ids), sizes)
        ids = self.documents.ids[candidates.rows]
        labels = None if qrels is None else np.maximum(Qrels.from_source(qrels).grades_of(qids, ids, 0.0), 0.0)
        return RankingData(matrix, labels, qid=qids, document_ids=ids, feature_names=self.features.names)

    # ---- the second stage ----

    @property
    def model(self) -> Ranker | None:
        """The reranking model that was trained last, by this or another process; None before `train`."""
        return self._model_file.ranker()

    def keep_model(self, ranker: Ranker) -> None:
        """Store a reranking model in the index folder; every later search uses it."""
        self._model_file.save(ranker)

    @property
    def depth(self) -> int:
        """Number of candidates reranked per query: the number the model was trained with, else `n_candidates`."""
        return self._depth(self.model)

    def _depth(self, ranker: Ranker | None) -> int:
        return training_record(ranker).n_candidates or self.n_candidates

    def pin_model(self) -> None:
        """Keep using the current model, even if another is trained later."""
        self._model_file.pin()

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        n_candidates: int | None = None,
        rerank: bool = True,
        vectors: Mapping[str, Any] | None = None,
    ) -> SearchResults:
        """Return the top k documents for a query. The query is plain text without operators.

        Args:
            query: query text. If runs are the first stage, the id or the text of one of their queries.
            k: number of documents to return. Default: 10.
            n_candidates: number of candidates to rerank. Default: the number the model was trained with, else the
                index's own.
            rerank: whether to rerank with the trained model. If False, keep the order of the first stage.
            vectors: query vectors by name of the embedding model, or files.
        """
        if not isinstance(query, str):
            raise DataError(f"A query must be text, not {type(query).__name__}.")
        check_whole("k", k, least=1)
        if n_candidates is not None:
            check_whole("n_candidates", n_candidates, least=1)
        own = query_vectors(vectors, [query], self.vectors)
        ranker = self.model if rerank else None
        started = time.perf_counter()
        candidates = self.candidates(query, max(n_candidates or self._depth(ranker), k))
        ends = {"first stage": time.perf_counter()}
        scores, order = candidates.scores, np.arange(len(candidates.rows))
        data = self._candidate_data(query, candidates, own) if ranker is not None and len(candidates.rows) else None
        ends["features"] = time.perf_counter()
        if ranker is not None and data is not None:
            scores = np.asarray(ranker.predict(data), dtype=np.float64)
            order = np.argsort(-scores, kind="stable")
        ends["ranking"] = time.perf_counter()
        hits = self.hits(query, candidates.rows, scores, order[:k])
        ends["passages"] = time.perf_counter()
        took = dict(zip(ends, (1000 * np.diff([started, *ends.values()])).tolist(), strict=True))
        note = self._note(query, candidates, ranker, own)
        return SearchResults(
            query=query,
            hits=hits,
            found=len(candidates.rows),
            reranked=ranker is not None,
            milliseconds=took,
            note=note,
            rows=candidates.rows,
            scores=scores,
        )

    def _candidate_data(self, query: str, hits: Hits, vectors: Mapping[str, Any]) -> RankingData:
        """Return the candidates of a query as ranking data."""
        qid, text = self._resolve_query(query)
        lists = CandidateLists(
            [qid], [text[:_MAX_QUERY_CHARACTERS]], np.array([0, len(hits.rows)]), hits.rows, hits.scores
        )
        return RankingData(self.features.matrix(lists, vectors), feature_names=self.features.names)

    def _note(self, query: str, hits: Hits, ranker: Ranker | None, vectors: Mapping[str, Any]) -> str:
        if len(hits.rows):
            missing = [name for name in training_record(ranker).names("vectors") if name not in vectors]
            named = ", ".join(missing)
            return f"The model was trained with query vectors ({named}), but this query has none." if named else ""
        if self.engine is not None and not self.words(query):
            return "The query contains no words, or only stop words such as 'the'."
        return "No document contains a word of the query."

    def hits(self, query: str, rows: IntArray, scores: FloatArray, best: IntArray) -> tuple[Hit, ...]:
        """Return hits with titles and passages; `best` indexes `rows`, which are in first-stage order."""
        words, title = self.words(self._resolve_query(query)[1]), self.documents.title
        body = [field for field in self.documents.fields if field != title]
        hits = []
        for rank, place in enumerate(best.tolist(), 1):
            row = int(rows[place])
            name = self.documents.start(row, title, _MAX_TITLE_CHARACTERS) if title else ""
            text = "\n".join(self.documents.start(row, field, MAX_CHARACTERS) for field in body)
            passage = snippet(text, words, self.statistics.analyzer)
            hits.append(Hit(rank, self.documents.id(row), float(scores[place]), place + 1, name, passage))
        return tuple(hits)

    def explain(self, query: str, a: str, b: str, k: int = 10) -> Explanation:
        """Explain by feature contributions why the model ranks document a above document b, or below it.

        Args:
            query: query text, as in `search`.
            a: id of a candidate.
            b: id of another candidate.
            k: number of documents requested in the search, if it exceeds the number of reranked candidates.
        """
        model = self.model
        if model is None:
            raise DataError("This index has no model, so results are in first-stage order. Call train first.")
        qid, text = self._resolve_query(query)
        data = self.data({qid: text}, n_candidates=max(self.depth, k))
        for name in (a, b):
            if name not in data.row_names:
                raise DataError(f"Document '{name}' is not among the candidates of query {query!r:.60}.")
        explanation: Explanation = model.explain(data, qid=qid, a=a, b=b)
        return explanation

    def train(
        self, queries: Any = None, qrels: Any = None, system: str | Ranker = "blend", **options: Any
    ) -> SearchTraining:
        """Train a reranking model on judgments and store it in the index; see `toprank.search.training.train`."""
        from toprank.search.training import train

        return train(self, queries, qrels, system, **options)

    def train_on_clicks(self, log: ClickLog, queries: Any = None, **options: Any) -> SearchTraining:
        """Train a reranking model on click logs; see `toprank.search.training.train_on_clicks`."""
        from toprank.search.training import train_on_clicks

        return train_on_clicks(self, log, queries, **options)

    def evaluate(
        self, queries: Any = None, qrels: Any = None, systems: Sequence[str] | None = None, **options: Any
    ) -> SearchEvaluation:
        """Compare systems on judged queries, learned systems out of fold; see `toprank.search.evaluation`."""
        from toprank.search.evaluation import evaluate

        return evaluate(self, queries, qrels, systems, **options)


def _checked_functions(functions: Mapping[str, FeatureFunction]) -> dict[str, FeatureFunction]:
    for name, function in functions.items():
        if not isinstance(name, str) or not callable(function):
            raise DataError("Custom features must be given as {name: function of (query, candidates)}.")
    return dict(functions)


def open_index(
    path: str | os.PathLike[str], *, functions: Mapping[str, FeatureFunction] | None = None, verify: bool = False
) -> Index:
    """Open a search index. No code from the index is executed.

    Args:
        path: index folder.
        functions: custom features, ``{name: function of (query, candidates)}``.
        verify: whether to compare every file with its recorded hash. Default: False.

    Raises:
        FileError: if the folder contains no index.
        FormatError: if the index is damaged or has another format version.
    """
    opened = Index(path, functions=functions, verify=verify)
    try:
        if opened.has_changed():
            warn_user(
                f"The source files of {path} have changed since they were indexed, so results are outdated. Index them "
                "again."
            )
    except ToprankError:
        pass
    return opened
