"""Folds and splits: whole queries, each where it belongs, the same everywhere."""

from __future__ import annotations

import gzip
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragged import ranking_data
from support import shared_data
from toprank.data import files
from toprank.data.dataset import RankingData
from toprank.data.files import write
from toprank.data.folds import Fold, folds, split
from toprank.errors import DataError, FileError


def example(n_queries=20, seed=0) -> RankingData:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, n_queries)
    qid = np.repeat(np.arange(n_queries) + 50, sizes)
    return RankingData(
        np.round(rng.normal(size=(len(qid), 3)), 3).astype(np.float32), rng.integers(0, 3, len(qid)), qid=qid
    )


def ids(data: RankingData) -> list:
    return data.qids.tolist()


# K-fold and hold-out


@given(ranking_data(), st.integers(3, 6), st.integers(0, 99))
def test_k_folds_partition_the_queries(data, k, seed):
    if data.n_queries < k:
        with pytest.raises(DataError, match=f"cannot be split into {k} parts"):
            folds(data, k, seed=seed)
        return
    found = list(folds(data, k, seed=seed))
    order = {qid: place for place, qid in enumerate(ids(data))}
    assert sorted((qid for fold in found for qid in ids(fold.test)), key=order.get) == ids(data)
    sizes = [fold.test.n_queries for fold in found]
    assert max(sizes) - min(sizes) <= 1
    for number, fold in enumerate(found):
        assert fold.name == f"Fold{number + 1}"
        assert ids(fold.valid) == ids(found[(number + 1) % k].test)
        assert sorted(ids(fold.train) + ids(fold.valid) + ids(fold.test), key=order.get) == ids(data)
        for part in (fold.train, fold.valid, fold.test):
            assert part.equals(data.select([order[qid] for qid in sorted(ids(part), key=order.get)]))


@given(ranking_data(), st.integers(0, 99), st.randoms(use_true_random=False))
def test_a_split_does_not_depend_on_the_order_of_the_queries(data, seed, random):
    if data.n_queries < 4:
        return
    shuffled = data.select(random.sample(range(data.n_queries), data.n_queries))
    first, second = split(data, (0.5, 0.5), seed=seed), split(shuffled, (0.5, 0.5), seed=seed)
    for a, b in zip(first, second, strict=True):
        assert set(ids(a)) == set(ids(b))


def test_the_same_seed_gives_the_same_split_on_every_machine():
    # The order of BLAKE2b("0/50") … BLAKE2b("0/59"), 8 bytes each, computed with b2sum -l 64.
    data = example(10)
    by_hash = [50, 59, 54, 52, 51, 55, 56, 57, 53, 58]
    assert [ids(part) for part in split(data, (0.5, 0.5))] == [sorted(by_hash[:5]), sorted(by_hash[5:])]


def test_fractions_are_kept_to_the_query():
    data = example(50)
    parts = split(data, (0.5, 0.3, 0.1, 0.1), seed=3)
    assert [part.n_queries for part in parts] == [25, 15, 5, 5]
    assert sorted(qid for part in parts for qid in ids(part)) == ids(data)
    assert all(ids(part) == sorted(ids(part)) for part in parts)


def test_seeds_differ():
    assert len({tuple(ids(split(example(), seed=seed)[0])) for seed in range(20)}) == 20


def _tested_in(data, stable, k=5):
    return {qid: fold.name for fold in folds(data, k, seed=3, stable=stable) for qid in fold.test.qids.tolist()}


def _part_of(data, stable):
    parts = split(data, (0.5, 0.3, 0.2), seed=3, stable=stable)
    return {qid: number for number, part in enumerate(parts) for qid in part.qids.tolist()}


