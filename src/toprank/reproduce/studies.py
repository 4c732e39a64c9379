"""Definitions of the studies: systems, model selection, published tables and claims.

Systems follow the paper as closely as it specifies them; the remarks document unspecified details.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from toprank.solvers import GradientDescent
from toprank.systems import System, get


@dataclass(frozen=True)
class PublishedTable:
    """Table of a paper: systems × datasets for one metric, or systems × metrics on one dataset.

    Attributes:
        figures: Name of the file with the published figures.
        metric: The metric, if the columns are datasets.
        dataset: The dataset, if the columns are metrics.
    """

    title: str
    figures: str
    metric: str | None = None
    dataset: str | None = None


@dataclass(frozen=True)
class Claim:
    """Claim of a paper: `better` has a higher metric than each of `worse`.

    Attributes:
        sets: Datasets that the claim refers to; empty for all.
    """

    text: str
    better: str
    worse: tuple[str, ...]
    metric: str
    sets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Duel:
    """Comparison of new systems with their predecessors in many cases, counted as better, same or worse.

    Attributes:
        pairs: Pairs of systems (new, old).
    """

    title: str
    pairs: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]
    figures: str | None = None


@dataclass(frozen=True)
class Study:
    """Protocol of a paper.

    Args:
        name: name of the study on the command line.
        paper: citation.
        systems: name in the tables → system.
        reversed_rows: name → system that is fitted again with the rows of each query in reverse order.
        metrics: reported metrics.
        selection_metric: metric for the selection of hyper-parameters on validation data.
        convention: evaluation convention of the paper, or the closest one to its description.
        remarks: details that the paper does not specify, and our choices.
        seeds: seeds for systems that use randomness.
    """

    name: str
    paper: str
    systems: Mapping[str, Any]
    metrics: tuple[str, ...]
    selection_metric: str
    convention: str
    tables: tuple[PublishedTable, ...] = ()
    claims: tuple[Claim, ...] = ()
    duels: tuple[Duel, ...] = ()
    reversed_rows: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)


_TOLERANCES = (1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3)
_NEWTON_L2 = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def _list_mle(ties: Literal["file", "efron", "random"], *, descent: bool) -> System:
    """Return ListMLE by gradient descent as in the paper (rate 1e-3, searched tolerance), or by Newton's method."""
    options: dict[str, Any] = {"ties": ties}
    grid: dict[str, tuple[float, ...]] = {"l2": _NEWTON_L2}
    if descent:
        plain = {"solver": GradientDescent(learning_rate=1e-3), "l2": 0.0, "standardize": False}
        options |= {**plain, "tolerance": _TOLERANCES, "max_iterations": 10_000}
        grid = {}
    return System("ListMLE", "LinearRanker", "ListMLE", "", "", options=options, grid=grid, metric="avgndcg")


_PCF = {pcf: "cs-RgList" if pcf == 3 else f"cs-RgList pCf={pcf}" for pcf in (3, 1, 2, 4, 5, 6)}
_CS_EFRON, _EFRON = "cs-RgList, Efron's ties", "ListMLE by Newton, Efron's ties"
_FILE = "ListMLE by Newton, ties in file order"
_REVERSED, _RANDOM = "ListMLE by Newton, ties in reversed order", "ListMLE by Newton, ties in random order"

_CS_RGLIST = Study(
    name="cs-rglist",
    paper="cs-RgList: cost-sensitive ListMLE by Newton's method, Tables 1-3",
    systems={
        "ListMLE": _list_mle("file", descent=True),
        **{name: ("cs-RgList", {"pcf": float(pcf), "ties": "file"}) for pcf, name in _PCF.items()},
        _CS_EFRON: ("cs-RgList", {"pcf": 3.0}),
        _FILE: _list_mle("file", descent=False),
        _RANDOM: _list_mle("random", descent=False),
        _EFRON: _list_mle("efron", descent=False),
    },
    reversed_rows={"cs-RgList, rows reversed": "cs-RgList", _REVERSED: _FILE},
    metrics=("avgndcg", *(f"ndcg@{k}" for k in range(1, 11))),
    selection_metric="avgndcg",
    convention="standard",
    tables=(
        PublishedTable("Table 1: AvgNDCG", "cs-rglist-avgndcg", metric="avgndcg"),
        PublishedTable("Table 2: costs on TD2003", "cs-rglist-pcf", dataset="TD2003"),
        PublishedTable("Table 3: NP2004", "cs-rglist-np2004", dataset="NP2004"),
    ),
    claims=(
        Claim("cs-RgList with pCf = 3 beats ListMLE on every set", "cs-RgList", ("ListMLE",), "avgndcg"),
        *(
            Claim(f"… and with pCf = {pcf}", name, ("ListMLE",), "avgndcg")
            for pcf, name in _PCF.items()
            if name != "cs-RgList"
        ),
        Claim(
            "a large cost (pCf = 6) beats none (pCf = 1), stated for TD2003",
            _PCF[6],
            (_PCF[1],),
            "avgndcg",
            ("TD2003",),
        ),
        Claim("not in the paper: cs-RgList beats ListMLE solved to the optimum", "cs-RgList", (_FILE,), "avgndcg"),
        Claim("not in the paper: the same, ties by Efron's method in both", _CS_EFRON, (_EFRON,), "avgndcg"),
        Claim("not in the paper: Efron's ties beat file order in ListMLE", _EFRON, (_FILE,), "avgndcg"),
        Claim("not in the paper: file order beats reversed order in ListMLE", _FILE, (_REVERSED,), "avgndcg"),
    ),
    remarks=(
        "The paper does not specify the order of documents with equal grades in the ideal list. We use 'file' order "
        "and report the other orders as well.",
        "ListMLE: gradient descent on the mean over queries, learning rate 1e-3 on unscaled features, at most 10,000 "
        "steps; the tolerance (change of the loss) is selected on validation data.",
    ),
    seeds=(0, 1, 2),
)

