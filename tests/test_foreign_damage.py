"""Models of other libraries that lost or gained a part: each is refused, or scores as in the library itself.

A part is a line of text, an element of XML, a value of JSON, or a list of ONNX; it is deleted, doubled, blanked, or
made longer or shorter.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections import Counter
from itertools import islice

import numpy as np
import onnx
import pytest

import onnx_models
import toprank as tr
from foreign_models import QID, X, Y, lightgbm_model, ranklib_scores, ranklib_text
from forging import as_it_is
from test_foreign_forgery import encoded
from toprank.errors import FormatError, ToprankError

_ALIKE = 3
"""Values of JSON at places that differ only in list indexes: so many are damaged."""

_LIBRARIES = {
    "lightgbm": "import lightgbm\ndef score(path): return lightgbm.Booster(model_file=path).predict(X, num_threads=1)",
    "xgboost": (
        "import xgboost\n"
        "def score(path):\n"
        "    model = xgboost.XGBRanker(n_jobs=1)\n"
        "    model.load_model(path)\n"
        "    return model.predict(X, output_margin=True)"
    ),
    "catboost": (
        "import catboost\n"
        "def score(path):\n"
        "    model = catboost.CatBoost().load_model(path, format='json')\n"
        "    return model.predict(X, prediction_type='RawFormulaVal', thread_count=1)"
    ),
}


def library_scores(library, paths, folder):
    """Score the rows by the library in a process of its own: a damaged file may end it."""
    np.save(folder / "rows.npy", X)
    code = (
        f"import sys, numpy as np\nX = np.load('rows.npy')\n{_LIBRARIES[library]}\n"
        "np.save('scores.npy', [score(path) for path in sys.argv[1:]])"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, *map(str, paths)], cwd=folder, check=True)
    return np.load(folder / "scores.npy")


EVERY = pytest.mark.parametrize("step", [25, pytest.param(1, marks=pytest.mark.nightly)])
"""How many damages to go on by: all of them take a minute."""


def check(folder, library, suffix, intact, damaged):
    """Each damaged content is refused, or has the scores of the intact one, or those of the library."""
    whole = folder / f"intact{suffix}"
    whole.write_bytes(intact)
    expected, others, n_refused = tr.load(whole).predict(X), {}, 0
    for number, (damage, content) in enumerate(damaged):
        path = folder / f"{number}{suffix}"
        path.write_bytes(content)
        try:
            scores = tr.load(path).predict(X)
        except ToprankError:
            n_refused += 1
            continue
        if not np.allclose(scores, expected, rtol=0.0, atol=1e-6):
            others[path] = damage, scores
    assert n_refused > 2
    theirs = library_scores(library, others, folder) if others else []
    for (damage, scores), wanted in zip(others.values(), theirs, strict=True):
        np.testing.assert_allclose(scores, wanted, rtol=0.0, atol=1e-5, err_msg=damage)


@pytest.fixture(autouse=True)
def nothing_unforeseen(monkeypatch):
    monkeypatch.setattr("toprank.rankers.foreign.unforeseen", as_it_is)


# ---- texts ----


def damaged_lines(text, begins, ends):
    """Change each line up to the line `ends`, and each run of lines that starts with `begins`."""
    lines = text.split("\n")
    end = lines.index(ends)
    starts = [number for number, line in enumerate(lines[:end]) if line.startswith(begins)]
    for i in range(end + 1):
        before, line, after = lines[:i], lines[i], lines[i + 1 :]
        changes = {"deleted": [], "doubled": [line, line], "blank": [""], "a blank": [f"{line} "]}
        changes |= {"an empty line before": ["", line], "a line before": ["more", line]}
        for change, instead in changes.items():
            yield f"line {i}, {line[:20]!r}: {change}", "\n".join([*before, *instead, *after]).encode()
    for i in starts:
        for j in [*starts, end]:
            if i < j:
                yield f"lines {i} to {j} deleted", "\n".join(lines[:i] + lines[j:]).encode()
                yield f"lines {i} to {j} doubled", "\n".join(lines[:j] + lines[i:]).encode()


@EVERY
@pytest.mark.parametrize(
    "options", [{}, {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}, {"categorical": [3]}]
)
def test_lightgbm(tmp_path, options, step):
    text = lightgbm_model(num_leaves=4, **options).model_to_string(num_iteration=4)
    check(
        tmp_path, "lightgbm", ".txt", text.encode(), islice(damaged_lines(text, "Tree=", "end of trees"), 0, None, step)
    )


@pytest.mark.parametrize("between", ["\n\n", "\n\n \n", "\n\n\n\n", "\n\nmore\n\n"], ids=repr)
def test_lightgbms_last_tree_is_read_whatever_separates_it_from_the_end(tmp_path, between):
    booster = lightgbm_model(num_leaves=4)
    text = booster.model_to_string()
    altered = text.replace("\n\n\nend of trees", f"{between}end of trees")
    assert altered != text
    (tmp_path / "m.txt").write_text(altered)
    np.testing.assert_array_equal(tr.load(tmp_path / "m.txt").predict(X), booster.predict(X))


@pytest.mark.parametrize("lost", [(0,), (3, 4), (11,), (2, 3, 4, 5)], ids=str)
def test_lightgbm_models_that_lost_trees_are_refused(tmp_path, lost):
    head, *trees = re.split(r"(?=Tree=|end of trees)", lightgbm_model(num_leaves=4).model_to_string())
    kept = [tree for number, tree in enumerate(trees) if number not in lost]
    (tmp_path / "m.txt").write_text(head + "".join(kept))
    with pytest.raises(FormatError, match=f"tree_sizes state 12 trees, but it contains {12 - len(lost)}"):
        tr.load(tmp_path / "m.txt")


def test_lightgbm_models_without_tree_sizes_are_read_tree_by_tree(tmp_path):
    """So does LightGBM."""
    booster = lightgbm_model(num_leaves=4)
    text = re.sub(r"tree_sizes=.*\n", "", booster.model_to_string())
    (tmp_path / "m.txt").write_text(text)
    np.testing.assert_array_equal(tr.load(tmp_path / "m.txt").predict(X), booster.predict(X))
    (tmp_path / "m.txt").write_text(text.replace("\n\nTree=5", "\n\nmore\n\nTree=5"))
    with pytest.raises(FormatError, match=r"tree number 4 .* is followed by lines outside of any tree"):
        tr.load(tmp_path / "m.txt")


@pytest.mark.parametrize(("kind", "bags"), [("LambdaMART", 1), ("Random Forests", 3)])
def test_ranklib(tmp_path, kind, bags):
    """Lines of its XML; the last tree of boosting may be missing, as after early stopping."""
    text = ranklib_text(trees=2 if bags == 1 else 1, kind=kind, bags=bags)
    text = text.replace("\n\n", f"\n## No. of bags = {bags}\n\n", 1) if bags > 1 else text
    rows, n_refused = X[:8], 0
    for damage, content in damaged_lines(text, ("<tree", "<ensemble"), text.rstrip("\n").split("\n")[-1]):
        (tmp_path / "m.txt").write_bytes(content)
        try:
            scores = tr.load(tmp_path / "m.txt").predict(rows)
        except ToprankError:
            n_refused += 1
            continue
        wanted = ranklib_scores(content.decode(), rows)
        np.testing.assert_allclose(scores, wanted, rtol=0.0, atol=1e-12, err_msg=damage)
    assert n_refused > 50


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (r"<threshold>[^<]*</threshold>", "", "is damaged"),
        (r"(<feature>[^<]*</feature>)\s*(<threshold>[^<]*</threshold>)", r"\2\1", "where RankLib does not write it"),
        (r"(<threshold>[^<]*</threshold>)", r"\1\1", "where RankLib does not write it"),
        (r'id="2"', 'id="3"', "the id '3' instead of 2"),
        (r' weight="[^"]*"', "", "has no weight"),
        (r"No. of trees = 3", "No. of trees = 2", "state at most 2 trees, but it contains 3"),
        (r'<split pos="left">(.*?)<split pos="right">', r'<split pos="right">\1<split pos="left">', "left branch"),
    ],
)
def test_ranklib_models_that_contradict_themselves_are_refused(tmp_path, before, after, why):
    text, n = re.subn(before, after, ranklib_text(trees=3), count=1, flags=re.DOTALL)
    assert n
    (tmp_path / "m.txt").write_text(text)
    with pytest.raises(FormatError, match=why):
        tr.load(tmp_path / "m.txt")


def test_ranklib_bags_are_counted(tmp_path):
    text = ranklib_text(trees=1, kind="Random Forests", bags=3)
    (tmp_path / "m.txt").write_text(text.replace("\n\n", "\n## No. of bags = 4\n\n", 1))
    with pytest.raises(FormatError, match="state 4 bags, but it contains 3"):
        tr.load(tmp_path / "m.txt")


# ---- JSON ----


def places(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in places(item, (*path, key)))]


def changes_of(value):
    """Yield other values in place of this one."""
    yield "blank", type(value)() if isinstance(value, list | dict | str) else None
    if isinstance(value, list) and value:
        yield "shorter", value[:-1]
        yield "longer", [*value, copy.deepcopy(value[-1])]
    elif isinstance(value, str) and value.isdigit():
        yield "one more", str(int(value) + 1)
    elif type(value) is int:
        yield "one more", value + 1


def damaged_values(model, encode):
    seen = Counter()
    for path in places(model):
        names = tuple(key if isinstance(key, str) else "" for key in path)
        seen[names] += 1
        if not path or seen[names] > _ALIKE:
            continue
        for change, value in [("deleted", None), ("doubled", None), *changes_of(at(model, path))]:
            other = copy.deepcopy(model)
            parent, last = at(other, path[:-1]), path[-1]
            if change == "deleted":
                del parent[last]
            elif change != "doubled":
                parent[last] = value
            elif isinstance(parent, list):
                parent.insert(last, copy.deepcopy(parent[last]))
            yield f"{'/'.join(map(str, path))}: {change}", encode(other)


def at(value, path):
    for key in path:
        value = value[key]
    return value


def as_json(model):
    return json.dumps(model).encode()


@EVERY
@pytest.mark.parametrize("options", [{}, {"booster": "dart", "rate_drop": 0.5}], ids=["gbtree", "dart"])
def test_xgboost(tmp_path, options, step):
    import xgboost

    model = xgboost.XGBRanker(n_estimators=3, max_depth=2, n_jobs=1, **options).fit(X, Y, qid=QID)
    model.save_model(tmp_path / "m.json")
    described = json.loads((tmp_path / "m.json").read_bytes())
    check(tmp_path, "xgboost", ".json", as_json(described), islice(damaged_values(described, as_json), 0, None, step))


@EVERY
def test_xgboosts_binary_json_is_read_as_its_json(tmp_path, step):
    import xgboost

    xgboost.XGBRanker(n_estimators=2, max_depth=2, n_jobs=1).fit(X, Y, qid=QID).save_model(tmp_path / "m.json")
    described = json.loads((tmp_path / "m.json").read_bytes())
    n_read = 0
    pairs = zip(damaged_values(described, as_json), damaged_values(described, encoded), strict=True)
    for (damage, text), (_, binary) in islice(pairs, 0, None, step):
        scores = [scores_or_none(tmp_path / f"m{suffix}", of) for suffix, of in ((".json", text), (".ubj", binary))]
        assert (scores[0] is None) == (scores[1] is None), damage
        if scores[0] is not None:
            n_read += 1
            np.testing.assert_array_equal(*scores, err_msg=damage)
    assert n_read > 5


def scores_or_none(path, content):
    path.write_bytes(content)
    try:
        return tr.load(path).predict(X)
    except ToprankError:
        return None


@pytest.mark.parametrize(
    ("part", "change", "why"),
    [
        ("trees", lambda trees: trees[:-1], "num_trees states 3 trees, but it contains 2"),
        ("trees", lambda trees: [*trees, trees[0]], "num_trees states 3 trees, but it contains 4"),
        ("trees", lambda trees: [trees[0], trees[0], trees[2]], "tree number 1 .* has the id 0"),
        ("tree_info", lambda info: info[:-1], "tree_info does not have an entry for each tree"),
        ("iteration_indptr", lambda ends: ends[1:], "iteration_indptr does not divide its trees into rounds"),
    ],
)
def test_xgboost_models_that_contradict_themselves_are_refused(tmp_path, part, change, why):
    import xgboost

    xgboost.XGBRanker(n_estimators=3, max_depth=2, n_jobs=1).fit(X, Y, qid=QID).save_model(tmp_path / "m.json")
    model = json.loads((tmp_path / "m.json").read_bytes())
    inside = model["learner"]["gradient_booster"]["model"]
    inside[part] = change(inside[part])
    for suffix, encode in ((".json", as_json), (".ubj", encoded)):
        path = tmp_path / f"damaged{suffix}"
        path.write_bytes(encode(model))
        with pytest.raises(FormatError, match=why):
            tr.load(path)


@EVERY
@pytest.mark.parametrize("options", [{}, {"grow_policy": "Lossguide"}], ids=["levels", "nodes"])
def test_catboost(tmp_path, options, step):
    import catboost

    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    model = catboost.CatBoostRegressor(iterations=3, depth=2, **quiet, **options).fit(X, Y)
    model.save_model(str(tmp_path / "m.json"), format="json")
    described = json.loads((tmp_path / "m.json").read_bytes())
    described["model_info"] = {}
    check(tmp_path, "catboost", ".json", as_json(described), islice(damaged_values(described, as_json), 0, None, step))


def test_catboosts_index_of_a_border_must_belong_to_that_border(tmp_path):
    import catboost

    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    model = catboost.CatBoostRegressor(iterations=3, depth=2, **quiet).fit(X, Y)
    model.save_model(str(tmp_path / "m.json"), format="json")
    described = json.loads((tmp_path / "m.json").read_bytes())
    described["oblivious_trees"][0]["splits"][0]["split_index"] += 1
    (tmp_path / "m.json").write_bytes(as_json(described))
    with pytest.raises(FormatError, match=r"its split_index .* does not belong to that border"):
        tr.load(tmp_path / "m.json")


# ---- ONNX ----


def without(parts, names, place):
    """Take one item out of each of these lists, some of which are tensors."""
    changed = dict(parts)
    for name in names:
        value = parts[name]
        if isinstance(value, list):
            changed[name] = value[:place] + value[place + 1 :]
        else:
            changed[name] = onnx.numpy_helper.from_array(np.delete(onnx.numpy_helper.to_array(value), place), name)
    return changed


def onnx_parts(made):
    [node] = made.graph.node
    return {option.name: onnx.helper.get_attribute_value(option) for option in node.attribute}


@pytest.mark.parametrize("kind", ["trees", "old_trees"])
def test_onnx_trees_that_lost_an_item_of_their_lists_are_refused(tmp_path, kind):
    """One item of one list; one item of each list of nodes; one leaf; one root."""
    made = getattr(onnx_models, kind)()
    parts = onnx_parts(made)
    lists = {name: list(value) if isinstance(value, list) else value for name, value in parts.items()}
    lists = {name: value for name, value in lists.items() if isinstance(value, list | onnx.TensorProto)}
    groups = [[name] for name in lists]
    groups += [[name for name in lists if name.startswith(prefix)] for prefix in ("nodes_", "leaf_", "target_")]
    n_damaged = 0
    for group in filter(None, groups):
        value = lists[group[0]]
        for place in range(len(value) if isinstance(value, list) else value.dims[0]):
            del made.graph.node[0].attribute[:]
            for name, of in without(parts, group, place).items():
                if not isinstance(of, list) or of:
                    made.graph.node[0].attribute.append(onnx.helper.make_attribute(name, of))
            (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
            with pytest.raises(FormatError):
                tr.load(tmp_path / "m.onnx")
            n_damaged += 1
    assert n_damaged > 30


def test_onnx_leaves_that_no_node_leads_to_are_refused(tmp_path):
    made = onnx_models.trees()
    for option in made.graph.node[0].attribute:
        if option.name == "leaf_targetids":
            option.ints.append(0)
        if option.name == "leaf_weights":
            weights = np.append(onnx.numpy_helper.to_array(option.t), 32.0)
            option.t.CopyFrom(onnx.numpy_helper.from_array(weights, "w"))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(FormatError, match="a leaf of its trees belongs to no node"):
        tr.load(tmp_path / "m.onnx")
