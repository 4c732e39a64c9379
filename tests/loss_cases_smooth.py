"""Losses of relaxed ranks for the shared matrix."""

from __future__ import annotations

from typing import Any

from toprank.losses.base import Loss
from toprank.losses.smooth import ApproxMetric, ApproxMRR, ApproxNDCG, NeuralNDCG, SoftRank

SILENT: dict[str, Any] = {"silent": True}
BINARY: dict[str, Any] = {**SILENT, "labels": "binary"}

CASES: list[tuple[str, Loss, dict[str, Any]]] = [
    ("approxndcg", ApproxNDCG(), SILENT),
    ("approxndcg@3", ApproxNDCG(temperature=0.5, k=3, gain="linear"), {**SILENT, "labels": "real"}),
    ("approxmrr", ApproxMRR(temperature=0.3), BINARY),
    ("approxmrr@2", ApproxMRR(temperature=1.0, k=2, rel=2.0), SILENT),
    ("approx-dcg-zipf", ApproxMetric("dcg(discount=zipf(1.5))", temperature=0.5), SILENT),
    ("approx-ndcg-letor", ApproxMetric("ndcg(discount=letor)", temperature=0.5), SILENT),
    (
        "approx-ndcg-table",
        ApproxMetric("ndcg(discount=[1,2,4,8])", temperature=0.5, gain=(0.0, 1.0, 2.0, 4.0, 9.0)),
        SILENT,
    ),
    ("approx-map", ApproxMetric("map", temperature=0.5), BINARY),
    ("approx-map@3", ApproxMetric("map@3(norm=min)", temperature=0.5), SILENT),
    ("approx-err", ApproxMetric("err", temperature=0.5), SILENT),
    ("approx-err@2", ApproxMetric("err@2(max_grade=4)", temperature=0.5), SILENT),
    ("softrank", SoftRank(), SILENT),
    ("softrank@2", SoftRank(noise=0.5, k=2, gain="linear"), {**SILENT, "labels": "real"}),
    ("neuralndcg", NeuralNDCG(), SILENT),
    ("neuralndcg@3", NeuralNDCG(temperature=0.5, k=3, iterations=3), SILENT),
    ("neuralndcg-bare", NeuralNDCG(iterations=0, gain="linear"), {**SILENT, "labels": "real"}),
]