_OWPC_SYSTEMS = (
    "RankSVM", "SVM-map", "AdaRank-MAP", "AdaRank-NDCG", "ListNet", "OWPC-top10", "OWPC-constant", "OWPC-1/j", "OWPC",
)  # fmt: skip
_OWPC = Study(
    name="owpc",
    paper="Usunier, Buffoni & Gallinari 2009, ordered weighted pairwise classification, Tables 1-4",
    systems={name: name for name in _OWPC_SYSTEMS},
    metrics=("map", "ndcg@1", "ndcg@3"),
    selection_metric="map",
    convention="letor3",
    tables=(
        PublishedTable("Tables 1 and 2: MAP", "owpc-map", metric="map"),
        PublishedTable("Table 3: NDCG@1", "owpc-ndcg1", metric="ndcg@1"),
        PublishedTable("Table 4: NDCG@3", "owpc-ndcg3", metric="ndcg@3"),
    ),
    claims=(
        Claim("constant weights on the top 10 % beat constant weights", "OWPC-top10", ("OWPC-constant",), "map"),
        *(
            Claim(
                f"OWPC with weights 1/j is at least as good as the baselines ({metric})",
                "OWPC-1/j",
                ("RankSVM", "SVM-map", "AdaRank-MAP" if metric == "map" else "AdaRank-NDCG", "ListNet"),
                metric,
            )
            for metric in ("map", "ndcg@1", "ndcg@3")
        ),
        Claim("not in the paper: OWPC with weights 1/j beats RankSVM", "OWPC-1/j", ("RankSVM",), "map"),
    ),
    remarks=(
        "The published figures of the baselines were provided with LETOR; ours are our own implementations under the "
        "same protocol, selected by MAP on validation data.",
        "The paper excludes OHSUMED because its method needs binary judgments; our implementation supports grades, so "
        "OHSUMED is included if available.",
    ),
)


def _descent(system: str) -> System:
    """Return the linear system, trained by gradient descent without a penalty as in the paper."""
    known = get(system)
    grid = {name: values for name, values in known.grid.items() if name == "alpha"}
    own = {"solver": GradientDescent(backtracking=True), "l2": 0.0, "max_iterations": 300}
    return System(known.name, known.ranker, known.loss, "", "", options={**known.options, **own}, grid=grid)


def _expected(loss: str, alphas: bool) -> System:
    """Return expected gain as in the paper: warm start from the linear ranker, gradient descent, selected ε."""
    grid: dict[str, tuple[Any, ...]] = {"saturation": (0.6, 0.7, 0.8, 0.9, 1.0)}
    if alphas:
        grid["alpha"] = (0.1, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0)
    options = {"solver": GradientDescent(backtracking=True), "l2": 0.0, "init": "linear", "max_iterations": 300}
    return System("ExpectedGain", "ExpectedGainRanker", loss, "", "", options=options, grid=grid)


_LOSSES = {"cosine": "RankCosine", "cross entropy": "ListNet", "squared": "LeastSquares"}
_CASES = ("ndcg@1", "ndcg@5", "ndcg@10")
_BAYES = Study(
    name="bayes-optimal",
    paper="Yang, Ravikumar & Lease 2010, expected-gain ranking functions, Table 1 and the 63 cases of Figure 1",
    systems={
        **{f"linear, {loss}": _descent(system) for loss, system in _LOSSES.items()},
        "expected gain, cosine": _expected("Cosine", False),
        "expected gain, cross entropy": _expected("ListNet", True),
        "expected gain, squared": _expected("Squared", False),
        **{f"linear with penalty, {loss}": get(system) for loss, system in _LOSSES.items()},
        **{f"expected gain with penalty, {loss}": get(f"ExpectedGain-{loss.replace(' ', '')}") for loss in _LOSSES},
    },
    metrics=_CASES,
    selection_metric="ndcg@10",
    convention="letor3",
    duels=(
        Duel(
            "Table 1: expected gain against linear, by gradient descent as in the paper",
            tuple((f"expected gain, {loss}", f"linear, {loss}") for loss in _LOSSES),
            _CASES,
            "bayes-optimal",
        ),
        Duel(
            "Not in the paper: both with an L2 penalty chosen on validation data, solved to the optimum",
            tuple((f"expected gain with penalty, {loss}", f"linear with penalty, {loss}") for loss in _LOSSES),
            _CASES,
        ),
    ),
    claims=(
        *(
            Claim(f"{note} ({loss} loss)", f"expected gain{how}, {loss}", (f"linear{how}, {loss}",), "ndcg@10")
            for note, how in (
                ("expected gain beats linear", ""),
                ("not in the paper: the same with penalties", " with penalty"),
            )
            for loss in _LOSSES
        ),
    ),
    remarks=(
        "The paper uses gradient descent from a MATLAB package without tuning. We use gradient descent with "
        "backtracking, at most 300 steps, without a penalty, warm-started from the linear ranker as in the paper. It "
        "stops when the objective changes by less than 1e-4. Under the cosine loss, the linear ranker then stops long "
        "before convergence, which makes this baseline weaker.",
        "A case is better or worse if the randomization test on the pooled queries gives p < 0.05, without correction, "
        "as in the paper.",
    ),
)

STUDIES: dict[str, Study] = {study.name: study for study in (_CS_RGLIST, _OWPC, _BAYES)}