@pytest.mark.parametrize("divided", [_tested_in, _part_of])
@pytest.mark.parametrize("words", [False, True])
def test_stable_parts_keep_their_queries_when_others_go(divided, words):
    n = 1000
    data = RankingData(np.zeros((n, 1)), np.zeros(n), qid=[f"query {i}" for i in range(n)] if words else range(n))
    whole = divided(data, stable=True)
    assert len(whole) == n
    for left in (np.arange(n) != 417, np.arange(n) >= 300, np.arange(n)[::-1]):
        part = data.select(left)
        assert divided(part, stable=True) == {qid: whole[qid] for qid in part.qids.tolist()}


def test_balanced_parts_move_when_a_query_goes_as_the_page_says():
    n = 200
    data = RankingData(np.zeros((n, 1)), np.zeros(n), qid=range(n))
    before, moved = _tested_in(data, stable=False), []
    for gone in range(0, n, 10):
        after = _tested_in(data.select(np.arange(n) != gone), stable=False)
        moved.append(np.mean([after[qid] != before[qid] for qid in after]))
    assert 0.3 < np.mean(moved) < 0.7  # all behind it in the order of the hashes: half of them on average


def test_stable_parts_have_their_shares_as_chance_has_it():
    n, shares = 20_000, np.array([0.5, 0.3, 0.2])
    data = RankingData(np.zeros((n, 1)), np.zeros(n), qid=np.arange(n))
    for seed in range(3):
        sizes = np.array([part.n_queries for part in split(data, shares, seed=seed, stable=True)])
        assert (np.abs(sizes - n * shares) < 4.5 * np.sqrt(n * shares * (1 - shares))).all()
        tests = np.array([fold.test.n_queries for fold in folds(data, 4, seed=seed, stable=True)])
        assert tests.sum() == n
        assert (np.abs(tests - n / 4) < 4.5 * np.sqrt(n * 0.25 * 0.75)).all()


def test_what_cannot_be_stable_is_refused(tmp_path):
    data = RankingData(np.zeros((3, 1)), np.zeros(3), qid=range(3), metadata={"day": [1, 2, 3]})
    with pytest.raises(DataError, match=r"part number .* gets none of the 3 queries. Leave out stable"):
        split(data, (0.998, 0.001, 0.001), stable=True)
    with pytest.raises(DataError, match="A split by time does not use query ids"):
        split(data, (0.5, 0.5), time_column="day", stable=True)
    with pytest.raises(DataError, match="A split by time does not use query ids"):
        folds(data, 1, time_column="day", stable=True)
    with pytest.raises(DataError, match="has predefined folds; stable=True"):
        folds(tmp_path, stable=True)


@pytest.mark.parametrize("fractions", [(), (0.5, 0.4), (1.5, -0.5), (0.5, 0.5, 0.0), (np.nan, 1.0)])
def test_bad_fractions_are_refused(fractions):
    with pytest.raises(DataError, match="positive and add up to 1"):
        split(example(), fractions)


def test_too_few_queries_and_parts_are_refused():
    with pytest.raises(DataError, match="2 queries are too few"):
        split(example(2))
    with pytest.raises(DataError, match="k must be at least 3"):
        folds(example(), 2)
    with pytest.raises(DataError, match="missing applies only to files"):
        folds(example(), missing="zero")


# Layouts


@pytest.fixture
def parts():
    data = example(25)
    return [data.select(range(start, start + 5)) for start in range(0, 25, 5)]


def write_partitions(folder, parts, suffix=".txt"):
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts, 1):
        write(part, folder / f"S{number}{suffix}", format="letor")


def write_folds(folder, parts, names=("train", "vali", "test"), suffix=".txt"):
    for number in range(5):
        fold = folder / f"Fold{number + 1}"
        fold.mkdir(parents=True)
        train = [ids(parts[(number + step) % 5]) for step in range(3)]
        whole = RankingData(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.labels for part in parts]),
            qid=np.concatenate([part.qid for part in parts]),
        )
        place = {qid: row for row, qid in enumerate(ids(whole))}
        write(
            whole.select([place[qid] for part in train for qid in part]), fold / f"{names[0]}{suffix}", format="letor"
        )
        write(parts[(number + 3) % 5], fold / f"{names[1]}{suffix}", format="letor")
        write(parts[(number + 4) % 5], fold / f"{names[2]}{suffix}", format="letor")


