"""The metrics once more, as plainly as they can be written: one list of labels in rank order, no ties, no arrays.

Each function takes the labels of a fully ordered list. Expectations over tied orders come from enumeration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import fmean

Labels = Sequence[float]


def log2_discount(rank: int) -> float:
    return math.log2(1 + rank)


def letor_discount(rank: int) -> float:
    return 1.0 if rank <= 2 else math.log2(rank)


def exponential(label: float) -> float:
    return 2**label - 1


def dcg(labels: Labels, k=None, gain=exponential, discount=log2_discount) -> float:
    return sum(gain(y) / discount(j) for j, y in enumerate(labels[:k], start=1))


def ndcg(labels: Labels, k=None, gain=exponential, discount=log2_discount, blank=0.0) -> float:
    ideal = dcg(sorted(labels, key=gain, reverse=True), k, gain, discount)
    return dcg(labels, k, gain, discount) / ideal if ideal > 0 else blank


def average_ndcg(labels: Labels, k=10, **options) -> float:
    return fmean(ndcg(labels, cut, **options) for cut in range(1, (k or len(labels)) + 1))


def err(labels: Labels, k=None, max_grade=4.0) -> float:
    total, reading = 0.0, 1.0
    for rank, y in enumerate(labels[:k], start=1):
        stop = (2**y - 1) / 2**max_grade
        total += reading * stop / rank
        reading *= 1 - stop
    return total


def approx_err(labels: Labels, k=None, beta=2.0, max_grade=4.0) -> float:
    return sum((2**y - 1) / 2**max_grade / j**beta for j, y in enumerate(labels[:k], start=1))


def rbp(labels: Labels, p=0.8, max_grade=4.0) -> float:
    return (1 - p) * sum(p**i * y / max_grade for i, y in enumerate(labels))


def ap(labels: Labels, k=None, norm="all", rel=1) -> float:
    hits, total = 0, 0.0
    for rank, y in enumerate(labels[:k], start=1):
        if y >= rel:
            hits += 1
            total += hits / rank
    relevant = sum(y >= rel for y in labels)
    by = {"all": relevant, "hits": hits, "min": min(relevant, k or len(labels))}[norm]
    return total / by if by else 0.0


def rr(labels: Labels, k=None, rel=1) -> float:
    return next((1 / rank for rank, y in enumerate(labels[:k], start=1) if y >= rel), 0.0)


def precision(labels: Labels, k, rel=1) -> float:
    return sum(y >= rel for y in labels[:k]) / k


def recall(labels: Labels, k=None, rel=1) -> float:
    relevant = sum(y >= rel for y in labels)
    return sum(y >= rel for y in labels[:k]) / relevant if relevant else 0.0


def success(labels: Labels, k=None, rel=1) -> float:
    return float(any(y >= rel for y in labels[:k]))


def r_precision(labels: Labels, rel=1) -> float:
    relevant = sum(y >= rel for y in labels)
    return precision(labels, relevant, rel) if relevant else 0.0


def t_criterion(labels: Labels) -> float:
    m = len(labels)
    if m < 2 or len(set(labels)) == 1:
        return math.nan
    return 2 / (m * (m - 1)) * sum(a - b for a, b in itertools.combinations(labels, 2))


def tied_orders(scores: Sequence[float], labels: Labels):
    """Every order of the labels that sorts the scores downwards, each once per permutation of tied documents."""
    groups = []
    for score in sorted(set(scores), reverse=True):
        groups.append([y for s, y in zip(scores, labels, strict=True) if s == score])
    for orders in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [y for order in orders for y in order]


def expected(metric: Callable[[Labels], float], scores: Sequence[float], labels: Labels) -> float:
    """Mean of a metric over all tied orders, by enumeration."""
    return fmean(metric(order) for order in tied_orders(scores, labels))


def in_file_order(scores: Sequence[float], labels: Labels) -> list[float]:
    order = sorted(range(len(scores)), key=lambda i: -scores[i])  # sorted() is stable
    return [labels[i] for i in order]
