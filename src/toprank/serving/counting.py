"""What a service counts, in plain dictionaries, and tells at /metrics in Prometheus's form.

Counting costs a dictionary entry; the library that knows the form is imported when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from threading import Lock
from typing import Any

__all__ = ["Counters"]

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
DOCUMENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

Labels = tuple[str, ...]
Gauge = Callable[[], Mapping[Labels, float]]


class Count:
    """Numbers that only rise, one for each combination of labels."""

    def __init__(self, name: str, told: str, *labels: str) -> None:
        self.name, self.told, self.labels = name, told, labels
        self.values: dict[Labels, float] = {}
        self._lock = Lock()

    def add(self, *labels: str, by: float = 1) -> None:
        """Count one more, or so many."""
        with self._lock:
            self.values[labels] = self.values.get(labels, 0) + by

    def family(self) -> Any:
        """As the library tells it."""
        from prometheus_client.core import CounterMetricFamily

        told = CounterMetricFamily(self.name, self.told, labels=self.labels)
        for labels, value in list(self.values.items()):
            told.add_metric(labels, value)
        return told


class Spread:
    """How often values fell below each of some bounds."""

    def __init__(self, name: str, told: str, bounds: tuple[float, ...], *labels: str) -> None:
        self.name, self.told, self.bounds, self.labels = name, told, bounds, labels
        self.values: dict[Labels, list[float]] = {}
        self._lock = Lock()

    def add(self, value: float, *labels: str) -> None:
        """Count a value."""
        with self._lock:
            if (found := self.values.get(labels)) is None:
                found = self.values[labels] = [0.0] * (len(self.bounds) + 2)  # the last is the sum
            found[bisect_left(self.bounds, value)] += 1
            found[-1] += value

    def family(self) -> Any:
        """As the library tells it."""
        from prometheus_client.core import HistogramMetricFamily

        told = HistogramMetricFamily(self.name, self.told, labels=self.labels)
        for labels, (*counts, total) in list(self.values.items()):
            bounds = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
            told.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return told


class Counters:
    """Everything that a service counts; `gauge` adds what others want told."""

    def __init__(self) -> None:
        self.requests = Count("toprank_requests", "Requests by endpoint and status.", "endpoint", "status")
        self.seconds = Spread("toprank_request_seconds", "Time to answer.", SECONDS, "endpoint")
        self.documents = Spread("toprank_documents", "Documents of a request.", DOCUMENTS, "model")
        self.missing = Count(
            "toprank_missing_values", "Values that were null, or levels not seen in training.", "model"
        )
        self.unseen = Count(
            "toprank_unseen_levels", "Levels not seen in training, taken as missing.", "model", "feature"
        )
        self.reloads = Count("toprank_reloads", "Model files read again, by what came of it.", "model", "outcome")
        pair = ("model", "shadow")
        self.shadowed = Count("toprank_shadow_requests", "Requests that a shadow scored, too.", *pair)
        self.shadow_failed = Count("toprank_shadow_failures", "Requests that a shadow could not score.", *pair)
        self.shadow_skipped = Count("toprank_shadow_skipped", "Requests for which a shadow had no time.", *pair)
        self.shadow_changed = Count("toprank_shadow_rankings_changed", "Rankings that differ from the model's.", *pair)
        self.shadow_first = Count("toprank_shadow_first_changed", "Rankings whose first document differs.", *pair)
        self.shadow_overlap = Spread("toprank_shadow_overlap_at_10", "Share of the first 10 in both.", SHARES, *pair)
        self.impressions = Count("toprank_interleaved_lists", "Interleaved lists that were made.")
        self.clicks = Count("toprank_interleaved_clicks", "Clicks on interleaved lists, by the model's team.", "model")
        self.drift_failed = Count("toprank_drift_failures", "Comparisons with the reference that failed.", "model")
        self._gauges: list[tuple[str, str, Labels, Gauge]] = []

    def gauge(self, name: str, told: str, labels: Labels, read: Gauge) -> None:
        """Tell numbers that rise and fall: `read` is called whenever somebody asks, and gives one for each labels."""
        self._gauges.append((name, told, labels, read))

    def collect(self) -> Iterator[Any]:
        """What the library asks for."""
        from prometheus_client.core import GaugeMetricFamily

        for counted in vars(self).values():
            if isinstance(counted, Count | Spread):
                yield counted.family()
        for name, told, labels, read in self._gauges:
            family = GaugeMetricFamily(name, told, labels=labels)
            for values, number in read().items():
                family.add_metric(values, number)
            yield family

    def text(self) -> bytes:
        """The page for Prometheus, with memory and processor time of the process."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return generate_latest(registry)
