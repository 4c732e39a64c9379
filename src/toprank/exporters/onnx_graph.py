"""Export to an ONNX graph that computes in double precision, from features with NaN for missing values.

Categories of a table are text inputs, so that users of the file need not know their codes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from toprank import __version__
from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.data.encoding import codes_of
from toprank.errors import require_extra
from toprank.exporters.formats import Format, PreparedModel
from toprank.exporters.onnx_nodes import GraphNodes
from toprank.exporters.onnx_trees import forest_outputs, ranks_up_to, too_deep
from toprank.lazy_imports import installed
from toprank.rankers.formula import Blend, ExpandedFeatures, Formula, GradeGains, LinearFunction, Network, Part
from toprank.rankers.trees.forest import Forest

_OPSETS = {"": 18, "ai.onnx.ml": 5}
_ROWS = 1 << 12  # rows scored at a time


def _model(formula: Formula) -> bytes:
    onnx = require_extra("onnx", "export", "The format onnx")
    from onnx import checker, helper, numpy_helper  # noqa: F401 - `import onnx` alone does not import them

    nodes, double = GraphNodes(onnx), onnx.TensorProto.DOUBLE
    X, inputs = _inputs(nodes, formula, helper, onnx.TensorProto)
    score = _Graph(nodes, formula.n_features, X).score(formula.part)
    nodes.nodes.append(helper.make_node("Squeeze", [score, nodes.constant(np.array([1]))], ["scores"]))
    graph = helper.make_graph(
        nodes.nodes,
        formula.name,
        inputs,
        [helper.make_tensor_value_info("scores", double, ["documents"])],
        nodes.constants,
    )
    domains = {node.domain for node in nodes.nodes} | {""}
    opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items() if domain in domains]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=10 if "ai.onnx.ml" in domains else 8, producer_name="toprank"
    )
    model.producer_version = __version__
    properties: dict[str, Any] = {"features": [name for name in formula.features if name not in formula.levels]}
    if formula.levels:
        properties |= {"categories": list(formula.levels), "levels": formula.levels}
    helper.set_model_props(model, {key: json.dumps(value, ensure_ascii=False) for key, value in properties.items()})
    checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _inputs(nodes: GraphNodes, formula: Formula, helper: Any, types: Any) -> tuple[str, list[Any]]:
    """Return the name of the tensor of all features; and the inputs: numbers, and text for categories of a table."""
    numbers = [name for name in formula.features if name not in formula.levels]
    kinds = (("features", types.DOUBLE, len(numbers)), ("categories", types.STRING, len(formula.levels)))
    inputs = [helper.make_tensor_value_info(name, kind, ["documents", n]) for name, kind, n in kinds if n]
    if not formula.levels:
        return "features", inputs
    columns = []
    for name in formula.features:
        if name not in formula.levels:
            place = nodes.constant(np.array([numbers.index(name)]))
            columns.append(nodes("Gather", "features", place, axis=1))
            continue
        place, levels = nodes.constant(np.array([list(formula.levels).index(name)])), formula.levels[name]
        text = nodes("Gather", "categories", place, axis=1)
        codes = {
            "keys_strings": levels or ("",),
            "values_int64s": list(range(len(levels))) or [-1],
            "default_int64": -1,
        }
        code = nodes("Cast", nodes("LabelEncoder", text, domain="ai.onnx.ml", **codes), to=nodes.DOUBLE)
        known = nodes("GreaterOrEqual", code, nodes.constant(0.0))
        columns.append(nodes("Where", known, code, nodes.constant(np.nan)))
    return nodes("Concat", *columns, axis=1) if len(columns) > 1 else columns[0], inputs


class _Graph:
    """The nodes of a formula."""

    def __init__(self, nodes: GraphNodes, d: int, X: str) -> None:
        self.nodes, self.d, self._X = nodes, d, X

    def score(self, part: Part) -> str:
        """Add the score, (n, 1)."""
        nodes = self.nodes
        if isinstance(part, GradeGains):
            return self._expected_gain(part)
        if isinstance(part, ExpandedFeatures):
            return _Graph(nodes, part.width, self._wide(part)).score(part.part)
        if not isinstance(part, Blend):
            return self.outputs(part)
        # Use one matrix product: a runtime may fuse a product by one number with a preceding product, and compute it in
        # single precision.
        members = nodes("Concat", *(self.score(term) for _, term in part.terms), axis=1)
        return nodes("MatMul", members, nodes.constant(np.array([[factor] for factor, _ in part.terms])))

    def outputs(self, part: LinearFunction | Forest | Network) -> str:
        """Add the outputs of a part, (n, outputs)."""
        if isinstance(part, LinearFunction):
            return self._linear(part)
        if isinstance(part, Forest):
            return forest_outputs(self.nodes, self._X, part, self.d)
        return self._network(part)

    def _filled(self, values: str, missing: FloatArray) -> str:
        nodes = self.nodes
        return nodes("Where", nodes("IsNaN", self._X), nodes.constant(missing), values)

    def _wide(self, part: ExpandedFeatures) -> str:
        """Add features, then one-hot columns for category levels, then target encodings: a code selects a table row."""
        nodes, blocks, first = self.nodes, [], len(part.numbers)
        if first:
            numbers = nodes("Gather", self._X, nodes.constant(part.numbers), axis=1)
            if part.center is not None:
                centered = nodes("Sub", numbers, nodes.constant(part.center))
                numbers = nodes("Where", nodes("IsNaN", numbers), nodes.constant(0.0), centered)
            blocks.append(numbers)
        for feature, where in part.categories:
            size, width = len(where), int(where.max(initial=first - 1)) + 1 - first
            table = np.zeros((size + 1, width))
            table[np.arange(size), where - first] = 1.0
            codes, known = self._codes(feature, size)
            blocks.append(self._rows_of(table, codes, known))
            first += width
        for mean in part.means:
            codes, known = self._codes(mean.places[0], mean.sizes[0])
            for place, size in zip(mean.places[1:], mean.sizes[1:], strict=True):
                second, both = self._codes(place, size)
                codes = nodes("Add", nodes("Mul", codes, nodes.constant(float(size))), second)
                known = nodes("And", known, both)
            blocks.append(self._rows_of(np.append(mean.table.astype(np.float64), 0.0)[:, None], codes, known))
        return blocks[0] if len(blocks) == 1 else nodes("Concat", *blocks, axis=1)

    def _codes(self, feature: int, size: int) -> tuple[str, str]:
        """Add the codes of a category, (n,), and whether each is one of its `size` levels."""
        nodes = self.nodes
        codes = nodes("Gather", self._X, nodes.constant(np.array(feature)), axis=1)
        within = nodes(
            "And",
            nodes("GreaterOrEqual", codes, nodes.constant(0.0)),
            nodes("Less", codes, nodes.constant(float(size))),
        )
        return codes, nodes("And", within, nodes("Equal", codes, nodes("Floor", codes)))

    def _rows_of(self, table: FloatArray, codes: str, known: str) -> str:
        """Add the rows of a table selected by codes; its last row for unknown codes."""
        nodes, last = self.nodes, self.nodes.constant(float(len(table) - 1))
        row = nodes("Cast", nodes("Where", known, codes, last), to=nodes.INT64)
        return nodes("Gather", nodes.constant(table), row, axis=0)

    def _linear(self, part: LinearFunction) -> str:
        nodes = self.nodes
        centered = nodes("Mul", nodes("Sub", self._X, nodes.constant(part.center)), nodes.constant(part.scale))
        product = nodes("MatMul", self._filled(centered, np.zeros(self.d)), nodes.constant(part.weights.T))
        total = nodes("Add", product, nodes.constant(part.intercepts))
        if not part.missing.any():
            return total
        gone = nodes("Cast", nodes("IsNaN", self._X), to=nodes.DOUBLE)
        return nodes("Add", total, nodes("MatMul", gone, nodes.constant(part.missing.T)))

    # ---- networks ----

    def _network(self, part: Network) -> str:
        nodes = self.nodes
        mapped = self._X
        if part.transform != "identity":
            mapped = self._signed_log() if part.transform == "log1p" else self._shares(part.knots)
        centered = nodes("Sub", mapped, nodes.constant(part.center))
        filled = self._filled(nodes("Div", centered, nodes.constant(part.spread)), part.missing)
        Z = nodes("Cast", nodes("Cast", filled, to=nodes.FLOAT), to=nodes.DOUBLE)  # as in the training of the network
        for layer in part.layers:
            Z = nodes("Add", nodes("MatMul", Z, nodes.constant(layer.weights.T)), nodes.constant(layer.bias))
            if layer.norm is not None:
                Z = self._normalized(Z, *layer.norm)
            Z = self._activated(Z, layer.activation)
        return Z

    def _signed_log(self) -> str:
        """Add sign(x) log(1 + |x|), accurate also for small |x|: log(u) |x| / (u − 1) with u = 1 + |x|."""
        nodes, one = self.nodes, self.nodes.constant(1.0)
        size = nodes("Abs", self._X)
        u = nodes("Add", size, one)
        gained = nodes("Sub", u, one)
        safe = nodes("Where", nodes("Equal", u, one), one, gained)
        exact = nodes("Div", nodes("Mul", nodes("Log", u), size), safe)
        log = nodes("Where", nodes("Equal", u, one), size, exact)
        return nodes("Mul", nodes("Sign", self._X), log)

    def _shares(self, knots: FloatArray) -> str:
        """Add the quantile of x among the knots, from 0 to 1: the mean of both interpolations."""
        nodes = self.nodes
        filled = self._filled(self._X, np.zeros(self.d))
        rising = self._interpolated(filled, knots)
        falling = self._interpolated(nodes("Neg", filled), -knots[::-1])
        both = nodes("Add", rising, nodes("Sub", nodes.constant(1.0), falling))
        return nodes("Mul", nodes.constant(0.5), both)

    def _interpolated(self, X: str, knots: FloatArray) -> str:
        """Add the linear interpolation between (knot, quantile), by a table of starts and slopes; constant outside the
        knots.
        """
        nodes, n = self.nodes, len(knots)
        shares = np.linspace(0.0, 1.0, n)[:, None]
        width = np.diff(knots, axis=0)
        rises = np.divide(np.diff(shares, axis=0), width, out=np.zeros_like(width), where=width > 0)
        flat = np.zeros((1, knots.shape[1]))
        rank = nodes("Cast", ranks_up_to(nodes, X, knots), to=nodes.INT64)

        def looked_up(table: FloatArray) -> str:
            return nodes("GatherElements", nodes.constant(table), rank, axis=0)

        begins, slopes = looked_up(np.concatenate([flat, knots])), looked_up(np.concatenate([flat, rises, flat]))
        start = looked_up(np.concatenate([flat, np.broadcast_to(shares, knots.shape)]))
        return nodes("Add", nodes("Mul", slopes, nodes("Sub", X, begins)), start)

    def _normalized(self, Z: str, weight: FloatArray, bias: FloatArray) -> str:
        nodes, last = self.nodes, self.nodes.constant(np.array([1]))
        off = nodes("Sub", Z, nodes("ReduceMean", Z, last))
        variance = nodes("ReduceMean", nodes("Mul", off, off), last)
        deviation = nodes("Sqrt", nodes("Add", variance, nodes.constant(1e-5)))
        return nodes("Add", nodes("Mul", nodes("Div", off, deviation), nodes.constant(weight)), nodes.constant(bias))

    def _activated(self, Z: str, activation: str) -> str:
        nodes = self.nodes
        if activation == "none":
            return Z
        if activation in ("relu", "tanh"):
            return nodes({"relu": "Relu", "tanh": "Tanh"}[activation], Z)
        if activation == "silu":
            return nodes("Mul", Z, self._sigmoid(Z))
        erf = self._erf(nodes("Mul", Z, nodes.constant(np.sqrt(0.5))))
        half = nodes("Mul", Z, nodes.constant(0.5))
        return nodes("Add", half, nodes("Mul", half, erf))

    def _sigmoid(self, Z: str) -> str:
        """Add the sigmoid in the same steps as `predict`: logarithms of tiny probabilities amplify differences in the
        last bits.
        """
        nodes, one = self.nodes, self.nodes.constant(1.0)
        small = nodes("Exp", nodes("Neg", nodes("Abs", Z)))
        above = nodes("Where", nodes("GreaterOrEqual", Z, nodes.constant(0.0)), one, small)
        return nodes("Div", above, nodes("Add", one, small))

    def _erf(self, u: str) -> str:
        """Add the error function, which runtimes provide in single precision only.

        erf(u) = 1 − exp(−u²) g(t) for u ≥ 0, with t = 2/(2 + u) and a Chebyshev series for g.
        """
        nodes, one = self.nodes, self.nodes.constant(1.0)
        size = nodes("Abs", u)
        t = nodes("Div", nodes.constant(4.0), nodes("Add", size, nodes.constant(2.0)))
        x2 = nodes("Mul", nodes.constant(2.0), nodes("Sub", t, one))  # twice the position in [−1, 1]
        first, *rest = _erf_series()
        after, now = nodes.constant(0.0), nodes.constant(float(rest[-1]))
        for coefficient in rest[-2::-1]:
            raised = nodes("Add", nodes("Mul", x2, now), nodes.constant(float(coefficient)))
            after, now = now, nodes("Sub", raised, after)
        place = nodes("Mul", x2, nodes.constant(0.5))
        g = nodes("Sub", nodes("Add", nodes("Mul", place, now), nodes.constant(float(first))), after)
        rest_of_one = nodes("Mul", nodes("Exp", nodes("Neg", nodes("Mul", size, size))), g)
        return nodes("Mul", nodes("Sign", u), nodes("Sub", one, rest_of_one))

    # ---- grades ----

    def _expected_gain(self, part: GradeGains) -> str:
        nodes, outputs, gains = self.nodes, self.outputs(part.part), part.gains
        n_grades = len(gains)
        if part.link == "softmax":
            P = nodes("Softmax", outputs, axis=1)
        else:
            # P(k) = P(≥ k) − P(≥ k + 1), with P(≥ 0) = 1
            steps = np.eye(n_grades)[1:] - np.eye(n_grades)[:-1]
            first = nodes.constant(np.eye(n_grades)[0])
            raw = nodes("Add", nodes("MatMul", self._sigmoid(outputs), nodes.constant(steps)), first)
            kept = nodes("Max", raw, nodes.constant(0.0))
            P = nodes("Div", kept, nodes("ReduceSum", kept, nodes.constant(np.array([1]))))
        if part.steps is None:
            return nodes("MatMul", P, nodes.constant(gains[:, None]))
        return self._calibrated(P, part)

    def _calibrated(self, P: str, part: GradeGains) -> str:
        """Add G(0) + Σ_k (G(k) − G(k − 1)) P(≥ k), with P(≥ k) a product of step probabilities."""
        nodes, gains = self.nodes, part.gains
        n = len(gains)
        up, down = np.tri(n, k=-1)[:, : n - 1], np.eye(n)[:, : n - 1]
        if part.by_score:
            up, down = (np.repeat(side[:, None], n - 1, axis=1) for side in (gains - gains.min(), gains.max() - gains))
        least = nodes.constant(1e-12)  # as in predict, since log(0) is undefined
        logs = [nodes("Log", nodes("Max", nodes("MatMul", P, nodes.constant(side)), least)) for side in (up, down)]
        a, b = np.array(part.steps).T
        odds = nodes("Add", nodes("Mul", nodes("Sub", *logs), nodes.constant(b)), nodes.constant(a))
        chances, reached, total = self._sigmoid(odds), "", nodes.constant(gains[:1])
        for k, rise in enumerate(np.diff(gains)):
            chance = nodes("Gather", chances, nodes.constant(np.array([k])), axis=1)
            reached = nodes("Mul", reached, chance) if reached else chance
            total = nodes("Add", total, nodes("Mul", reached, nodes.constant(float(rise))))
        return total


def _erf_series() -> FloatArray:
    """Return Chebyshev coefficients of exp(u²) erfc(u) over t = 2/(2 + u), mapped to [−1, 1] by 2t − 1."""
    from scipy.special import erfcx

    def scaled(place: FloatArray) -> Any:
        return erfcx(4.0 / (place + 1.0) - 2.0)

    return np.polynomial.chebyshev.chebinterpolate(scaled, 36)  # within 5e-14 of erf from 0 to 10


# ---- scoring ----


def _scores(path: Path, X: FloatArray, features: tuple[str, ...]) -> FloatArray:
    session, levels = _session(path), _levels(path)
    numbers = [place for place, name in enumerate(features) if name not in levels]
    # The last text, "", represents a missing value, whose code is -1.
    texts = {features.index(name): np.array([*known, ""], dtype=object) for name, known in levels.items()}
    scores = []
    for first in range(0, len(X), _ROWS):
        part = X[first : first + _ROWS]
        inputs = {"features": np.ascontiguousarray(part[:, numbers])} if numbers else {}
        if texts:
            cells = [known[codes_of(part[:, place], len(known) - 1)] for place, known in texts.items()]
            inputs["categories"] = np.column_stack(cells)
        scores.append(session.run(None, inputs)[0])
    return np.concatenate(scores)


def _levels(path: Path) -> dict[str, list[str]]:
    """Return the levels of the text inputs of a file. Pass `format`, or onnx infers it from the file name."""
    onnx = require_extra("onnx", "export", "The format onnx")
    properties = {entry.key: entry.value for entry in onnx.load(str(path), format="protobuf").metadata_props}
    levels: dict[str, list[str]] = json.loads(properties.get("levels", "{}"))
    return levels


def _session(path: Path) -> Any:
    """Return a session that runs the model: onnxruntime or, if it is not installed, the slow reference evaluator of
    onnx.
    """
    runtime = installed("onnxruntime")
    if runtime is None:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(str(path))
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _refuses(formula: Formula, _server: str | None) -> str | None:
    forests = (function.part for function in formula.functions if isinstance(function.part, Forest))
    return next((reason for forest in forests if (reason := too_deep(forest)) is not None), None)


def _prepare(formula: Formula, _server: str | None, _data: RankingData | None) -> PreparedModel:
    content, runtime = _model(formula), installed("onnxruntime")
    return PreparedModel(
        formula=formula,
        files={"": content},
        score=_scores,
        interpreter="onnx's reference evaluator" if runtime is None else f"onnxruntime {runtime.__version__}",
        texts=True,
    )


FORMATS = [
    Format(
        name="onnx",
        title="a graph for ONNX runtimes, in double precision",
        suffix=".onnx",
        writer=_prepare,
        support_check=_refuses,
    )
]
