"""Mutated models of other libraries: a sentence or finite scores come of each, never a crash, a hang or a flood."""

from __future__ import annotations

import copy
import json
import random
import re
import struct

import numpy as np
import pytest

import toprank as tr
from foreign_models import QID, SIZES, X, Y, lightgbm_model, ranklib_text
from forging import Judges, as_it_is
from toprank.errors import FormatError
from toprank.rankers.foreign import ubj

NUMBERS = [-1, 0, 1, 2, 7, 0.5, -0.5, 2**31 - 1, 2**31, 2**32, 2**53, 10**30, 1e38, 1e39, 1e308, 1e-320]
VALUES = [*NUMBERS, None, True, "", "x", "1", "-1", "[1]", "9999999999", "nan", [], {}, [[]], [1, 2], ["a"], {"a": 1}]
WORDS = ["-1", "0", "1", "2", "7", "1e308", "1e999", "nan", "inf", "99999999999", "0x1", "1.5", "", "=", "\u0661", "x"]


def damaged(rng, content):
    """Bytes changed, lost, doubled or exchanged."""
    content, place = bytearray(content), rng.randrange(len(content))
    size = rng.choice([1, 1, 4, 40])
    choices = [
        lambda: content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :],
        lambda: content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :],
        lambda: content[:place] + content[place + size :],
        lambda: content[:place] + content[place : place + size] * 2 + content[place + size :],
        lambda: content[:place],
    ]
    return bytes(rng.choice(choices)())


def other_words(rng, text):
    """A text with another number, or another mark, in it."""
    for _ in range(rng.choice([1, 1, 2])):
        found = list(re.finditer(rng.choice([r"[-\w.+]+", r"(?<=\s)-?[\d.]+"]), text)) or list(
            re.finditer(r"\w+", text)
        )
        one = rng.choice(found)
        word = rng.choice([rng.choice(WORDS), rng.choice(found)[0]])
        text = text[: one.start()] + word + text[one.end() :]
    if rng.random() < 0.2:
        lines = text.split("\n")
        place, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[place : place + rng.choice([0, 1, 1])] = rng.choice([[], [lines[other]], [lines[other], lines[place]]])
        text = "\n".join(lines)
    return text


def places(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in places(item, (*path, key)))]


def other_values(rng, model):
    """A description with another value, one less or one more in it; each list comes up as often as a single value."""
    model = copy.deepcopy(model)
    for _ in range(rng.choice([1, 1, 2])):
        by_name = {}
        for path in places(model):
            if path:
                by_name.setdefault(tuple(key for key in path if isinstance(key, str)), []).append(path)
        *above, last = rng.choice(by_name[rng.choice(sorted(by_name))])
        parent = model
        for key in above:
            parent = parent[key]
        action = rng.random()
        if action < 0.7:
            parent[last] = copy.deepcopy(rng.choice(VALUES))
        elif action < 0.85:
            del parent[last]
        elif isinstance(parent, list):
            parent.insert(last, copy.deepcopy(rng.choice(VALUES)))
        else:
            parent[last + "x"] = parent.pop(last)
    return model


