"""Model files by grammar and by mutation: what comes of one is a sentence or finite scores, never a crash or a hang."""

from __future__ import annotations

import copy
import io
import json
import random
import re

import numpy as np
import pytest

import toprank as tr
from foreign_models import xgboost_model
from forging import Judges, npy, parts_of, seal
from onnx_models import network
from test_model_files import every_ranker
from toprank.errors import DataError
from toprank.rankers.foreign.onnx_model import OnnxRanker
from toprank.rankers.foreign.ranker import ImportedLinearRanker
from toprank.rankers.foreign.xgboost_model import read_binary
from toprank.rankers.trees.text import read_trees, written_trees
from toprank.rankers.trees.training import only_trees

# ---- trees, written by a grammar ----

HOSTILE = ["0_1", "+1", " 1", "-1", "0", "1", "2", "7", "1.5", "1e0", "nan", "inf", "-inf", "1e400", "", "0x10", "-0"]
HOSTILE += ["2147483647", "2147483648", "4294967296", "9" * 30, "1" * 500, "\u0661", "1=2", "Tree=0", "1,2", "1\t2"]


def tree_lines(rng, number, features):
    """A proper tree: leaf after leaf is split, the new half gets the next number."""
    leaves, n_cat = rng.choice([1, 2, 3, 6]), 0
    left, right, parent = [], [], {0: None}
    for node in range(leaves - 1):
        leaf = rng.choice(list(parent))
        if parent[leaf] is not None:
            side, above = parent[leaf]
            side[above] = node
        left.append(-leaf - 1)
        right.append(-len(parent) - 1)
        parent[leaf], parent[len(parent)] = (left, node), (right, node)
    kinds = [rng.choice([0, 2, 4, 10, 9]) for _ in left]
    thresholds = []
    for kind in kinds:
        thresholds.append(n_cat if kind % 2 else rng.gauss(0, 1))
        n_cat += kind % 2
    fields = {
        "num_leaves": [leaves],
        "num_cat": [n_cat],
        "split_feature": [rng.randrange(features) for _ in left],
        "split_gain": [rng.randrange(9) for _ in left],
        "threshold": thresholds,
        "decision_type": kinds,
        "left_child": left,
        "right_child": right,
        "leaf_value": [rng.gauss(0, 1) for _ in range(leaves)],
        "leaf_weight": [rng.randrange(9) for _ in range(leaves if leaves > 1 else 0)],
        "leaf_count": [rng.randrange(9) for _ in range(leaves)],
        "internal_value": [0 for _ in left],
        "internal_weight": [0 for _ in left],
        "internal_count": [9 for _ in left],
    }
    if n_cat:
        fields |= {"cat_boundaries": range(n_cat + 1), "cat_threshold": [rng.randrange(2**32) for _ in range(n_cat)]}
    fields |= {"is_linear": [0], "shrinkage": [0.1]}
    lines = [f"{name}={' '.join(format(value, '.17g') for value in values)}" for name, values in fields.items()]
    return [f"Tree={number}", *lines]


def forest(rng):
    """The lines of a proper header, and those of each tree."""
    outputs, features = rng.choice([1, 1, 3]), rng.choice([1, 2, 5])
    trees = [tree_lines(rng, number, features) for number in range(outputs * rng.choice([1, 2, 4]))]
    head = ["tree", "version=v4", f"num_class={outputs}", f"num_tree_per_iteration={outputs}", "label_index=0"]
    head += [f"max_feature_idx={features - 1}", *rng.choice([[], ["objective=lambdarank"]])]
    head += ["feature_names=" + " ".join(f"Column_{i}" for i in range(features))]
    head += rng.choice([[], ["monotone_constraints=" + " ".join(rng.choice("01") for _ in range(features))]])
    infos = ["none", "[0:1]", "[-1.5:2e+30]", "-1:3:2"]
    head += ["feature_infos=" + " ".join(rng.choice(infos) for _ in range(features))]
    return outputs, features, head, trees


def sized(head, trees):
    sizes = [len("\n".join(tree)) + 3 for tree in trees]
    return [*head, "tree_sizes=" + " ".join(map(str, sizes))]


def joined(head, trees):
    return "\n".join(head) + "\n\n" + "".join("\n".join(tree) + "\n\n\n" for tree in trees) + "end of trees\n"


