"""`Formula`: the score of a ranker as a function of a document's own features, in plain numbers with feature names.

Every ranker that scores documents independently is one of five parts: a linear function, boosted trees, a dense
network, expected gains of grade probabilities computed by one of these, or a weighted sum of such parts. Exported files
are written from the formula alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray, IntArray
from toprank.data.encoding import Encoding
from toprank.errors import DataError, refuse_if
from toprank.rankers.estimator import Recorded, check_is_fitted
from toprank.rankers.seen_columns import SeenColumns
from toprank.rankers.target_encoding import TargetEncoding
from toprank.rankers.trees.forest import MISSING_NAN, Forest, Tree

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class LinearFunction:
    """Outputs k: b_k + Σ_j w_kj (x_j − c_j) a_j, with m_kj in place of the term if x_j is missing."""

    center: FloatArray
    scale: FloatArray
    """The factors a of the centered features."""
    weights: FloatArray
    """The weights w, (outputs, features)."""
    intercepts: FloatArray
    missing: FloatArray
    """The terms m of missing values, (outputs, features)."""

    @property
    def outputs(self) -> int:
        """Number of outputs for each document."""
        return len(self.intercepts)

    def folded(self) -> LinearFunction:
        """Return the same function of raw features, with center and scale folded into the weights; equal up to
        rounding.
        """
        weights = self.weights * self.scale
        d = len(self.center)
        shift = weights @ self.center
        return LinearFunction(
            np.zeros(d), np.ones(d), weights, self.intercepts - shift, self.missing + weights * self.center
        )


@dataclass(frozen=True, eq=False)
class Layer:
    """x -> activation(norm(W x + b))."""

    weights: FloatArray
    bias: FloatArray
    activation: Literal["relu", "gelu", "silu", "tanh", "none"]
    norm: tuple[FloatArray, FloatArray] | None = None
    """Weight and bias of a layer norm with ε = 1e-5."""


@dataclass(frozen=True, eq=False)
class Network:
    """Dense layers over features that are transformed, standardized and rounded to single precision.

    z_j = (f(x_j) − center_j) / spread_j, or `missing_j` if x_j is missing. f is the identity, sign(x) log(1 + |x|)
    (``log1p``), or the fraction of training documents below (``quantile``, see `knots`).
    """

    transform: Literal["identity", "log1p", "quantile"]
    center: FloatArray
    spread: FloatArray
    missing: FloatArray
    knots: FloatArray
    """(knots, features), for ``quantile``: the mean of the linear interpolations from below and from above."""
    layers: tuple[Layer, ...]

    @property
    def outputs(self) -> int:
        """Number of outputs for each document."""
        return len(self.layers[-1].bias)


@dataclass(frozen=True, eq=False)
class GradeGains:
    """Σ_k gains[k] P(k | x), with P from the outputs of a part.

    ``softmax``: P(k) ∝ exp(output k). ``cumulative``: P(grade ≥ k) = σ(output k − 1). With `steps`, logit P(y ≥ k | y ≥
    k − 1) = a_k + b_k h_k; h_k are the log odds of that step, or with `by_score` those of the expected gain within the
    range of the gains.
    """

    part: LinearFunction | Forest | Network
    link: Literal["softmax", "cumulative"]
    gains: FloatArray
    steps: tuple[tuple[float, float], ...] | None = None
    by_score: bool = False


@dataclass(frozen=True, eq=False)
class Blend:
    """Σ factor · part."""

    terms: tuple[tuple[float, Part], ...]


@dataclass(frozen=True, eq=False)
class ExpandedFeatures:
    """A part over expanded columns: features as they are, then one-hot levels of categories, then target encodings."""

    numbers: IntArray
    """The unchanged features: numbers, or category codes that trees split by."""
    center: FloatArray | None
    """The values subtracted from these, with 0 for missing values; None for no centering."""
    categories: tuple[tuple[int, IntArray], ...]
    """For each one-hot feature, the column of each code; other values have zeros in all of them."""
    width: int
    part: LinearFunction | Forest | Network | GradeGains
    means: tuple[TargetEncoding, ...] = ()
    """Target encodings of one category or of a pair, one column each at the end; unknown codes have 0."""

    @classmethod
    def from_columns(
        cls, columns: SeenColumns, part: LinearFunction | Forest | Network | GradeGains
    ) -> ExpandedFeatures:
        """Build the part from the columns that a ranker was trained on."""
        numbers = np.array(columns.unchanged, dtype=np.int64)
        center = None if columns.center is None else np.array(columns.center)
        return cls(numbers, center, tuple(columns.places()), columns.width, part, columns.means)

    @property
    def first_mean(self) -> int:
        """The first column with a target encoding."""
        return self.width - len(self.means)


Part = LinearFunction | Forest | Network | GradeGains | Blend | ExpandedFeatures


class Function(NamedTuple):
    """An innermost part of a formula, and its inputs."""

    part: LinearFunction | Forest | Network
    features: IntArray
    """The feature of each column; −1 for one-hot levels and target encodings."""
    wide: ExpandedFeatures | None
    """The expansion of the features into columns; None if columns are features."""
    grades: GradeGains | None
    """The conversion of outputs into grade probabilities, if any."""


def _functions(part: Part, features: IntArray, wide: ExpandedFeatures | None = None) -> Iterator[Function]:
    if isinstance(part, Blend):
        for _, term in part.terms:
            yield from _functions(term, features, wide)
    elif isinstance(part, ExpandedFeatures):
        levels = np.full(part.width - len(part.numbers), -1)
        yield from _functions(part.part, np.concatenate([part.numbers, levels]), part)
    else:
        grades = part if isinstance(part, GradeGains) else None
        yield Function(part.part if isinstance(part, GradeGains) else part, features, wide, grades)


Cuts = tuple[IntArray, FloatArray]
"""Features, and one threshold for each."""


@dataclass(frozen=True, eq=False)
class Formula:
    """A ranker as a formula: its features by name and in order, and the function of them."""

    features: tuple[str, ...]
    part: Part
    encoding: Encoding | None = None
    """The types of the features, if some are not plain numbers: files contain category codes and days."""
    named: bool = True
    """Whether the training data named the features; otherwise the names are generated."""
    name: str = "model"
    """The name of the model in files."""

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The linear functions, forests and networks in the formula."""
        return tuple(_functions(self.part, np.arange(self.n_features)))

    @cached_property
    def linear(self) -> LinearFunction | None:
        """The equivalent linear function of raw features with one output; None if there is none."""
        return _linear(self.part)

    @cached_property
    def forest(self) -> Forest | None:
        """The equivalent trees with one output, with blend factors in their leaves; None if there are none."""
        return _forest(self.part)

    @cached_property
    def thresholds(self) -> Cuts:
        """The unique pairs (feature, threshold) of all trees."""
        cuts: list[Cuts] = [(np.zeros(0, dtype=np.int64), np.zeros(0))]
        for function in self.functions:
            for tree in function.part.trees if isinstance(function.part, Forest) else ():
                feature = function.features[tree.feature]
                compares = np.array([sets is None for sets in tree.categories], dtype=bool) & (feature >= 0)
                cuts.append((feature[compares], tree.threshold[compares]))
        table = np.unique(np.column_stack([np.concatenate(column) for column in zip(*cuts, strict=True)]), axis=0)
        return table[:, 0].astype(np.int64), table[:, 1]

    @property
    def n_features(self) -> int:
        """Number of features of a document."""
        return len(self.features)

    @property
    def has_network(self) -> bool:
        """True if the formula contains a network."""
        return any(isinstance(function.part, Network) for function in self.functions)

    @property
    def single_sums(self) -> bool:
        """True if the formula contains trees whose sum is rounded to single precision after each tree."""
        return any(isinstance(function.part, Forest) and function.part.single_sums for function in self.functions)

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of each category by its name; a document contains the index of its level, from 0."""
        if self.encoding is None:
            return {}
        return {self.encoding.names[j]: self.encoding.columns[j].levels for j in self.encoding.categories}


class Expressible(Recorded):
    """Base of rankers whose score may be a formula of a document's own features."""

    columns_: SeenColumns | None

    def formula(self) -> Part:
        """Return the score as a formula of a document's own features, which `toprank.export` writes.

        Raises:
            DataError: the ranker has no such formula; the message gives the reason.
        """
        check_is_fitted(self)
        part = self._formula()
        if self.columns_ is None:
            return part
        assert not isinstance(part, Blend | ExpandedFeatures)  # blends pass categories on to their members
        return ExpandedFeatures.from_columns(self.columns_, part)

    def _formula(self) -> Part:
        """Return the formula over the columns that the ranker was trained on."""
        raise DataError(f"A {type(self).__name__} has no formula to export; save it, and serve the file.")


