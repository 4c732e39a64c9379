"""Export to a single Python file that needs only NumPy."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from toprank import __version__
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.exporters.formats import Format, PreparedModel
from toprank.rankers.formula import Blend, ExpandedFeatures, Formula, GradeGains, LinearFunction, Network, Part
from toprank.rankers.trees.forest import TINY, Forest

_HEAD = '''"""Scores of the model {name}, written by toprank {version}. Needs NumPy.

score(X) takes rows of the features named in FEATURES, in that order, NaN where a value is missing, and gives one number
for each row; higher is better.
"""

import numpy as np

FEATURES = {features}
{levels}

def score(X):
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != len(FEATURES):
        raise ValueError(f"X must have a column for each of the {{len(FEATURES)}} features, not the shape {{X.shape}}.")
    with np.errstate(all="ignore"):
        return {expression}
'''

_FUNCTIONS = {
    "_wide": """
def _wide(X, numbers, center, categories, width, means=()):
    Z = np.zeros((len(X), width))
    Z[:, : len(numbers)] = X[:, numbers] if center is None else np.nan_to_num(X[:, numbers] - center)
    for feature, where in categories.items():  # the column of each code
        codes = X[:, feature]
        known = np.flatnonzero((codes >= 0) & (codes < len(where)) & (codes == np.floor(codes)))
        Z[known, np.asarray(where)[codes[known].astype(int)]] = 1.0
    for column, (features, sizes, table) in enumerate(means, start=width - len(means)):  # of levels, or pairs of them
        cells, known = np.zeros(len(X)), np.ones(len(X), dtype=bool)
        for feature, size in zip(features, sizes):
            codes = X[:, feature]
            known &= (codes >= 0) & (codes < size) & (codes == np.floor(codes))
            cells = cells * size + codes
        Z[known, column] = table[cells[known].astype(int)]
    return Z
""",
    "_linear": """
def _linear(X, center, scale, weights, intercepts, missing):
    gone = np.isnan(X)
    return np.where(gone, 0.0, (X - center) * scale) @ weights.T + intercepts + gone @ missing.T
""",
    "_forest": """
def _forest(X, intercepts, flushes, single_sums, trees):
    if flushes:  # what is this close to zero is zero
        X = np.where(np.abs(X) <= {tiny!r}, 0.0, X)
    outputs = np.zeros((len(X), len(intercepts)))
    for number, tree in enumerate(trees):
        outputs[:, number % len(intercepts)] += _tree(X, *tree)
        if single_sums:
            outputs = outputs.astype(np.float32).astype(np.float64)
    return outputs + intercepts


def _tree(X, feature, threshold, default_left, missing, categories, left, right, values):
    feature, threshold, default_left, missing = map(np.asarray, (feature, threshold, default_left, missing))
    left, right, values = np.asarray(left), np.asarray(right), np.asarray(values)
    node = np.full(len(X), 0 if len(feature) else -1)  # below 0: the leaves -1, -2 ...
    while (rows := np.flatnonzero(node >= 0)).size:
        at = node[rows]
        x, kind = X[rows, feature[at]], missing[at]  # 0: NaN is zero; 1: NaN and zero go by default; 2: NaN does
        gone = np.isnan(x)
        by_default = (gone & (kind == 2)) | ((gone | (np.abs(x) <= {tiny!r})) & (kind == 1))
        goes_left = np.where(by_default, default_left[at], np.where(gone, 0.0, x) <= threshold[at])
        for split, wanted in categories.items():
            here = at == split
            goes_left[here] = np.isin(np.trunc(x[here]), wanted)
        node[rows] = np.where(goes_left, left[at], right[at])
    return values[-1 - node]
""",
    "_network": """
