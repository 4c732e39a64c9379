"""Metrics of a service, exposed at /metrics in the Prometheus format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
DOCUMENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class _ReadGauge(NamedTuple):
    """A gauge whose values are read at every scrape, each with its own labels."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[], Mapping[tuple[str, ...], float]]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Collect the values, as prometheus_client requires."""
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, number in self.read().items():
            family.add_metric(labels, number)
        yield family


Collector.register(_ReadGauge)


class Counters:
    """Metrics of a service, including memory and CPU time of the process; `gauge` adds further ones.

    Every instance has its own registry, so several services in one process stay separate.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.requests = self._count("requests", "Requests by endpoint and status.", "endpoint", "status")
        self.seconds = self._spread("request_seconds", "Time to answer.", SECONDS, "endpoint")
        self.documents = self._spread("documents", "Documents of a request.", DOCUMENTS, "model")
        self.missing = self._count("missing_values", "Values that were null, or unknown categories.", "model")
        self.unseen = self._count("unseen_levels", "Unknown categories, treated as missing.", "model", "feature")
        self.reloads = self._count("reloads", "Model files read again, by outcome.", "model", "outcome")
        pair = ("model", "shadow")
        self.shadowed = self._count("shadow_requests", "Requests scored by a shadow model.", *pair)
        self.shadow_failed = self._count("shadow_failures", "Requests that a shadow model failed to score.", *pair)
        self.shadow_skipped = self._count("shadow_skipped", "Requests skipped because a shadow model was busy.", *pair)
        self.shadow_changed = self._count("shadow_rankings_changed", "Rankings that a shadow model changes.", *pair)
        self.shadow_first = self._count("shadow_first_changed", "Rankings whose first document differs.", *pair)
        self.shadow_overlap = self._spread("shadow_overlap_at_10", "Share of the first 10 in both.", SHARES, *pair)
        self.impressions = self._count("interleaved_lists", "Interleaved lists.")
        self.clicks = self._count("interleaved_clicks", "Clicks on interleaved lists, by the model's team.", "model")
        self.log_records = self._count("log_records", "Lists and events written to the log.", "kind")
        self.log_dropped = self._count("log_dropped", "Lists and events that were lost, by reason.", "kind", "reason")
        self.events = self._count("events", "Events by kind and outcome.", "kind", "outcome")
        self.split = self._count("split_requests", "Requests by the arm of the split.", "arm")
        self.drift_failed = self._count("drift_failures", "Comparisons with the reference that failed.", "model")

    def _count(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"toprank_{name}", help, labels, registry=self._registry)

    def _spread(self, name: str, help: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"toprank_{name}", help, labels, buckets=bounds, registry=self._registry)

    def gauge(
        self, name: str, help: str, labels: tuple[str, ...], read: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        """Register a gauge: `read` returns its values by labels at every scrape."""
        self._registry.register(_ReadGauge(name, help, labels, read))

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self._registry)
