"""Named systems of the literature: for each one its scorer, loss, solver, defaults and source.

`make("cs-RgList", pcf=3.0)` returns an unfitted ranker; an option is a hyperparameter of the loss or of the ranker.
`grid` lists the values for a search on validation data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from toprank import losses
from toprank.data.arguments import check_number, to_plain
from toprank.errors import DataError, Remedy, UnknownNameError

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["DEFAULT", "SYSTEMS", "System", "get", "make", "names"]


@dataclass(frozen=True)
class System:
    """A named ranker with its default options and search grid.

    Args:
        name: name in the literature.
        ranker: the class of `toprank.rankers` that implements it.
        loss: the training loss; None if the ranker has its own (such as LightGBM's, named in `options`).
        source: publication that describes it.
        idea: short description.
        options: hyperparameters that differ from the defaults of the ranker and the loss.
        grid: hyperparameters to try on validation data, with their values.
        refine: factors for a second search around the best C = 1/l2 of the first.
        metric: selection metric of the source.
        exact_grid: if True, search only the given grid, as papers do; by default the search may extend it beyond its
            edges.
    """

    name: str
    ranker: str
    loss: str | None
    source: str
    idea: str
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    refine: tuple[float, ...] = ()
    metric: str = "ndcg@10"
    exact_grid: bool = False

    @property
    def learns_from_teacher(self) -> bool:
        """True if the data must contain a teacher's scores."""
        return self.loss is not None and losses.make(self.loss).traits.teacher

    @property
    def kind(self) -> type[Ranker]:
        """The class of the ranker, which defines its capabilities."""
        from toprank import rankers

        kind: type[Ranker] = getattr(rankers, self.ranker)
        return kind

    def make(self, **options: Any) -> Any:
        """Return an unfitted ranker; `options` override the system's own. PyTorch is imported only when a network is
        fitted.
        """
        if "loss" in options:
            raise DataError(f"{self.name} has a fixed loss; choose another system, or a ranker of toprank.rankers.")
        kind = self.kind
        merged = {**self.options, **self.plain_options(options)}
        defaults = kind().get_params(deep=False)
        known, hints = set(defaults), get_type_hints(kind)
        if self.loss is not None:
            own = {field.name for field in fields(type(losses.make(self.loss)))}
            of_loss = {name: merged.pop(name) for name in list(merged) if name in own and name not in known}
            # "loss.metric" is the option of the loss if the ranker has an option of the same name.
            of_loss |= {name[5:]: merged.pop(name) for name in list(merged) if name.startswith("loss.")}
            merged["loss"] = losses.make(self.loss, **of_loss)
            known |= own
        for name in merged:
            if name not in known:
                raise UnknownNameError(f"option of {self.name}", name, sorted(known - {"loss"}))
            if name not in _CHECKED_AT_FIT and not _fits(merged[name], hints[name]):
                raise DataError(
                    f"{name}={merged[name]!r} has the wrong type for {self.name}; its default is {defaults[name]!r}."
                )
        return kind(**merged)

    def plain_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with the papers' trade-off constant C, if given, converted to l2 = 1/C."""
        plain = dict(options)
        if "C" in plain and self.loss is not None:
            if "l2" in plain:
                raise DataError("C and l2 are redundant, since l2 = 1/C; pass one of them.")
            C = plain.pop("C")
            check_number("C", C, above=0)
            plain["l2"] = 1.0 / C
        return plain

    def candidates(self) -> list[dict[str, Any]]:
        """Return every combination of the grid, in a fixed order; one empty combination without a grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]


_CHECKED_AT_FIT = ("l2", "convention")
"""Options that rankers validate when fitting: one penalty or several, and a convention by name or as an object."""


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has the type that a ranker declares; the ranker itself checks the allowed values."""
    from toprank.rankers.schema import fits

    kinds = get_args(hint) or (hint,)
    if isinstance(value, str) and any(kind is str or get_origin(kind) is Literal for kind in kinds):
        return True
    return fits(0.0 if isinstance(value, float) else to_plain(value), hint)


_L2 = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
_PATH, _SHORT_PATH = {"l2": _L2}, {"l2": (1e-1, 1e-2, 1e-3, 1e-4)}
_ALPHAS = (0.1, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0)
_REGRESSION = "Cossock & Zhang 2008, statistical analysis of Bayes optimal subset ranking"
_EXPECTED = "Expected-gain (Bayes-optimal) ranking functions for DCG-like metrics"
_OWPC = "Usunier, Buffoni & Gallinari 2009, ordered weighted pairwise classification"
_CS = "cs-RgList: cost-sensitive ListMLE by Newton's method"


def _linear(name: str, loss: str, source: str, idea: str, **more: Any) -> System:
    grid = more.pop("grid", _PATH)
    return System(name, "LinearRanker", loss, source, idea, grid=grid, **more)


def _owpc(name: str, weights: str, p: float, idea: str) -> System:
    return _linear(name, "OWPC", _OWPC, idea, options={"weights": weights, "p": p}, metric="map")


_ONE_BY_ONE = (
    _linear("LeastSquares", "Squared", _REGRESSION, "regression on gains"),
    _linear("QueryLeastSquares", "QuerySquared", _REGRESSION, "regression on gains, up to a shift per query"),
    _linear("ModifiedLeastSquares", "ModifiedSquared", _REGRESSION, "regression that tolerates overconfident scores"),
    _linear("ImportanceWeighted", "ImportanceWeightedSquared", _REGRESSION,
            "regression focused on the top: weights on likely top documents, a bound on the others"),
    _linear("MaxEnt", "Multicategory", _REGRESSION, "documents as classes of a softmax, weighted by gain"),
    _linear("RankSVM", "Hinge", "Herbrich et al. 2000; Joachims 2002", "maximum margin between pairs", metric="map"),
    _linear("RankNet-linear", "Logistic", "Burges et al. 2005", "logistic loss of pairs"),
    _linear("RankBoost-linear", "Exponential", "Freund et al. 2003", "RankBoost's loss with a linear scorer"),
    _owpc("OWPC-1/j", "1/j", 10.0, "OWA of pair losses, weights 1/j"),
    _owpc("OWPC-top5", "top", 5.0, "OWA of pair losses, constant on the top 5 %"),
    _owpc("OWPC-top10", "top", 10.0, "OWA of pair losses, constant on the top 10 %"),
    _owpc("OWPC-top20", "top", 20.0, "OWA of pair losses, constant on the top 20 %"),
    _owpc("OWPC-exp", "exp", 10.0, "OWA of pair losses, exponential weights"),
    _owpc("OWPC-constant", "constant", 10.0, "OWA of pair losses, constant weights: RankSVM per document"),
    _linear("OWPC", "OWPC", _OWPC, "OWA of pair losses, weights selected on validation data", metric="map",
            grid={"weights": ("1/j", "top", "exp", "constant"), "p": (5.0, 10.0, 20.0), "l2": _L2[1:]}),
    _linear("SVM-map", "SVMmap", "Yue et al. 2007", "structured hinge on average precision", metric="map"),
    System("AdaRank-MAP", "AdaRank", None, "Xu & Li 2007", "boosts single features on MAP", {"metric": "map"},
           metric="map"),
    System("AdaRank-NDCG", "AdaRank", None, "Xu & Li 2007", "boosts single features on NDCG", {"metric": "ndcg@10"}),
    System("RankBoost", "RankBoost", None, "Freund et al. 2003", "boosts threshold rankers on pairs", metric="map"),
    System("CoordinateAscent", "CoordinateAscent", None, "Metzler & Croft 2007", "coordinate ascent on the metric"),
    _linear("ListNet", "ListNet", "Cao et al. 2007", "cross entropy of top-one probabilities",
            grid={"alpha": _ALPHAS, **_SHORT_PATH}),
    _linear("ListMLE", "ListMLE", "Xia et al. 2008", "Plackett–Luce likelihood of the ideal order", metric="avgndcg"),
    _linear("p-ListMLE", "PListMLE", "Lan et al. 2014", "ListMLE with weights on positions", metric="avgndcg"),
    _linear("cs-RgList", "CostSensitiveListMLE", _CS, "ListMLE with costs by grade", metric="avgndcg",
            options={"standardize": False, "l2": 1.0}, grid={"l2": (1e4, 1e3, 1e2, 10.0, 1.0)},
            refine=(0.6, 0.8, 1.0, 1.2, 1.4)),
    _linear("RankCosine", "Cosine", "Qin et al. 2008", "cosine between gains and scores"),
    *(System(f"ExpectedGain-{name}", "ExpectedGainRanker", loss, _EXPECTED,
             f"expected gain from grade probabilities, trained under the {name} loss",
             options={"init": "linear"}, grid=_SHORT_PATH)
      for name, loss in (("cosine", "Cosine"), ("crossentropy", "ListNet"), ("squared", "Squared"))),
    System("PlugIn", "ExpectedGainRanker", "Multinomial", _EXPECTED,
           "expected gain from grade probabilities fitted by maximum likelihood", grid=_SHORT_PATH),
)  # fmt: skip
SYSTEMS: dict[str, System] = {system.name: system for system in _ONE_BY_ONE}
_LEAVES = {"num_leaves": (15, 31, 63)}
_TREES: tuple[tuple[str, str, str, str, dict[str, Any], str], ...] = (
    # Truncated and normalized as in LightGBM: on splits within training data, all pairs were as good on lists of 20 to
    # 150 documents, but not on MSLR's slices.
    ("LambdaMART", "LambdaRank", "Burges 2010", "trees under LambdaRank for NDCG, focused on the first 30 ranks",
     {"truncation": 30, "norm": True}, "ndcg@10"),
    ("LambdaMART-MAP", "LambdaRank", "Burges 2010", "trees under LambdaRank for MAP", {"loss.metric": "map"}, "map"),
    ("LambdaMART-ERR", "LambdaRank", "Burges 2010", "trees under LambdaRank for ERR", {"loss.metric": "err"}, "err"),
    ("MART", "Squared", "Friedman 2001", "regression trees on gains", {}, "ndcg@10"),
    ("McRank", "Multinomial", "Li, Burges & Wu 2007", "expected gain from trees of grades",
     {"outputs": "grades"}, "ndcg@10"),
    ("ExpectedGain-trees", "ListNet", _EXPECTED, "expected-gain trees under a listwise loss",
     {"outputs": "grades"}, "ndcg@10"),
    ("ListNet-trees", "ListNet", "Cao et al. 2007", "trees under ListNet", {}, "ndcg@10"),
    ("ListMLE-trees", "ListMLE", "Xia et al. 2008", "trees under ListMLE", {}, "ndcg@10"),
    # Small trees with half of the features each: on validation parts .009 (MQ2008) and .029 (OHSUMED) above 31 leaves
    # and learning rate .1.
    ("YetiRank", "YetiRank", "Gulin, Kuralenok & Pavlov 2011", "trees under pairs of neighbors in noisy rankings",
     {"num_leaves": 15, "learning_rate": 0.05, "feature_fraction": 0.5}, "ndcg@10"),
    ("XE-NDCG-trees", "XENDCG", "Bruch 2021", "trees under the cross entropy that bounds NDCG", {}, "ndcg@10"),
)  # fmt: skip
SYSTEMS |= {
    name: System(name, "TreeRanker", loss, source, idea, options=options, grid=_LEAVES, metric=metric)
    for name, loss, source, idea, options, metric in _TREES
}
SYSTEMS["LambdaMART-lightgbm"] = System(
    "LambdaMART-lightgbm", "TreeRanker", None, "Ke et al. 2017", "trees under LightGBM's own LambdaRank for NDCG",
    options={"loss": "lightgbm:lambdarank"}, grid=_LEAVES,
)  # fmt: skip
_RATES = {"learning_rate": (1e-3, 3e-3)}
_NETWORKS: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("RankNet", "Logistic", "Burges et al. 2005", "a network under the logistic loss of pairs", {}),
    ("LambdaRank-network", "LambdaRank", "Burges, Ragno & Le 2006", "a network under LambdaRank for NDCG", {}),
    ("LambdaLoss-network", "LambdaLoss", "Wang et al. 2018", "a network under LambdaLoss, a bound of NDCG", {}),
    ("YetiRank-network", "YetiRank", "Gulin, Kuralenok & Pavlov 2011",
     "a network under pairs of neighbors in noisy rankings", {}),
    ("Attention", "ListNet", "Pang et al. 2020; Pobrotyn et al. 2020",
     "self-attention over the documents of a query, under ListNet", {"network": "attention"}),
)  # fmt: skip
SYSTEMS |= {
    name: System(name, "NeuralRanker", loss, source, idea, options=options, grid=_RATES)
    for name, loss, source, idea, options in _NETWORKS
}
_HINTON = "Hinton, Vinyals & Dean 2015"
_WEIGHTS = {"weight": (1.0, 0.75, 0.5, 0.25)}
for _name, _ranker, _idea, _grid in (
    ("Distilled", "LinearRanker", "a linear ranker that learns from a teacher's scores", _SHORT_PATH),
    ("Distilled-trees", "TreeRanker", "trees that learn from a teacher's scores", _LEAVES),
    ("Distilled-network", "NeuralRanker", "a network that learns from a teacher's scores", _RATES),
):
    # By default only the teacher, for unjudged data; a search also tries mixtures with ListNet on the labels.
    SYSTEMS[_name] = System(
        _name, _ranker, "Mix", _HINTON, _idea, options={"weight": 1.0}, grid={**_WEIGHTS, **_grid}
    )  # fmt: skip
