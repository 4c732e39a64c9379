"""Comparison of click models on held-out sessions, with click rates as baselines."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toprank.clicks.cascades import CCM, DBN, DCM, SDBN, Cascade
from toprank.clicks.log import ClickLog, UnidentifiedWarning, bootstrap_weights, sums
from toprank.clicks.models import ClickModel, check_lists
from toprank.clicks.products import PBM, UBM
from toprank.clicks.rates import DocumentCTR, GlobalCTR, RankCTR
from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.display.pictures import Chart, Line, Picture, curves
from toprank.display.record import Record
from toprank.display.tables import Part, Table, json_rows, percent
from toprank.errors import DataError, UnknownNameError, held_warnings
from toprank.significance import Interval, bootstrap_t_interval, effective_sample_size
from toprank.significance.resampling import mean_interval

RATES: tuple[type[ClickModel], ...] = (GlobalCTR, RankCTR, DocumentCTR)  # Baselines of every comparison.
_ALL: tuple[type[ClickModel], ...] = (*RATES, PBM, UBM, Cascade, DCM, SDBN, DBN, CCM)
MODELS: dict[str, type[ClickModel]] = {kind.__name__: kind for kind in _ALL}
Models = Mapping[str, ClickModel] | Sequence[ClickModel]


def model_named(name: str) -> type[ClickModel]:
    """Return a click model class by its name, case-insensitively.

    >>> model_named("pbm").__name__
    'PBM'
    """
    chosen = {known.lower(): model for known, model in MODELS.items()}.get(name.lower())
    if chosen is None:
        raise UnknownNameError("click model", name, MODELS)
    return chosen


@dataclass(frozen=True, repr=False)
class ComparedModels(Record):
    """Held-out likelihood of click models; sessions are weighted by their weights.

    Attributes:
        names: names of the models, by decreasing likelihood.
        log_likelihoods: mean over sessions of log P(clicks), natural logarithm.
        perplexities: mean perplexity over ranks, as in `Perplexity`.
        by_rank: perplexity of each rank, for each model.
        gains: log-likelihood minus the log-likelihood of the best baseline.
        intervals: bootstrap intervals of the gains over queries; NaN for models that assign probability 0 to observed
            clicks.
        best_rate: name of the best baseline.
        sessions: number of held-out sessions, and of their queries.
        models: the models by name, fitted to the other sessions.
        confidence: confidence level of the intervals.
        likely: log-likelihood of each held-out session, for each model.
        held_out: the held-out sessions.
    """

    names: tuple[str, ...]
    log_likelihoods: FloatArray
    perplexities: FloatArray
    by_rank: tuple[FloatArray, ...]
    gains: FloatArray
    intervals: Interval[FloatArray]
    best_rate: str
    sessions: tuple[int, int]
    models: Mapping[str, ClickModel]
    confidence: float
    likely: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    held_out: ClickLog | None = field(default=None, repr=False)

    def gain(self, one: str, other: str) -> Interval:
        """Return the difference in log-likelihood per session of two models, with an interval over queries."""
        return pooled_gain([self], one, other)

    def _columns(self) -> dict[str, Sequence[Any]]:
        numbers = {"log_likelihood": self.log_likelihoods, "perplexity": self.perplexities, "gain": self.gains}
        numbers |= {"low": self.intervals.low, "high": self.intervals.high}
        return {"model": list(self.names), **{name: values.tolist() for name, values in numbers.items()}}

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as values that JSON can hold; numbers that are not finite are None."""
        return {
            "summary": self.summary,
            "held_out_sessions": self.sessions[0],
            "best_rate": self.best_rate,
            "models": json_rows(self._columns() | {"by_rank": [values.tolist() for values in self.by_rank]}),
        }

    def table(self) -> Table:
        """Return one row per model."""
        low, high = self.intervals
        rows = []
        for place, name in enumerate(self.names):
            gain = ("", "the best rate")
            if name != self.best_rate:
                sure = np.isfinite(low[place])
                gain = f"{self.gains[place]:+.4f}", f"[{low[place]:+.4f}, {high[place]:+.4f}]" if sure else "—"
            rows.append((name, f"{self.log_likelihoods[place]:.4f}", f"{self.perplexities[place]:.4f}", *gain))
        names = ("model", "log-likelihood", "perplexity", "gain", f"{percent(self.confidence)} interval")
        return Table(names, rows, names=1)

    @property
    def summary(self) -> str:
        """The held-out sessions and the meaning of the columns."""
        words = (
            f"{self.sessions[0]:,} held-out sessions of {self.sessions[1]:,} queries. Log-likelihood is per session, "
            "in nats; higher is better. Perplexity is 1 for a perfect model, 2 for a coin toss."
        )
        if np.isfinite(self.log_likelihoods).all():
            return words
        return f"{words} A log-likelihood of -inf means that the model assigns probability 0 to observed clicks."

    def plot(self, named: bool = True) -> Picture:
        """Draw the perplexity by rank of each model with finite perplexities."""
        if not self.finite:
            raise DataError("No model has a finite perplexity at every rank, so there is nothing to draw.")
        lines = [
            Line(name, tuple(k + 1.0 for k in range(len(values))), tuple(values.tolist()), style)
            for style, (name, values) in enumerate(self.finite.items())
        ]
        return curves(Chart("Perplexity by rank", "rank", "perplexity", tuple(lines)), named)

    @property
    def finite(self) -> dict[str, FloatArray]:
        """Perplexity by rank of the models for which all are finite."""
        of_models = zip(self.names, self.by_rank, strict=True)
        return {name: values for name, values in of_models if np.isfinite(values).all()}

    def _parts(self) -> Sequence[Part]:
        return [self.summary, self.table()]


