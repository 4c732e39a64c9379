"""Shadow models: they score the requests to the primary model to measure how rankings would change."""

from __future__ import annotations

from functools import partial

from toprank.compute import FloatArray
from toprank.serving.counters import Counters
from toprank.serving.models import LoadedModel, Models
from toprank.serving.requests import ScoreRequest
from toprank.serving.worker_pool import WorkerPool

_WAITING = 32  # Maximum number of requests in the queue of a shadow; further ones are skipped and counted.
_TOP = 10


class Shadow:
    """A shadow model, which runs on its own thread after the response."""

    def __init__(self, name: str, models: Models, counters: Counters) -> None:
        self.name, self._models, self._counters = name, models, counters
        self._worker = WorkerPool(1, _WAITING - 1, "shadow")

    def observe(self, model: LoadedModel, request: ScoreRequest, X: FloatArray, scores: FloatArray) -> None:
        """Queue a request that `model` answered for scoring."""
        pair = (model.name, self.name)
        if self._worker.submit(partial(self._compare, model, request, X, scores, pair)) is None:
            self._counters.shadow_skipped.labels(*pair).inc()

    def _compare(
        self, model: LoadedModel, request: ScoreRequest, X: FloatArray, scores: FloatArray, pair: tuple[str, str]
    ) -> None:
        counters = self._counters
        try:
            shadow = self._models.get(self.name)
            own = shadow.scores(self._rows(request, X, model, shadow))
            before, now = model.order(scores), shadow.order(own)
        except Exception:  # noqa: BLE001 - no caller receives the error, so it must be counted.
            counters.shadow_failed.labels(*pair).inc()
            return
        if before != now:
            counters.shadow_changed.labels(*pair).inc()
        if before[0] != now[0]:
            counters.shadow_first.labels(*pair).inc()
        top = min(_TOP, len(now))
        counters.shadow_overlap.labels(*pair).observe(len({*before[:top]} & {*now[:top]}) / top)
        counters.shadowed.labels(*pair).inc()  # incremented last, so that a scrape with this count includes the others

    def _rows(self, request: ScoreRequest, X: FloatArray, model: LoadedModel, shadow: LoadedModel) -> FloatArray:
        """Return the rows for the shadow, converted by name if its columns differ from those of the model."""
        mine, theirs = shadow.columns, model.columns
        words = mine.text is not None or theirs.text is not None  # each model has its own text statistics
        if not words and (mine.names, mine.count, mine.encoding) == (theirs.names, theirs.count, theirs.encoding):
            return X
        return mine.rows(request.documents, request.features, request.query_text, select=True).X

    def close(self) -> None:
        """Stop the thread."""
        self._worker.close()