def formula_of(ranker: Any, name: str = "model") -> Formula:
    """Return the formula of a fitted ranker.

    Raises:
        DataError: the ranker is not fitted, or its scores are not a formula of a document's own features.
    """
    check_is_fitted(ranker)
    names = getattr(ranker, "feature_names_in_", None)
    if names is not None:
        formula = Formula(tuple(str(feature) for feature in names), ranker.formula(), ranker.encoding_, name=name)
        _check_texts(formula)
        return formula
    first, d = getattr(ranker, "first_feature_id_", None), ranker.n_features_in_
    made_names = [f"x{j}" for j in range(d)] if first is None else [f"feature_{first + j}" for j in range(d)]
    return Formula(tuple(made_names), ranker.formula(), named=False, name=name)


def _check_texts(formula: Formula) -> None:
    """Refuse names and levels with lone surrogates, which result from wrong decoding and cannot be written to files."""
    texts = [("feature", name, name) for name in formula.features]
    texts += [("level of the category", name, level) for name, levels in formula.levels.items() for level in levels]
    for kind, name, text in texts:
        refuse_if(
            any("\ud800" <= mark <= "\udfff" for mark in text),
            f"The {kind} {name!a} contains a lone surrogate ({text!a}), which cannot be written to a file. Rename it "
            "before training: text.encode(errors='replace').decode().",
        )


