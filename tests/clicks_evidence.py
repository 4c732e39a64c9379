"""Corrections and estimates of a log, bound to data for one question."""

from __future__ import annotations

from toprank.clicks.corrections import Correction
from toprank.clicks.evaluation import estimate_rankers
from toprank.clicks.evidence import bind
from toprank.clicks.policies import Metric


def correct(log, data, name, curves=None, clip=None, regression=None, reward="click"):
    """The relevance of each row by a correction."""
    evidence = bind(log, data, reward=reward, propensities=curves, regression=regression)
    return evidence.relevance(Correction(name, clip), reward)


def judge_by(estimators, ranks, log, data, metrics, **how):
    """Estimates of rankers by name, by each estimator."""
    return estimate_rankers(
        bind(log, data, **how), [Correction(name) for name in estimators], ranks, list(map(Metric.from_name, metrics))
    )
