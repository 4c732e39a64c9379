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

_MAX_NESTED = 16


class BlendRanker(Ranker):
    """s(x) = Σ_m (w_m / σ_m) s_m(x), with w_m ≥ 0 and Σ w_m = 1.

    σ_m is the mean over queries of the standard deviation of member m's scores within a query. It makes the scores of
    different rankers comparable, and is estimated once, when fitting: on the validation data if there are any, since
    scores vary more on the training data of a member. The blend therefore depends on the other documents of a query
    only if a member does.

    Args:
        rankers: the members, of any kind and unfitted; `fit` trains a copy of each.
        weights: one non-negative weight for each member; they need not sum to 1. None for equal weights.

    After fitting: `rankers_` (the fitted members), `weights_` (w), `scales_` (σ), and `feature_importances_` if every
    member has them. `BlendRanker.from_fitted` combines rankers that are fitted already. An interrupt from the keyboard
    keeps the members fitted until then, with a warning.

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
        """Combine fitted rankers; the scales are estimated on `data`, preferably not the training data."""
        if not isinstance(data, RankingData):
            raise DataError("BlendRanker.from_fitted needs a RankingData to estimate the scales on.")
        blend = cls(list(rankers) if isinstance(rankers, Iterable) else rankers, weights)
        shares, members = blend._shares(), list(blend.rankers)
        for ranker in members:
            check_is_fitted(ranker)
        members = [copy(member) for member in members]  # copies, unaffected by later fits of the originals
        text = blend._shared_text(members)
        data = data if text is None else text.transform(data)
        blend._adopt(members, shares, data)
        first = members[0]
        refuse_if(
            any(member.encoding_ != first.encoding_ for member in members),
            "The members of a blend were trained on data with different columns or category levels; train them on "
            "the same data.",
        )
        blend.text_ = text
        blend.n_features_in_ = data.n_features  # a member may use only the first ones
        for name in ("feature_names_in_", "first_feature_id_", "encoding_"):
            if hasattr(first, name):
                setattr(blend, name, getattr(first, name))
        blend.training_ = {key: value for key, value in first.training_.items() if key in _DATA_KEYS}
        judges = {judge for member in members for judge in member.training_.get("judges", ())}
        blend.training_ |= {"judges": sorted(judges)} if judges else {}
        return blend.finalized()

    def _shared_text(self, members: list[Any]) -> TextFeatures | None:
        """Return the word statistics that all members share, and move them from the members to the blend."""
        text: TextFeatures | None = next((member.text_ for member in members if member.text_ is not None), None)
        if text is None:
            return None
        refuse_if(
            not all(text.same_as(member.text_) for member in members),
            "The members of a blend were trained on different texts, or some on none; train them on the same data.",
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
            self.warn_unconverged(
                f"BlendRanker: interrupted; the blend contains only the first {len(members)} members."
            )
            shares = shares[: len(members)]
            shares = shares / shares.sum() if shares.any() else np.full(len(members), 1 / len(members))
        self._adopt(members, shares, data if valid is None else valid)

    def _adopt(self, members: list[Any], shares: FloatArray, data: RankingData) -> None:
        self.rankers_, self.weights_ = members, shares
        spreads = np.array([score_spread(member.predict(data), data.queries) for member in members])
        self.scales_ = np.where(spreads > 0, spreads, 1.0)  # a member with constant scores has no effect

    def _shares(self) -> FloatArray:
        """Return the weights, scaled to sum to 1; refuse invalid weights and members that are not rankers."""
        listed = isinstance(self.rankers, Sequence)
        if not listed or not all(isinstance(ranker, Ranker) for ranker in self.rankers):
            raise DataError("rankers must be a list of rankers: BlendRanker([tr.LinearRanker(), tr.TreeRanker()]).")
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
            f"weights must be finite, 0 or larger, and not all 0, not {self.weights!r}.",
        )
        weights = weights / weights.max()  # no overflow of the sum
        return np.asarray(weights / weights.sum())

    def predict(self, X: Any, qid: npt.ArrayLike | None = None) -> FloatArray:
        """Return one score for each document; higher is better. X is a `RankingData` or features.

        `qid` is used only if a member uses query context. It may be omitted (X is one query) only if that member was
        fitted on one query.
        """
        if isinstance(X, RankingData):
            check_is_fitted(self)
            check_files(X)
            return by_row(X, self._blended(self.translated(X)))
        rows = self._prediction_rows(X)
        if qid is None and self._needs_qid:
            raise DataError(
                "A member of this blend uses the other documents of the query and was fitted on several queries, but "
                "the features have no qid. Pass the qid of each row, or a RankingData (without qid, all rows are one "
                "query)."
            )
        common_index(X=X, qid=qid)
        data = self._data_of(rows, qid=qid)
        return data.in_source_order(self._blended(data))

    @override
    def _formula(self) -> Part:
        return Blend(tuple((factor, member.formula()) for member, factor in self._weighted_members()))

    @property
    def _needs_qid(self) -> bool:
        """True if scores of features need a qid; see `NeuralRanker._needs_qid`."""
        return any(getattr(member, "_needs_qid", False) for member in self.rankers_)

    def _blended(self, data: RankingData) -> FloatArray:
        scores = np.zeros(data.n_documents)
        for member, factor in self._weighted_members():
            scores += factor * member.predict(data)
        return finite(scores)

    def _scores(self, X: Any) -> FloatArray:
        return self._blended(self._data_of(X))

    # ---- explanations: a blend is linear in the scores of its members ----

    def _weighted_members(self) -> list[tuple[Any, float]]:
        """Return the members with a positive weight, and the factors of their scores."""
        factors = (self.weights_ / self.scales_).tolist()
        return [(member, factor) for member, factor in zip(self.rankers_, factors, strict=True) if factor]

    @property
    def supports_missing(self) -> bool:  # type: ignore[override]
        """True if all members support missing values."""
        return all(member.supports_missing for member, _ in self._weighted_members())

    @property
    def uses_query_context(self) -> bool:
        """True if any member uses query context."""
        return any(member.uses_query_context for member, _ in self._weighted_members())

    @property
    def explains_exactly(self) -> bool:
        """True if all members are explained exactly."""
        return all(member.explains_exactly for member, _ in self._weighted_members())

    @override
    def contributions(
        self, query: RankingData, of: IntArray, against: IntArray, sampling: Sampling = EXACTLY
    ) -> Contributions:
        values, variances = np.zeros((2, len(of), query.n_features))
        methods, exact = [], True
        for number, (member, factor) in enumerate(self._weighted_members()):
            own = sampling._replace(seed=sampling.seed + number)  # independent errors, so that variances add up
            own_terms = member.contributions(query, of, against, own)
            own_columns = slice(own_terms.values.shape[1])  # a RankLib model may use only the first features
            values[:, own_columns] += factor * own_terms.values
            if own_terms.errors is not None:
                variances[:, own_columns] += (factor * own_terms.errors) ** 2
                exact = False
            methods.append(own_terms.method)
        method = f"a weighted sum over the members of the blend: {'; '.join(dict.fromkeys(methods))}"
        return Contributions(values, None if exact else np.sqrt(variances), method)

    @property
    def category_columns(self) -> frozenset[int]:
        """Columns that any member treats as categorical."""
        return super().category_columns.union(*(member.category_columns for member in self.rankers_))

    @override
    def score_profile(self, feature: int) -> ScoreProfile | None:
        slope, breaks, single = 0.0, [np.zeros(0)], False
        for member, factor in self._weighted_members():
            own = member.score_profile(feature)
            if own is None:
                return None
            slope += factor * own.slope
            breaks.append(own.breaks)
            single |= own.single
        return ScoreProfile(slope, np.unique(np.concatenate(breaks)), single)

    @property
    def feature_importances_(self) -> FloatArray:
        """The mean of the members' importances, weighted by the blend weights."""
        check_is_fitted(self)
        parts = np.array([member.feature_importances_ for member in self.rankers_])
        return np.asarray(self.weights_ @ parts)

    # ---- files ----

    def state(self) -> State:
        """See `Ranker.state`. The members' states, arrays and texts have the prefixes `m0_`, `m1_` …"""
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
        """Return the weights as given, or as an interrupt left them."""
        fitted = self.as_fitted
        if fitted.weights is None:
            return None
        as_given = np.array_equal(fitted._shares(), self.weights_)
        weights: list[float] = np.asarray(fitted.weights if as_given else self.weights_).tolist()
        return weights

    @classmethod
    @override
    def restore(cls, state: State) -> Self:
        _check_depth(state.values, _MAX_NESTED)
        members = []
        for number, described in enumerate(read_value(state.values, "members", list[dict[str, Any]])):
            kind = read_value(described, "kind", str)
            refuse_if(kind not in kinds.KINDS, f"the kind '{kind}' of a member is unknown")
            prefix = f"m{number}_"
            own = State(needed(described, "state"), under(state.arrays, prefix), under(state.texts, prefix))
            member = getattr(kinds, kind).restore(own)
            member.training_ = read_training(described)
            member._columns_in_file = described.get("one_hot")
            members.append(member)
        blend = super().restore(state._replace(values=state.values | {"fitted": {}}))
        blend.rankers = blend.rankers_ = members
        return blend

    def check_restored(self) -> None:
        """See `Ranker.check_restored`. The members are checked as if each had its own file."""
        self._shares()
        super().check_restored()
        refuse_if(
            len(self.weights_) != len(self.rankers_), "the number of weights or scales does not match the members"
        )
        refuse_if(
            (self.weights_ < 0).any() or abs(self.weights_.sum() - 1) > 1e-9 or (self.scales_ <= 0).any(),
            "weights or scales have invalid values",
        )
        for member in self.rankers_:
            member.n_features_in_ = self.n_features_in_
            if hasattr(self, "feature_names_in_"):
                member.feature_names_in_ = self.feature_names_in_
            member.encode(self.encoding_, vars(member).pop("_columns_in_file", None))
            member.check_restored()
            member.finalized()


def _check_depth(values: Any, left: int) -> None:
    """Refuse blends that are nested too deeply for Python's recursion limit."""
    refuse_if(left == 0, f"blends are nested more than {_MAX_NESTED} levels deep")
    for described in read_value(values, "members", list[dict[str, Any]]):
        inner = needed(described, "state")
        if isinstance(inner, dict) and "members" in inner:
            _check_depth(inner, left - 1)


_DATA_KEYS = ("fingerprint", "queries", "documents", "features", "columns", QUERIES)


def score_spread(scores: FloatArray, queries: Queries) -> float:
    """Return the mean over queries of the standard deviation of the scores within the query.

    >>> score_spread(np.array([1.0, 3.0, 5.0, 5.0]), Queries([0, 2, 4]))
    0.5
    """
    centered = scores - queries.broadcast(queries.mean(scores))
    return float(np.sqrt(queries.mean(centered**2)).mean())
