"""Names of measures, read and written: `parse(str(m)) == m`, and the spellings of the usual tools are understood.

The canonical form is ``name@k(option=value,…)``: ``ndcg@10``, ``ap@100(norm=hits)``, ``rbp(p=0.9)``. Also read:
trec_eval's ``ndcg_cut_10``, ``P.5``, ``recip_rank``, ``map_cut_100``; ir_measures' ``nDCG@10``, ``AP(rel=2)@10``,
``R@100``; LightGBM's and XGBoost's ``ndcg@10``, ``map@10``, ``ndcg@10-``, ``pre@5``. Spelling never sets the gain.
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


def parse(what: Measure | str) -> Measure:
    """The measure of that name.

    >>> parse("nDCG@10") == parse("ndcg_cut_10") == NDCG(10)
    True
    >>> str(parse("AP(rel=2)@100"))
    'ap@100(rel=2)'
    """
    if isinstance(what, Measure):
        return what
    if not isinstance(what, str):
        raise _no_metric(what)
    match = _SHAPE.fullmatch(what.strip())
    if match is None:
        raise UnknownNameError("metric", what, known_names())
    bare = re.sub(r"[_\- ]", "", match["name"].lower())
    name = _ALIASES.get(bare, bare)
    options = {**_options(match["first"], what), **_options(match["second"], what)}
    if name == "meanndcg":
        name, options["k"] = "avgndcg", None
    kind = MEASURES.get(name)
    if kind is None:
        raise UnknownNameError("metric", what, known_names())
    cut = match["cut"] or match["trec"]
    if cut is not None:
        options["k"] = int(cut)
    if match["minus"]:
        options["no_relevant"] = "zero"  # XGBoost's suffix: a query with nothing relevant counts 0
    return _make(kind, options, what)


def parse_all(what: str | Measure | Iterable[str | Measure]) -> dict[str, Measure]:
    """Several measures by their spellings, which are kept as names; a string may hold a list separated by commas.

    >>> list(parse_all("ndcg@10, map"))
    ['ndcg@10', 'map']
    """
    if isinstance(what, Measure):
        what = [what]
    if isinstance(what, str):
        what = [part for part in re.split(r",(?![^(]*\))", what) if part.strip()]
    if not isinstance(what, Iterable):
        raise _no_metric(what)
    measures: dict[str, Measure] = {}
    for part in what:
        name, measure = part.strip() if isinstance(part, str) else str(part), parse(part)
        if measures.setdefault(name, measure) != measure:
            raise DataError(f"Two different metrics are both called '{name}'; give a function a name of its own.")
    if not measures:
        raise DataError("No metric is named; ask for at least one, for example ndcg@10.")
    return measures


def _no_metric(value: Any) -> DataError:
    if callable(value):
        return DataError(
            "A function is no metric by itself; give it a name, and a convention that orders ties: "
            "toprank.metrics.Custom('name', function), convention='letor-clipped'."
        )
    return DataError(f"A metric is a name such as 'ndcg@10', or a measure of toprank.metrics, not {value!r}.")


def known_names() -> list[str]:
    """The names to suggest when a metric is unknown; those that usually have a cut-off also with one."""
    cut = [f"{name}@10" for name in ("ndcg", "err", "p", "recall")]
    return [*MEASURES, *cut, *sorted(_ALIASES)]


def _options(text: str | None, spelling: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in re.split(r",(?![^\[(]*[\])])", text[1:-1]) if text else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise DataError(f"'{part.strip()}' in the metric '{spelling}' is not of the form option=value.")
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
