"""Libraries that we use say nothing on standard output and error of their own accord."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError
from toprank.rankers.muffling import muffled

_BEGIN = """
import numpy as np
import toprank as tr

data, valid = tr.synthetic(n_queries=20, seed=0), tr.synthetic(n_queries=10, seed=1)
constant = data.replace(X=np.ones_like(data.X))


def tried(call):
    try:
        call()
    except tr.ToprankError:
        pass
"""
_TREES = """
import warnings

warnings.simplefilter("ignore")
tr.TreeRanker(n_trees=3).fit(data, valid=valid)
tr.TreeRanker(n_trees=3, boosting="dart").fit(constant)
tr.TreeRanker(n_trees=3, min_data_in_leaf=5000).fit(data)
tr.systems.make("LambdaMART-lightgbm", n_trees=3).fit(data)
for extra in ({"lambda_l1": -1}, {"max_depth": "x"}, {"max_bin_by_feature": [1]}, {"data_sample_strategy": "no"}):
    tried(lambda: tr.TreeRanker(n_trees=3, extra=extra).fit(data))
from toprank.rankers.tree_training import booster_of

tried(lambda: booster_of("no trees"))
"""
_CHOICES = """
tr.auto(data, valid, budget=1, verbose=False)
tr.tune("LambdaMART", data, valid, trials=1, n_trees=3, verbose=False)
"""
_CLUSTER = """
if __name__ == "__main__":
    with tr.cluster.connect(workers=2) as cluster:
        cluster.fit(tr.TreeRanker(n_trees=3), data)
        cluster.predict(tr.LinearRanker().fit(data), data)
        tried(lambda: cluster.fit(tr.TreeRanker(n_trees=3, extra={"lambda_l1": -1}), data))
        tried(lambda: cluster.fit(tr.TreeRanker(loss="lightgbm:lambdarank"), data.replace(labels=data.labels + 0.5)))
"""


@pytest.mark.parametrize(
    ("needed", "script"),
    [
        ("lightgbm", _TREES),
        pytest.param("optuna", _CHOICES, marks=pytest.mark.nightly),
        pytest.param("distributed", _CLUSTER, marks=pytest.mark.nightly),
    ],
    ids=["trees", "choices", "cluster"],
)
def test_nothing_is_said_that_was_not_asked_for(tmp_path, needed, script):
    pytest.importorskip(needed)
    (tmp_path / "script.py").write_text(_BEGIN + script)  # a file: processes of a cluster read it again
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "train.txt", "--valid", "valid.txt", "--system", "LambdaMART", "--model", "m.toprank"),
        ("tune", "train.txt", "--valid", "valid.txt", "--trials", "1", "--set", "n_trees=3", "--model", "m.toprank"),
        ("cv", "train.txt", "--systems", "LambdaMART", "--folds", "3", "--set", "LambdaMART.n_trees=3"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_say_what_is_theirs_alone(tmp_path, arguments):
    for seed, name in enumerate(("train.txt", "valid.txt")):
        tr.write(tr.synthetic(n_queries=15, seed=seed), tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-m", "toprank", *arguments, "--quiet"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "[LightGBM]" not in done.stdout


def test_a_refusal_of_lightgbm_is_a_sentence(capfd):
    data = tr.synthetic(n_queries=10, seed=0)
    with pytest.raises(DataError, match=r"cannot train like this: it must be that \(lambda_l1\) >= \(0.0\)\.$"):
        tr.TreeRanker(n_trees=2, extra={"lambda_l1": -1}).fit(data)
    with pytest.raises(DataError, match="by rows and by columns at once"):
        tr.TreeRanker(n_trees=2, extra={"force_row_wise": True, "force_col_wise": True}).fit(data)
    assert capfd.readouterr() == ("", "")
    kept = tr.TreeRanker(n_trees=2, extra={"lambda_l1": 0.0}).fit(data).predict(data)
    assert np.array_equal(kept, tr.TreeRanker(n_trees=2).fit(data).predict(data))


def test_lines_of_others_are_not_lost(capfd):
    with muffled():
        with muffled():
            os.write(1, b"mine\n")
        os.write(1, b"[LightGBM] [Info] Listening...\n")
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "mine\nafter\n"
