"""`Index`: a collection that can be searched, trained and evaluated."""

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
from toprank.search.collections.collection import Stamp
from toprank.search.collections.sources import changed
from toprank.search.documents import Documents
from toprank.search.features import CandidateFeatures, Function, Pool
from toprank.search.first_stage import MOST_WORDS, Engine, RunPool, open_engine
from toprank.search.first_stage.engines import Hits
from toprank.search.judged_queries import queries_and_judgments, stored_judgments, stored_topics
from toprank.search.model_file import ModelFile, learned_from
from toprank.search.results import Hit, SearchResults
from toprank.search.snippets import LOOKED_AT, snippet
from toprank.search.storage import IndexFolder
from toprank.search.vectors import query_vectors
from toprank.text import EncodedDocuments, Statistics

if TYPE_CHECKING:
    from toprank.clicks.log import ClickLog
    from toprank.explanations.pairs import Explanation
    from toprank.rankers.base import Ranker
    from toprank.search.evaluation import SearchEvaluation
    from toprank.search.training import SearchTraining

_TRIES = 20  # to open an index that others replace meanwhile
_MOST_LETTERS = 20_000  # of a query that are looked at: nobody types more, and pasted pages hold up everybody
_TITLE = 300  # letters of a title in a list: what is longer is no title, and a page of them could not be read