def pooled_gain(parts: Sequence[ComparedModels], one: str, other: str) -> Interval:
    """Return the difference in held-out log-likelihood of two models, pooled over several parts of a log.

    In each part, both models are fitted to its own sessions. A query with sessions in several parts is one unit.
    """
    each, queries, counts, n = [], [], [], 0
    for part in parts:
        for name in (one, other):
            if name not in part.likely:
                raise UnknownNameError("click model among those compared", name, part.likely)
        assert part.held_out is not None
        each.append(part.likely[one] - part.likely[other])
        queries.append(part.held_out.session_query)
        counts.append(part.held_out.session_weights)
        n = part.held_out.n_queries
    differences, query, count = np.concatenate(each), np.concatenate(queries), np.concatenate(counts)
    confidence = parts[0].confidence
    if not np.isfinite(differences).all():
        return Interval(np.nan, -np.inf, np.inf, confidence, 0, "a model assigns probability 0 to clicks", "gain")
    sessions = sums(query, count, n)
    has_sessions = sessions > 0
    means = sums(query, count * differences, n)[has_sessions] / sessions[has_sessions]
    return mean_interval(means, sessions[has_sessions], confidence, "gain")


def compare_models(
    log: ClickLog,
    models: Models,
    *,
    data: RankingData | None = None,
    holdout: float = 0.2,
    n_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> ComparedModels:
    """Fit click models to a part of the sessions and compare their likelihood on the held-out ones.

    Args:
        log: sessions; a random part of them is held out.
        models: models to fit, as a list or a mapping from names; they are copied. The click rates are always included.
        data: features, for models whose attraction is a ranker.
        holdout: fraction of the sessions to hold out. Default: 0.2.
        n_resamples: number of bootstrap resamples of queries for the intervals of the gains. Default: 1000.
        confidence: confidence level of the intervals. Default: 0.95.
        seed: seed of the random generator.

    >>> import toprank as tr
    >>> data = tr.synthetic(n_queries=30, seed=0)
    >>> log = tr.clicks.simulate(data, data.X[:, 0], tr.clicks.PBM.from_parameters([1, 0.5, 0.25]), sessions=2_000, k=3)
    >>> sorted(tr.clicks.compare_models(log, [tr.clicks.PBM()]).names)
    ['DocumentCTR', 'GlobalCTR', 'PBM', 'RankCTR']
    """
    check_lists(log)
    check_number("holdout", holdout, above=0, below=1)
    check_whole("n_resamples", n_resamples, 2)
    check_number("confidence", confidence, above=0, below=1)
    rng, named = np.random.default_rng(seed), _named_models(models)
    count = round(holdout * log.n_sessions)
    if not 0 < count < log.n_sessions:
        raise DataError(
            f"A holdout of {holdout:g} of {log.n_sessions} sessions leaves none to {'test' if count == 0 else 'fit'}."
        )
    aside = np.zeros(log.n_sessions, dtype=bool)
    aside[rng.permutation(log.n_sessions)[:count]] = True
    old, new = log.select(~aside), log.select(aside)
    with held_warnings(UnidentifiedWarning):  # Unidentified parameters do not affect the held-out likelihood.
        for model in named.values():
            model.fit(old, data if model.attraction is not None else None)
    likely = {name: model.session_log_likelihoods(new) for name, model in named.items()}
    means = {name: float(np.average(values, weights=new.session_weights)) for name, values in likely.items()}
    floor = max((name for name, model in named.items() if type(model) in RATES), key=means.__getitem__)
    order = tuple(sorted(named, key=lambda name: -means[name]))
    gains = _gains([likely[name] - likely[floor] for name in order], new, n_resamples, confidence, seed)
    surprise = [named[name].perplexity(new) for name in order]
    likelihoods = np.array([means[name] for name in order])
    return ComparedModels(
        names=order,
        log_likelihoods=likelihoods,
        perplexities=np.array([float(value) for value in surprise]),
        by_rank=tuple(value.by_rank for value in surprise),
        gains=likelihoods - means[floor],
        intervals=gains,
        best_rate=floor,
        sessions=(new.n_sessions, len(np.unique(new.session_query))),
        models=named,
        confidence=confidence,
        likely=likely,
        held_out=new,
    )


def _named_models(models: Models) -> dict[str, ClickModel]:
    named = dict(models) if isinstance(models, Mapping) else {}
    for model in () if isinstance(models, Mapping) else models:
        name = type(model).__name__
        if name in named:
            raise DataError(f"Two models are called {name}. Give them names: {{'{name} with …': model, …}}.")
        named[name] = model
    for model in named.values():
        if not isinstance(model, ClickModel):
            raise DataError(f"Models must be click models, such as tr.clicks.PBM(), not {model!r:.60}.")
    kinds = {type(model) for model in named.values()}
    rates = {kind.__name__: kind() for kind in RATES if kind not in kinds}
    if taken := rates.keys() & named.keys():
        raise DataError(f"'{min(taken)}' is the name of a click rate, which is always included. Rename the model.")
    return {name: copy.copy(model) for name, model in named.items()} | rates


def _gains(
    differences: Sequence[FloatArray], log: ClickLog, n_resamples: int, confidence: float, seed: int
) -> Interval[FloatArray]:
    """Return the mean differences of sessions, with bootstrap intervals over queries."""
    n, count = log.n_queries, log.session_weights
    size = sums(log.session_query, count, n)
    possible = [
        difference if np.isfinite(difference).all() else np.full(len(difference), np.nan) for difference in differences
    ]
    totals = np.stack([sums(log.session_query, difference * count, n) for difference in possible])
    draws = [
        np.array([weights @ total for total in totals]) / (weights @ size)
        for weights in bootstrap_weights(log, n_resamples, seed)
    ]
    n_equal = effective_sample_size(size)  # a few popular queries have a small effective sample size
    return bootstrap_t_interval(totals.sum(axis=1) / size.sum(), draws, n_equal, confidence)