def _network(X, transform, center, spread, missing, knots, layers):
    Y = X
    if transform == "log1p":
        Y = np.copysign(np.log1p(np.abs(X)), X)
    elif transform == "quantile":
        shares = np.linspace(0.0, 1.0, len(knots))
        below = [np.interp(x, k, shares) for x, k in zip(X.T, knots.T)]
        above = [1.0 - np.interp(-x, -k[::-1], shares) for x, k in zip(X.T, knots.T)]
        Y = 0.5 * (np.column_stack(below) + np.column_stack(above))
    Z = np.where(np.isnan(X), missing, (Y - center) / spread).astype(np.float32).astype(np.float64)
    for weights, bias, activation, norm in layers:
        Z = Z @ weights.T + bias
        if norm is not None:
            mean = Z.mean(axis=1, keepdims=True)
            Z = (Z - mean) / np.sqrt(((Z - mean) ** 2).mean(axis=1, keepdims=True) + 1e-5) * norm[0] + norm[1]
        Z = _ACTIVATIONS[activation](Z)
    return Z


_ACTIVATIONS = {{
    "none": lambda Z: Z,
    "relu": lambda Z: np.maximum(Z, 0.0),
    "tanh": np.tanh,
    "silu": lambda Z: Z * _sigmoid(Z),
    "gelu": lambda Z: 0.5 * Z * (1.0 + np.vectorize(math.erf, otypes=[float])(Z / math.sqrt(2.0))),
}}
""",
    "_expected_gain": """
def _expected_gain(outputs, link, gains, steps, by_score):
    if link == "softmax":
        P = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    else:  # outputs are log odds of at least each grade
        ends = np.ones((len(outputs), 1)), np.zeros((len(outputs), 1))
        at_least = np.hstack([ends[0], _sigmoid(outputs), ends[1]])
        P = np.maximum(at_least[:, :-1] - at_least[:, 1:], 0.0)
    P = P / P.sum(axis=1, keepdims=True)
    if steps is not None:  # set right on held-out queries, a step from grade to grade at a time
        reached, parts = np.ones(len(P)), []
        for k, (a, b) in enumerate(steps, start=1):
            up = P @ (gains - gains.min()) if by_score else P[:, k:].sum(axis=1)
            down = P @ (gains.max() - gains) if by_score else P[:, k - 1]
            odds = a + b * (np.log(np.maximum(up, 1e-12)) - np.log(np.maximum(down, 1e-12)))
            parts.append(reached * _sigmoid(-odds))
            reached = reached * _sigmoid(odds)
        P = np.column_stack([*parts, reached])
    return P @ gains
""",
    "_sigmoid": """
def _sigmoid(Z):
    small = np.exp(-np.abs(Z))
    return np.where(Z >= 0, 1.0, small) / (1.0 + small)