DEFAULT = "OWPC-constant"
"""Default system of `toprank train` if there are too few data for a choice. Untuned, it wins as many duels on the
validation parts of folds as any other, in little time (benchmarks/default_system.py)."""
RECOMMENDED = "YetiRank"
"""Default system of `toprank tune`: the trees of the default blend."""
_BY_KEY = {name.lower().replace("_", "-"): name for name in SYSTEMS}


def names() -> tuple[str, ...]:
    """Return the names of all systems, including those that learn from a teacher."""
    return tuple(SYSTEMS)


def get(name: str) -> System:
    """Return the system with that name; case is ignored, and `_` equals `-`."""
    if not isinstance(name, str):
        raise DataError(f"A system must be given by name, such as 'LambdaMART', not {name!r}.")
    key = name.strip().lower().replace("_", "-")
    if key == "auto":
        raise DataError(
            "auto is not a system: it tries several systems within a time budget and blends the best.",
            remedy=Remedy(
                "Call tr.auto(train, valid); elsewhere name the systems themselves.",
                "Train with {system}; elsewhere name the systems themselves.",
                system="auto",
            ),
        )
    if key not in _BY_KEY:
        raise UnknownNameError("system", name, SYSTEMS)
    return SYSTEMS[_BY_KEY[key]]


def make(name: str, **options: Any) -> Any:
    """Return an unfitted ranker for a system.

    >>> make("cs-rglist", pcf=2.0, C=0.5).l2
    2.0
    """
    return get(name).make(**options)
