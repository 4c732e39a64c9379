"""What is plotted, computed from scores, labels and fitted rankers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.experiment.weights import signed_weights
from toprank.metrics.measure import Measure
from toprank.report.content import Calibration, Chart, Line, Spread, Weights

__all__ = [
    "at_cutoffs", "calibration", "calibrations", "curves_at", "hardest", "learning_curves", "most_important", "spreads",
    "weights",
]  # fmt: skip

_CUTOFFS = 20  # points of a curve over cut-offs, at most
_FAMILIES = 3
_GRADES = 8
_BINS = np.linspace(-3.0, 3.0, 41)
_FEATURES = 15
_HARDEST = 6


def at_cutoffs(
    scores: Mapping[str, FloatArray],
    data: RankingData,
    measures: Mapping[str, Measure],
    styles: Mapping[str, int],
    **options: Any,
) -> tuple[Chart, ...]:
    """Means by cut-off k = 1, 2 …, for each metric that has a cut-off; where none has, NDCG."""
    from toprank.metrics.evaluation import evaluate

    def means(name: str, asked: list[Measure]) -> Mapping[str, float]:
        return evaluate(scores[name], data, asked, **options).mean

    return curves_at(means, int(data.queries.sizes.max()), measures, styles)


def curves_at(
    means_of: Callable[[str, list[Measure]], Mapping[str, float]],
    longest: int,
    measures: Mapping[str, Measure],
    styles: Mapping[str, int],
) -> tuple[Chart, ...]:
    """`at_cutoffs`, with the means of a system's measures from a function; `longest`: size of the largest query."""
    from toprank.metrics import NDCG

    families: dict[Measure, int] = {}
    for measure in measures.values():
        if any(field.name == "k" for field in fields(measure)) and measure.depth is not None:
            bare = replace(measure, k=None)  # type: ignore[call-arg]
            families[bare] = max(families.get(bare, 0), measure.depth)
    charts = []
    for bare, deepest in list((families or {NDCG(): 10}).items())[:_FAMILIES]:
        ks = _cutoffs(max(10, deepest), longest)
        asked = {k: replace(bare, k=k) for k in ks}  # type: ignore[call-arg]
        lines = []
        for name, style in styles.items():
            means = means_of(name, list(asked.values()))
            lines.append(Line(name, tuple(map(float, ks)), tuple(means[str(one)] for one in asked.values()), style))
        charts.append(Chart(f"{bare} at k", "k", f"mean {bare}@k", tuple(lines)))
    return tuple(charts)


def _cutoffs(deepest: int, longest: int) -> list[int]:
    """1, 2, … 10, then in growing steps as far as asked, but not beyond the longest list."""
    last = max(2, min(deepest, longest))
    if last <= _CUTOFFS:
        return list(range(1, last + 1))
    return [*range(1, 11), *np.unique(np.geomspace(11, last, _CUTOFFS - 10).round().astype(int)).tolist()]


def spreads(scores: Mapping[str, FloatArray], data: RankingData, styles: Mapping[str, int]) -> tuple[Spread, ...]:
    """Scores, standardised within each query, by grade: only differences within a query decide a ranking."""
    names, members = _by_grade(data.labels, data.judged)
    if not names:
        return ()
    found = []
    for name, style in styles.items():
        z = _within_queries(scores[name], data)
        groups = [z[rows] for rows in members]
        shares = np.array([np.histogram(group, _BINS)[0] / len(group) for group in groups])
        medians = np.array([np.median(group) for group in groups])
        documents = tuple(len(group) for group in groups)
        found.append(Spread(name, style, _BINS, names, _smoothed(shares), medians, documents))
    return tuple(found)


def _within_queries(scores: FloatArray, data: RankingData) -> FloatArray:
    queries = data.queries
    values = np.asarray(scores, dtype=np.float64)
    centred = values - queries.spread(queries.sum(values) / queries.sizes)
    deviation = np.sqrt(queries.sum(centred**2) / queries.sizes)
    result: FloatArray = centred / queries.spread(np.where(deviation > 0, deviation, 1.0))
    return result


