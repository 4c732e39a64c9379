"""Drift of the requests to the primary model from its training data, reported at /metrics.

Recent requests are kept. /metrics reports the last comparison; if that is more than a minute old, a thread starts
another in the background.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from threading import Lock
from time import monotonic
from typing import NamedTuple

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.monitoring import Drift, monitor
from toprank.serving.counters import Counters
from toprank.serving.models import LoadedModel, Models
from toprank.serving.worker_pool import WorkerPool

_LEAST, _KEPT, _VALUES = 30, 1_000, 1 << 23  # Minimum number of requests; maximum numbers of requests and values kept.
_SECONDS = 60.0  # Seconds between comparisons.
_OLD = 600.0  # Seconds after which a comparison is outdated.
_RESAMPLES = 200
_MEANINGS = {
    "alarms": "Shifts that need attention.",
    "score_psi": "Population stability index of the scores.",
    "largest_feature_psi": "Largest population stability index of a feature.",
    "features_drifted": "Features whose shift is significant and large.",
    "missing_share": "Fraction of missing values.",
    "out_of_range_share": "The share of values outside of the reference's range.",
    "expected_dcg": "Expected DCG@10, estimated without labels.",
    "expected_dcg_change": "Change of the expected DCG since the reference.",
}


class _Comparison(NamedTuple):
    version: str
    when: float
    model: str
    drift: Drift


class DriftWatch:
    """Comparison of recent requests to the primary model with `reference`, which has the columns of its
    training data.
    """

    def __init__(self, reference: RankingData, models: Models, counters: Counters) -> None:
        self._reference, self._models = reference, models
        self._kept: deque[FloatArray] = deque()
        self._size, self._version = 0, ""
        self._lock, self._worker = Lock(), WorkerPool(1, 0, "drift")  # one comparison at a time, without a queue
        self._last: _Comparison | None = None
        self._due = 0.0  # time of the next comparison
        self._failed = counters.drift_failed
        # reports incompatible reference data at startup
        monitor(models.get(None).ranker, reference, reference, n_resamples=99)
        counters.gauge("toprank_drift_requests", "Requests used for drift.", (), self._count)
        for name, meaning in _MEANINGS.items():
            counters.gauge(f"toprank_drift_{name}", meaning, ("model",), partial(self._gauge, name))
        counters.gauge(
            "toprank_drift_feature_psi", "Population stability index of each feature.", ("model", "feature"), self._each
        )

    def observe(self, model: LoadedModel, X: FloatArray) -> None:
        """Keep the documents of a request that `model` answered; requests to other versions, whose codes may differ,
        are dropped.
        """
        with self._lock:
            if model.version != self._version:
                self._kept.clear()
                self._size, self._version, self._due = 0, model.version, 0.0
            self._kept.append(X)
            self._size += X.size
            while len(self._kept) > _KEPT or (self._size > _VALUES and len(self._kept) > 1):
                self._size -= self._kept.popleft().size

    def drift(self) -> tuple[str, Drift] | None:
        """Return the name of the model and its drift; None before there are enough requests and a comparison."""
        model, now = self._models.get(None), monotonic()
        with self._lock:
            enough = model.version == self._version and len(self._kept) >= _LEAST
            if enough and now >= self._due and self._worker.submit(partial(self._compare, model, list(self._kept))):
                self._due = now + _SECONDS
            last = self._last
        known = last is not None and last.version == model.version and now - last.when <= _OLD
        return (last.model, last.drift) if known and last is not None else None

    def _compare(self, model: LoadedModel, requests: list[FloatArray]) -> None:
        comparison = None
        try:
            new = RankingData(
                np.concatenate(requests),
                qid=np.repeat(np.arange(len(requests)), [len(X) for X in requests]),
                feature_names=getattr(model.ranker, "feature_names_in_", None),
                encoding=model.ranker.encoding_,
            )
            drift = monitor(model.ranker, self._reference, new, n_resamples=_RESAMPLES)
            comparison = _Comparison(model.version, monotonic(), model.name, drift)
        except Exception:  # noqa: BLE001 - runs in the background; a replaced model may use other columns
            self._failed.labels(model.name).inc()
        with self._lock:
            self._last = comparison

    def close(self) -> None:
        """Stop the thread."""
        self._worker.close()

    def _count(self) -> dict[tuple[str, ...], float]:
        return {(): float(len(self._kept))}

    def _gauge(self, name: str) -> dict[tuple[str, ...], float]:
        compared = self.drift()
        gauges = {} if compared is None else compared[1].gauges()
        return {(compared[0],): gauges[name]} if compared is not None and name in gauges else {}

    def _each(self) -> dict[tuple[str, ...], float]:
        compared = self.drift()
        return {} if compared is None else {(compared[0], shift.name): shift.psi for shift in compared[1].features}