def _alike(part: Part, kind: Callable[[Part], T | None]) -> list[tuple[float, T]]:
    """Return the terms of a blend if all are of one kind; else an empty list."""
    terms = part.terms if isinstance(part, Blend) else ()
    alike = [(factor, term) for factor, inner in terms if (term := kind(inner)) is not None]
    return alike if len(alike) == len(terms) else []


def _linear(part: Part) -> LinearFunction | None:
    if isinstance(part, LinearFunction) and part.outputs == 1:
        return part.folded()
    if not (terms := _alike(part, _linear)):
        return None
    summed = [
        np.sum([factor * getattr(linear, name) for factor, linear in terms], axis=0)
        for name in ("weights", "intercepts", "missing")
    ]
    return LinearFunction(terms[0][1].center, terms[0][1].scale, *summed)


def _forest(part: Part) -> Forest | None:
    if isinstance(part, Forest) and part.outputs == 1:
        return part
    if not (terms := _alike(part, _forest)):
        return None
    if len({forest.flushes for _, forest in terms}) > 1:
        terms = [(factor, forest.unflushed()) for factor, forest in terms]
    trees = [replace(tree, values=factor * tree.values) for factor, forest in terms for tree in forest.trees]
    intercept = np.sum([factor * forest.intercepts for factor, forest in terms], axis=0)
    return Forest.from_trees(trees, terms[0][1].n_features, intercept, flushes=terms[0][1].flushes)


# ---- construction ----


def centered(center: FloatArray, weights: FloatArray, intercept: float) -> LinearFunction:
    """Return an intercept plus Σ_j w_j (x_j − c_j), with 0 for missing values."""
    return LinearFunction(
        center, np.ones(len(center)), weights[None, :], np.array([intercept]), np.zeros((1, len(center)))
    )


def stump(feature: int, threshold: float, above: float) -> Tree:
    """Return a tree with the value `above` if the feature exceeds a threshold, else 0, also if it is missing."""
    single, sides = np.ones(1, dtype=np.int64), (np.array([-1]), np.array([-2]))
    where = (single * feature, np.array([threshold]), single == 1, single * MISSING_NAN, (None,))
    return Tree(*where, *sides, np.array([0.0, above]), np.zeros(1))


def before_rounding(threshold: FloatArray) -> FloatArray:
    """Return the largest T for which x <= T in double precision equals x <= t for x rounded to single precision.

    Args:
        threshold: single precision numbers.

    >>> t = np.float64(np.float32(0.1))
    >>> [bool(np.float32(x) <= t) for x in (before_rounding(t), np.nextafter(before_rounding(t), 1.0))]
    [True, False]
    """
    with np.errstate(over="ignore"):
        below = np.asarray(threshold, dtype=np.float32)
        above = np.nextafter(below, np.float32(np.inf))
        middle = (_within(below) + _within(above)) / 2.0
        kept = np.where(middle.astype(np.float32) <= below, middle, np.nextafter(middle, -np.inf))
    return np.asarray(np.where(np.isposinf(below), np.inf, kept))


def _within(singles: npt.NDArray[np.float32]) -> FloatArray:
    """Convert to double precision; infinities become the next power of two."""
    return np.clip(singles.astype(np.float64), -(2.0**128), 2.0**128)


_EPSILON = 1e-5  # the ε of PyTorch's norms


def dense_layers(network: Any) -> tuple[Layer, ...]:
    """Return the layers of an MLP; batch norms, which are fixed in prediction, are folded into the adjacent layer."""
    arrays = {name: np.asarray(value.numpy(), dtype=np.float64) for name, value in network.state_dict().items()}
    kind, layers = network.shape.norm, []
    count = len(network.shape.hidden)
    for number in range(count):
        weights, bias = arrays[f"layer.{number}.weight"], arrays[f"layer.{number}.bias"]
        norm = None
        if kind == "batch":
            factor, shift = _batch_norm(arrays, f"norm.{number}")
            weights, bias = weights * factor[:, None], bias * factor + shift
        elif kind == "layer":
            norm = (arrays[f"norm.{number}.weight"], arrays[f"norm.{number}.bias"])
        layers.append(Layer(weights, bias, network.shape.activation, norm))
    layers.append(Layer(arrays["output.weight"], arrays["output.bias"], "none"))
    if kind == "batch":  # it also normalizes the inputs
        factor, shift = _batch_norm(arrays, "input_norm")
        first = layers[0]
        layers[0] = replace(first, weights=first.weights * factor, bias=first.bias + first.weights @ shift)
    return tuple(layers)


def _batch_norm(arrays: dict[str, FloatArray], name: str) -> tuple[FloatArray, FloatArray]:
    """Return batch norm as factor and shift of factor · x + shift."""
    factor = arrays[f"{name}.weight"] / np.sqrt(arrays[f"{name}.running_var"] + _EPSILON)
    return factor, arrays[f"{name}.bias"] - arrays[f"{name}.running_mean"] * factor
