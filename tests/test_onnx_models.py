"""ONNX models, read by `toprank.load`: scores are what the graph says, and nothing in a file does harm."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import toprank as tr
from forging import Judges, npy, parts_of, seal
from onnx_models import ALL, FEATURES, linear, model, network, old_trees, trees
from test_foreign_forgery import damaged
from toprank.errors import DataError, FormatError
from toprank.rankers.foreign import onnx_model
from toprank.rankers.foreign.onnx_checks import checked
from toprank.rankers.foreign.onnx_shapes import cost_of

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
    blend = tr.BlendRanker.from_fitted([ranker, tr.LinearRanker().fit(data)], data)
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


def test_a_session_is_opened_once(tmp_path, monkeypatch):
    opened = []
    session = onnx_model._session
    monkeypatch.setattr(onnx_model, "_session", lambda *given: opened.append(given) or session(*given))
    onnx.save(ALL["linear"](), tmp_path / "m.onnx")
    ranker = tr.load(tmp_path / "m.onnx")
    ranker.predict(ROWS)
    assert len(opened) == 1


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
        (lambda: changed(network(), _outside), "are in other files"),
        (_loop, "its operator Loop is not supported"),
        (lambda: _node("Evil", "x", domain="com.example"), "com.example:Evil"),
        (lambda: _node("ConstantOfShape", "x"), "ConstantOfShape"),
        (_huge, "more than 33,554,432 values for one row"),
        (lambda: model([helper.make_node("Identity", ["x"], ["y"])], out=("n", 5)), "not one float or double"),
        (lambda: model([helper.make_node("Identity", ["x"], ["y"])], features="f"), "known number of features"),
        (lambda: model([helper.make_node("Identity", ["x"], ["y"])], rows=3), "exactly 3 rows"),
        (lambda: model([helper.make_node("Cast", ["x"], ["y"], to=8)]), "numbers to strings"),
        (lambda: changed(network(), lambda m: m.graph.output.append(m.graph.output[0])), "2 outputs"),
        (lambda: changed(network(), lambda m: m.graph.initializer.pop()), "2 inputs|is inconsistent"),
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


# ---- files made to burst ----


def chain_of_trees(depth):
    """A tree whose every inner node has one leaf."""
    parts = {
        "tree_roots": [0],
        "nodes_featureids": [0] * depth,
        "nodes_splits": onnx.numpy_helper.from_array(np.arange(depth, dtype=float), "s"),
        "nodes_modes": onnx.numpy_helper.from_array(np.zeros(depth, np.uint8), "m"),
        "nodes_truenodeids": list(range(depth)),
        "nodes_trueleafs": [1] * depth,
        "nodes_falsenodeids": [*range(1, depth), depth],
        "nodes_falseleafs": [0] * (depth - 1) + [1],
        "leaf_targetids": [0] * (depth + 1),
        "leaf_weights": onnx.numpy_helper.from_array(np.arange(depth + 1, dtype=float), "w"),
        "n_targets": 1,
        "aggregate_function": 1,
        "post_transform": 0,
    }
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **parts)
    return model([node], kind=onnx.TensorProto.DOUBLE)


def chain_of_named_trees(depth):
    """The same in the older operator: node 2i is inner, 2i + 1 its leaf."""
    count = 2 * depth + 1
    inner = np.arange(count) % 2 == 0
    inner[-1] = False
    places = np.arange(count)
    parts = {
        "nodes_treeids": [0] * count,
        "nodes_nodeids": places.tolist(),
        "nodes_featureids": [0] * count,
        "nodes_values": (places / 2).tolist(),
        "nodes_modes": np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        "nodes_truenodeids": np.where(inner, places + 1, 0).tolist(),
        "nodes_falsenodeids": np.where(inner, places + 2, 0).tolist(),
        "target_treeids": [0] * (depth + 1),
        "target_nodeids": places[~inner].tolist(),
        "target_ids": [0] * (depth + 1),
        "target_weights": [1.0] * (depth + 1),
        "n_targets": 1,
    }
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return model([helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **parts)], opsets=opsets)


def of_one_column(steps, constants=(), first="x0"):
    """A graph that begins with the sum of a row, (n, 1), as `first`, and ends with that of `last` over all but rows."""
    nodes = [helper.make_node("ReduceSum", ["x", "axis"], [first], keepdims=1), *steps]
    nodes.append(helper.make_node("ReduceSum", ["last", "axis"], ["y"], keepdims=1))
    return model(nodes, dict(constants) | {"axis": np.array([1])})


def flood(times):
    """Many arrays of 4,000,000 numbers for each row, by broadcasting."""
    sides = {"a": np.ones((1, 2000, 1), np.float32), "b": np.ones((1, 1, 2000), np.float32), "new": np.array([2])}
    steps = [
        helper.make_node("Unsqueeze", ["x0", "new"], ["x1"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Add", ["x1", "c"], ["f0"]),
        *(helper.make_node("Erf", [f"f{n}"], [f"f{n + 1}"]) for n in range(times)),
        helper.make_node("Flatten", [f"f{times}"], ["last"]),
    ]
    return of_one_column(steps, sides)


def of_constants(times):
    """Many arrays of 16,000,000 numbers that no row is needed for: onnxruntime computes them when it loads."""
    steps = [helper.make_node("Add", ["a", "b"], [f"c{n}"]) for n in range(times)]
    steps += [helper.make_node("ReduceSum", [f"c{n}"], [f"t{n}"], keepdims=0) for n in range(times)]
    steps += [helper.make_node("Sum", ["x0", *(f"t{n}" for n in range(times))], ["last"])]
    return of_one_column(steps, {"a": np.ones((1, 4000), np.float32), "b": np.ones((4000, 1), np.float32)})


def doubled(times, kind):
    """An array joined with itself, again and again; whole numbers are followed by inference of shapes, too."""
    steps = [helper.make_node("Concat", [f"c{n}", f"c{n}"], [f"c{n + 1}"], axis=0) for n in range(times)]
    steps += [helper.make_node("ReduceSum", [f"c{times}"], ["t"], keepdims=0)]
    steps += [helper.make_node("Cast", ["t"], ["u"], to=1), helper.make_node("Add", ["x0", "u"], ["last"])]
    return of_one_column(steps, {"c0": np.ones(2, kind)})


def multiplied(times):
    """Products of one matrix with itself: few bytes, and the third power of its side in steps."""
    steps = [helper.make_node("MatMul", [f"m{n}", "m0"], [f"m{n + 1}"]) for n in range(times)]
    steps += [helper.make_node("ReduceSum", [f"m{times}"], ["t"], keepdims=0)]
    return of_one_column([*steps, helper.make_node("Add", ["x0", "t"], ["last"])], {"m0": np.eye(64, dtype=np.float32)})


def many_axes(times):
    steps = [helper.make_node("Unsqueeze", [f"u{n}", "axes"], [f"u{n + 1}"]) for n in range(times)]
    steps.append(helper.make_node("Flatten", [f"u{times}"], ["last"], axis=1))
    return of_one_column(steps, {"axes": np.arange(1, 60)}, first="u0")


def in_single_file(times):
    steps = [helper.make_node("Neg", [f"o{n}"], [f"o{n + 1}"]) for n in range(times)]
    return of_one_column([*steps, helper.make_node("Identity", [f"o{times}"], ["last"])], first="o0")


def one_array_named_often(times):
    steps = [helper.make_node("Max", ["o0"] * times, ["last"])]
    return of_one_column(steps, first="o0")


def unused_arrays(count):
    return of_one_column(
        [helper.make_node("Identity", ["x0"], ["last"])], {f"w{n}": np.zeros(1, np.float32) for n in range(count)}
    )


def told_by_rows():
    """A shape that only the rows tell."""
    steps = [helper.make_node("Cast", ["x0"], ["s"], to=7), helper.make_node("Squeeze", ["s"], ["t"])]
    return of_one_column([*steps, helper.make_node("Reshape", ["x0", "t"], ["last"])])


def claimed():
    """An array of a million numbers, of which none is there."""
    graph = network()
    graph.graph.initializer[1].dims[0] = 1 << 20
    return graph


BOMBS = {
    "chain": (lambda: chain_of_trees(20_000), "more than 500 levels"),
    "named chain": (lambda: chain_of_named_trees(20_000), "more than 500 levels"),
    "one more level": (lambda: chain_of_trees(501), "more than 500 levels"),
    "flood": (lambda: flood(2), "operations, too many"),
    "long flood": (lambda: flood(400), "operations, too many"),
    "constants": (lambda: of_constants(60), "operations, too many"),
    "doubled": (lambda: doubled(40, np.float32), "operations, too many"),
    "doubled whole numbers": (lambda: doubled(24, np.int64), "operations, too many"),
    "multiplied": (lambda: multiplied(100), "operations, too many"),
    "axes": (lambda: many_axes(400), "more than 8"),
    "operators": (lambda: in_single_file(20_000), "20,003 operators"),
    "one array named often": (lambda: one_array_named_often(50_000), "arrays; up to 40,000"),
    "unused arrays": (lambda: unused_arrays(100_000), "arrays; up to 40,000"),
    "reshaped by rows": (told_by_rows, "are not constants"),
    "claimed": (claimed, "impossible size"),
}


def test_files_made_to_burst_are_refused_before_anything_is_run(tmp_path):
    """By our own words, in a process with little memory, of which next to nothing is taken."""
    for name, (make, _) in BOMBS.items():
        (tmp_path / name).write_bytes(make().SerializeToString())
    with Judges(most_memory=256 << 20, tell=True) as judges:
        outcomes = judges([tmp_path / name for name in BOMBS])
    for name, (_, why) in BOMBS.items():
        assert outcomes[str(tmp_path / name)].startswith("refused: "), (name, outcomes[str(tmp_path / name)])
        assert why in outcomes[str(tmp_path / name)], (name, outcomes[str(tmp_path / name)])


def test_a_model_file_of_ours_is_no_way_around(tmp_path):
    onnx.save(chain_of_trees(10), tmp_path / "m.onnx")
    tr.load(tmp_path / "m.onnx").save(tmp_path / "m.toprank")
    parts = parts_of(tmp_path / "m.toprank")
    parts["arrays/onnx.npy"] = npy(np.frombuffer(chain_of_trees(20_000).SerializeToString(), np.uint8))
    seal(tmp_path / "forged.toprank", parts)
    with Judges(count=1, most_memory=256 << 20, tell=True) as judges:
        [found] = judges([tmp_path / "forged.toprank"]).values()
    assert "more than 500 levels" in found


@pytest.mark.parametrize("make", [chain_of_trees, chain_of_named_trees])
def test_trees_at_the_limit_are_read(tmp_path, make):
    """Leaves are a level where they are nodes."""
    onnx.save(make(500 if make is chain_of_trees else 499), tmp_path / "m.onnx")
    rows = np.zeros((3, FEATURES))
    rows[:, 0] = [-1, 250, 1000]
    expected = [0, 250, 500] if make is chain_of_trees else [1, 1, 1]
    assert tr.load(tmp_path / "m.onnx").predict(rows).tolist() == expected


def test_a_batch_is_as_large_as_memory_allows(tmp_path):
    """10,000 numbers for each row take one batch of 1,024 rows; with 100 such arrays there are fewer rows in each."""
    found = {}
    for times in (1, 100):
        wide = np.linspace(-1, 1, 10_000, dtype=np.float32)[None]
        steps = [helper.make_node("Mul", ["x0", "w"], ["f0"])]
        steps += [helper.make_node("Tanh", [f"f{n}"], [f"f{n + 1}"]) for n in range(times)]
        graph = of_one_column([*steps, helper.make_node("Identity", [f"f{times}"], ["last"])], {"w": wide})
        (tmp_path / "m.onnx").write_bytes(graph.SerializeToString())
        found[times] = checked((tmp_path / "m.onnx").read_bytes()).rows
        values = (ROWS[:30].astype(np.float32).sum(axis=1)[:, None] * wide).astype(np.float64)
        for _ in range(times):
            values = np.tanh(values)
        np.testing.assert_allclose(tr.load(tmp_path / "m.onnx").predict(ROWS[:30]), values.sum(axis=1), atol=0.05)
    assert found == {1: 1024, 100: 16}


def test_what_rows_bring_about_in_onnxruntime_is_told_in_a_sentence(tmp_path):
    """An index that is a feature, and names an entry that is not there."""
    steps = [
        helper.make_node("Cast", ["x0"], ["i"], to=7),
        helper.make_node("Gather", ["table", "i"], ["last"], axis=0),
    ]
    onnx.save(of_one_column(steps, {"table": np.arange(3, dtype=np.float32)}), tmp_path / "m.onnx")
    ranker, rows = tr.load(tmp_path / "m.onnx"), np.zeros((2, FEATURES))
    assert ranker.predict(rows).tolist() == [0, 0]
    rows[1, 0] = 7
    with pytest.raises(DataError, match="onnxruntime cannot score these rows with this model"):
        ranker.predict(rows)


def whole_quotient(divided, divisor):
    """Whole numbers divided, which are written in the file or come with the rows."""
    steps = [
        helper.make_node("Cast", ["x0"], ["i"], to=7),
        helper.make_node("Add", ["i", "a"], ["c"]),
        helper.make_node("Div", ["c", "d"], ["q"]),
        helper.make_node("Cast", ["q"], ["last"], to=1),
    ]
    return of_one_column(steps, {"a": np.array([[divided]]), "d": np.array([[divisor]])})


def test_whole_numbers_are_not_divided(tmp_path):
    """The smallest of them divided by −1 is none, and the processor ends the process for it."""
    onnx.save(whole_quotient(-(2**63), -1), tmp_path / "m.onnx")
    with Judges(count=1, most_memory=256 << 20, tell=True) as judges:
        [found] = judges([tmp_path / "m.onnx"]).values()
    assert "divides integers" in found
    halves = [helper.make_node("Div", ["x0", "d"], ["last"])]
    onnx.save(of_one_column(halves, {"d": np.array([[2.0]], np.float32)}), tmp_path / "m.onnx")
    assert tr.load(tmp_path / "m.onnx").predict(np.full((1, FEATURES), 4.0)).tolist() == [4.0 * FEATURES / 2]


@pytest.mark.parametrize("mixing", ["Softmax", "ReduceMax", "Slice"])
def test_a_model_whose_scores_depend_on_the_other_rows_is_refused(tmp_path, mixing):
    """Rows are scored in batches, so such scores would depend on who comes with whom."""
    steps = {
        "Softmax": [helper.make_node("Softmax", ["x0"], ["last"], axis=0)],
        "ReduceMax": [
            helper.make_node("ReduceMax", ["x0", "rows"], ["m"], keepdims=1),
            helper.make_node("Sub", ["x0", "m"], ["last"]),
        ],
        "Slice": [
            helper.make_node("Slice", ["x0", "rows", "one", "rows"], ["m"]),
            helper.make_node("Add", ["x0", "m"], ["last"]),
        ],
    }[mixing]
    graph = of_one_column(steps, {"rows": np.array([0]), "one": np.array([1])})
    onnx.save(graph, tmp_path / "m.onnx")
    with pytest.raises(FormatError, match="depends on the other rows"):
        tr.load(tmp_path / "m.onnx")


def test_sparse_rows_are_refused_not_misread(tmp_path):
    onnx.save(network(), tmp_path / "m.onnx")
    with pytest.raises(DataError, match="does not support sparse features"):
        tr.load(tmp_path / "m.onnx").predict(sparse.csr_array(ROWS))


def test_infinite_values_are_refused_by_their_column(tmp_path):
    onnx.save(network(), tmp_path / "m.onnx")
    bad = np.array(ROWS[:20], dtype=np.float32)
    bad[3, 1] = np.inf
    for rows in (bad, tr.RankingData(bad, np.arange(20) % 2, qid=np.repeat([0, 1], 10))):
        with pytest.raises(DataError, match=r"Feature number 1 \(from 0\) holds infinite values"):
            tr.load(tmp_path / "m.onnx").predict(rows)


@pytest.mark.parametrize("count", [60, pytest.param(5_000, marks=pytest.mark.nightly)])
def test_shapes_are_those_of_onnx(count):
    """Random graphs of all operators that change shapes: where onnx infers one, ours is the same."""
    same = 0
    for seed in range(count):
        graph = random_graph(random.Random(seed))
        try:
            ours = cost_of(onnx, graph.graph, "x", (7, FEATURES), 1 << 30, 1 << 40).shapes
        except DataError:
            ours = None
        graph.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7
        inferred, wrong = _inferred(graph)
        if inferred is None:
            assert ours is None or "TypeInferenceError" in wrong, seed
        if ours is None or inferred is None:
            continue
        for one in inferred.value_info:
            told = tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim)
            assert ours[one.name] == told, (seed, one.name)
            same += 1
    assert same > 2 * count


def _inferred(graph):
    try:
        return onnx.shape_inference.infer_shapes(graph, strict_mode=True).graph, ""
    except onnx.shape_inference.InferenceError as problem:
        return None, str(problem)


def random_graph(rng):
    """Eight operators, each on arrays that are there."""
    names, nodes, constants = ["x"], [], {}

    def whole(*numbers):
        constants[f"k{len(constants)}"] = np.array(numbers, np.int64)
        return f"k{len(constants) - 1}"

    for number in range(8):
        a, b, out = rng.choice(names), rng.choice(names), f"v{number}"
        axis, few = rng.randrange(-2, 2), [rng.choice([-1, 0, 1, 5, 7, 35]) for _ in range(rng.randrange(1, 4))]
        keep = rng.randrange(2)
        node = rng.choice(
            [
                helper.make_node("Add", [a, b], [out]),
                helper.make_node("Relu", [a], [out]),
                helper.make_node("MatMul", [a, b], [out]),
                helper.make_node("Gemm", [a, b], [out], transA=keep, transB=1 - keep),
                helper.make_node("ReduceSum", [a, whole(axis)], [out], keepdims=keep),
                helper.make_node("ReduceMean", [a], [out], keepdims=keep),
                helper.make_node("ArgMax", [a], [out], axis=axis, keepdims=keep),
                helper.make_node("Concat", [a, b], [out], axis=axis),
                helper.make_node("Flatten", [a], [out], axis=axis),
                helper.make_node("Gather", [a, whole(*few)], [out], axis=axis),
                helper.make_node("Reshape", [a, whole(*few)], [out], allowzero=keep),
                helper.make_node("Slice", [a, whole(few[0]), whole(5), whole(axis), whole(2)], [out]),
                helper.make_node("Slice", [a, whole(-1), whole(-9), whole(axis), whole(-1)], [out]),
                helper.make_node("Split", [a, whole(2, 3)], [out, f"{out}b"], axis=axis),
                helper.make_node("Split", [a], [out, f"{out}b"], axis=axis, num_outputs=2),
                helper.make_node("Squeeze", [a, whole(axis)], [out]),
                helper.make_node("Squeeze", [a], [out]),
                helper.make_node("Unsqueeze", [a, whole(axis)], [out]),
            ]
        )
        try:  # a graph with a contradiction early would tell of nothing else
            cost_of(onnx, model([*nodes, node], constants).graph, "x", (7, FEATURES), 1 << 20, 1 << 30)
        except DataError:
            if rng.random() < 0.97:
                continue
        nodes.append(node)
        names += node.output
    graph = model([*nodes, helper.make_node("Identity", [names[-1]], ["y"])], constants)
    graph.graph.output[0].type.tensor_type.ClearField("shape")
    return graph


# ---- mutations ----


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
