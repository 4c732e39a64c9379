"""The studies that can be rerun: which systems, what they are chosen by, which tables and which claims.

A study is a value. Its systems follow the paper as closely as it tells; what the paper does not tell is said beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from toprank.solvers import GradientDescent
from toprank.systems import System, get


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper: systems by sets for one metric, or systems by metrics on one set.

    Attributes:
        figures: Name of the file with its figures.
        metric: The metric, where the columns are sets.
        dataset: The set, where the columns are metrics.
    """

    title: str
    figures: str
    metric: str | None = None
    dataset: str | None = None


@dataclass(frozen=True)
class Claim:
    """Something a paper says of two systems: `better` has the higher metric than each of `worse`, on a set.

    Attributes:
        sets: The sets it is said of; empty: of every set.
    """

    text: str
    better: str
    worse: tuple[str, ...]
    metric: str
    sets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Duel:
    """A new system against the one it is to replace, case by case, as a table counts better, same and worse.

    Attributes:
        pairs: (new, old).
    """

    title: str
    pairs: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]
    figures: str | None = None


@dataclass(frozen=True)
class Study:
    """A paper's protocol.

    Args:
        name: what the command calls it.
        paper: whose.
        systems: name in the tables → what is fitted.
        reversed_rows: systems to fit once more with the rows of each query in the opposite order: name → name.
        metrics: what is reported.
        selection_metric: what hyper-parameters are chosen by, on validation data.
        convention: the rules that the paper says it uses, or that come nearest to what it says.
        remarks: what the paper leaves open, and what was done about it.
        seeds: seeds for systems that draw.
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
    """ListMLE by gradient descent as in the paper (rate 1e-3, the tolerance searched), or by Newton with a penalty."""
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
            "a large cost (pCf = 6) beats none (pCf = 1), said of TD2003", _PCF[6], (_PCF[1],), "avgndcg", ("TD2003",)
        ),
        Claim("not in the paper: cs-RgList beats ListMLE solved to the optimum", "cs-RgList", (_FILE,), "avgndcg"),
        Claim("not in the paper: the same, ties by Efron's method in both", _CS_EFRON, (_EFRON,), "avgndcg"),
        Claim("not in the paper: Efron's ties beat file order in ListMLE", _EFRON, (_FILE,), "avgndcg"),
        Claim("not in the paper: file order beats reversed order in ListMLE", _FILE, (_REVERSED,), "avgndcg"),
    ),
    remarks=(
        "The paper does not say how documents of the same grade are ordered in the ideal list; 'file' order is the "
        "plainest reading, and the other orders are reported beside it.",
        "ListMLE: gradient descent on the mean over queries, rate 1e-3 on features as they are, at most 10,000 steps; "
        "the tolerance (change of the loss) is chosen on validation data.",
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
        "The baselines' figures are those that LETOR's publishers gave; ours are our own implementations under the "
        "same protocol, chosen by MAP on validation data.",
        "The paper leaves OHSUMED out, since it took binary judgments only; ours take grades, so it is run where it is "
        "found.",
    ),
)


def _descent(system: str) -> System:
    """The linear system by plain gradient descent without a penalty, as the paper had it."""
    known = get(system)
    grid = {name: values for name, values in known.grid.items() if name == "alpha"}
    own = {"solver": GradientDescent(backtracking=True), "l2": 0.0, "max_iterations": 300}
    return System(known.name, known.ranker, known.loss, "", "", options={**known.options, **own}, grid=grid)


def _expected(loss: str, alphas: bool) -> System:
    """Expected gain as in the paper: warm start from the linear ranker, gradient descent, ε chosen."""
    grid: dict[str, tuple[Any, ...]] = {"saturation": (0.6, 0.7, 0.8, 0.9, 1.0)}
    if alphas:
        grid["alpha"] = (0.1, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0)
    options = {"solver": GradientDescent(backtracking=True), "l2": 0.0, "start": "linear", "max_iterations": 300}
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
        "The paper's optimizer is a MATLAB package's gradient descent, without any tuning; ours is gradient descent "
        "with backtracking, at most 300 steps, without a penalty, warm-started from the linear ranker as in the paper. "
        "It stops where the objective changes by less than 1e-4. Under the cosine loss it ends the linear ranker long "
        "before it has converged, so that this baseline is weaker than it could be.",
        "A case is better or worse where the randomization test on the pooled queries gives p < 0.05, uncorrected, as "
        "in the paper.",
    ),
)

STUDIES: dict[str, Study] = {study.name: study for study in (_CS_RGLIST, _OWPC, _BAYES)}
