"""Parser for names of measures, including the spellings of other tools; `parse(str(m)) == m`.

The canonical form is ``name@k(option=value,…)``: ``ndcg@10``, ``ap@100(norm=hits)``, ``rbp(p=0.9)``. Also accepted:
trec_eval's ``ndcg_cut_10``, ``P.5``, ``recip_rank``, ``map_cut_100``; ir_measures' ``nDCG@10``, ``AP(rel=2)@10``,
``R@100``; LightGBM's and XGBoost's ``ndcg@10``, ``map@10``, ``ndcg@10-``, ``pre@5``. The spelling never sets the gain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from toprank.errors import DataError, UnknownNameError
from toprank.metrics.binary import AP, RR, Precision, Recall, RPrecision, Success
from toprank.metrics.graded import DCG, ERR, NDCG, RBP, ApproxERR, AvgNDCG
from toprank.metrics.measure import Measure
from toprank.metrics.pairs import OWA, KendallTau, PairwiseAccuracy, SpearmanRho, TCriterion

_GRADED = (NDCG, DCG, AvgNDCG, ERR, ApproxERR, RBP)
_BINARY = (AP, RR, Precision, Recall, Success, RPrecision)
_PAIRS = (TCriterion, PairwiseAccuracy, KendallTau, SpearmanRho, OWA)
MEASURES: dict[str, type[Measure]] = {kind.name: kind for kind in (*_GRADED, *_BINARY, *_PAIRS)}
_SPELLINGS = {
    "ndcg": "ndcgcut", "ap": "map mapcut averageprecision", "rr": "mrr reciprank reciprocalrank",
    "p": "precision prec pre", "recall": "r", "success": "hit hitrate", "rprec": "rprecision", "approxerr": "aerr",
    "t": "tcriterion", "pairacc": "pairwiseaccuracy", "tau": "kendall kendalltau", "rho": "spearman spearmanrho",
    "owa": "owaerror",
}  # fmt: skip
_ALIASES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_SHAPE = re.compile(
    r"(?P<name>[a-z][a-z0-9_\- ]*?)(?:[_.](?P<trec>\d+))?(?P<first>\([^()]*(?:\([^()]*\)[^()]*)*\))?"
    r"(?:@(?P<cut>\d+))?(?P<second>\([^()]*(?:\([^()]*\)[^()]*)*\))?(?P<minus>-)?",
    re.IGNORECASE,
)


def parse(metric: Measure | str) -> Measure:
    """Return the measure with a name.

    >>> parse("nDCG@10") == parse("ndcg_cut_10") == NDCG(10)
    True
    >>> str(parse("AP(rel=2)@100"))
    'ap@100(rel=2)'
    """
    if isinstance(metric, Measure):
        return metric
    if not isinstance(metric, str):
        raise _no_metric(metric)
    match = _SHAPE.fullmatch(metric.strip())
    if match is None:
        raise UnknownNameError("metric", metric, known_names())
    bare = re.sub(r"[_\- ]", "", match["name"].lower())
    name = _ALIASES.get(bare, bare)
    options = {**_options(match["first"], metric), **_options(match["second"], metric)}
    if name == "meanndcg":
        name, options["k"] = "avgndcg", None
    kind = MEASURES.get(name)
    if kind is None:
        raise UnknownNameError("metric", metric, known_names())
    cut = match["cut"] or match["trec"]
    if cut is not None:
        options["k"] = int(cut)
    if match["minus"]:
        options["no_relevant"] = "zero"  # XGBoost's suffix: queries without relevant documents count 0
    return _make(kind, options, metric)


def parse_all(metrics: str | Measure | Iterable[str | Measure]) -> dict[str, Measure]:
    """Return measures by name, as the caller spells them; a string may list several, separated by commas.

    >>> list(parse_all("ndcg@10, map"))
    ['ndcg@10', 'map']
    """
    if isinstance(metrics, Measure):
        metrics = [metrics]
    if isinstance(metrics, str):
        metrics = [part for part in re.split(r",(?![^(]*\))", metrics) if part.strip()]
    if not isinstance(metrics, Iterable):
        raise _no_metric(metrics)
    measures: dict[str, Measure] = {}
    for part in metrics:
        name, measure = part.strip() if isinstance(part, str) else str(part), parse(part)
        if measures.setdefault(name, measure) != measure:
            raise DataError(f"Two different metrics are called '{name}'. Give custom measures distinct names.")
    if not measures:
        raise DataError("No metric was given. Name at least one, for example ndcg@10.")
    return measures


def _no_metric(value: Any) -> DataError:
    if callable(value):
        return DataError(
            "A function must be wrapped to be used as a metric: toprank.metrics.Custom('name', function), with a "
            "convention that orders ties, such as convention='letor-clipped'."
        )
    return DataError(f"{value!r} is not a metric. Give a name such as 'ndcg@10', or a measure of toprank.metrics.")


def known_names() -> list[str]:
    """Return the names to suggest for an unknown metric, with a cut-off if it is common."""
    cut = [f"{name}@10" for name in ("ndcg", "err", "p", "recall")]
    return [*MEASURES, *cut, *sorted(_ALIASES)]


def _options(text: str | None, spelling: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in re.split(r",(?![^\[(]*[\])])", text[1:-1]) if text else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise DataError(f"'{part.strip()}' in the metric '{spelling}' must have the form option=value.")
        options[key.strip().lower()] = _value(value.strip().strip("'\""))
    if "blank" in options:  # the name of the option in model files of earlier versions
        options["no_relevant"] = options.pop("blank")
    if "dcg" in options:  # ir_measures: nDCG(dcg='exp-log2')
        options["gain"] = options.pop("dcg")
    return options


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _make(kind: type[Measure], options: dict[str, Any], spelling: str) -> Measure:
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            if name == "k" or not known:
                raise DataError(
                    f"The metric '{kind.name}' takes no {'cut-off' if name == 'k' else 'options'} ('{spelling}')."
                )
            raise UnknownNameError(f"option of {kind.name}", name, known)
    if isinstance(options.get("k"), float):
        if not options["k"].is_integer():
            raise DataError(f"The cut-off in the metric '{spelling}' must be a whole number.")
        options["k"] = int(options["k"])
    numeric = {"rel", "p", "beta", "max_grade"}
    for name, value in options.items():
        if name in numeric and not isinstance(value, float):
            raise DataError(f"{name} in the metric '{spelling}' must be a number, not '{value}'.")
    return kind(**options)