def _by_grade(labels: FloatArray, judged: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Names of the grades and the rows of each; many different labels are put into five classes."""
    distinct = np.unique(labels[judged])
    if len(distinct) <= _GRADES:
        return tuple(f"{g:g}" for g in distinct), [np.flatnonzero(labels == g) for g in distinct]
    edges = np.linspace(distinct[0], distinct[-1], 6)
    place = np.clip(np.searchsorted(edges, labels, side="right") - 1, 0, 4)
    rows = [np.flatnonzero(judged & (place == i)) for i in range(5)]
    used = [i for i in range(5) if len(rows[i])]
    return tuple(f"{edges[i]:.2g}–{edges[i + 1]:.2g}" for i in used), [rows[i] for i in used]


def _smoothed(shares: FloatArray) -> FloatArray:
    """Each bin with a part of its neighbours (1, 2, 1)/4: a histogram that does not flicker."""
    padded = np.pad(shares, ((0, 0), (1, 1)), mode="edge")
    smooth: FloatArray = (padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]) / 4
    return smooth


def calibrations(
    probabilities: Mapping[str, FloatArray], data: RankingData, styles: Mapping[str, int]
) -> tuple[Calibration, ...]:
    """Predicted P(grade ≥ 1) against what happened, for systems that give P(grade | x), one column per grade."""
    found = []
    for name, table in probabilities.items():
        given = np.asarray(table, dtype=np.float64)
        if given.ndim != 2 or len(given) != data.n_documents:
            raise DataError(
                f"The probabilities of '{name}' have shape {given.shape}; they need a row for each of "
                f"{data.n_documents} documents and a column for each grade."
            )
        if name in styles:
            found.append(calibration(name, styles[name], given[:, 1:].sum(axis=1), data))
    return tuple(found)


def calibration(system: str, style: int, relevance: FloatArray, data: RankingData) -> Calibration:
    """Predicted P(grade ≥ 1) against what happened."""
    from toprank.rankers.probabilities import calibration_curve

    judged = data.judged
    curve = calibration_curve(relevance[judged], (data.labels[judged] > 0).astype(np.float64))
    return Calibration(system, style, *curve, curve.error)


def learning_curves(rankers: Mapping[str, Any], styles: Mapping[str, int]) -> tuple[Chart, ...]:
    """Metrics by round or epoch where a ranker kept its history, and by penalty where it walked a path."""
    charts: list[Chart] = []
    for name, ranker in rankers.items():
        metric = str(getattr(ranker, "metric", "metric"))
        charts += _history_charts(name, getattr(ranker, "history_", None) or {}, metric)
        charts += _path_charts(name, getattr(ranker, "path_", None) or [], metric, styles.get(name, 0))
    return tuple(charts)


def _history_charts(name: str, history: Mapping[str, Sequence[float]], metric: str) -> list[Chart]:
    step = next((key for key in ("round", "epoch", "iteration") if key in history), None)
    columns = {key: list(values) for key, values in history.items() if key != step and _numbers(values)}
    judged: dict[str, list[float]] = {key: columns.pop(key) for key in ("train", "valid") if key in columns}
    groups = [(metric, judged)] if judged else []
    groups += [(key.replace("_", " "), {key: values}) for key, values in columns.items() if "second" not in key]
    charts = []
    for label, lines in groups:
        length = max(map(len, lines.values()))
        if length < 2:
            continue
        xs = [float(x) for x in history[step]] if step is not None else []
        drawn = []
        for i, (key, values) in enumerate(lines.items()):
            x = xs[-len(values) :] if len(xs) >= len(values) else [float(j + 1) for j in range(len(values))]
            shown = {"train": "training data", "valid": "validation data"}.get(key, key.replace("_", " "))
            drawn.append(Line(shown, tuple(x), tuple(map(float, values)), i))
        charts.append(Chart(name, step or "step", label, tuple(drawn), markers=False))
    return charts


def _numbers(values: Any) -> bool:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return array.ndim == 1 and bool(np.isfinite(array).any())


def _path_charts(name: str, path: Sequence[Mapping[str, Any]], metric: str, style: int) -> list[Chart]:
    tried = sorted((float(row["l2"]), float(row["valid"])) for row in path if row.get("l2", 0) > 0 and "valid" in row)
    if len({l2 for l2, _ in tried}) < 2:
        return []
    xs, ys = zip(*tried, strict=True)
    line = Line("validation data", xs, ys, style)
    return [Chart(name, "penalty l2", metric, (line,), scale="log")]


def weights(rankers: Mapping[str, Any], styles: Mapping[str, int], names: Sequence[str] | None) -> tuple[Weights, ...]:
    """The most important features of each ranker that can tell."""
    found = []
    for system, ranker in rankers.items():
        told = _weights_of(ranker)
        if told is None or system not in styles:
            continue
        meaning, values = told
        known = getattr(ranker, "feature_names_in_", names)
        found.append(most_important(system, styles[system], meaning, values, known))
    return tuple(found)


def most_important(system: str, style: int, meaning: str, values: FloatArray, names: Sequence[str] | None) -> Weights:
    """The features of the largest values. Without names they are numbered from 1, as in LETOR's files."""
    order = np.argsort(-np.abs(values), kind="stable")[:_FEATURES]
    order = order[values[order] != 0]
    called = [f"feature {i + 1}" if names is None else str(names[i]) for i in order.tolist()]
    return Weights(system, style, meaning, tuple(called), tuple(values[order].tolist()), len(values))


def _weights_of(ranker: Any) -> tuple[str, FloatArray] | None:
    signed = signed_weights(ranker)
    if signed is not None:
        return signed
    importances = getattr(ranker, "feature_importances_", None)
    if importances is None:
        return None
    return "Share of importance", np.asarray(importances, dtype=np.float64)


def hardest(per_query: Mapping[str, FloatArray], lower_is_better: bool, solvable: Any | None) -> tuple[int, ...]:
    """The queries that all systems together rank worst, among those where something can be gained."""
    table = np.array(list(per_query.values()))
    mean = table.mean(axis=0) * (-1.0 if lower_is_better else 1.0)
    mean = np.where(np.isnan(mean), np.inf, mean)
    if solvable is not None:
        mean = np.where(solvable, mean, np.inf)
    order = np.argsort(mean, kind="stable")[:_HARDEST]
    return tuple(order[np.isfinite(mean[order])].tolist())
