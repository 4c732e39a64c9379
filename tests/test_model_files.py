"""Model files: what is read equals what was saved; damage and forgery are refused in a sentence."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import toprank as tr
from forging import npy, parts_of, seal
from toprank import losses, rankers
from toprank.errors import DataError, FileError, FormatError
from toprank.rankers import model_files as files
from toprank.scorers.features import Standardization
from toprank.solvers import Newton

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=30, n_features=4, n_grades=3, seed=0)


def every_ranker():
    return {
        "linear": tr.LinearRanker(losses.CostSensitiveListMLE(pcf=2.0), l2=0.01, solver=Newton()),
        "named": tr.LinearRanker("Squared", standardize=False),
        "expected-gain": tr.ExpectedGainRanker("ListNet", gain=[0, 1, 5]),
        "trees": tr.TreeRanker(n_trees=5, num_leaves=7),
        "network": tr.NeuralRanker(hidden=(8,), epochs=2),
        "attention": tr.NeuralRanker("ListNet", network="attention", width=8, n_heads=2, epochs=2),
        "adarank": tr.AdaRank(max_rounds=5),
        "rankboost": tr.RankBoost(max_rounds=5),
        "coordinate-ascent": tr.CoordinateAscent(restarts=1, max_cycles=1, steps=2),
        "blend": tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(n_trees=5, num_leaves=7)], weights=[1.0, 2.0]),
    }


@pytest.mark.parametrize("name", every_ranker())
def test_what_is_read_equals_what_was_saved(data, tmp_path, name):
    ranker = every_ranker()[name].fit(data)
    ranker.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert type(back) is type(ranker)
    assert back.predict(data).tobytes() == ranker.predict(data).tobytes()
    assert str(back.get_params()) == str(ranker.get_params()) or name == "expected-gain"
    assert back.training_ == ranker.training_
    assert back.feature_names_in_.tolist() == list(data.feature_names)
    back.save(tmp_path / "again.toprank")
    assert (tmp_path / "again.toprank").read_bytes() == (tmp_path / "m.toprank").read_bytes()


def test_every_kind_is_covered():
    read_only = {
        "ForestRanker",
        "ImportedLinearRanker",
        "OnnxRanker",
    }  # nothing trains them; see test_foreign_models.py
    assert {type(ranker).__name__ for ranker in every_ranker().values()} == set(rankers.KINDS) - read_only


def test_standard_tools_read_the_description(data, tmp_path):
    tr.LinearRanker().fit(data).save(tmp_path / "m.toprank")
    with zipfile.ZipFile(tmp_path / "m.toprank") as archive:
        metadata = json.loads(archive.read("metadata.json"))
    assert metadata["kind"] == "LinearRanker"
    assert metadata["features"]["names"] == list(data.feature_names)
    assert metadata["training"]["fingerprint"] == data.fingerprint
    assert files.inspect(tmp_path / "m.toprank")["members"]


def altered(path, target, change):
    """A copy of a model with its members passed through `change`."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def resealed(members, name, content):
    import hashlib

    members[name] = content
    sums = {key: hashlib.sha256(value).hexdigest() for key, value in members.items() if key != "checksums.json"}
    members["checksums.json"] = json.dumps(sums).encode()


