"""ONNX models, read by `toprank.load`: scores are what the graph says, and nothing in a file does harm."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys

import numpy as np
import pytest

import toprank as tr
from forging import Judges
from onnx_models import ALL, FEATURES, linear, model, network, old_trees, trees
from test_foreign_forgery import damaged
from toprank.errors import DataError, FormatError

onnx = pytest.importorskip("onnx")
helper = onnx.helper
ROWS = np.random.default_rng(0).normal(size=(3000, FEATURES))


def leaves(rows):
    """What both forests of `onnx_models` add up to, by hand; NaN goes as the nodes say."""
    a, b, c = rows[:, 0], rows[:, 3], rows[:, 1]
    strict = np.where(np.isnan(b) | (b < -0.25), 2.0, 4.0)
    loose = np.where(np.isnan(b) | (b <= -0.25), 2.0, 4.0)
    second = np.where(np.isnan(c) | (c <= 0), 8.0, 16.0)
    return {name: np.where(a <= 0.5, 1.0, inner) + second for name, inner in (("old_trees", strict), ("trees", loose))}


def by_hand(name, graph, rows):
    if name in ("old_trees", "trees"):
        return leaves(rows)[name]
    if name == "linear":
        return (rows - 0.5) * 2.0 @ np.array([0.1, 0.2, 0.3, 0.4, 0.5]) + 0.7
    a, b, c = (onnx.numpy_helper.to_array(one).astype(np.float64) for one in graph.graph.initializer)
    return (np.maximum(rows @ a + b, 0.0) @ c)[:, 0]


@pytest.mark.parametrize("name", ALL)
def test_scores_are_those_of_the_graph(tmp_path, name):
    graph = ALL[name]()
    path = tmp_path / "m.onnx"
    onnx.save(graph, path)
    ranker, rows = tr.load(path), ROWS.copy()
    if "trees" in name:
        rows[:9, [0, 3, 1]] = [[0.5, -0.25, 0.0]] * 9
        rows[3:6, [0, 3]] = np.nan
    np.testing.assert_allclose(ranker.predict(rows), by_hand(name, graph, rows), rtol=1e-5, atol=1e-5)
    ranker.save(tmp_path / "m.toprank")
    for again in (tr.load(tmp_path / "m.toprank"), pickle.loads(pickle.dumps(ranker))):
        assert again.predict(rows).tobytes() == ranker.predict(rows).tobytes()
    with pytest.raises(DataError, match="can only predict"):
        ranker.fit(ROWS, np.zeros(len(ROWS)))
    data = tr.synthetic(n_queries=20, n_features=FEATURES, seed=0)
    blend = tr.BlendRanker.of([ranker, tr.LinearRanker().fit(data)], data)
    blend.save(tmp_path / "b.toprank")
    assert tr.load(tmp_path / "b.toprank").predict(data).tobytes() == blend.predict(data).tobytes()


def test_threads_are_those_that_are_asked_for_now(tmp_path):
    onnx.save(ALL["linear"](), tmp_path / "m.onnx")
    ranker = tr.load(tmp_path / "m.onnx")
    before = ranker.predict(ROWS)
    ranker.set_params(threads=1)
    assert ranker.predict(ROWS).tobytes() == before.tobytes()
    assert ranker._opened().get_session_options().intra_op_num_threads == 1
    assert ranker._opened() is ranker._opened()


def test_an_output_of_one_axis(tmp_path):
    flat = helper.make_node("Squeeze", ["z", "axes"], ["y"])
    added = helper.make_node("ReduceSum", ["x", "axes"], ["z"], keepdims=1)
    onnx.save(model([added, flat], {"axes": np.array([1])}, out=("n",)), tmp_path / "m.onnx")
    np.testing.assert_allclose(tr.load(tmp_path / "m.onnx").predict(ROWS), ROWS.sum(axis=1), atol=1e-5)


# ---- refusals ----


def changed(graph, change):
    change(graph)
    return graph


def _outside(graph):
    tensor = graph.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def _node(op, *names, domain="", **options):
    return model([helper.make_node(op, [*names], ["y"], domain=domain, **options)])


def _attribute(graph, name, value):
    given = next(one for node in graph.graph.node for one in node.attribute if one.name == name)
    del given.ints[:]
    given.ints.extend(value)


def _huge():
    """A million numbers for each row, of a few bytes in the file: by broadcasting."""
    many = {"a": np.ones((1, 8192), np.float32), "b": np.ones((8192, 1), np.float32)}
    nodes = [
        helper.make_node("Add", ["a", "b"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["t"], keepdims=0),
        helper.make_node("ReduceSum", ["x", "axes"], ["z"], keepdims=1),
        helper.make_node("Add", ["t", "z"], ["y"]),
    ]
    return model(nodes, many | {"axes": np.array([1])})


def _loop():
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"])], "body", [], [])
    return _node("Loop", "x", "x", body=body)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: changed(network(), _outside), "lie in other files"),
        (_loop, "Loop is not one that scores are made of"),
        (lambda: _node("Evil", "x", domain="com.example"), "com.example:Evil"),
        (lambda: _node("ConstantOfShape", "x"), "ConstantOfShape"),
        (_huge, "more than 16,777,216 numbers"),
        (lambda: model([helper.make_node("Identity", ["x"], ["y"])], out=("n", 5)), "not one float or double"),
        (lambda: model([helper.make_node("Identity", ["x"], ["y"])], features="f"), "known number of features"),
        (lambda: model([helper.make_node("Identity", ["x"], ["y"])], rows=3), "exactly 3 rows"),
        (lambda: changed(network(), lambda m: m.graph.output.append(m.graph.output[0])), "2 outputs"),
        (lambda: changed(network(), lambda m: m.graph.initializer.pop()), "2 inputs|contradicts itself"),
        (lambda: changed(trees(), lambda m: _attribute(m, "nodes_featureids", [0, 9, 1])), "do not form trees"),
        (lambda: changed(trees(), lambda m: _attribute(m, "nodes_falsenodeids", [0, 2, 4])), "do not form trees"),
        (lambda: changed(trees(), lambda m: _attribute(m, "nodes_trueleafs", [1, 0, 1])), "do not form trees"),
        (lambda: changed(trees(), lambda m: _attribute(m, "tree_roots", [0, 7])), "do not form trees"),
        (lambda: changed(trees(), lambda m: _attribute(m, "leaf_targetids", [0, 0, 0, 0, 99])), "do not form trees"),
        (
            lambda: changed(old_trees(), lambda m: _attribute(m, "nodes_truenodeids", [0, 0, 3, 0, 0, 1, 0, 0])),
            "do not",
        ),
        (lambda: changed(old_trees(), lambda m: _attribute(m, "target_ids", [0, 0, 0, 0, 5])), "do not form trees"),
        (lambda: changed(linear(), lambda m: m.graph.node[1].attribute[0].floats.pop()), "a weight for each column"),
    ],
)
def test_what_could_do_harm_is_refused_in_a_sentence(tmp_path, make, why):
    (tmp_path / "m.onnx").write_bytes(make().SerializeToString())
    with pytest.raises(FormatError, match=why):
        tr.load(tmp_path / "m.onnx")


def test_without_onnxruntime_the_extra_is_named(tmp_path):
    onnx.save(network(), tmp_path / "m.onnx")
    for missing in ("onnx", "onnxruntime"):
        code = f"import sys; sys.modules[{missing!r}] = None\nimport toprank as tr\ntr.load(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.onnx"], capture_output=True, text=True)
        assert f"An ONNX model needs {missing}, which is not installed: pip install 'toprank[export]'." in done.stderr


# ---- mutations ----

NUMBERS = [-1, 0, 1, 2, 3, 7, 2**31, 2**40, -(2**40)]


def other_numbers(rng, graph):
    """A model with other numbers, names or shapes somewhere in it."""
    graph = onnx.ModelProto.FromString(graph.SerializeToString())
    node = rng.choice(list(graph.graph.node))
    fields = list(node.attribute)
    action = rng.random()
    if fields and action < 0.6:
        one = rng.choice(fields)
        if len(one.ints):
            one.ints[rng.randrange(len(one.ints))] = rng.choice(NUMBERS)
        elif len(one.floats):
            one.floats[rng.randrange(len(one.floats))] = rng.choice([0.0, 1e30, -1e30, 1e-40, float("nan")])
        elif one.HasField("t"):
            one.t.raw_data = damaged(rng, one.t.raw_data) if one.t.raw_data else b""
        elif len(one.strings):
            one.strings[rng.randrange(len(one.strings))] = rng.choice([b"LEAF", b"BRANCH_GT", b"", b"x"])
        else:
            one.i = rng.choice(NUMBERS)
    elif fields and action < 0.7:
        node.attribute.remove(rng.choice(fields))
    elif len(graph.graph.initializer) and action < 0.85:
        tensor = rng.choice(list(graph.graph.initializer))
        if rng.random() < 0.5:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
        else:
            tensor.raw_data = damaged(rng, tensor.raw_data)
    elif action < 0.95:
        node.input[rng.randrange(len(node.input))] = rng.choice(["x", "y", "a", "b", "", "h"])
    else:
        shape = graph.graph.input[0].type.tensor_type.shape
        shape.dim[1].dim_value = rng.choice([1, 2, 4, 6, 2**20, 2**40])
    return graph.SerializeToString()


@pytest.fixture(scope="module")
def judge():
    with Judges(most_memory=1 << 30) as judges:
        yield judges


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_mutated_onnx_models_are_refused_or_give_finite_scores(tmp_path, judge, count):
    graphs, paths = [make() for make in ALL.values()], []
    for seed in range(count):
        rng = random.Random(seed)
        content = other_numbers(rng, rng.choice(graphs))
        paths.append(tmp_path / f"{seed}.onnx")
        paths[-1].write_bytes(damaged(rng, content) if rng.random() < 0.3 else content)
    outcomes = judge(paths)
    wrong = {path: found for path, found in outcomes.items() if found not in ("refused", "finite")}
    assert not wrong, "\n".join(f"{path}: {found}" for path, found in wrong.items())
    for found in ("refused", "finite"):
        assert sum(outcome == found for outcome in outcomes.values()) >= 0.1 * count, found