""",
}
_ASK = {"_network": ("_sigmoid",), "_expected_gain": ("_sigmoid",)}


class _PythonWriter:
    """Writes formulas as expressions; collects the constants and functions that they need."""

    def __init__(self) -> None:
        self.constants: list[str] = []
        self.functions: dict[str, None] = {}

    def _use(self, function: str) -> str:
        self.functions |= dict.fromkeys((function, *_ASK.get(function, ())))
        return function

    def _constant(self, value: str) -> str:
        name = f"_PART_{len(self.constants)}"
        self.constants.append(f"{name} = {value}")
        return name

    def score(self, part: Part, X: str = "X") -> str:
        """Return the expression for a part with one number per row."""
        if isinstance(part, Blend):
            return " + ".join(f"{factor!r} * {self.score(term, X)}" for factor, term in part.terms)
        if isinstance(part, ExpandedFeatures):
            center = "None" if part.center is None else _array(part.center)
            places = {feature: where.tolist() for feature, where in part.categories}
            means = "".join(
                f"({mean.places!r}, {mean.sizes!r}, {_array(mean.table.astype(np.float64))}), " for mean in part.means
            )
            arguments = f"{part.numbers.tolist()!r}, {center}, {places!r}, {part.width}"
            constant = self._constant(f"({arguments}, ({means}))" if means else f"({arguments})")
            return self.score(part.part, f"{self._use('_wide')}({X}, *{constant})")
        if isinstance(part, GradeGains):
            how = f"{part.link!r}, {_array(part.gains)}, {part.steps!r}, {part.by_score!r}"
            return f"{self._use('_expected_gain')}({self.outputs(part.part, X)}, {how})"
        return f"{self.outputs(part, X)}[:, 0]"

    def outputs(self, part: LinearFunction | Forest | Network, X: str) -> str:
        """Return the expression for a part with several numbers per row."""
        if isinstance(part, LinearFunction):
            arrays = (part.center, part.scale, part.weights, part.intercepts, part.missing)
            constant = self._constant(f"({', '.join(map(_array, arrays))})")
            return f"{self._use('_linear')}({X}, *{constant})"
        if isinstance(part, Forest):
            trees = self._constant("[\n" + "".join(f"    {tree},\n" for tree in _trees(part)) + "]")
            how = f"{_array(part.intercepts)}, {part.flushes!r}, {part.single_sums!r}"
            return f"{self._use('_forest')}({X}, {how}, {trees})"
        layers = [
            f"({_array(layer.weights)}, {_array(layer.bias)}, {layer.activation!r}, "
            + ("None" if layer.norm is None else f"({_array(layer.norm[0])}, {_array(layer.norm[1])})")
            + ")"
            for layer in part.layers
        ]
        inputs = ", ".join(_array(array) for array in (part.center, part.spread, part.missing, part.knots))
        constant = self._constant(
            f"({part.transform!r}, {inputs}, [\n" + "".join(f"    {layer},\n" for layer in layers) + "])"
        )
        return f"{self._use('_network')}({X}, *{constant})"


def _trees(forest: Forest) -> Iterator[str]:
    for tree in forest.trees:
        sets = {node: codes.tolist() for node, codes in enumerate(tree.categories) if codes is not None}
        numbers = (tree.feature, tree.threshold, tree.default_left.astype(int), tree.missing)
        before = ", ".join(repr(array.tolist()) for array in numbers)
        after = ", ".join(repr(array.tolist()) for array in (tree.left, tree.right, tree.values))
        yield f"({before}, {sets!r}, {after})".replace("inf", "np.inf")


def _array(values: FloatArray) -> str:
    if values.size == 0:
        return f"np.zeros({values.shape!r})"
    return f"np.array({values.tolist()!r})".replace("inf", "np.inf")


def _source(formula: Formula) -> bytes:
    writer = _PythonWriter()
    expression = writer.score(formula.part)
    head = _HEAD.format(
        name=_plain(formula.name),
        version=__version__,
        features=repr(list(formula.features)),
        levels=_levels(formula),
        expression=expression,
    )
    if "_network" in writer.functions:
        head = head.replace("import numpy as np\n", "import math\n\nimport numpy as np\n", 1)
    functions = [_FUNCTIONS[name].format(tiny=TINY) for name in _FUNCTIONS if name in writer.functions]
    return "\n".join([head, *functions, "", *writer.constants, ""]).encode()


def _levels(formula: Formula) -> str:
    if not formula.levels:
        return ""
    listed = "".join(f"    {name!r}: {list(levels)!r},\n" for name, levels in formula.levels.items())
    comment = "# Categories: X holds the place of a level in its list, from 0 on; NaN for any other."
    return f"\n{comment}\nLEVELS = {{\n{listed}}}\n"


def _plain(name: str) -> str:
    """Return the name without characters that could end the surrounding string."""
    return re.sub(r"[^\w .-]", "_", name)


def _scores(path: Path, X: FloatArray, _features: tuple[str, ...]) -> FloatArray:
    module: dict[str, Any] = runpy.run_path(str(path))
    return np.asarray(module["score"](X))


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    return PreparedModel(
        formula=formula,
        files={"": _source(formula)},
        score=_scores,
        interpreter=f"NumPy {np.__version__}",
        rounds_sums=True,
    )


FORMATS = [Format(name="python", title="one Python file that needs NumPy alone", suffix=".py", writer=_prepare)]