def mutate_lines(rng, lines, other):
    """Lines doubled, dropped, exchanged, spelled otherwise, or with another number in them."""
    place = rng.randrange(len(lines))
    line, token = lines[place], rng.choice(HOSTILE)
    name, _, value = line.partition("=")
    words = value.split(" ")
    words[rng.randrange(len(words))] = token
    forged = [
        f"={line}",
        f" {line}",
        f"{line} ",
        f"{line}\r",
        f"{name}={token}",
        f"{name}=={value}",
        name.upper() + "=" + value,
        f"={name}={token}",
        f"{name}={' '.join(words)}",
        f"{name}={' '.join(words[:-1])}",
        f"{name}={value} {token}",
        "average_output",
        "end of trees",
        "",
    ]
    mutated = [*lines[:place], rng.choice(forged), *lines[place + 1 :]]
    inserted = [*lines[:place], rng.choice(forged), *lines[place:]]
    with_block = [*lines[:place], *rng.choice([other, ["", *other, "", ""], [*other, "", ""]]), *lines[place:]]
    swapped = list(lines)
    swapped[place], swapped[0] = swapped[0], swapped[place]
    shorter = lines[:place] + lines[place + 1 :]
    return rng.choice([mutated, mutated, mutated, inserted, with_block, swapped, shorter or lines])


def forged_text(rng):
    outputs, features, head, trees = forest(rng)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        other = rng.choice(trees)
        if rng.random() < 0.5:
            place = rng.randrange(len(trees))
            trees[place] = mutate_lines(rng, trees[place], other)
        else:
            head = mutate_lines(rng, head, other)
    head = sized(head, trees)
    if rng.random() < 0.2:
        head = mutate_lines(rng, head, trees[0])
    text = joined(head, trees)
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice(["", "=", "\n", "\0", "9", "-", "_"]) + text[place + 1 :]
    return outputs, features, text


@pytest.fixture(scope="module")
def tree_parts(tmp_path_factory):
    path = tmp_path_factory.mktemp("trees") / "m.toprank"
    data = tr.synthetic(n_queries=10, n_features=2, seed=0)
    tr.TreeRanker(n_trees=1, num_leaves=3, min_data_in_leaf=1, threads=1).fit(data).save(path)
    return parts_of(path)


def with_trees(parts, outputs, features, text):
    metadata = json.loads(parts["metadata.json"])
    metadata["features"] = {"count": features, "names": None, "first_id": None}
    metadata["state"]["parameters"]["outputs"] = "score" if outputs == 1 else "grades"
    gains = np.arange(0.0 if outputs == 1 else outputs)
    changed = {"metadata.json": json.dumps(metadata).encode(), "texts/trees.txt": text.encode()}
    return parts | changed | {"arrays/intercept.npy": npy(np.zeros(outputs)), "arrays/gains.npy": npy(gains)}


@pytest.fixture(scope="module")
def judge():
    with Judges() as judges:
        yield judges


def check_outcomes(outcomes, least):
    """Nothing but the two outcomes that are meant; both must be common, or the cases tell nothing."""
    wrong = {path: found for path, found in outcomes.items() if found not in ("refused", "finite")}
    assert not wrong, "\n".join(f"{path}: {found}" for path, found in wrong.items())
    for found in ("refused", "finite"):
        assert sum(outcome == found for outcome in outcomes.values()) >= least * len(outcomes), found


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_trees_by_grammar_are_refused_or_give_finite_scores(tmp_path, judge, tree_parts, count):
    paths = []
    for seed in range(count):
        paths.append(tmp_path / f"{seed}.toprank")
        seal(paths[-1], with_trees(tree_parts, *forged_text(random.Random(seed))))
    check_outcomes(judge(paths), least=0.08)


@pytest.fixture(scope="module")
def tree_text():
    data = tr.synthetic(n_queries=20, n_features=3, seed=0)
    ranker = tr.TreeRanker("lightgbm:lambdarank", n_trees=3, num_leaves=5, min_data_in_leaf=5, threads=1).fit(data)
    return only_trees(ranker.booster_.model_to_string())