def test_damage_and_forgery_are_refused(data, tmp_path):
    path, bad = tmp_path / "m.toprank", tmp_path / "bad.toprank"
    tr.LinearRanker().fit(data).save(path)
    whole = path.read_bytes()
    for size in (10, len(whole) // 2, len(whole) - 3):
        bad.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="not a complete toprank model"):
            tr.load(bad)
    altered(path, bad, lambda m: m.update({"arrays/coef.npy": m["arrays/coef.npy"][:-8] + b"\0" * 8}))
    with pytest.raises(FormatError, match="altered"):
        tr.load(bad)
    altered(path, bad, lambda m: m.pop("arrays/coef.npy"))
    with pytest.raises(FormatError, match="missing or was altered"):
        tr.load(bad)
    altered(path, bad, lambda m: m.pop("checksums.json"))
    with pytest.raises(FormatError, match="no checksums"):
        tr.load(bad)
    metadata = json.loads(zipfile.ZipFile(path).read("metadata.json"))
    future = {**metadata, "format_version": 99, "toprank_version": "9.9"}
    altered(path, bad, lambda m: resealed(m, "metadata.json", json.dumps(future).encode()))
    with pytest.raises(FormatError, match=r"format version 99, written by toprank 9\.9"):
        tr.load(bad)
    for kind in ("os", "Ranker", "__import__"):
        forged = {**metadata, "kind": kind}
        altered(path, bad, lambda m, f=forged: resealed(m, "metadata.json", json.dumps(f).encode()))
        with pytest.raises(FormatError, match="does not know models"):
            tr.load(bad)
    incomplete = {**metadata, "state": {}}
    altered(path, bad, lambda m: resealed(m, "metadata.json", json.dumps(incomplete).encode()))
    with pytest.raises(FormatError, match="incomplete"):
        tr.load(bad)


def test_pickled_objects_are_never_loaded(data, tmp_path):
    import io

    path, bad = tmp_path / "m.toprank", tmp_path / "bad.toprank"
    tr.LinearRanker().fit(data).save(path)
    buffer = io.BytesIO()
    np.save(buffer, np.array([print], dtype=object), allow_pickle=True)
    altered(path, bad, lambda m: resealed(m, "arrays/coef.npy", buffer.getvalue()))
    with pytest.raises(FormatError, match="incomplete or inconsistent"):
        tr.load(bad)


def test_what_cannot_be_saved_is_said(data, tmp_path):
    from sklearn.linear_model import LogisticRegression

    ranker = tr.ExpectedGainRanker(classifier=LogisticRegression()).fit(data)
    with pytest.raises(DataError, match="cannot be saved"):
        ranker.save(tmp_path / "m.toprank")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileError, match="cannot be"):
        tr.LinearRanker().fit(data).save(tmp_path / "none" / "m.toprank")
    with pytest.raises(FileError, match=r"none\.toprank"):
        tr.load(tmp_path / "none.toprank")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.toprank")), ids=lambda path: path.name)
def test_files_of_earlier_versions_are_still_read(path):
    """Golden files: each holds the scores it gave when it was written (tests/golden/make.py)."""
    ranker = tr.load(path)
    rows = tr.RankingData(np.load(GOLDEN / "rows.npy"), feature_names=ranker.feature_names_in_)
    near = 1e-4 if path.name.startswith("onnx") else 1e-12  # onnxruntime adds floats as each machine does it fastest
    np.testing.assert_allclose(ranker.predict(rows), np.load(path.with_suffix(".npy")), rtol=near)


def test_target_encodings_of_earlier_versions_are_still_read():
    """One-hot columns that are centered, and a target encoding of a pair of categories."""
    folder = GOLDEN / "categories"
    for path in sorted(folder.glob("*.toprank")):
        ranker = tr.load(path)
        np.testing.assert_allclose(ranker.predict(pd.read_csv(folder / "rows.csv")), np.load(path.with_suffix(".npy")))
        assert list(ranker.training_["target_encoding"]["used"]) == ["seller × kind"]
        assert ranker.training_["target_encoding"]["evaluated_on"] == "nothing: they were asked for"


