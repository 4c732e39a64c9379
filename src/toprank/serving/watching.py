"""What the primary model is asked, beside what it was trained for: drift, told at /metrics.

The last requests are kept, and compared with the reference when somebody asks for the numbers, once a minute at most.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from threading import Lock

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import ToprankError
from toprank.monitoring import Drift, monitor
from toprank.serving.counting import Counters
from toprank.serving.models import Models, Served

__all__ = ["Watch"]

_LEAST, _KEPT, _VALUES = 30, 1_000, 1 << 23  # requests to say anything; requests and values that are kept at most
_SECONDS = 60.0
_RESAMPLES = 200
_TOLD = {
    "alarms": "What calls for somebody to look.",
    "score_psi": "How far the scores have moved.",
    "largest_feature_psi": "How far the feature has moved that moved the most.",
    "features_drifted": "Features that have surely moved, and far.",
    "missing_share": "The share of values that are missing.",
    "outside_share": "The share of values outside of the reference's range.",
    "expected_dcg": "The DCG@10 to expect, without labels.",
    "expected_dcg_change": "Its change since the reference.",
}


class Watch:
    """The last requests to the primary model against `reference`, which has the columns of its training."""

    def __init__(self, reference: RankingData, models: Models, counters: Counters) -> None:
        self._reference, self._models = reference, models
        self._kept: deque[FloatArray] = deque()
        self._size, self._version = 0, ""
        self._lock, self._comparing = Lock(), Lock()
        self._found: tuple[str, Drift] | None = None
        self._when = -_SECONDS
        monitor(models.get(None).ranker, reference, reference, resamples=99)  # which says what does not fit, at once
        counters.gauge("toprank_drift_requests", "Requests that drift is measured on.", (), self._count)
        for name, told in _TOLD.items():
            counters.gauge(f"toprank_drift_{name}", told, ("model",), partial(self._gauge, name))
        counters.gauge("toprank_drift_feature_psi", "How far each feature has moved.", ("model", "feature"), self._each)

    def look(self, model: Served, X: FloatArray) -> None:
        """Remember the documents of a request that `model` answered; those of another version may have other codes."""
        with self._lock:
            if model.version != self._version:
                self._kept.clear()
                self._size, self._version = 0, model.version
            self._kept.append(X)
            self._size += X.size
            while len(self._kept) > _KEPT or (self._size > _VALUES and len(self._kept) > 1):
                self._size -= self._kept.popleft().size

    def drift(self) -> tuple[str, Drift] | None:
        """The model's name and what has moved; None before enough was asked. At most a minute old."""
        with self._comparing:
            now = time.monotonic()
            if now - self._when < _SECONDS:
                return self._found
            model = self._models.get(None)
            with self._lock:
                asked = list(self._kept) if model.version == self._version else []
            if len(asked) < _LEAST:
                return None
            self._when, self._found = now, self._compared(model, asked)
            return self._found

    def _compared(self, model: Served, asked: list[FloatArray]) -> tuple[str, Drift] | None:
        names = getattr(model.ranker, "feature_names_in_", None)
        sizes = [len(X) for X in asked]
        new = RankingData(
            np.concatenate(asked),
            qid=np.repeat(np.arange(len(asked)), sizes),
            feature_names=names,
            encoding=model.ranker.encoding_,
        )
        try:
            return model.name, monitor(model.ranker, self._reference, new, resamples=_RESAMPLES)
        except ToprankError:  # a model that was replaced may take what the reference does not have
            return None

    def _count(self) -> dict[tuple[str, ...], float]:
        return {(): float(len(self._kept))}

    def _gauge(self, name: str) -> dict[tuple[str, ...], float]:
        found = self.drift()
        told = {} if found is None else found[1].gauges()
        return {(found[0],): told[name]} if found is not None and name in told else {}

    def _each(self) -> dict[tuple[str, ...], float]:
        found = self.drift()
        return {} if found is None else {(found[0], shift.name): shift.psi for shift in found[1].features}