def check_letor(found, parts):
    assert len(found) == 5
    for number, fold in enumerate(found):
        s = [parts[(number + step) % 5] for step in range(5)]
        assert fold.name == f"Fold{number + 1}"
        assert ids(fold.train) == ids(s[0]) + ids(s[1]) + ids(s[2])
        np.testing.assert_array_equal(fold.train.X, np.concatenate([part.X for part in s[:3]]))
        assert fold.valid.equals(s[3])
        assert fold.test.equals(s[4])


@pytest.mark.parametrize("below", [".", "QueryLevelNorm", "anything"])
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".txt.zst"])
def test_partitions(tmp_path, parts, below, suffix):
    write_partitions(tmp_path / below, parts, suffix)
    check_letor(folds(tmp_path), parts)


@pytest.mark.parametrize(
    "names", [("train", "vali", "test"), ("train", "valid", "test"), ("trainingset", "validationset", "testset")]
)
@pytest.mark.parametrize("below", [".", "querylevelnorm"])
def test_folders_of_folds(tmp_path, parts, names, below):
    write_folds(tmp_path / below, parts, names)
    (tmp_path / "readme.txt").touch()
    check_letor(folds(tmp_path), parts)


def test_query_level_norm_is_preferred_among_folders(tmp_path, parts):
    write_partitions(tmp_path / "QueryLevelNorm", parts)
    write_partitions(tmp_path / "Feature_min", parts[::-1])
    check_letor(folds(tmp_path), parts)


def test_a_folder_with_one_division_is_one_fold(tmp_path, parts):
    for name, part in zip(["train", "vali", "test"], parts, strict=False):
        write(part, tmp_path / f"{name}.txt")
    (fold,) = folds(tmp_path)
    assert isinstance(fold, Fold)
    assert [ids(fold.train), ids(fold.valid), ids(fold.test)] == [ids(part) for part in parts[:3]]


def test_folds_are_read_when_asked_for_and_partitions_only_once(tmp_path, parts, monkeypatch):
    write_partitions(tmp_path / "s", parts)
    write_folds(tmp_path / "f", parts)
    read, opened = files.read, []
    monkeypatch.setattr(files, "read", lambda path, **options: opened.append(path.name) or read(path, **options))
    by_partition, by_folder = folds(tmp_path / "s"), folds(tmp_path / "f")
    assert opened == []
    list(by_partition)
    assert ids(by_partition[-1].test) == ids(parts[3])
    assert opened == ["S1.txt", "S2.txt", "S3.txt", "S4.txt", "S5.txt"]
    opened.clear()
    assert ids(by_folder[1:3][1].test) == ids(parts[(2 + 4) % 5])
    assert opened == ["train.txt", "vali.txt", "test.txt"]
    assert repr(by_folder[1:3]) == "Folds(Fold2, Fold3)"
    with pytest.raises(IndexError):
        by_folder[5]


def test_parts_are_made_equally_wide(tmp_path):
    for number in range(1, 6):
        (tmp_path / f"S{number}.txt").write_text(f"1 qid:{number} 1:1 {'4:2' if number == 3 else '2:5'}\n")
    for fold in folds(tmp_path, missing="zero"):
        assert fold.train.n_features == fold.valid.n_features == fold.test.n_features == 4
    assert folds(tmp_path, missing="zero")[2].test.X.tolist() == [[1, 5, 0, 0]]


def from_zero(number, names_it):
    """A text of four features from 0 whose values are 10, 11, 12, 13; some files never name the first or the last."""
    ids = (0, 1, 2, 3) if names_it else (1, 2)
    return f"1 qid:{number} " + " ".join(f"{i}:{10 + i}" for i in ids) + "\n"


