"""Validation of ONNX models before they are passed to onnxruntime.

onnxruntime trusts models: it follows node ids, recurses at every level of a tree, and allocates any shape. Therefore
only operators for scoring are allowed, without subgraphs, external files or custom operators. The cost of a batch of
rows is computed first (`onnx_shapes`), and the batch size is chosen accordingly. The nodes of trees must form trees
over existing features with limited depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toprank.errors import DataError, refuse_if, require_extra
from toprank.rankers.foreign.building import MAX_FEATURES
from toprank.rankers.foreign.onnx_shapes import KNOWN, LEARNED, TREES, TooLargeError, cost_of

MAX_BYTES = 1 << 28
MAX_DEPTH = 500
"""Maximum levels of a tree: onnxruntime recurses at each, with about 700 bytes of stack, and threads have only half a
megabyte on some systems.
"""
_MAX_OPERATORS = 5_000
_MAX_ARRAYS = 40_000  # initializers, inputs and outputs; the time of onnxruntime is quadratic in their number
_MAX_CELLS = 1 << 25  # values in all arrays computed for a batch
_ROWS = (1024, 256, 64, 16, 4, 1)  # batch sizes to try; the first within _MAX_CELLS is used
_FREE_WORK, _WORK_PER_BYTE = 1 << 20, 64  # operations per row; a typical model reads its values about once per row
_STANDARD = {"Constant", *KNOWN} - TREES - set(LEARNED)
_TEXT = 8  # the ONNX type of strings
_DTYPES: dict[int, type[np.floating[Any]]] = {1: np.float32, 11: np.float64}  # by ONNX type
_FLOATS, _SINGLE, _WHOLE, _TRUTH = (1, 10, 11, 16), 1, 7, 9  # ONNX types
_OUTPUT_TYPES = (
    dict.fromkeys({"LinearRegressor", "Normalizer", "Scaler", *TREES}, _SINGLE)
    | {"ArgMax": _WHOLE}
    | dict.fromkeys(
        ("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"),
        _TRUTH,
    )
)
"""Operators whose output type does not depend on their inputs."""


class Checked(NamedTuple):
    """The properties of a validated model."""

    input_name: str
    kind: type[np.floating[Any]]
    features: int
    producer: str
    rows: int
    """Maximum number of rows per run."""


def checked(content: bytes) -> Checked:
    """Validate a model; refuse models that do not score rows of features."""
    refuse_if(len(content) > MAX_BYTES, f"it has more than {MAX_BYTES:,} bytes")
    onnx = require_extra("onnx", "export", "An ONNX model")
    try:
        model = onnx.load_model_from_string(content)
    except Exception:  # noqa: BLE001 - protobuf raises its own exceptions
        raise DataError("its bytes are damaged") from None
    graph = model.graph
    _check_operators(model)
    name, kind, features = _input(graph)
    _check_output(graph)
    try:
        onnx.checker.check_model(model)
    except Exception as problem:  # noqa: BLE001
        raise DataError(f"it is inconsistent ({str(problem).strip()[:200]})") from None
    _check_quotients(graph)
    rows, shapes = _batch(onnx, graph, name, features, len(content))
    for node in graph.node:
        _check_learned(onnx, node, shapes)
    return Checked(name, kind, features, f"ONNX, {model.producer_name[:40]}".removesuffix(", "), rows)


def _batch(onnx: Any, graph: Any, name: str, features: int, size: int) -> tuple[int, Mapping[str, tuple[int, ...]]]:
    """Return the number of rows per batch, and the shape of each array for it."""
    most_work = _FREE_WORK + _WORK_PER_BYTE * size
    of_one_row = cost_of(onnx, graph, name, (1, features), _MAX_CELLS, most_work)
    for rows in _ROWS:  # a single row may be squeezed or broadcast; all larger numbers behave the same way
        try:
            cost = (
                cost_of(onnx, graph, name, (rows, features), _MAX_CELLS, rows * most_work) if rows > 1 else of_one_row
            )
        except TooLargeError:
            continue
        refuse_if(
            cost.shapes.get(graph.output[0].name) not in ((rows,), (rows, 1)),
            "it does not predict one number for each row",
        )
        return rows, cost.shapes
    raise AssertionError("one row always fits")


def _check_operators(model: Any) -> None:
    refuse_if(
        len(model.functions) or len(model.training_info) or len(model.graph.sparse_initializer),
        "it has functions, training or sparse parts, which are not supported",
    )
    refuse_if(
        len(model.graph.node) > _MAX_OPERATORS,
        f"it has {len(model.graph.node):,} operators; up to {_MAX_OPERATORS:,} are supported",
    )
    arrays = len(model.graph.initializer) + sum(len(node.input) + len(node.output) for node in model.graph.node)
    refuse_if(arrays > _MAX_ARRAYS, f"it has {arrays:,} arrays; up to {_MAX_ARRAYS:,} are supported")
    for tensor in model.graph.initializer:
        _check_inside(tensor)
    for node in model.graph.node:
        allowed = _STANDARD if node.domain in ("", "ai.onnx") else TREES | set(LEARNED)
        refuse_if(
            node.domain not in ("", "ai.onnx", "ai.onnx.ml") or node.op_type not in allowed,
            f"its operator {node.domain}:{node.op_type} is not supported".replace(" :", " "),
        )
        for attribute in node.attribute:
            refuse_if(
                attribute.HasField("g") or len(attribute.graphs) or attribute.HasField("sparse_tensor"),
                f"its operator {node.op_type} contains a subgraph",
            )
            refuse_if(
                node.op_type == "Cast" and attribute.name == "to" and attribute.i == _TEXT,
                "it converts numbers to strings, which is not supported",
            )
            for tensor in ([attribute.t] if attribute.HasField("t") else []) + list(attribute.tensors):
                _check_inside(tensor)


def _check_quotients(graph: Any) -> None:
    """Refuse integer division, because dividing the smallest integer by −1 terminates the process."""
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        input_types = [types.get(name) for name in node.input if name]
        refuse_if(
            node.op_type == "Div" and not all(kind in _FLOATS for kind in input_types),
            "its operator Div divides integers, which may crash the process; divide floats instead",
        )
        options = {option.name: option for option in node.attribute}
        if node.op_type == "Constant":
            tensor, word = options.get("value"), next(iter(options), "")
            output_type = tensor.t.data_type if tensor is not None else _WHOLE if "int" in word else _SINGLE
        elif node.op_type == "Cast":
            output_type = options["to"].i
        else:
            output_type = _OUTPUT_TYPES.get(
                node.op_type, input_types[1 if node.op_type == "Where" and len(input_types) > 1 else 0]
            )
        types |= dict.fromkeys(node.output, output_type)


def _check_inside(tensor: Any) -> None:
    """Refuse external data, and shapes that claim more values than there are."""
    refuse_if(
        tensor.data_location != 0 or len(tensor.external_data),
        "some of its data are in other files; save it as one file",
    )
    dims = list(tensor.dims)
    refuse_if(tensor.data_type == _TEXT, "it contains strings, which are not supported")
    # Two 4-bit values share a byte; 8 axes are enough for practical models.
    refuse_if(
        len(dims) > 8 or any(not 0 <= size <= MAX_BYTES for size in dims) or prod(dims) > 2 * tensor.ByteSize(),
        "an array claims an impossible size",
    )


def _input(graph: Any) -> tuple[str, type[np.floating[Any]], int]:
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    refuse_if(len(inputs) != 1, f"it has {len(inputs)} inputs; one input (rows, features) is supported")
    kind, dims = inputs[0].type.tensor_type.elem_type, inputs[0].type.tensor_type.shape.dim
    refuse_if(
        kind not in _DTYPES or len(dims) != 2 or not 1 <= dims[1].dim_value <= MAX_FEATURES,
        "its input is not an array of floats or doubles (rows, features) with a known number of features",
    )
    refuse_if(
        dims[0].dim_value, f"it accepts exactly {dims[0].dim_value} rows; export it with a dynamic number of rows"
    )
    return inputs[0].name, _DTYPES[kind], dims[1].dim_value


def _check_output(graph: Any) -> None:
    refuse_if(
        len(graph.output) != 1, f"it has {len(graph.output)} outputs; one output with one number per row is supported"
    )
    tensor_type = graph.output[0].type.tensor_type
    several = len(tensor_type.shape.dim) > 2 or (
        len(tensor_type.shape.dim) == 2 and tensor_type.shape.dim[1].dim_value not in (0, 1)
    )
    refuse_if(tensor_type.elem_type not in _DTYPES or several, "its output is not one float or double for each row")


def _check_learned(onnx: Any, node: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check values that onnxruntime does not validate: the number of linear weights, and the nodes of trees."""
    if node.op_type not in TREES and node.op_type != "LinearRegressor":
        return
    attributes = {option.name: onnx.helper.get_attribute_value(option) for option in node.attribute}
    shape = shapes.get(node.input[0], ())
    refuse_if(len(shape) != 2, f"the number of columns of its {node.op_type} is unknown")
    if node.op_type == "LinearRegressor":
        weights, biases = len(attributes.get("coefficients", ())), len(attributes.get("intercepts", ()))
        refuse_if(
            attributes.get("targets", 1) != 1 or weights != shape[1] or biases > 1,
            "its LinearRegressor does not have a weight for each column",
        )
    elif node.op_type == "TreeEnsemble":
        _check_nodes(attributes, shape[1])
    else:
        _check_named_nodes(attributes, shape[1])


