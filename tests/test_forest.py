"""Scores of `Forest` are those of LightGBM's `predict`, bit by bit, whatever the trees and the rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import lightgbm
import numpy as np
import pytest
from scipy import sparse

import toprank as tr
from toprank import kernels
from toprank.errors import DataError
from toprank.rankers.trees.text import read_trees
from toprank.rankers.trees.training import only_trees

KINDS = [np.float32, np.float64]
TINY = 1e-35  # to LightGBM this is 0


def text_of(booster):
    """Our kind of text: the trees alone; objectives change no raw score."""
    return re.sub(r"\nobjective=.*", "", only_trees(booster.model_to_string()))


def grown(X, y, rounds=8, **options):
    plain = {"objective": "regression", "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 1, "learning_rate": 0.5}
    data = lightgbm.Dataset(X, y, categorical_feature=options.pop("categorical", "auto"))
    return lightgbm.train(plain | {"min_data_per_group": 1, "cat_smooth": 1.0} | options, data, rounds)


def check(booster, *rows):
    """The same bits for dense rows in both precisions and both orders, for sparse ones, and in blocks of any size."""
    text = text_of(booster)
    forest = read_trees(text)
    theirs = lightgbm.Booster(model_str=text)
    for X in rows:
        for kind in KINDS:
            with np.errstate(over="ignore"):
                same = np.ascontiguousarray(X, dtype=kind)
            expected = theirs.predict(same, raw_score=True, num_threads=1)
            assert_bits(forest.predict(same, threads=2), expected)
            assert_bits(forest.predict(np.asfortranarray(same)), expected)
            for n in (1, 2, 17, 33, 65, 100):
                assert_bits(forest.predict(same[:n]), expected[:n])
            bare = sparse.csr_matrix(same)
            assert_bits(forest.predict(bare), theirs.predict(bare, raw_score=True, num_threads=1))
    return forest


def assert_bits(ours, theirs):
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype == np.float64
    np.testing.assert_array_equal(ours.view(np.uint64), theirs.view(np.uint64))


def thresholds(booster):
    """Every threshold of the trees with its feature."""
    found = booster.trees_to_dataframe()
    found = found[found.decision_type == "<="]
    columns = [int(name.removeprefix("Column_")) for name in found.split_feature]
    return columns, found.threshold.astype(float).to_numpy()


def boundary_rows(booster, X, rng):
    """For each threshold six rows: it in both precisions, and the neighbors of both."""
    rows = []
    for column, t in zip(*thresholds(booster), strict=True):
        near = np.float32(np.clip(t, -3e38, 3e38))
        values = [t, np.nextafter(t, -np.inf), np.nextafter(t, np.inf), near]
        values += [np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
        some = X[rng.integers(0, len(X), len(values))].copy()
        some[:, column] = values
        rows.append(some)
    return np.concatenate(rows) if rows else X[:1]


def strange_rows(X, rng, n=400):
    """Rows in which every third value is one that rules about missing values, zeros and categories speak of."""
    odd = [np.nan, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e30, -1e30, np.inf, -np.inf, 2.0**31, 2.0**31 - 1, -(2.0**31)]
    float32_tiny = float(np.float32(TINY))
    for tiny in (TINY, float32_tiny, np.nextafter(float32_tiny, 1), np.nextafter(float32_tiny, 0), 1e-36, 1e-300):
        odd += [tiny, -tiny]
    rows = X[rng.integers(0, len(X), n)].astype(np.float64)
    return np.where(rng.random(rows.shape) < 1 / 3, rng.choice(odd, rows.shape), rows)


def mixed(rng, n=600, categories=70):
    """A feature that varies, one with NaN, one with many zeros, categories, few values, a constant."""
    X = rng.normal(size=(n, 6))
    X[:, 1] = np.where(rng.random(n) < 0.3, np.nan, X[:, 1])
    X[:, 2] = np.where(rng.random(n) < 0.5, 0.0, X[:, 2])
    X[:, 3] = rng.integers(0, categories, n)
    X[:, 4] = rng.integers(-2, 3, n)
    X[:, 5] = 1.0
    effects = rng.normal(size=categories)
    y = X[:, 0] + np.nan_to_num(X[:, 1], nan=2.0) * X[:, 2] + effects[X[:, 3].astype(int)] + (X[:, 4] == 0)
    return X, y + rng.normal(size=n) * 0.1


@pytest.mark.parametrize("categorical", [[], [3], [3, 4]])
@pytest.mark.parametrize("missing", [{}, {"zero_as_missing": True}, {"use_missing": False}])
@pytest.mark.parametrize("seed", range(3))
def test_every_missing_type_and_categories(missing, categorical, seed):
    rng = np.random.default_rng(seed)
    X, y = mixed(rng)
    if 4 in categorical:
        X[:, 4] += 2
    booster = grown(X, y, num_leaves=int(rng.choice([4, 17, 40])), categorical=categorical, **missing)
    forest = check(booster, X, strange_rows(X, rng), boundary_rows(booster, X, rng))
    kinds = set(forest.packed.columns[:, 1].tolist())
    expected = {"{}": {0, 3, 4}, "{'zero_as_missing': True}": {1, 2}, "{'use_missing': False}": {0}}[str(missing)]
    assert kinds - {5} <= expected
    assert (5 in kinds) == bool(categorical)


@pytest.mark.parametrize("leaves", [2, 8, 9, 64, 65, 300, 2500])
def test_trees_of_any_size(leaves):
    """Stumps, one plane and two, several, and more than the kernel takes in planes."""
    rng = np.random.default_rng(leaves)
    X = rng.normal(size=(4 * leaves + 50, 5))
    y = np.sin(9 * X[:, 0]) * X[:, 1] + rng.normal(size=len(X))
    booster = grown(X, y, rounds=3, num_leaves=leaves, max_bin=2000, min_sum_hessian_in_leaf=0.0)
    assert max(booster.trees_to_dataframe().groupby("tree_index").size()) == 2 * leaves - 1
    check(booster, X[:700], strange_rows(X, rng), boundary_rows(booster, X, rng)[:2000])


@pytest.mark.parametrize("rising", [True, False])
def test_a_chain_is_as_deep_as_it_has_leaves(rising):
    """Values that double: the best split always takes one document off, on the left or on the right."""
    x = np.arange(60.0)
    y = 3.0 ** (x if rising else x[::-1])
    booster = grown(x[:, None], np.log1p(y) ** 9, rounds=2, num_leaves=60, max_bin=255, min_data_in_bin=1)
    rows = np.concatenate([x, x + 0.5, [np.nan, np.inf, -np.inf]])[:, None]
    check(booster, rows)


def test_more_thresholds_than_a_byte_counts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    booster = grown(X, np.sin(40 * X[:, 0]), rounds=30, num_leaves=60, max_bin=6000, min_data_in_bin=1)
    assert len(set(thresholds(booster)[1].tolist())) > 600
    forest = check(booster, X[:300], boundary_rows(booster, X, rng)[:4000])
    assert len(forest.packed.columns) > 4


def test_several_outputs_and_rounds_without_a_split():
    rng = np.random.default_rng(0)
    X, y = mixed(rng)
    classes = np.clip(np.round(y), -3, 3) + 3
    booster = grown(X, classes, objective="multiclass", num_class=8, categorical=[3], num_leaves=9)  # class 7 is empty
    assert read_trees(text_of(booster)).outputs == 8
    check(booster, X, strange_rows(X, rng))
    check(grown(X, y, min_data_in_leaf=10**6, rounds=1), X)


def test_dart_on_float32_data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 4)).astype(np.float32)
    booster = grown(X, X[:, 0] ** 2 + X[:, 1], boosting="dart", num_leaves=20, drop_rate=0.5)
    check(booster, X, boundary_rows(booster, X.astype(np.float64), rng))


def forged(threshold="0", decision=2, feature=0):
    """A stump whose threshold and missing type are chosen."""
    tree = f"Tree=0\nnum_leaves=2\nnum_cat=0\nsplit_feature={feature}\nsplit_gain=1\nthreshold={threshold}\n"
    tree += (
        f"decision_type={decision}\nleft_child=-1\nright_child=-2\nleaf_value=1 2\nleaf_weight=1 1\nleaf_count=1 1\n"
    )
    tree += "internal_value=0\ninternal_weight=1\ninternal_count=2\nis_linear=0\nshrinkage=1\n\n\n"
    head = "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=1\n"
    head += f"feature_names=Column_0 Column_1\nfeature_infos=none none\ntree_sizes={len(tree)}\n\n"
    return head + tree + "end of trees\n"


@pytest.mark.parametrize("decision", [0, 2, 4, 6, 8, 10])
@pytest.mark.parametrize(
    "threshold", ["0", "-0", "1e-35", "-1e-35", "1.0000000180025095e-35", "1e300", "inf", "-inf", "1e-40"]
)
def test_each_rule_by_itself(decision, threshold):
    """A stump for each missing type, default side and threshold near which rules change."""
    text, rng = forged(threshold, decision), np.random.default_rng(0)
    rows = np.zeros((300, 2))
    check(lightgbm.Booster(model_str=text), strange_rows(rows, rng, 300))


def test_all_variants_give_the_same_bits(tmp_path):
    rng = np.random.default_rng(2)
    X, y = mixed(rng)
    booster = grown(X, y, num_leaves=40, categorical=[3])
    text, rows = tmp_path / "trees.txt", strange_rows(X, rng)
    text.write_text(text_of(booster))
    np.save(tmp_path / "rows.npy", rows)
    code = (
        "import sys, numpy as np; from pathlib import Path; from toprank.rankers.trees.text import read_trees;"
        "folder = Path(sys.argv[1]); forest = read_trees((folder / 'trees.txt').read_text());"
        "print(forest.predict(np.load(folder / 'rows.npy')).tobytes().hex())"
    )
    library = kernels.library()
    for variant in library.variants[: library.variants.index(library.machine) + 1]:
        found = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env=os.environ | {"TOPRANK_KERNELS": variant},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == booster.predict(rows, num_threads=1).tobytes().hex(), variant


# ---- doors ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linear_tree": True}, "tree number 0 .* linear"),
        ({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "random forest"),
    ],
)
def test_trees_of_other_kinds_are_refused_by_their_name(options, message):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    with pytest.raises(DataError, match=message):
        read_trees(text_of(grown(X, X[:, 0], **options)))


def test_rows_of_another_width_are_refused():
    forest = read_trees(forged())
    for X in (np.zeros((3, 1)), np.zeros((3, 3)), np.zeros(2), sparse.csr_matrix((2, 5))):
        with pytest.raises(DataError, match="rows of 2 features"):
            forest.predict(X)


def test_arrays_of_any_kind_and_layout():
    forest, X = read_trees(forged("1.5")), np.arange(12).reshape(6, 2)
    expected = np.where(X[:, 0] <= 1.5, 1.0, 2.0)
    swapped = X.astype(np.float64).astype(">f8")
    unaligned = np.frombuffer(b"x" + X.astype(np.float32).tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 2)
    for rows in (X, swapped, unaligned, X.astype(np.float16), np.repeat(X.astype(float), 2, axis=0)[::2], X[:0]):
        assert_bits(forest.predict(rows), expected[: len(rows)])


def test_sparse_rows_with_wild_indices_are_read_within_bounds():
    """SciPy does not look at the numbers; a feature that there is not counts for nothing, as in LightGBM."""
    wild = sparse.csr_matrix((np.array([5.0, 7.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    wild.indices[:] = [9, -3]
    assert read_trees(forged("1")).predict(wild).tolist() == [1.0]


def test_importances_are_lightgbms():
    rng = np.random.default_rng(0)
    X, y = mixed(rng)
    booster = lightgbm.Booster(model_str=text_of(grown(X, y, categorical=[3])))
    assert_bits(read_trees(text_of(booster)).feature_gains, booster.feature_importance("gain"))


def test_a_model_that_was_read_scores_without_lightgbm(tmp_path):
    data = tr.synthetic(n_queries=20, n_features=3, seed=0)
    ranker = tr.TreeRanker(n_trees=5, num_leaves=5, threads=1).fit(data)
    ranker.save(tmp_path / "m.toprank")
    np.save(tmp_path / "X.npy", data.X)
    code = (
        "import sys, numpy as np, toprank as tr; ranker = tr.load(sys.argv[1] + '/m.toprank');"
        "scores = ranker.predict(np.load(sys.argv[1] + '/X.npy')); ranker.feature_importances_;"
        "assert 'lightgbm' not in sys.modules; print(scores.tobytes().hex());"
        "assert ranker.booster_.num_trees() == 5"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (ranker.booster_.predict(data.X) + ranker.intercept_[0]).tobytes().hex()


def test_a_model_that_was_read_is_saved_the_same(tmp_path):
    data = tr.synthetic(n_queries=20, n_features=3, seed=0)
    first, second = tmp_path / "a.toprank", tmp_path / "b.toprank"
    tr.TreeRanker(n_trees=5, num_leaves=5, threads=1).fit(data).save(first)
    tr.load(first).save(second)
    again = tr.load(second)
    assert again.state().texts == tr.load(first).state().texts
    assert_bits(again.predict(data), tr.load(first).predict(data))
