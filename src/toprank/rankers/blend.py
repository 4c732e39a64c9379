"""`BlendRanker`: several rankers as one, by the weighted mean of their scores on a common scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank import rankers as kinds
from toprank.compute import FloatArray, IntArray
from toprank.data.arrays import common_index
from toprank.data.dataset import RankingData, check_files
from toprank.data.hashes import QUERIES
from toprank.data.queries import Queries
from toprank.errors import DataError, refuse_if
from toprank.rankers.base import Ranker, by_row, finite
from toprank.rankers.contributions import EXACTLY, Contributions, Sampling, ScoreProfile
from toprank.rankers.estimator import check_is_fitted, unfitted
from toprank.rankers.formula import Blend, Part
from toprank.rankers.model_files import under
from toprank.rankers.schema import Numbers, State, needed, read_training, read_value
from toprank.text.tables import TextFeatures

_MOST_NESTED = 16


class BlendRanker(Ranker):
    """s(x) = Σ_m (w_m / σ_m) s_m(x), with w_m ≥ 0 and Σ w_m = 1.

    σ_m is the mean over queries of the standard deviation of member m's scores within a query. It makes scores of
    different rankers comparable, and is measured once, when fitting (on the validation data where there are any, since
    the scores of a member spread more widely on what it was trained on). So the blend depends on the other documents
    of a query only where a member does.

    Args:
        rankers: the members, of any kind and not fitted; `fit` trains a copy of each.
        weights: one for each member, not negative; they need not sum to 1. None for equal weights.

    After fitting: `rankers_` (the fitted members), `weights_` (w), `scales_` (σ), and `feature_importances_` where
    every member has them. `BlendRanker.from_fitted` joins rankers that are fitted already. An interrupt from the
    keyboard keeps the members fitted until then, with a warning.

    >>> import toprank as tr
    >>> train, test = tr.split(tr.synthetic(n_queries=90, truth="nonlinear", seed=0), (0.7, 0.3))
    >>> trees = tr.TreeRanker(n_trees=20, num_leaves=7, threads=1)
    >>> blend = BlendRanker([tr.LinearRanker("ListNet"), trees], weights=[1, 3]).fit(train)
    >>> blend.weights_.tolist(), blend.predict(test).shape == (test.n_documents,)
    ([0.25, 0.75], True)
    """

    supports_categories: ClassVar[bool] = True
    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"weights_": Numbers("members"), "scales_": Numbers("members")}

    rankers_: list[Any]
    weights_: FloatArray
    scales_: FloatArray

    def __init__(self, rankers: Sequence[Any] = (), weights: Sequence[float] | None = None) -> None:
        self.rankers = rankers
        self.weights = weights

    @classmethod
    def from_fitted(cls, rankers: Iterable[Any], data: RankingData, weights: Sequence[float] | None = None) -> Self:
        """Return the blend of fitted rankers; the scales are measured on `data`, best not the training data."""
        if not isinstance(data, RankingData):
            raise DataError("BlendRanker.from_fitted needs a RankingData, on which it measures the scales.")
        blend = cls(list(rankers) if isinstance(rankers, Iterable) else rankers, weights)
        shares, members = blend._shares(), list(blend.rankers)
        for ranker in members:
            check_is_fitted(ranker)
        members = [copy(member) for member in members]  # which stay as they are, whatever theirs are fitted to later
        text = blend._shared_text(members)
        data = data if text is None else text.transform(data)
        blend._adopt(members, shares, data)
        first = members[0]
        refuse_if(
            any(member.encoding_ != first.encoding_ for member in members),
            "The members of a blend were trained on data with other columns, or with other levels of categories; "
            "train them on the same data.",
        )
        blend.text_ = text
        blend.n_features_in_ = data.n_features  # a member may take the first ones alone
        for name in ("feature_names_in_", "first_feature_id_", "encoding_"):
            if hasattr(first, name):
                setattr(blend, name, getattr(first, name))
        blend.training_ = {key: value for key, value in first.training_.items() if key in _OF_DATA}
        judges = {judge for member in members for judge in member.training_.get("judges", ())}
        blend.training_ |= {"judges": sorted(judges)} if judges else {}
        return blend.finalized()

    def _shared_text(self, members: list[Any]) -> TextFeatures | None:
        """Return the statistics of words that all members share, and leave them to the blend alone."""
        text: TextFeatures | None = next((member.text_ for member in members if member.text_ is not None), None)
        if text is None:
            return None
        refuse_if(
            not all(text.same_as(member.text_) for member in members),
            "The members of a blend learned from other texts, or some of them from none; train them on the same data.",
        )
        for member in members:
            member.text_ = None
        return text

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        shares, members = self._shares(), []
        for ranker in self.rankers:
            try:
                members.append(unfitted(ranker).fit(data, valid=valid))
            except KeyboardInterrupt:
                if not members:  # nothing to keep
                    raise
                break
            if members[-1].was_interrupted:
                break
        self.interrupted_ = len(members) < len(self.rankers) or members[-1].was_interrupted
        if len(members) < len(self.rankers):
            self.warn_unconverged(f"BlendRanker: interrupted; a blend of the first {len(members)} members is kept.")
            shares = shares[: len(members)]
            shares = shares / shares.sum() if shares.any() else np.full(len(members), 1 / len(members))
        self._adopt(members, shares, data if valid is None else valid)

    def _adopt(self, members: list[Any], shares: FloatArray, data: RankingData) -> None:
        self.rankers_, self.weights_ = members, shares
        spreads = np.array([score_spread(member.predict(data), data.queries) for member in members])
        self.scales_ = np.where(spreads > 0, spreads, 1.0)  # a member that scores all alike changes nothing

    def _shares(self) -> FloatArray:
        """Return the weights, scaled to sum to 1; refuse what are no weights, and members that are no rankers."""
        listed = isinstance(self.rankers, Sequence)
        if not listed or not all(isinstance(ranker, Ranker) for ranker in self.rankers):
            raise DataError("A blend takes a list of rankers: BlendRanker([tr.LinearRanker(), tr.TreeRanker()]).")
        n = len(self.rankers)
        refuse_if(n == 0, "A blend needs at least one ranker: BlendRanker([tr.LinearRanker(), tr.TreeRanker()]).")
        if self.weights is None:
            return np.full(n, 1.0 / n)
        try:
            weights = np.asarray(self.weights, dtype=np.float64)
        except (TypeError, ValueError):
            weights = np.full(0, np.nan)
        refuse_if(weights.shape != (n,), f"weights must be {n} numbers, one for each ranker, not {self.weights!r}.")
        refuse_if(
            not ((weights >= 0) & (weights < np.inf)).all() or not weights.any(),
            f"weights must be finite, not negative and not all 0, unlike {self.weights!r}.",
        )
        weights = weights / weights.max()  # no overflow of the sum
        return np.asarray(weights / weights.sum())

    def predict(self, X: Any, qid: npt.ArrayLike | None = None) -> FloatArray:
        """Scores, one for each document, higher is better; X is a `RankingData` or features.

        `qid` matters only where a member looks at the whole query; there it may be left out (X is one query) only where
        that member was fitted on one query.
        """
        if isinstance(X, RankingData):
            check_is_fitted(self)
            check_files(X)
            return by_row(X, self._blended(self.translated(X)))
        rows = self._prediction_rows(X)
        if qid is None and self._needs_qid:
            raise DataError(
                "A member of this blend looks at the other documents of the query and was fitted on several, but here "
                "are features without qid. Give predict the qid of each row, or a RankingData, which without qid is "
                "one query."
            )
        common_index(X=X, qid=qid)
        data = self._data_of(rows, qid=qid)
        return data.in_source_order(self._blended(data))

    @override
    def _formula(self) -> Part:
        return Blend(tuple((factor, member.formula()) for member, factor in self._counting()))

    @property
    def _needs_qid(self) -> bool:
        """Whether scores of features need a qid; see `NeuralRanker._needs_qid`."""
        return any(getattr(member, "_needs_qid", False) for member in self.rankers_)

    def _blended(self, data: RankingData) -> FloatArray:
        scores = np.zeros(data.n_documents)
        for member, factor in self._counting():
            scores += factor * member.predict(data)
        return finite(scores)

    def _scores(self, X: Any) -> FloatArray:
        return self._blended(self._data_of(X))

    # ---- explanations: the blend is linear in the scores of its members ----

    def _counting(self) -> list[tuple[Any, float]]:
        """Return the members with a weight above 0, and the factors of their scores."""
        factors = (self.weights_ / self.scales_).tolist()
        return [(member, factor) for member, factor in zip(self.rankers_, factors, strict=True) if factor]

    @property
    def supports_missing(self) -> bool:  # type: ignore[override]
        """Where all members do."""
        return all(member.supports_missing for member, _ in self._counting())

    @property
    def uses_query_context(self) -> bool:
        """Where a member does."""
        return any(member.uses_query_context for member, _ in self._counting())

    @property
    def explains_exactly(self) -> bool:
        """Where all members do."""
        return all(member.explains_exactly for member, _ in self._counting())

    @override
    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        values, variances = np.zeros((2, len(of), query.n_features))
        methods, exact = [], True
        for number, (member, factor) in enumerate(self._counting()):
            own = sampling._replace(seed=sampling.seed + number)  # so that errors are independent, and squares add up
            own_terms = member.contributions(query, of, against, own)
            own_columns = slice(own_terms.values.shape[1])  # a model of RankLib may know the first features alone
            values[:, own_columns] += factor * own_terms.values
            if own_terms.errors is not None:
                variances[:, own_columns] += (factor * own_terms.errors) ** 2
                exact = False
            methods.append(own_terms.method)
        method = f"a weighted sum over the members of the blend: {'; '.join(dict.fromkeys(methods))}"
        return Contributions(values, None if exact else np.sqrt(variances), method)

    @property
    def category_columns(self) -> frozenset[int]:
        """Those of the members."""
        return super().category_columns.union(*(member.category_columns for member in self.rankers_))

    @override
    def score_profile(self, feature: int) -> ScoreProfile | None:
        slope, breaks, single = 0.0, [np.zeros(0)], False
        for member, factor in self._counting():
            own = member.score_profile(feature)
            if own is None:
                return None
            slope += factor * own.slope
            breaks.append(own.breaks)
            single |= own.single
        return ScoreProfile(slope, np.unique(np.concatenate(breaks)), single)

    @property
    def feature_importances_(self) -> FloatArray:
        """The mean of the members' importances, by their weights."""
        check_is_fitted(self)
        parts = np.array([member.feature_importances_ for member in self.rankers_])
        return np.asarray(self.weights_ @ parts)

    # ---- files ----

    def state(self) -> State:
        """See `Ranker.state`: the states of the members, their arrays and texts prefixed by `m0_`, `m1_` …"""
        arrays: dict[str, npt.NDArray[Any]] = {"weights": self.weights_, "scales": self.scales_}
        texts: dict[str, str] = {}
        members = []
        for number, member in enumerate(ranker.saved_ranker() for ranker in self.rankers_):
            kind = type(member).__name__
            if kind not in kinds.KINDS:
                raise DataError(f"A model file cannot hold a {kind}; it holds {', '.join(kinds.KINDS)}.")
            inner: State = member.state()
            described = {"kind": kind, "training": member.training_, "state": inner.values}
            if member.columns_ is not None:
                described["one_hot"] = member.columns_.plain()
            members.append(described)
            arrays |= {f"m{number}_{name}": array for name, array in inner.arrays.items()}
            texts |= {f"m{number}_{name}": text for name, text in inner.texts.items()}
        values = {"parameters": {"weights": self._saved_weights()}, "members": members}
        return State(values, arrays, texts)

    def _saved_weights(self) -> list[float] | None:
        """Return the weights as they were given, or those that an interrupt has left."""
        fitted = self.as_fitted
        if fitted.weights is None:
            return None
        as_given = np.array_equal(fitted._shares(), self.weights_)
        weights: list[float] = np.asarray(fitted.weights if as_given else self.weights_).tolist()
        return weights

    @classmethod
    @override
    def restore(cls, state: State) -> Self:
        _check_depth(state.values, _MOST_NESTED)
        members = []
        for number, described in enumerate(read_value(state.values, "members", list[dict[str, Any]])):
            kind = read_value(described, "kind", str)
            refuse_if(kind not in kinds.KINDS, f"a member of the kind '{kind}' is not known")
            prefix = f"m{number}_"
            own = State(needed(described, "state"), under(state.arrays, prefix), under(state.texts, prefix))
            member = getattr(kinds, kind).restore(own)
            member.training_ = read_training(described)
            member._columns_told = described.get("one_hot")
            members.append(member)
        blend = super().restore(state._replace(values=state.values | {"fitted": {}}))
        blend.rankers = blend.rankers_ = members
        return blend

    def check_restored(self) -> None:
        """See `Ranker.check_restored`; the members are checked as if each had a file of its own."""
        self._shares()
        super().check_restored()
        refuse_if(len(self.weights_) != len(self.rankers_), "weights or scales do not fit the members")
        refuse_if(
            (self.weights_ < 0).any() or abs(self.weights_.sum() - 1) > 1e-9 or (self.scales_ <= 0).any(),
            "weights or scales have values that they cannot have",
        )
        for member in self.rankers_:
            member.n_features_in_ = self.n_features_in_
            if hasattr(self, "feature_names_in_"):
                member.feature_names_in_ = self.feature_names_in_
            member.encode(self.encoding_, vars(member).pop("_columns_told", None))
            member.check_restored()
            member.finalized()


def _check_depth(values: Any, left: int) -> None:
    """Refuse blends nested too deeply, on which Python's recursion would fail."""
    refuse_if(left == 0, f"blends lie within blends more than {_MOST_NESTED} times")
    for described in read_value(values, "members", list[dict[str, Any]]):
        inner = needed(described, "state")
        if isinstance(inner, dict) and "members" in inner:
            _check_depth(inner, left - 1)


_OF_DATA = ("fingerprint", "queries", "documents", "features", "columns", QUERIES)


def score_spread(scores: FloatArray, queries: Queries) -> float:
    """The mean over queries of the standard deviation of the scores within the query.

    >>> score_spread(np.array([1.0, 3.0, 5.0, 5.0]), Queries([0, 2, 4]))
    0.5
    """
    centered = scores - queries.broadcast(queries.mean(scores))
    return float(np.sqrt(queries.mean(centered**2)).mean())