@pytest.mark.parametrize(
    ("pattern", "forged"),
    [
        (r"\nlabel_index=0\n", "\nTree=0\nnum_leaves=1\nlabel_index=0\n"),
        (r"\nnum_class=1\n", "\nnum_class=1\n=num_class=7\n"),
        (r"\nnum_tree_per_iteration=1\n", "\nnum_tree_per_iteration=0_1\n"),
        (r"\ntree_sizes=", "\n=tree_sizes=1 2\ntree_sizes="),
        (r"\nmax_feature_idx=2\n", "\nmax_feature_idx=2\n=max_feature_idx=0\n=feature_names=a\n=feature_infos=none\n"),
        (r"\nversion=v4\n", "\nversion=v4\naverage_output\n"),
        (r"\nobjective=lambdarank\n", "\nobjective=multiclass num_class:3\n"),
        (r"Column_1", "Column_0"),
        (r"\nfeature_infos=\S+", "\nfeature_infos=[0:0:0]"),
        (r"decision_type=2", "decision_type=12"),
        (r"leaf_count=\d+", "leaf_count=2147483648"),
        (r"leaf_value=\S+", "leaf_value=1e400"),
        (r"leaf_value=\S+", "leaf_value=1e308"),
    ],
)
def test_lines_that_lightgbm_reads_otherwise_than_we_do_are_refused(tree_text, pattern, forged):
    text = re.sub(pattern, forged, tree_text, count=1)
    assert text != tree_text
    sizes = [len(block) for block in re.findall(r"(?s)Tree=\d+\n(?:(?!Tree=).)*?\n\n\n", text)]
    for sealed in (text, re.sub(r"\ntree_sizes=.*", "\ntree_sizes=" + " ".join(map(str, sizes)), text)):
        with pytest.raises(DataError):
            written_trees(read_trees(sealed))


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("LambdaRank", {}),
        ("Multinomial", {"outputs": "grades", "boosting": "dart"}),
        ("Squared", {"monotone": [1, 0, 0, -1, 0], "categorical": ()}),
        ("lightgbm:lambdarank", {"min_data_in_leaf": 10**6}),
        ("lightgbm:rank_xendcg", {}),
    ],
)
@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConstantScoresWarning")
def test_what_lightgbm_is_given_is_its_own_text(loss, options):
    """Every kind of feature: one that varies, categories, a constant, huge values, missing ones."""
    data, rng = tr.synthetic(n_queries=20, n_features=2, n_grades=3, seed=0), np.random.default_rng(0)
    n = data.n_documents
    huge = np.where(rng.random(n) < 0.1, 3e38, data.X[:, 1] * 1e30)
    tiny = np.where(rng.random(n) < 0.5, np.nan, rng.normal(size=n) * 1e-9)
    X = np.column_stack([data.X[:, 0], rng.integers(0, 70, n), np.ones(n), huge, tiny])
    options = {"n_trees": 4, "min_data_in_leaf": 3, "categorical": [1], "threads": 1} | options
    ranker = tr.TreeRanker(loss, **options).fit(tr.RankingData(X, data.labels, qid=data.qid))
    text = only_trees(ranker.booster_.model_to_string())
    assert written_trees(read_trees(text)) == text


# ---- every kind of model, mutated ----

PARTIAL = {"loss": {"name": "ListNet", "alpha": "x"}}
VALUES = [None, True, False, 0, 1, -1, 2, 10**30, 0.5, -0.5, 1e308, float("nan"), float("inf"), "", "x", "none", "auto"]
VALUES += [[], {}, [[]], [1, 2], [None], ["a"], {"a": 1}, {"loss": {}}, {"loss": 3}, PARTIAL, {"solver": {}}]
VALUES += [{"solver": {"name": "Penalty"}}, {"solver": {"name": "Newton", "plain": "x"}}, "x" * 10**5, [0.5] * 10**4]
KINDS = ["f8", "f4", "f2", ">f8", "i8", "u1", "?", "c16", "U3", "M8[s]", "f8,i4"]