def encoded(value):
    """UBJ as XGBoost writes it."""
    length = b"L" + struct.pack(">q", len(value)) if isinstance(value, str | bytes | list | dict) else b""
    if isinstance(value, dict):
        members = (b"L" + struct.pack(">q", len(k.encode())) + k.encode() + encoded(v) for k, v in value.items())
        return b"{" + b"".join(members) + b"}"
    if isinstance(value, str):
        raw = value.encode()
        return b"SL" + struct.pack(">q", len(raw)) + raw
    if isinstance(value, bool) or value is None:
        return {True: b"T", False: b"F", None: b"Z"}[value]
    if isinstance(value, int):
        return b"L" + struct.pack(">q", max(-(2**63), min(value, 2**63 - 1)))
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    kinds = {type(item) for item in value}
    if value and kinds <= {int, float}:
        small = max(map(abs, value)) < 2**31
        with np.errstate(over="ignore"):
            array = np.array(
                [max(-(2**62), min(item, 2**62)) if not small and float not in kinds else item for item in value],
                ">f4" if float in kinds else ">i4" if small else ">i8",
            )
        return b"[$" + {">f4": b"d", ">i8": b"L", ">i4": b"l"}[array.dtype.str] + b"#" + length + array.tobytes()
    return b"[#" + length + b"".join(encoded(item) for item in value)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """The content of a small file of each format."""
    import catboost
    import xgboost

    folder = tmp_path_factory.mktemp("originals")
    kinds = ["q", "q", "q", "c", "q"]
    options = {"n_estimators": 2, "max_depth": 2, "enable_categorical": True, "feature_types": kinds}
    model = xgboost.XGBRanker(**options, max_cat_to_onehot=1, n_jobs=1).fit(X, Y, qid=QID)
    model.save_model(folder / "x.json")
    model.save_model(folder / "x.ubj")
    cat = {"iterations": 2, "depth": 2, "verbose": 0, "allow_writing_files": False}
    catboost.CatBoostRegressor(**cat).fit(X, Y).save_model(str(folder / "c.json"), format="json")
    lossguide = catboost.CatBoostRegressor(**cat, grow_policy="Lossguide")
    lossguide.fit(X, Y).save_model(str(folder / "d.json"), format="json")
    of_catboost = [json.loads((folder / name).read_bytes()) for name in ("c.json", "d.json")]
    for one in of_catboost:
        one["model_info"] = {"params": "{}"}
    return {
        "lightgbm": lightgbm_model(num_leaves=4, num_iterations=2, categorical=[3]).model_to_string(),
        "xgboost": json.loads((folder / "x.json").read_bytes()),
        "ubj": (folder / "x.ubj").read_bytes(),
        "catboost": of_catboost,
        "ranklib": ranklib_text(trees=2),
    }


def forged(rng, kind, original):
    if kind in ("lightgbm", "ranklib"):
        mutated = other_words(rng, original).encode()
    elif kind == "catboost":
        mutated = json.dumps(other_values(rng, rng.choice(original))).encode()
    elif kind == "xgboost":
        mutated = json.dumps(other_values(rng, original)).encode()
    else:
        mutated = encoded(other_values(rng, _plain(ubj.decode(original))))
    return damaged(rng, mutated) if rng.random() < 0.25 else mutated


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["lightgbm", "xgboost", "ubj", "catboost", "ranklib"])
def test_mutated_foreign_models_are_refused_or_give_finite_scores(tmp_path, judge, originals, kind, count):
    paths = []
    for seed in range(count):
        paths.append(tmp_path / f"{kind}-{seed}")
        paths[-1].write_bytes(forged(random.Random(f"{kind}{seed}"), kind, originals[kind]))
    outcomes = judge(paths)
    wrong = {path: found for path, found in outcomes.items() if found not in ("refused", "finite")}
    assert not wrong, "\n".join(f"{path}: {found}" for path, found in wrong.items())
    for found in ("refused", "finite"):
        assert sum(outcome == found for outcome in outcomes.values()) >= 0.1 * count, found


@pytest.fixture(scope="module")
def judge():
    with Judges(most_memory=1 << 30) as judges:
        yield judges


# ---- files made to burst ----


def set_trees(model, trees):
    """Give XGBoost's description these trees, with the counts that belong to them."""
    part = model["learner"]["gradient_booster"]["model"]
    part["trees"] = []
    for number, tree in enumerate(trees):
        counts = tree["tree_param"] | {"num_nodes": str(len(tree["left_children"]))}
        part["trees"].append(tree | {"id": number, "tree_param": counts})
    part["gbtree_model_param"]["num_trees"] = str(len(trees))
    part |= {"tree_info": [0] * len(trees), "iteration_indptr": [0, len(trees)]}


def test_sets_of_categories_have_an_end(tmp_path, originals):
    """A category is a few bytes of the file, and half a million words of bits."""
    model = copy.deepcopy(originals["xgboost"])
    trees = model["learner"]["gradient_booster"]["model"]["trees"]
    grown = next(tree for tree in trees if tree["categories"])
    grown["categories"][-1] = 2**24 - 1
    set_trees(model, [grown] * 100)
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FormatError, match="sets of categories are too large"):
        tr.load(tmp_path / "m.json")


