"""Every loss with the data it can take, for the shared matrix of tests (test_losses_matrix.py).

Each family lists its own losses in tests/loss_cases_<family>.py as ``CASES: list[tuple[name, loss, options]]``.
Options:

labels             "graded" (whole grades 0 to 4, the default), "binary" (0 and 1) or "real" (all different, 0 to 3)
columns            class space: the number of score columns
decreasing         class space: True where each row of scores must fall from left to right
scale              standard deviation of the random scores (1)
silent             True where queries of equal labels must contribute exactly nothing
document_weights   False where the loss refuses document weights
order_dependent    True where the order of rows matters by design (then it must be seen to matter)
random             True where a seed draws numbers for rows: data repeated or taken apart then draw others
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from toprank.data.queries import Queries
from toprank.losses.base import BoundLoss, Loss

Case = tuple[str, Loss, dict[str, Any]]

_OPTIONS = {"labels", "columns", "decreasing", "scale", "silent", "document_weights", "order_dependent", "random"}
_SIZES = (5, 1, 7, 2, 4, 3, 6)  # the fifth query has equal labels


def _collect() -> list[Case]:
    cases: list[Case] = []
    for path in sorted(Path(__file__).parent.glob("loss_cases_*.py")):
        cases += import_module(path.stem).CASES
    for name, _, options in cases:
        assert set(options) <= _OPTIONS, f"{name}: unknown options {set(options) - _OPTIONS}"
    return cases


LOSSES: list[Case] = _collect()


@dataclass(frozen=True)
class Problem:
    """Ragged labels, weights and generic scores on which a loss is judged."""

    loss: Loss
    options: dict[str, Any]
    labels: np.ndarray
    queries: Queries
    document_weights: np.ndarray
    scores: np.ndarray
    teacher: np.ndarray

    @classmethod
    def of(cls, loss: Loss, options: dict[str, Any], seed: int = 0) -> Problem:
        rng, queries = np.random.default_rng(seed), Queries.from_sizes(_SIZES)
        n = queries.n_documents
        labels = labels_of_kind(options.get("labels", "graded"), n, rng)
        equal = slice(*queries.offsets[4:6])
        labels[equal] = labels[equal][0]
        weights = rng.uniform(0.5, 2.0, n)
        scores = random_scores(rng, n, options)
        return cls(loss, options, labels, queries, weights, scores, rng.standard_normal(n))

    @property
    def weights_allowed(self) -> bool:
        return bool(self.options.get("document_weights", True))

    def bound(self, weighted: bool = False, **more: Any) -> BoundLoss:
        if weighted:
            more["document_weights"] = self.document_weights
        return self.loss.on(self.labels, self.queries, teacher=self.teacher, **more)


def labels_of_kind(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "real":
        return rng.permutation(np.linspace(0.0, 3.0, n))
    top = {"binary": 1, "graded": 4}[kind]
    labels = rng.integers(0, top + 1, n).astype(np.float64)
    labels[: top + 1] = np.arange(top + 1)  # the first query shows every grade
    return labels


def random_scores(rng: np.random.Generator, n: int, options: dict[str, Any], scale: float = 1.0) -> np.ndarray:
    """Generic scores in the loss's own space."""
    shape = (n, options["columns"]) if "columns" in options else (n,)
    scores = scale * options.get("scale", 1.0) * rng.standard_normal(shape)
    if options.get("decreasing"):
        # A gap between neighbors keeps finite differences away from the barrier at coinciding columns.
        scores = -np.sort(-scores, axis=1) - 0.3 * np.arange(shape[1])
    return scores