@pytest.mark.parametrize("options", [{}, {"n_features": 4}, {"first_feature_id": 0}, {"cache": True}])
@pytest.mark.parametrize("naming", range(5))
def test_a_column_is_the_same_feature_in_all_parts(tmp_path, naming, options):
    for number in range(5):
        (tmp_path / f"S{number + 1}.txt").write_text(from_zero(number, number == naming))
    for fold in folds(tmp_path, missing="zero", **options):
        for part in (fold.train, fold.valid, fold.test):
            expected = [[10, 11, 12, 13] if qid == naming else [0, 11, 12, 0] for qid in part.qids]
            assert part.X.tolist() == expected
            assert part.first_feature_id == 0


@pytest.mark.parametrize("naming", ["train", "vali", "test"])
def test_a_column_is_the_same_feature_in_all_files_of_a_fold(tmp_path, naming):
    for number, name in enumerate(("train", "vali", "test")):
        (tmp_path / f"{name}.txt").write_text(from_zero(number, name == naming))
    [fold] = folds(tmp_path, missing="zero")
    for name, part in (("train", fold.train), ("vali", fold.valid), ("test", fold.test)):
        assert part.X.tolist() == [[10, 11, 12, 13] if name == naming else [0, 11, 12, 0]]


def test_options_reach_the_reader(tmp_path, parts):
    write_partitions(tmp_path, parts)
    assert folds(tmp_path, dtype=np.float64)[0].train.X.dtype == np.float64
    check_letor(folds(tmp_path, cache=True), parts)
    assert (tmp_path / "S1.txt.toprank-data").is_dir()
    check_letor(folds(tmp_path, cache=True), parts)


def test_files_and_stored_copies_are_divided(tmp_path):
    data = example()
    for name in ("data.txt", "data.parquet", "data.toprank-data"):
        write(data, tmp_path / name)
        for fold, expected in zip(folds(tmp_path / name, 4, seed=2), folds(data, 4, seed=2), strict=True):
            assert ids(fold.train) == ids(expected.train)
            assert fold.test.equals(expected.test)


def test_folders_without_folds_say_what_was_looked_for(tmp_path, parts):
    for folder in (tmp_path, tmp_path / "empty"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(FileError, match=r"Expected Fold1 .* S1\.txt … S5\.txt.*QueryLevelNorm"):
            folds(folder)
    with pytest.raises(FileError, match="no file"):
        folds(tmp_path / "absent")
    write_partitions(tmp_path / "s", parts[:3])
    with pytest.raises(FileError, match=r"missing: S4\.txt, S5\.txt"):
        folds(tmp_path / "s")
    write_folds(tmp_path / "f", parts)
    (tmp_path / "f" / "Fold2" / "vali.txt").unlink()
    with pytest.raises(
        FileError, match=r"Fold2 has no valid file\. Expected vali\.txt, validationset\.txt, valid\.txt"
    ):
        folds(tmp_path / "f")
    for k in (3, np.int64(3)):
        with pytest.raises(DataError, match="has predefined folds; k=3"):
            folds(tmp_path / "s", k)


def test_published_partitions_have_their_published_sizes():
    found = folds(shared_data("letor", "MQ2008"))
    assert [fold.train.n_queries + fold.valid.n_queries + fold.test.n_queries for fold in found] == [784] * 5
    assert found[0].train.n_features == 46
    assert sum(fold.test.n_documents for fold in found) == 15_211


def test_expanded_folds_equal_the_partitions(tmp_path):
    source = shared_data("letor", "OHSUMED")
    for number in range(5):
        fold = tmp_path / f"Fold{number + 1}"
        fold.mkdir()
        s = [(source / f"S{(number + step) % 5 + 1}.txt").read_bytes() for step in range(5)]
        (fold / "trainingset.txt").write_bytes(b"".join(s[:3]))
        (fold / "validationset.txt.gz").write_bytes(gzip.compress(s[3], 1, mtime=0))
        (fold / "testset.txt").write_bytes(s[4])
    for expanded, cut in zip(folds(tmp_path), folds(source), strict=True):
        for part in ("train", "valid", "test"):
            assert getattr(expanded, part).equals(getattr(cut, part))
    shutil.rmtree(tmp_path)