def test_segments_of_categories_are_not_shared(tmp_path, originals):
    """20,000 nodes that name one segment of 200,000 categories are 2 MB of a file, and 4,000,000,000 steps."""
    nodes, many = 20_000, 200_000
    model = copy.deepcopy(originals["xgboost"])
    tree = next(one for one in model["learner"]["gradient_booster"]["model"]["trees"] if one["categories"])
    inner = [*range(nodes), *[-1] * (nodes + 1)]  # a chain: the leaf of node i is node nodes + i
    tree["left_children"] = [nodes + i if child >= 0 else -1 for i, child in enumerate(inner)]
    tree["right_children"] = [
        i + 1 if i < nodes - 1 else 2 * nodes if child >= 0 else -1 for i, child in enumerate(inner)
    ]
    for name, value in (("split_indices", 3), ("split_conditions", 0.5), ("default_left", 0), ("split_type", 0)):
        tree[name] = [value] * (2 * nodes + 1)
    tree["split_type"][:nodes] = [1] * nodes
    tree["loss_changes"] = [0.0] * (2 * nodes + 1)
    tree |= {"categories": [0] * many, "categories_nodes": list(range(nodes))}
    tree |= {"categories_segments": [0] * nodes, "categories_sizes": [many] * nodes}
    tree |= {name: [0] * (2 * nodes + 1) for name in ("parents", "base_weights", "sum_hessian")}
    set_trees(model, [tree])
    (tmp_path / "m.json").write_text(json.dumps(model))
    with Judges(count=1, most_memory=1 << 30, tell=True) as judges:
        assert "its categories are damaged" in judges([tmp_path / "m.json"])[str(tmp_path / "m.json")]


@pytest.mark.parametrize("place", [("feature_names", 1), ("objective", "name")])
def test_half_characters_are_refused(tmp_path, originals, monkeypatch, place):
    """JSON has words for them; no file has, so that the model could not be saved again."""
    monkeypatch.setattr("toprank.rankers.foreign.unforeseen", as_it_is)
    model = copy.deepcopy(originals["xgboost"])
    model["learner"]["feature_names"] = [*"abcde"]
    model["learner"][place[0]][place[1]] = "rank:\ud800"
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FormatError, match="a lone surrogate"):
        tr.load(tmp_path / "m.json")
    model["learner"][place[0]][place[1]] = "rank:\U0001f600"  # written as two halves, and whole
    (tmp_path / "m.json").write_text(json.dumps(model))
    tr.load(tmp_path / "m.json").save(tmp_path / "m.toprank")


def test_a_model_must_say_how_many_features_it_takes(tmp_path, originals):
    model = copy.deepcopy(originals["xgboost"])
    del model["learner"]["learner_model_param"]["num_feature"]
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FormatError, match="num_feature is missing or not a number"):
        tr.load(tmp_path / "m.json")


@pytest.mark.parametrize(("number", "why"), [("1048577", "features"), ("999999999999", "features"), ("0", "features")])
def test_features_have_an_end(tmp_path, originals, number, why):
    model = copy.deepcopy(originals["xgboost"])
    model["learner"]["learner_model_param"]["num_feature"] = number
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FormatError, match=why):
        tr.load(tmp_path / "m.json")


def test_lengths_of_ubj_are_compared_with_the_bytes_that_are_there(tmp_path):
    huge = struct.pack(">q", 2**60)
    for content in (b"{L" + huge, b"{i\x01a[$d#L" + huge, b"{i\x01a[#L" + huge, b"{i\x01aSL" + huge):
        (tmp_path / "m.ubj").write_bytes(content)
        with pytest.raises(FormatError, match="binary JSON is damaged"):
            tr.load(tmp_path / "m.ubj")
    (tmp_path / "m.ubj").write_bytes(b"{i\x01a" + b"[" * 100_000)
    with pytest.raises(FormatError, match="nested more than"):
        tr.load(tmp_path / "m.ubj")


