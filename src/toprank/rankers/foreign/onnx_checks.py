"""What an ONNX model may hold before onnxruntime sees it.

onnxruntime trusts models: it follows numbers of nodes, and allocates what shapes ask for. So only operators are let
through that scores are made of, without graphs inside graphs, files beside the file or operators of one's own; shapes
are inferred first and must be of a sensible size; and the nodes of trees must form trees over features that are there.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from toprank.errors import DataError, needs
from toprank.rankers.foreign.building import MOST_FEATURES

__all__ = ["MOST_BYTES", "Checked", "checked"]

MOST_BYTES = 1 << 28
_MOST_CELLS = 1 << 24  # of any array inside, for each row
_STANDARD = {
    "Abs", "Add", "And", "ArgMax", "BatchNormalization", "Cast", "Ceil", "Clip", "Concat", "Constant", "Div",
    "Dropout", "Elu", "Equal", "Erf", "Exp", "Flatten", "Floor", "Gather", "Gelu", "Gemm", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LayerNormalization", "LeakyRelu",
    "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Not", "Or",
    "PRelu", "Pow", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Reciprocal", "Reshape", "Round",
    "Selu", "Sigmoid", "Sign", "Slice", "Softmax", "Softplus", "Softsign", "Split", "Sqrt", "Squeeze", "Sub", "Sum",
    "Swish", "Tanh", "ThresholdedRelu", "Unsqueeze", "Where", "Xor",
}  # fmt: skip
_LEARNED = {"ArrayFeatureExtractor", "Binarizer", "Imputer", "LinearRegressor", "Normalizer", "Scaler"}
_TREES = {"TreeEnsembleRegressor", "TreeEnsemble"}
_KINDS: dict[int, type[np.floating[Any]]] = {1: np.float32, 11: np.float64}  # of ONNX's numbers of types


class Checked(NamedTuple):
    """What there is to know of a model."""

    input_name: str
    kind: type[np.floating[Any]]
    features: int
    producer: str


def checked(content: bytes) -> Checked:
    """What the model is; refused where it is not one that scores rows of features."""
    if len(content) > MOST_BYTES:
        raise DataError(f"it has more than {MOST_BYTES:,} bytes")
    onnx = needs("onnx", "export", "An ONNX model")
    try:
        model = onnx.load_model_from_string(content)
    except Exception:  # noqa: BLE001 - protobuf's errors are its own
        raise DataError("its bytes are damaged") from None
    graph = model.graph
    _check_operators(model)
    name, kind, features = _input(graph)
    _check_output(graph)
    try:
        onnx.checker.check_model(model)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    except Exception as problem:  # noqa: BLE001
        raise DataError(f"it contradicts itself ({str(problem).strip()[:200]})") from None
    shapes = _shapes(inferred)
    for array, shape in shapes.items():
        if prod(shape) > _MOST_CELLS:
            raise DataError(f"its array {array[:40]!r} has more than {_MOST_CELLS:,} numbers for each row")
    for node in graph.node:
        _check_learned(onnx, node, shapes)
    return Checked(name, kind, features, f"ONNX, {model.producer_name[:40]}".removesuffix(", "))


def _check_operators(model: Any) -> None:
    if len(model.functions) or len(model.training_info) or len(model.graph.sparse_initializer):
        raise DataError("it has functions, training or sparse parts, which models that score have not")
    for tensor in model.graph.initializer:
        _check_inside(tensor)
    for node in model.graph.node:
        allowed = _STANDARD if node.domain in ("", "ai.onnx") else _LEARNED | _TREES
        if node.domain not in ("", "ai.onnx", "ai.onnx.ml") or node.op_type not in allowed:
            raise DataError(
                f"its operator {node.domain}:{node.op_type} is not one that scores are made of".replace(" :", " ")
            )
        for attribute in node.attribute:
            if attribute.HasField("g") or len(attribute.graphs) or attribute.HasField("sparse_tensor"):
                raise DataError(f"its operator {node.op_type} has a graph inside")
            for tensor in ([attribute.t] if attribute.HasField("t") else []) + list(attribute.tensors):
                _check_inside(tensor)


def _check_inside(tensor: Any) -> None:
    """Refuse numbers in other files, and shapes that hold more than there is."""
    if tensor.data_location != 0 or len(tensor.external_data):
        raise DataError("some of its numbers lie in other files; save it as one file")
    dims = list(tensor.dims)
    if any(not 0 <= size <= MOST_BYTES for size in dims) or prod(dims) > 8 * MOST_BYTES:
        raise DataError("an array inside claims an impossible size")


def _input(graph: Any) -> tuple[str, type[np.floating[Any]], int]:
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [one for one in graph.input if one.name not in constants]
    if len(inputs) != 1:
        raise DataError(f"it has {len(inputs)} inputs; one is read, (rows, features)")
    kind, dims = inputs[0].type.tensor_type.elem_type, inputs[0].type.tensor_type.shape.dim
    if kind not in _KINDS or len(dims) != 2 or not 1 <= dims[1].dim_value <= MOST_FEATURES:
        raise DataError(
            "its input is not an array of floats or doubles (rows, features) with a known number of features"
        )
    if dims[0].dim_value:
        raise DataError(f"it takes exactly {dims[0].dim_value} rows; export it for any number of rows")
    return inputs[0].name, _KINDS[kind], dims[1].dim_value


def _check_output(graph: Any) -> None:
    if len(graph.output) != 1:
        raise DataError(f"it has {len(graph.output)} outputs; one is read, a number for each row")
    of = graph.output[0].type.tensor_type
    several = len(of.shape.dim) > 2 or (len(of.shape.dim) == 2 and of.shape.dim[1].dim_value not in (0, 1))
    if of.elem_type not in _KINDS or several:
        raise DataError("its output is not one float or double for each row")


def _shapes(graph: Any) -> dict[str, list[int]]:
    """The shape of each array of which it is known, with 1 for the number of rows."""
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for one in (*graph.input, *graph.value_info, *graph.output):
        if one.type.tensor_type.HasField("shape"):
            shapes[one.name] = [max(dim.dim_value, 1) for dim in one.type.tensor_type.shape.dim]
    for node in graph.node:  # of these onnx knows no shape
        if node.op_type in ("Binarizer", "Imputer", "Normalizer", "Scaler") and node.input[0] in shapes:
            shapes.setdefault(node.output[0], shapes[node.input[0]])
    return shapes


def _check_learned(onnx: Any, node: Any, shapes: dict[str, list[int]]) -> None:
    """What onnxruntime would follow without a look: weights by the number of columns, and nodes of trees."""
    if node.op_type not in _TREES and node.op_type != "LinearRegressor":
        return
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    shape = shapes.get(node.input[0], [])
    if len(shape) != 2:
        raise DataError(f"the number of columns that its {node.op_type} takes is not known")
    if node.op_type == "LinearRegressor":
        weights, biases = len(given.get("coefficients", ())), len(given.get("intercepts", ()))
        if given.get("targets", 1) != 1 or weights != shape[1] or biases > 1:
            raise DataError("its LinearRegressor does not have a weight for each column")
    elif node.op_type == "TreeEnsemble":
        _check_nodes(given, shape[1])
    else:
        _check_named_nodes(given, shape[1])


_NO_TREES = "the nodes of its trees do not form trees over the features that it has"


def _check_forest(roots: list[int], children: list[tuple[int, ...]]) -> None:
    """Every node is reached from one root, by one way."""
    order, seen = list(roots), bytearray(len(children))
    for node in order:
        if not 0 <= node < len(children) or seen[node]:
            raise DataError(_NO_TREES)
        seen[node] = 1
        order += children[node]
    if len(order) != len(children):
        raise DataError(_NO_TREES)


def _check_named_nodes(given: dict[str, Any], columns: int) -> None:
    """TreeEnsembleRegressor: nodes by the numbers of tree and node."""
    lists = [list(given.get(f"nodes_{name}", ())) for name in ("treeids", "nodeids", "truenodeids", "falsenodeids")]
    modes, features = list(given.get("nodes_modes", ())), list(given.get("nodes_featureids", ()))
    keys = list(zip(lists[0], lists[1], strict=False))
    number = {key: place for place, key in enumerate(keys)}
    values, missing = given.get("nodes_values", ()), given.get("nodes_missing_value_tracks_true", ())
    double = given.get("nodes_values_as_tensor") is not None or given.get("target_weights_as_tensor") is not None
    lengths = {len(one) for one in (*lists, modes, features)} | ({len(missing)} if len(missing) else set())
    if double or lengths | {len(values)} != {len(keys)} or len(number) != len(keys):
        raise DataError(_NO_TREES)
    children: list[tuple[int, ...]] = []
    below = set()
    for place, (tree, _) in enumerate(keys):
        if modes[place] == b"LEAF":
            children.append(())
            continue
        pair = tuple(number.get((tree, lists[side][place]), -1) for side in (2, 3))
        if not 0 <= features[place] < columns:
            raise DataError(_NO_TREES)
        children.append(pair)
        below |= {*pair}
    _check_forest([place for place in range(len(keys)) if place not in below], children)
    roots = [keys[place][0] for place in range(len(keys)) if place not in below]
    targets = [list(given.get(f"target_{name}", ())) for name in ("treeids", "nodeids", "ids", "weights")]
    at = [number.get(key, -1) for key in zip(targets[0], targets[1], strict=False)]
    wrong = len({len(one) for one in targets}) != 1 or any(place < 0 or children[place] for place in at)
    if wrong or len(set(roots)) != len(roots) or any(targets[2]) or given.get("n_targets", 1) != 1:
        raise DataError(_NO_TREES)


def _check_nodes(given: dict[str, Any], columns: int) -> None:
    """TreeEnsemble: inner nodes and leaves by their places."""
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    features, true, false, true_leaf, false_leaf = (list(given.get(f"nodes_{name}", ())) for name in names)
    n, leaves = len(features), len(given.get("leaf_targetids", ()))
    tensors = {name: given.get(name) for name in ("nodes_splits", "nodes_modes", "leaf_weights")}
    if any(tensor is None for tensor in tensors.values()) or given.get("membership_values") is not None:
        raise DataError(_NO_TREES)
    sizes = {name: prod(tensor.dims) for name, tensor in tensors.items() if tensor is not None}
    optional = [len(given.get(f"nodes_{name}", ())) for name in ("missing_value_tracks_true",)]
    if {len(one) for one in (true, false, true_leaf, false_leaf)} | {sizes["nodes_splits"], sizes["nodes_modes"]} != {
        n
    }:
        raise DataError(_NO_TREES)
    if sizes["leaf_weights"] != leaves or any(size not in (0, n) for size in optional) or any(given["leaf_targetids"]):
        raise DataError(_NO_TREES)
    if given.get("n_targets", 1) != 1 or any(not 0 <= one < columns for one in features):
        raise DataError(_NO_TREES)
    children: list[tuple[int, ...]] = []
    for place in range(n):
        sides = ((true[place], true_leaf[place]), (false[place], false_leaf[place]))
        if any(leaf not in (0, 1) or not 0 <= child < (leaves if leaf else n) for child, leaf in sides):
            raise DataError(_NO_TREES)
        children.append(tuple(child for child, leaf in sides if not leaf))
    _check_forest(list(given.get("tree_roots", ())), children)