def test_former_names_are_read_in_files_of_earlier_versions_only(tmp_path):
    path, bad = GOLDEN / "former-names-v3.toprank", tmp_path / "bad.toprank"
    members = tr.load(path).rankers_[0].rankers_
    inner = members[0].solver
    assert (type(inner).__name__, inner.solver.learning_rate) == ("AveragedStochastic", 0.1)
    assert (members[0].standardize, members[0].init, members[1].active_set) == (False, 0.5, True)
    assert (members[1].solver.full_steps, members[2].solver.max_idle, members[3].init) == (True, 5, "zeros")
    assert (members[4].max_consecutive, members[4].early_stopping, members[6].eval_train) == (3, 2, True)
    assert members[5].lightgbm_params == {"max_depth": 2}
    assert type(members[7]).__name__ == "ImportedLinearRanker"
    metadata = json.loads(zipfile.ZipFile(path).read("metadata.json"))
    both = copy.deepcopy(metadata)
    both["state"]["members"][1]["state"]["parameters"]["standardize"] = True
    later = metadata | {"format_version": 4}
    for forged, problem in (
        (both, "no parameter '(standardize|scale)' beside"),
        (later, "does not know models|no parameter"),
    ):
        altered(path, bad, lambda m, forged=forged: resealed(m, "metadata.json", json.dumps(forged).encode()))
        with pytest.raises(FormatError, match=problem):
            tr.load(bad)


def test_there_are_golden_files_of_every_kind():
    kinds = {files.inspect(path)["kind"] for path in GOLDEN.glob("*.toprank")}
    assert kinds == set(rankers.KINDS)