_INVALID_TREES = "its nodes do not form trees over its features"


def _check_forest(roots: list[int], children: list[tuple[int, ...]]) -> None:
    """Check that every node is reached from exactly one root by exactly one path of limited length."""
    seen, level, reached, depth = bytearray(len(children)), list(roots), 0, 0
    while level:
        for node in level:
            refuse_if(not 0 <= node < len(children) or seen[node], _INVALID_TREES)
            seen[node] = 1
        reached, depth = reached + len(level), depth + 1
        refuse_if(depth > MAX_DEPTH, f"its trees have more than {MAX_DEPTH} levels, which may crash onnxruntime")
        level = [child for node in level for child in children[node]]
    refuse_if(reached != len(children), _INVALID_TREES)


def _check_named_nodes(attributes: dict[str, Any], columns: int) -> None:
    """Check TreeEnsembleRegressor, whose nodes have tree and node ids."""
    lists = [
        list(attributes.get(f"nodes_{name}", ())) for name in ("treeids", "nodeids", "truenodeids", "falsenodeids")
    ]
    modes, features = list(attributes.get("nodes_modes", ())), list(attributes.get("nodes_featureids", ()))
    keys = list(zip(lists[0], lists[1], strict=False))
    number = {key: place for place, key in enumerate(keys)}
    values, missing = attributes.get("nodes_values", ()), attributes.get("nodes_missing_value_tracks_true", ())
    double = {"nodes_values_as_tensor", "target_weights_as_tensor"} & attributes.keys()
    lengths = {len(values) for values in (*lists, modes, features)} | ({len(missing)} if len(missing) else set())
    refuse_if(double or lengths | {len(values)} != {len(keys)} or len(number) != len(keys), _INVALID_TREES)
    children: list[tuple[int, ...]] = []
    below = set()
    for place, (tree, _) in enumerate(keys):
        if modes[place] == b"LEAF":
            children.append(())
            continue
        pair = tuple(number.get((tree, lists[side][place]), -1) for side in (2, 3))
        refuse_if(not 0 <= features[place] < columns, _INVALID_TREES)
        children.append(pair)
        below |= {*pair}
    _check_forest([place for place in range(len(keys)) if place not in below], children)
    roots = [keys[place][0] for place in range(len(keys)) if place not in below]
    targets = [list(attributes.get(f"target_{name}", ())) for name in ("treeids", "nodeids", "ids", "weights")]
    at = [number.get(key, -1) for key in zip(targets[0], targets[1], strict=False)]
    wrong = len({len(values) for values in targets}) != 1 or any(place < 0 or children[place] for place in at)
    refuse_if(
        wrong or len(set(roots)) != len(roots) or any(targets[2]) or attributes.get("n_targets", 1) != 1, _INVALID_TREES
    )
    refuse_if(
        sorted(at) != [place for place in range(len(keys)) if not children[place]],
        "a leaf of its trees does not have exactly one value",
    )