def more_rankers():
    return {
        "ordinal": tr.ExpectedGainRanker("Ordinal"),
        "tree-grades": tr.TreeRanker("Multinomial", outputs="grades", n_trees=3, num_leaves=4, monotone=None),
        "net-grades": tr.NeuralRanker("Multinomial", outputs="grades", hidden=(4,), norm="batch", epochs=1),
        "net-quantile": tr.NeuralRanker(hidden=(), input_transform="quantile", epochs=1),
        "nested": tr.BlendRanker([tr.BlendRanker([tr.RankBoost(max_rounds=3)]), tr.LinearRanker()]),
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "m.toprank"
    data = tr.synthetic(n_queries=20, n_features=4, n_grades=3, seed=0)
    found = {}
    for name, ranker in (every_ranker() | more_rankers()).items():
        ranker.fit(data).save(path)
        found[name] = parts_of(path)
    for name, ranker in read_rankers().items():
        ranker.save(path)
        found[name] = parts_of(path)
    return found


def read_rankers():
    """Models of other libraries, saved as ours."""
    return {
        "read-forest": read_binary(bytes(xgboost_model(max_depth=2).get_booster().save_raw("ubj"))),
        "read-weights": ImportedLinearRanker.from_weights("RankLib", np.arange(4.0), 0.5),
        "read-onnx": OnnxRanker.from_bytes(network().SerializeToString()),
    }


def places(value, path=()):
    """Paths to everything inside a description; the parts that prediction reads come up most often."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


def mutate_description(rng, metadata):
    metadata = copy.deepcopy(metadata)
    known = [
        path for path in places(metadata) if path and path[0] not in ("format", "format_version", "toprank_version")
    ]
    *above, last = rng.choice(known)
    parent = metadata
    for key in above:
        parent = parent[key]
    action = rng.random()
    if action < 0.75:
        parent[last] = copy.deepcopy(rng.choice(VALUES))
    elif action < 0.9:
        del parent[last]
    elif isinstance(parent, dict):
        parent["more"] = rng.choice(VALUES)
    else:
        parent.append(rng.choice(VALUES))
    return metadata


@np.errstate(all="ignore")
def mutate_array(rng, content):
    array = np.load(io.BytesIO(content))
    size, shape = array.size, array.shape
    flat = array.ravel().copy()
    number = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 0, -1, 1e-320, 2**40])
    if size and array.dtype.kind == "f":
        flat[rng.randrange(size)] = number
    elif size:
        flat[rng.randrange(size)] = np.array(rng.choice([-1, 2**40, 99])).astype(flat.dtype)
    shapes = [shape[::-1], (*shape, 1), (1, *shape), (size,), (size, 1), (1, size), ()]
    choices = [
        lambda: npy(flat.reshape(shape)),
        lambda: npy(np.zeros(rng.choice([(), (0,), (1,), (3,), (7, 4), (0, 4), (4, 0)]))),
        lambda: npy(np.resize(array, rng.choice(shapes))),
        lambda: npy(np.full(shape, number)),
        lambda: npy(np.zeros(shape, rng.choice(KINDS))),
        lambda: npy(np.asfortranarray(array)),
        lambda: content[: rng.randrange(len(content))],
        lambda: content + b"0" * rng.choice([1, 8]),
        lambda: flipped(rng, content, 128),
        lambda: content.replace(b"(", b"(9", 1),
    ]
    return rng.choice(choices)()


def flipped(rng, content, below=None):
    content = bytearray(content)
    content[rng.randrange(min(len(content), below or len(content)))] ^= 1 << rng.randrange(8)
    return bytes(content)


def mutated(rng, path, original):
    parts = dict(original)
    for _ in range(rng.choice([1, 1, 2])):
        names = sorted(set(parts) - {"metadata.json"})
        action = rng.random()
        if action < 0.6:
            described = json.loads(parts["metadata.json"])
            parts["metadata.json"] = json.dumps(mutate_description(rng, described)).encode()
        elif action < 0.9 and any(name.endswith(".npy") for name in names):
            name = rng.choice([name for name in names if name.endswith(".npy")])
            parts[name] = mutate_array(rng, original.get(name, npy(np.ones(2))))
        elif action < 0.95 and names:
            parts.pop(rng.choice(names))
        else:
            parts["arrays/more.npy"] = npy(np.zeros(3))
    seal(path, parts)
    if rng.random() < 0.1:
        whole = path.read_bytes()
        path.write_bytes(rng.choice([flipped(rng, whole), whole[: rng.randrange(len(whole))], whole * 2, b""]))


@pytest.mark.parametrize("count", [250, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_mutated_models_are_refused_or_give_finite_scores(tmp_path, judge, models, count):
    paths, names = [], sorted(models)
    for seed in range(count):
        paths.append(tmp_path / f"{names[seed % len(names)]}-{seed}.toprank")
        mutated(random.Random(seed), paths[-1], models[names[seed % len(names)]])
    check_outcomes(judge(paths), least=0.1)


def test_blends_within_blends_have_an_end(tmp_path, models):
    metadata = json.loads(models["nested"]["metadata.json"])
    inner = metadata["state"]
    for _ in range(300):
        member = {"kind": "BlendRanker", "training": {"queries": 1}, "state": inner}
        inner = {"parameters": {"weights": None}, "members": [member]}
    seal(tmp_path / "m.toprank", models["nested"] | {"metadata.json": json.dumps(metadata | {"state": inner}).encode()})
    with pytest.raises(DataError, match="blends are nested"):
        tr.load(tmp_path / "m.toprank")
