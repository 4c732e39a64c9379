"""Libraries that we use say nothing on standard output and error of their own accord."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import toprank as tr
from toprank.errors import DataError, ToprankError

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
for more in ({"lambda_l1": -1}, {"max_depth": "x"}, {"max_bin_by_feature": [1]}, {"data_sample_strategy": "no"}):
    tried(lambda: tr.TreeRanker(n_trees=3, lightgbm_params=more).fit(data))
from toprank.rankers.trees.training import booster_of

tried(lambda: booster_of("no trees"))
"""
_CHOICES = """
tr.auto(data, valid, time_budget=1, verbose=False)
tr.tune("LambdaMART", data, valid, n_trials=1, n_trees=3, verbose=False)
"""
_CLUSTER = """
if __name__ == "__main__":
    with tr.cluster.connect(workers=2) as cluster:
        cluster.fit(tr.TreeRanker(n_trees=3), data)
        cluster.predict(tr.LinearRanker().fit(data), data)
        tried(lambda: cluster.fit(tr.TreeRanker(n_trees=3, lightgbm_params={"lambda_l1": -1}), data))
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
    said = done.stdout
    if needed == "distributed":  # what LightGBM's listening thread says comes from C, and no setting of ours reaches it
        said = said.replace("[LightGBM] [Info] Listening...\n", "")
    assert (done.returncode, said, done.stderr) == (0, "", "")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "train.txt", "--valid", "valid.txt", "--system", "LambdaMART", "-o", "m.toprank"),
        ("tune", "train.txt", "--valid", "valid.txt", "--n-trials", "1", "--set", "n_trees=3", "-o", "m.toprank"),
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


REFUSED = {
    "lambda_l1": (-1, "must be a number of at least 0"),
    "feature_fraction_bynode": (0, "must be a number above 0"),
    "top_rate": (1.5, "at most 1"),
    "max_depth": ("deep", "must be a whole number"),
    "min_data_in_bin": (0, "must be a whole number of at least 1"),
    "extra_trees": ("yes", "must be True or False"),
    "data_sample_strategy": ("no", "There is no"),
    "monotone_constraints_method": ("none", "There is no"),
    "max_bin_by_feature": ([1] * 10, "whole number of at least 2"),
    "feature_contri": ([1.0], "has 1 numbers for 10 features"),
    "interaction_constraints": ([[0, 10]], "contains 10; the last feature is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_lightgbm_would_refuse_is_refused_before_it_is_asked(name, capfd):
    """Its own refusals are written to the standard error of the process, past Python and whatever its verbosity."""
    data = tr.synthetic(n_queries=10, seed=0)
    value, words = REFUSED[name]
    with pytest.raises(ToprankError, match=words):
        tr.TreeRanker(n_trees=2, lightgbm_params={name: value}).fit(data)
    assert capfd.readouterr() == ("", "")


def test_further_parameters_that_go_together(capfd):
    data = tr.synthetic(n_queries=10, seed=0)
    with pytest.raises(DataError, match="sets both force_row_wise and force_col_wise"):
        tr.TreeRanker(n_trees=2, lightgbm_params={"force_row_wise": True, "force_col_wise": True}).fit(data)
    goss = {"data_sample_strategy": "goss"}
    with pytest.raises(DataError, match="must sum to at most 1"):
        tr.TreeRanker(n_trees=2, lightgbm_params=goss | {"top_rate": 0.95}).fit(data)
    with pytest.raises(DataError, match="leave row_fraction"):
        tr.TreeRanker(n_trees=2, row_fraction=0.5, lightgbm_params=goss).fit(data)
    kept = tr.TreeRanker(
        n_trees=2, lightgbm_params={"lambda_l1": 0.0, "interaction_constraints": [list(range(10))]}
    ).fit(data)
    assert np.array_equal(kept.predict(data), tr.TreeRanker(n_trees=2).fit(data).predict(data))
    assert capfd.readouterr() == ("", "")


def test_the_output_of_the_process_is_left_alone():
    """A child that is started meanwhile would lose its lines; only processes of our own send theirs elsewhere."""
    redirect = {path.name for path in Path(tr.__file__).parent.rglob("*.py") if "dup2(" in path.read_text()}
    assert redirect == {"training.py"}  # a worker of an experiment