def test_trees_have_no_end_of_depth_but_no_circles(tmp_path, originals):
    """A chain of 20,000 splits is read; a child that leads back is refused."""
    deep = 20_000
    text = "".join(
        ('<split pos="right">' if n else "<split>") + f"<feature>1</feature><threshold>{n}</threshold>"
        f'<split pos="left"><output>{n}</output></split>'
        for n in range(deep)
    )
    text += '<split pos="right"><output>-1</output></split>' + "</split>" * deep
    (tmp_path / "m.xml").write_text(f'## LambdaMART\n<ensemble><tree id="1" weight="1">{text}</tree></ensemble>')
    rows = np.array([[0.0], [777.0], [deep - 1.0], [deep]])
    assert tr.load(tmp_path / "m.xml").predict(rows).tolist() == [0, 777, deep - 1, -1]
    model = copy.deepcopy(originals["xgboost"])
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["left_children"][1] = 0
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FormatError, match="do not form a tree"):
        tr.load(tmp_path / "m.json")


@pytest.mark.parametrize("name", [[1, 2], None, 7, {}, [[]]])
def test_names_of_boosters_are_not_trusted_to_be_texts(tmp_path, originals, monkeypatch, name):
    """Two numbers are an array in UBJ, which is neither equal to a text nor not."""
    monkeypatch.setattr("toprank.rankers.foreign.unforeseen", as_it_is)
    model = copy.deepcopy(originals["xgboost"])
    model["learner"]["gradient_booster"]["name"] = name
    for content in (json.dumps(model).encode(), encoded(model)):
        (tmp_path / "m").write_bytes(content)
        with pytest.raises(FormatError, match=r"its booster .* is unknown"):
            tr.load(tmp_path / "m")


@pytest.mark.parametrize("id_of_tree", [[0, 0], None, "0", 1])
def test_ids_of_trees_are_not_trusted_to_be_numbers(tmp_path, originals, monkeypatch, id_of_tree):
    monkeypatch.setattr("toprank.rankers.foreign.unforeseen", as_it_is)
    model = copy.deepcopy(originals["xgboost"])
    model["learner"]["gradient_booster"]["model"]["trees"][0]["id"] = id_of_tree
    for content in (json.dumps(model).encode(), encoded(model)):
        (tmp_path / "m").write_bytes(content)
        with pytest.raises(FormatError, match=r"tree number 0 .* has the id"):
            tr.load(tmp_path / "m")


def test_trees_within_what_is_written_for_people_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr("toprank.rankers.foreign.unforeseen", as_it_is)
    inside = "<psuedoResponse><tree><split><output>1</output></split></tree></psuedoResponse>"
    (tmp_path / "m.txt").write_text(f"## LambdaMART\n\n<ensemble>{inside}</ensemble>\n")
    with pytest.raises(FormatError, match="<split> where RankLib does not write it"):
        tr.load(tmp_path / "m.txt")


def test_base_scores_beyond_single_precision_are_refused(tmp_path, originals):
    model = copy.deepcopy(originals["xgboost"])
    model["learner"]["learner_model_param"]["base_score"] = "1e39"
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(FormatError, match="base score is not finite"):
        tr.load(tmp_path / "m.json")


def test_the_forger_writes_what_xgboost_writes(originals):
    """The mutations of UBJ begin from a file that is whole."""
    decoded = _plain(ubj.decode(originals["ubj"]))
    assert _plain(ubj.decode(encoded(decoded))) == decoded
    assert set(decoded) == set(originals["xgboost"])
    assert len(SIZES) == len(set(QID.tolist()))


@pytest.mark.parametrize("value", [True, None, 7, "x", {}])
@pytest.mark.parametrize("name", ["split_type", "loss_changes", "default_left", "categories_nodes", "tree_param"])
def test_no_list_of_a_tree_is_trusted_to_be_one(tmp_path, originals, name, value):
    model = copy.deepcopy(originals["xgboost"])
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        tree[name] = value
    (tmp_path / "m.json").write_text(json.dumps(model))
    if (name, value) == ("loss_changes", None):
        assert np.isfinite(tr.load(tmp_path / "m.json").predict(X)).all()  # what may be left out
    else:
        with pytest.raises(FormatError, match=f"{name}|num_nodes"):
            tr.load(tmp_path / "m.json")