def _check_nodes(attributes: dict[str, Any], columns: int) -> None:
    """Check TreeEnsemble, whose inner nodes and leaves have positions."""
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    features, true, false, true_leaf, false_leaf = (list(attributes.get(f"nodes_{name}", ())) for name in names)
    n, leaves = len(features), len(attributes.get("leaf_targetids", ()))
    tensors = {name: attributes.get(name) for name in ("nodes_splits", "nodes_modes", "leaf_weights")}
    refuse_if(
        any(tensor is None for tensor in tensors.values()) or attributes.get("membership_values") is not None,
        _INVALID_TREES,
    )
    sizes = {name: prod(tensor.dims) for name, tensor in tensors.items() if tensor is not None}
    missing = len(attributes.get("nodes_missing_value_tracks_true", ()))
    refuse_if(
        {len(values) for values in (true, false, true_leaf, false_leaf)}
        | {
            sizes["nodes_splits"],
            sizes["nodes_modes"],
        }
        != {n},
        _INVALID_TREES,
    )
    refuse_if(
        sizes["leaf_weights"] != leaves or missing not in (0, n) or any(attributes["leaf_targetids"]), _INVALID_TREES
    )
    refuse_if(
        attributes.get("n_targets", 1) != 1 or any(not 0 <= feature < columns for feature in features), _INVALID_TREES
    )
    children: list[tuple[int, ...]] = []
    unused = set(range(leaves))
    for place in range(n):
        sides = ((true[place], true_leaf[place]), (false[place], false_leaf[place]))
        refuse_if(
            any(leaf not in (0, 1) or not 0 <= child < (leaves if leaf else n) for child, leaf in sides), _INVALID_TREES
        )
        children.append(tuple(child for child, leaf in sides if not leaf))
        unused -= {child for child, leaf in sides if leaf}
    _check_forest(list(attributes.get("tree_roots", ())), children)
    refuse_if(unused, "a leaf of its trees belongs to no node")
