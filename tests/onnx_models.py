"""Small ONNX models of each kind that is read, over five features."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

FEATURES = 5
_OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 5)]


def model(nodes, initializers=(), *, kind=TensorProto.FLOAT, out=("n", 1), features=FEATURES, opsets=None, rows="n"):
    """A model of nodes from `x` to `y`."""
    given = helper.make_tensor_value_info("x", kind, [rows, features])
    result = helper.make_tensor_value_info("y", kind, list(out))
    constants = [numpy_helper.from_array(array, name) for name, array in dict(initializers).items()]
    graph = helper.make_graph(nodes, "g", [given], [result], constants)
    return helper.make_model(graph, opset_imports=opsets or _OPSETS, producer_name="tests", ir_version=10)


def network(seed=0, hidden=4, features=FEATURES):
    rng = np.random.default_rng(seed)
    weights = {
        "a": rng.normal(size=(features, hidden)).astype(np.float32),
        "b": rng.normal(size=hidden).astype(np.float32),
        "c": rng.normal(size=(hidden, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["y"]),
    ]
    return model(nodes, weights, features=features)


def linear():
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.5] * 5, scale=[2.0] * 5)
    weights = {"coefficients": [0.1, 0.2, 0.3, 0.4, 0.5], "intercepts": [0.7], "targets": 1}
    return model([scaler, helper.make_node("LinearRegressor", ["s"], ["y"], domain="ai.onnx.ml", **weights)])


def old_trees():
    """TreeEnsembleRegressor: two trees."""
    parts = {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 0, 3, 0, 0, 1, 0, 0],
        "nodes_values": [0.5, 0.0, -0.25, 0.0, 0.0, 0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [0, 0, 1, 0, 0, 1, 0, 0],
        "target_treeids": [0, 0, 0, 1, 1],
        "target_nodeids": [1, 3, 4, 1, 2],
        "target_ids": [0, 0, 0, 0, 0],
        "target_weights": [1.0, 2.0, 4.0, 8.0, 16.0],
        "n_targets": 1,
    }
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return model([helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **parts)], opsets=opsets)


def trees():
    """TreeEnsemble of today, in doubles: a tree of three leaves and one of two."""
    parts = {
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 3, 1],
        "nodes_splits": numpy_helper.from_array(np.array([0.5, -0.25, 0.0]), "s"),
        "nodes_modes": numpy_helper.from_array(np.zeros(3, np.uint8), "m"),
        "nodes_truenodeids": [0, 1, 3],
        "nodes_trueleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 2, 4],
        "nodes_falseleafs": [0, 1, 1],
        "nodes_missing_value_tracks_true": [0, 1, 1],
        "leaf_targetids": [0, 0, 0, 0, 0],
        "leaf_weights": numpy_helper.from_array(np.array([1.0, 2.0, 4.0, 8.0, 16.0]), "w"),
        "n_targets": 1,
        "aggregate_function": 1,
        "post_transform": 0,
    }
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **parts)
    return model([node], kind=TensorProto.DOUBLE)


ALL = {"network": network, "linear": linear, "old_trees": old_trees, "trees": trees}

if __name__ == "__main__":
    for make in ALL.values():
        checker.check_model(make(), full_check=True)