class Index:
    """A search index that is open: `search`, `train`, `evaluate`.

    Threads may share an index. It keeps the files that it opened, even if a new index takes their place; a model that
    is trained meanwhile, here or by another process, orders the next search.

    Args:
        path: the folder that `toprank.search.index` made.
        functions: features of your own, ``{name: function of (query, candidates)}``; a model that was trained with
            some needs the same again.
        verify: compare the content of every file with the hash that it was written with.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, functions: Mapping[str, Function] | None = None, verify: bool = False
    ) -> None:
        self.path = Path(path)
        for _ in range(_TRIES):
            self.folder = IndexFolder(path, verify=verify)
            try:
                self._open_parts(self.folder)
            except ToprankError:
                if self.folder.is_current():
                    raise
            if self.folder.is_current():  # else another was put in its place while it was read: not halves of two
                break
        else:
            raise FileError(f"{path} keeps being rewritten while it is opened; try again a little later.")
        self.features = CandidateFeatures(
            self.documents, self.encoded, self.runs, self.vectors, _checked_functions(functions or {})
        )
        self._model_file = ModelFile(self.folder, self.features.names)

    def _open_parts(self, folder: IndexFolder) -> None:
        """Everything but the model."""
        try:
            self.name, self.pool = str(folder.entry("name", str)), int(folder.entry("pool", int))
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
        """The first stage and the vectors, as large as they must be."""
        n, fields = len(self.documents), self.documents.fields
        if len(self.encoded) != n or self.statistics.fields != fields or folder.entry("documents", int) != n:
            raise DataError("its parts are of different collections")
        names = [str(name) for name in folder.entry("vectors", list)]
        self.vectors = {name: folder.array(f"vectors.{place}", "f") for place, name in enumerate(names)}
        if any(array.ndim != 2 or len(array) != n for array in self.vectors.values()):
            raise DataError("its vectors do not fit its documents")
        kind = str(folder.entry("first_stage", str))
        self.engine: Engine | None = None
        self.runs: RunPool | None = None
        if kind == "runs":
            runs = {str(name): folder.path / "runs" / f"{at}.run" for at, name in enumerate(folder.entry("runs", list))}
            self.runs = RunPool(runs, self.documents)
        else:
            self.engine = open_engine(kind, folder, fields, folder.entry("weights", dict))

    def __len__(self) -> int:
        return len(self.documents)

    def __repr__(self) -> str:
        model = self.model
        trained = "" if model is None else f", {type(model).__name__}"
        return f"Index({self.name!r}, {len(self):,} documents{trained})"

    # ---- what came with the collection ----

    @cached_property
    def topics(self) -> Topics | None:
        """The queries that the collection brought, if it did."""
        return stored_topics(self.folder)

    @cached_property
    def judgments(self) -> dict[str, Qrels]:
        """The judgments that the collection brought, by part: ``train``, ``test`` …, or ``all``."""
        return stored_judgments(self.folder)

    def queries_and_judgments(self, queries: Any, qrels: Any, part: str) -> tuple[Topics, Qrels, tuple[str, ...]]:
        """Return queries and judgments, given or from the collection; see `toprank.search.judged_queries`."""
        return queries_and_judgments(self, queries, qrels, part)

    def has_changed(self) -> bool:
        """Whether files of the source were added, removed or changed since it was indexed."""
        stamp = self.folder.meta.get("source")
        if not isinstance(stamp, dict) or not {"path", "files", "digest"} <= set(stamp):
            return False
        return changed(Stamp(str(stamp["path"]), tuple(map(str, stamp["files"])), str(stamp["digest"])))

    # ---- candidates ----

    def words(self, query: str) -> list[str]:
        """The words of a query that the first stage looks for; of very many the rarest.

        A word that stands twice in the query counts twice, as in BM25.
        """
        words = self.statistics.analyzer.words(query[:_MOST_LETTERS])
        if len(words) > MOST_WORDS:
            idf = self.statistics.idf(self.statistics.vocabulary.numbers(words))
            kept = np.sort(np.argsort(-idf, kind="stable")[:MOST_WORDS])
            words = [words[place] for place in kept.tolist()]
        return words

    def candidates(self, query: str, k: int, qid: str | None = None) -> Hits:
        """Return the best k documents of the first stage: an engine looks for words, a run for the id of the query."""
        if self.engine is None:
            assert self.runs is not None
            return self.runs.find(self._asked(query)[0] if qid is None else qid, k)
        hits = self.engine.find(self.words(query), k)
        if len(hits.rows) and (hits.rows.min() < 0 or hits.rows.max() >= len(self)):
            raise self.folder.fault("The first stage of this index is damaged: it finds documents that are not there.")
        return hits

    def _asked(self, query: str) -> tuple[str, str]:
        """Return id and words of a query. Runs know queries by id, so a query may be given by its id or its words."""
        if self.runs is None:
            return query, query
        pairs = [] if self.topics is None else list(zip(self.topics.ids, self.topics.texts, strict=True))
        if query in self.runs.queries:
            return query, dict(pairs).get(query, query)
        for name, words in pairs:
            if words == query and name in self.runs.queries:
                return name, words
        raise DataError(
            "The first stage of this index consists of runs, which answer only the queries they were made for, and "
            f"{query!r:.60} is not one of them. Ask for one by its id, or index with an engine."
        )

    def pool_of(self, topics: Topics, k: int | None = None) -> Pool:
        """The candidates of queries."""
        if k is not None:
            check_whole("pool", k, least=1)
        hits = [self.candidates(text, k or self.pool, qid) for qid, text in zip(topics.ids, topics.texts, strict=True)]
        sizes = [len(of_query.rows) for of_query in hits]
        return Pool(
            topics.ids, [text[:_MOST_LETTERS] for text in topics.texts],
            offsets_of(sizes),
            np.concatenate([of_query.rows for of_query in hits]).astype(np.int64),
            np.concatenate([of_query.scores for of_query in hits]).astype(np.float64),
        )  # fmt: skip

    def data(
        self,
        topics: Topics | Mapping[str, str],
        qrels: Any = None,
        *,
        pool: int | None = None,
        vectors: Mapping[str, Any] | None = None,
    ) -> RankingData:
        """The candidates of queries as ranking data, with all features; queries without candidates are left out.

        Args:
            topics: the queries.
            qrels: judgments; a candidate without one, or with a grade below 0, is irrelevant. None: no labels.
            pool: candidates of a query.
            vectors: of the queries, a row for each, by the name of the model; or files, as `train` takes them.
        """
        queries = Topics.of(topics)
        candidates = self.pool_of(queries, pool)
        matrix = self.features.matrix(candidates, query_vectors(vectors, queries.ids, self.vectors))
        sizes = np.diff(candidates.offsets)
        if not sizes.any():
            raise DataError("The first stage finds no document for any of the queries; are they in the same language?")
        qids = np.repeat(np.array(queries.ids), sizes)
        ids = self.documents.ids[candidates.rows]
        labels = None if qrels is None else np.maximum(Qrels.of(qrels).grades_of(qids, ids, 0.0), 0.0)
        return RankingData(matrix, labels, qid=qids, document_ids=ids, feature_names=self.features.names)

    # ---- the second stage ----

    @property
    def model(self) -> Ranker | None:
        """The learned order, as it was trained last, here or by another process; None before `train`."""
        return self._model_file.ranker()

    def keep_model(self, ranker: Ranker) -> None:
        """Put a learned order into the folder of the index; every later search uses it."""
        self._model_file.save(ranker)

    @property
    def depth(self) -> int:
        """Candidates of a query that are ranked: as many as the model was trained to rank, else the index's pool."""
        return self._depth(self.model)

    def _depth(self, ranker: Ranker | None) -> int:
        return learned_from(ranker).pool or self.pool

    def pin_model(self) -> None:
        """Keep the learned order that is there now, whatever is trained later."""
        self._model_file.pin()

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        pool: int | None = None,
        learned: bool = True,
        vectors: Mapping[str, Any] | None = None,
    ) -> SearchResults:
        """The best k documents for the words of a query; nothing in it is syntax.

        Args:
            query: words. With runs as the first stage, the id or the words of a query that they answer.
            k: how many.
            pool: candidates to rank; None: as many as the model was trained with, else what the index says.
            learned: False: the order of the first stage, even where a model is trained.
            vectors: of the query, by the name of the model, or a file of it.
        """
        if not isinstance(query, str):
            raise DataError(f"A query is text, not {type(query).__name__}.")
        check_whole("k", k, least=1)
        if pool is not None:
            check_whole("pool", pool, least=1)
        own = query_vectors(vectors, [query], self.vectors)
        ranker = self.model if learned else None
        started = time.perf_counter()
        pooled = self.candidates(query, max(pool or self._depth(ranker), k))
        ends = {"first stage": time.perf_counter()}
        scores, order = pooled.scores, np.arange(len(pooled.rows))
        data = self._candidate_data(query, pooled, own) if ranker is not None and len(pooled.rows) else None
        ends["features"] = time.perf_counter()
        if ranker is not None and data is not None:
            scores = np.asarray(ranker.predict(data), dtype=np.float64)
            order = np.argsort(-scores, kind="stable")
        ends["ranking"] = time.perf_counter()
        hits = self.hits(query, pooled.rows, scores, order[:k])
        ends["passages"] = time.perf_counter()
        took = dict(zip(ends, (1000 * np.diff([started, *ends.values()])).tolist(), strict=True))
        note = self._note(query, pooled, ranker, own)
        return SearchResults(
            query=query,
            hits=hits,
            found=len(pooled.rows),
            learned=ranker is not None,
            milliseconds=took,
            note=note,
            rows=pooled.rows,
            scores=scores,
        )

    def _candidate_data(self, query: str, hits: Hits, vectors: Mapping[str, Any]) -> RankingData:
        """Return the candidates of a query as ranking data."""
        qid, text = self._asked(query)
        pool = Pool([qid], [text[:_MOST_LETTERS]], np.array([0, len(hits.rows)]), hits.rows, hits.scores)
        return RankingData(self.features.matrix(pool, vectors), feature_names=self.features.names)

    def _note(self, query: str, hits: Hits, ranker: Ranker | None, vectors: Mapping[str, Any]) -> str:
        if len(hits.rows):
            missing = [name for name in learned_from(ranker).names("vectors") if name not in vectors]
            named = ", ".join(missing)
            return f"The order was learned with query vectors ({named}), but this query has none." if named else ""
        if self.engine is not None and not self.words(query):
            return "The query has no words, or only stop words such as 'the'."
        return "No document has any of the query's words."

    def hits(self, query: str, rows: IntArray, scores: FloatArray, best: IntArray) -> tuple[Hit, ...]:
        """Candidates as they are shown: `best` are places in `rows`, which the first stage ordered."""
        words, title = self.words(self._asked(query)[1]), self.documents.title
        body = [field for field in self.documents.fields if field != title]
        hits = []
        for rank, place in enumerate(best.tolist(), 1):
            row = int(rows[place])
            name = self.documents.start(row, title, _TITLE) if title else ""
            text = "\n".join(self.documents.start(row, field, LOOKED_AT) for field in body)
            passage = snippet(text, words, self.statistics.analyzer)
            hits.append(Hit(rank, self.documents.id(row), float(scores[place]), place + 1, name, passage))
        return tuple(hits)

    def explain(self, query: str, a: str, b: str, k: int = 10) -> Explanation:
        """Why the learned order puts document a above document b, or does not: contributions of features.

        Args:
            query: words, as for `search`.
            a: a document that was found.
            b: another.
            k: how many were asked for, where these are more than are ranked otherwise.
        """
        model = self.model
        if model is None:
            raise DataError("No model is trained yet, so the order is that of the first stage. Train the index first.")
        qid, text = self._asked(query)
        data = self.data({qid: text}, pool=max(self.depth, k))
        for name in (a, b):
            if name not in data.row_names:
                raise DataError(f"Document '{name}' is not among the candidates of this query.")
        explanation: Explanation = model.explain(data, qid=qid, a=a, b=b)
        return explanation

    def train(
        self, queries: Any = None, qrels: Any = None, system: str | Ranker = "blend", **options: Any
    ) -> SearchTraining:
        """Learn the order of candidates from judgments, and keep the model in the index; see `toprank.search.train`."""
        from toprank.search.training import train

        return train(self, queries, qrels, system, **options)

    def train_on_clicks(self, log: ClickLog, queries: Any = None, **options: Any) -> SearchTraining:
        """Learn the order from what users clicked; see `toprank.search.training.train_on_clicks`."""
        from toprank.search.training import train_on_clicks

        return train_on_clicks(self, log, queries, **options)

    def evaluate(
        self, queries: Any = None, qrels: Any = None, systems: Sequence[str] | None = None, **options: Any
    ) -> SearchEvaluation:
        """Compare systems on judged queries, each scored by what others taught; see `toprank.search.evaluation`."""
        from toprank.search.evaluation import evaluate

        return evaluate(self, queries, qrels, systems, **options)


def _checked_functions(functions: Mapping[str, Function]) -> dict[str, Function]:
    for name, function in functions.items():
        if not isinstance(name, str) or not callable(function):
            raise DataError("Give your own features as {name: function of (query, candidates)}.")
    return dict(functions)


def open_index(
    path: str | os.PathLike[str], *, functions: Mapping[str, Function] | None = None, verify: bool = False
) -> Index:
    """Open an index; nothing in it is executed.

    Args:
        path: the folder.
        functions: features of your own, ``{name: function of (query, candidates)}``.
        verify: compare the content of every file with the hash that it was written with.

    Raises:
        FileError: there is no index.
        FormatError: it is damaged, or of another version.
    """
    opened = Index(path, functions=functions, verify=verify)
    try:
        if opened.has_changed():
            warn_user(
                f"The files that {path} was made from have changed since; it still finds the old ones. Index them "
                "again."
            )
    except ToprankError:
        pass
    return opened