def test_every_damaged_byte_is_found(data, tmp_path):
    path, bad = tmp_path / "m.toprank", tmp_path / "bad.toprank"
    tr.LinearRanker().fit(data).save(path)
    whole, good = path.read_bytes(), tr.load(path)
    rng = np.random.default_rng(0)
    for place in rng.choice(len(whole), 300, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        bad.write_bytes(damaged)
        try:
            same = tr.load(bad)
        except FormatError:
            continue
        assert same.predict(data).tobytes() == good.predict(data).tobytes()  # a bit that means nothing (a date, say)


@pytest.mark.parametrize(
    "forged",
    [
        {"kind": []},
        {"state": {"parameters": [1], "fitted": {}}},
        {"state": None},
        {"training": 3},
        {"features": {"count": 99, "names": None, "first_id": None}},
    ],
)
def test_forged_descriptions_are_refused(data, tmp_path, forged):
    path, bad = tmp_path / "m.toprank", tmp_path / "bad.toprank"
    tr.LinearRanker().fit(data).save(path)
    metadata = {**json.loads(zipfile.ZipFile(path).read("metadata.json")), **forged}
    altered(path, bad, lambda m: resealed(m, "metadata.json", json.dumps(metadata).encode()))
    with pytest.raises(FormatError):
        tr.load(bad)


def test_foreign_members_and_bombs_are_refused(data, tmp_path):
    path, bad = tmp_path / "m.toprank", tmp_path / "bad.toprank"
    tr.LinearRanker().fit(data).save(path)
    altered(path, bad, lambda m: resealed(m, "arrays/../../x.npy", b"x"))
    with pytest.raises(FormatError, match="does not belong"):
        tr.load(bad)
    altered(path, bad, lambda m: resealed(m, "arrays/more.npy", npy(np.zeros(1))))
    with pytest.raises(FormatError, match="the part more is unused"):
        tr.load(bad)


def test_an_archive_made_to_burst_is_refused(tmp_path):
    bad = tmp_path / "bad.toprank"
    for name, size in (("texts/bomb.txt", files._SAFE_BYTES), ("metadata.json", files._JSON_LIMITS[0])):
        with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as part:
            for _ in range(size // (1 << 20) + 1):
                part.write(bytes(1 << 20))
        with pytest.raises(FormatError, match="claimed size of the parts is impossible"):
            tr.load(bad)
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("metadata.json", b"{}")
    with pytest.raises(FormatError, match="uses a compression method"):
        tr.load(bad)


def test_parts_that_nothing_asks_for_take_no_memory(data, tmp_path):
    path, bad, size = tmp_path / "m.toprank", tmp_path / "bad.toprank", 1 << 23
    tr.LinearRanker().fit(data).save(path)
    seal(bad, parts_of(path) | {"arrays/more.npy": npy(np.zeros(size // 8))})
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="is unused"):
            tr.load(bad)
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()


def sparse_weights(n_features):
    """A ranker of very many features of which few count, as a sparse training set leaves it."""
    ranker = tr.LinearRanker()
    ranker.coef_, ranker.intercept_, ranker.l2_ = np.zeros(n_features), 0.0, 0.1
    ranker.coef_[:: n_features // 100] = np.random.default_rng(0).normal(size=len(ranker.coef_[:: n_features // 100]))
    ranker.standardization_ = Standardization(np.zeros(n_features), np.ones(n_features))
    ranker.n_features_in_, ranker.training_ = n_features, {"queries": 2}
    return ranker


def test_a_million_features_of_which_few_count(tmp_path):
    """Zeros pack two hundred times and more: that alone makes no archive that bursts."""
    ranker, path = sparse_weights(1_000_000), tmp_path / "m.toprank"
    ranker.save(path)
    assert sum(files.inspect(path)["members"].values()) > files._MAX_RATIO * path.stat().st_size
    np.testing.assert_array_equal(tr.load(path).coef_, ranker.coef_)


def test_what_packs_too_well_is_written_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_SAFE_BYTES", 1 << 20)
    ranker, path = sparse_weights(300_000), tmp_path / "m.toprank"
    ranker.save(path)
    assert path.stat().st_size > 3 * ranker.coef_.nbytes
    np.testing.assert_array_equal(tr.load(path).coef_, ranker.coef_)
    monkeypatch.setattr(files, "_MAX_BYTES", 1 << 22)
    with pytest.raises(DataError, match=r"cannot be saved.*claimed size of the parts is impossible"):
        ranker.save(tmp_path / "none.toprank")
    assert not (tmp_path / "none.toprank").exists()


@pytest.mark.parametrize("name", ["m.toprank.gz", "m.zst"])
def test_any_name_of_a_model_can_be_read_again(data, tmp_path, name):
    ranker = tr.LinearRanker().fit(data)
    ranker.save(tmp_path / name)
    np.testing.assert_array_equal(tr.load(tmp_path / name).coef_, ranker.coef_)


def test_what_could_not_be_read_is_not_written(data, tmp_path):
    ranker = tr.LinearRanker().fit(data)
    ranker.l2_ = "no"
    with pytest.raises(DataError, match=r"This LinearRanker cannot be saved.*l2 has the invalid value 'no'"):
        ranker.save(tmp_path / "m.toprank")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [tr.LinearRanker, tr.ExpectedGainRanker, tr.TreeRanker, tr.RankBoost, tr.AdaRank])
def test_a_metric_that_is_a_value_is_saved_by_its_name(data, tmp_path, kind):
    few = {"n_trees": 2} if kind is tr.TreeRanker else {}
    measure, first = tr.metrics.NDCG(5, gain="linear"), tr.metrics.Custom("first", lambda labels: labels[0] / 4)
    rules = tr.metrics.Convention.from_name("letor-clipped")
    for metric, convention in ((measure, "standard"), (first, rules)):
        ranker = kind(metric=metric, convention=convention, **few).fit(data, valid=data.select(range(5)))
        ranker.save(tmp_path / "m.toprank")
        back = tr.load(tmp_path / "m.toprank")
        assert (back.metric, back.convention) == (str(metric), "standard" if metric is measure else "letor-clipped")
        assert back.predict(data).tobytes() == ranker.predict(data).tobytes()
    assert tr.metrics.parse(str(measure)) == measure
    own = replace(rules, name="mine", no_relevant="one")
    with pytest.raises(DataError, match=r"convention is a Convention.*Use the name of a convention"):
        kind(metric=measure, convention=own, **few).fit(data).save(tmp_path / "m.toprank")


def test_threads_and_verbosity_belong_to_a_run_not_to_a_model(data, tmp_path):
    path, old = tmp_path / "m.toprank", tmp_path / "old.toprank"
    members = [tr.LinearRanker(threads=1, verbose=True), tr.TreeRanker(n_trees=2, num_leaves=3, threads=2)]
    ranker = tr.BlendRanker(members).fit(data)
    ranker.save(path)
    parts = parts_of(path)
    assert b"threads" not in parts["metadata.json"]
    assert b"verbose" not in parts["metadata.json"]
    metadata = json.loads(parts["metadata.json"])
    for member in metadata["state"]["members"]:
        member["state"]["parameters"] |= {"threads": 1_000_000, "verbose": True}
    seal(old, parts | {"metadata.json": json.dumps(metadata).encode()})
    back = tr.load(old)
    assert [member.threads for member in back.rankers_] == [None, None]
    np.testing.assert_array_equal(back.predict(data), ranker.predict(data))


def test_parameters_are_read_back_as_they_were_given(data, tmp_path):
    named = data.replace(X=np.floor(np.abs(data.X)), feature_names=["a", "b", "site", "d"])
    options = {"n_trees": np.int64(2), "learning_rate": np.float32(0.5), "lightgbm_params": {"max_depth": np.int64(3)}}
    trees = tr.TreeRanker(categorical=(0, "site"), num_leaves=3, min_data_in_leaf=5, **options).fit(named)
    trees.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert back.categorical == (0, "site")
    assert (back.n_trees, back.learning_rate, back.lightgbm_params) == (2, 0.5, {"max_depth": 3})
    solver = Newton(full_steps=np.bool_(False), cholesky_limit=np.int64(7))
    tr.LinearRanker(l2=np.float64(0.5), solver=solver).fit(data).save(tmp_path / "m.toprank")
    assert tr.load(tmp_path / "m.toprank").solver == Newton(full_steps=False, cholesky_limit=7)


FIRST_ACT = """
import sys, threading
import toprank as tr

sys.setswitchinterval(1e-6)
paths, said = sys.argv[1:], []
start = threading.Barrier(len(paths))

def load(path):
    start.wait()
    try:
        tr.load(path)
    except BaseException as problem:
        said.append(f"{path}: {type(problem).__name__}: {problem}")

threads = [threading.Thread(target=load, args=[path]) for path in paths]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*said, sep="\\n", end="")
"""


@pytest.mark.parametrize("attempt", range(3))
def test_threads_may_load_models_as_their_first_act(attempt):
    """Without PyTorch, to be quick; each attempt has the files in another order."""
    names = ["adarank", "blend", "coordinate-ascent", "expected-gain", "linear", "rankboost", "trees", "blend"]
    paths = [str(GOLDEN / f"{name}-v1.toprank") for name in np.roll(names, attempt)]
    done = subprocess.run(
        [sys.executable, "-c", FIRST_ACT, *paths], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_an_import_that_fails_is_not_the_files_fault(monkeypatch):
    def restore(_):
        raise ImportError("cannot import name 'x' from partially initialized module 'y'")

    monkeypatch.setattr(tr.LinearRanker, "restore", restore)
    with pytest.raises(ImportError, match="partially initialized"):
        tr.load(GOLDEN / "linear-v1.toprank")


def test_names_that_no_file_can_hold_are_told_when_saving(tmp_path):
    ranker = tr.LinearRanker().fit(tr.synthetic(n_queries=5, n_features=2, seed=0))
    ranker.training_["note"] = "half of one: \udc80"
    with pytest.raises(DataError, match=r"cannot be saved: .*\\udc80.* contains a lone surrogate"):
        ranker.save(tmp_path / "m.toprank")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="there are no such files")
@pytest.mark.parametrize("read", [tr.load, files.inspect])
def test_what_is_no_plain_file_is_refused_without_a_look_inside(tmp_path, monkeypatch, read):
    """To open a pipe waits for its writer, and a device has no end."""
    os.mkfifo(tmp_path / "pipe.toprank")
    monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("it was opened"))
    for path in (tmp_path / "pipe.toprank", "/dev/zero"):
        with pytest.raises(FileError, match=f"^{re.escape(str(path))} is a pipe or a device"):
            read(path)
    with pytest.raises(FileError, match="is a folder, not a file"):
        read(tmp_path)
    with pytest.raises(FileError, match="There is no file"):
        read(tmp_path / "none.toprank")
