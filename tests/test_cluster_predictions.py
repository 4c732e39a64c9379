"""Predictions on a cluster: in the order of the user's rows, whatever was moved; files all or none."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.cluster.scoring import begin, finish
from toprank.data.frames import to_frame
from toprank.errors import DataError, FileError

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def two():
    """Two workers in this process: quick to start, and the same tasks."""
    with cluster.connect(workers=2, processes=False, timeout=60) as connected:
        yield connected


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=40, seed=0)


@pytest.fixture(scope="module")
def ranker(data):
    return tr.LinearRanker("ListNet", l2=0.1).fit(data)


def placed_quietly(two, data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cluster.QueriesMovedWarning)
        return two.persist(data, **options)


def scattered(data, seed=0):
    """A frame whose rows stand in any order, and the number of each row in `data`."""
    order = np.random.default_rng(seed).permutation(data.n_documents)
    return to_frame(data, "pandas").iloc[order].reset_index(drop=True), order


def lines(paths):
    return [[float(line) for line in Path(path).read_text().split()] for path in paths]


@pytest.mark.parametrize("kind", ["frame", "one file", "two files"])
def test_a_ranker_remembers_the_columns_of_a_cluster(two, data, tmp_path, kind):
    import dask.dataframe

    table = to_frame(data, "pandas").rename(columns={"qid": "search_id", "label": "rated"}).assign(query="shoes")
    roles = {"qid": "search_id", "label": "rated", "features": list(data.feature_names or table.columns[2:-1])}
    if kind == "frame":
        ranker = two.fit(
            tr.LinearRanker("Squared"), two.persist(dask.dataframe.from_pandas(table, npartitions=1), **roles)
        )
    else:
        half = data.queries.offsets[20]
        parts = [table] if kind == "one file" else [table[:half], table[half:]]
        paths = [tmp_path / f"{number}.parquet" for number in range(len(parts))]
        for path, part in zip(paths, parts, strict=True):
            part.to_parquet(path)
        ranker = two.fit(tr.LinearRanker("Squared"), cluster.read(paths, **roles))
    assert len(ranker.rank(table.assign(session_id=1))) == data.n_queries


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_in_any_order_get_their_own_scores(two, data, ranker, tmp_path, partitions):
    import dask.dataframe

    frame, order = scattered(data)
    parts = dask.dataframe.from_pandas(frame, npartitions=partitions, sort=False)
    placed = placed_quietly(two, parts, on_split_queries="all")
    expected = ranker.predict(data)[order]
    np.testing.assert_array_equal(two.predict(ranker, placed), expected)
    paths = two.write_predictions(ranker, placed, tmp_path)
    ends = np.cumsum([len(part) for part in parts.partitions])[:-1]
    assert lines(paths) == [part.tolist() for part in np.split(expected, ends)]


def test_rows_regrouped_inside_a_partition(two, data, ranker):
    """Nothing moves between partitions here, and still the rows of a query are not neighbors."""
    import dask.dataframe

    frame = to_frame(data, "pandas")
    halves = np.array_split(np.arange(data.n_queries), 2)
    pieces = [frame[np.isin(data.qid, data.qids[half])].sample(frac=1.0, random_state=0) for half in halves]
    parts = dask.dataframe.concat([dask.dataframe.from_pandas(piece, npartitions=1, sort=False) for piece in pieces])
    placed = two.persist(parts)
    assert placed.n_moved == 0
    rows = np.concatenate([piece.index.to_numpy() for piece in pieces])
    np.testing.assert_array_equal(two.predict(ranker, placed), ranker.predict(data)[rows])


def test_a_file_for_each_file(two, data, ranker, tmp_path):
    """Files cut by rows, one of them empty, one emptied by the repair."""
    import pyarrow.parquet as parquet

    table, offsets = to_frame(data), data.queries.offsets
    first, second = int(offsets[10]) + 1, int(offsets[11])  # the third file holds the rest of one query
    cuts = [(0, first), (first, first), (first, second), (second, data.n_documents)]
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir(), target.mkdir()
    for number, (a, b) in enumerate(cuts):
        parquet.write_table(table.slice(a, b - a), source / f"part-{number}.parquet")
    placed = placed_quietly(two, cluster.read(source))
    assert len(placed.summaries) == 2
    expected = ranker.predict(data)
    np.testing.assert_array_equal(two.predict(ranker, placed), expected)
    paths = two.write_predictions(ranker, placed, target)
    assert [os.path.basename(path) for path in paths] == [f"part-{n:05d}.scores" for n in range(4)]
    assert lines(paths) == [expected[a:b].tolist() for a, b in cuts]
    assert os.path.getsize(paths[1]) == 0
    assert sorted(os.listdir(target)) == [f"part-{n:05d}.scores" for n in range(4)]


def test_text_that_is_regrouped_is_known_by_its_lines(two, tmp_path):
    path = tmp_path / "scattered.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:2 1:1\n0 qid:1 1:2\n2 qid:2 1:4\n")
    ranker = tr.LinearRanker("Squared").fit(tr.read(path, regroup=True))
    got = two.predict(ranker, cluster.read([path], regroup=True))
    np.testing.assert_array_equal(got, ranker.predict(np.array([[0.5], [1], [2], [4]], dtype=np.float32)))


def test_data_that_were_regrouped_before_keep_their_order(two, data, ranker, tmp_path):
    """In memory as `ranker.predict` has it, and so the partitions of a stored copy: as they lie."""
    frame, _ = scattered(data)
    grouped = tr.RankingData.from_frame(frame, regroup=True)
    assert grouped.source_rows is not None
    scores = two.predict(ranker, grouped)
    np.testing.assert_array_equal(scores, ranker.predict(frame)[grouped.source_rows])
    assert tr.evaluate(scores, grouped).mean["ndcg@10"] == ranker.score(grouped)
    tr.write(grouped, tmp_path / "d.toprank-data")
    for parts in (cluster.read(tmp_path / "d.toprank-data", partitions=3), cluster.read([tmp_path / "d.toprank-data"])):
        np.testing.assert_array_equal(two.predict(ranker, parts), scores)


def test_a_shorter_set_replaces_a_longer_one(two, data, ranker, tmp_path):
    tr.write(data, tmp_path / "d.toprank-data")
    target = tmp_path / "out"
    target.mkdir()
    (target / "part-of-mine.scores").write_text("keep")
    two.write_predictions(ranker, cluster.read(tmp_path / "d.toprank-data", partitions=6), target)
    paths = two.write_predictions(ranker, cluster.read(tmp_path / "d.toprank-data", partitions=3), target)
    assert sorted(os.listdir(target)) == [
        "part-00000.scores",
        "part-00001.scores",
        "part-00002.scores",
        "part-of-mine.scores",
    ]
    np.testing.assert_array_equal(np.concatenate(lines(paths)), ranker.predict(data))


class Fails:
    """A ranker that scores all partitions but one."""

    def __init__(self, qid):
        self.qid = qid

    def predict(self, data):
        if self.qid in data.qids:
            raise DataError("this one cannot be scored")
        return np.zeros(data.n_documents)


def test_what_fails_leaves_the_former_set(two, data, ranker, tmp_path):
    paths = two.write_predictions(ranker, data, tmp_path)
    before = lines(paths)
    with pytest.raises(DataError, match="cannot be scored"):
        two.write_predictions(Fails(data.qids[-1]), data, tmp_path)
    assert lines(paths) == before
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(path) for path in paths]
    with pytest.raises(FileError, match="gone"):
        two.write_predictions(ranker, data, tmp_path / "gone")


def test_a_set_that_was_cut_short_is_finished_later(tmp_path, monkeypatch):
    """The task that gives files their names dies in the middle, and is done again by another worker."""
    names = [f"part-{number:05d}.scores" for number in range(4)]
    folder, aside = str(tmp_path), str(tmp_path / ".scores-x")
    for name in [*names, "part-00007.scores"]:
        (tmp_path / name).write_text("old")
    begin(folder, aside)
    begin(folder, aside)
    for name in names:
        (tmp_path / ".scores-x" / name).write_text("new")
    replace, calls = os.replace, []

    def dies(source, target):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        finish(folder, aside, names)
    assert not (tmp_path / names[0]).exists()  # so nobody takes the set for a whole one
    monkeypatch.undo()
    finish(folder, aside, names)
    finish(folder, aside, names)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "new")


def test_a_file_that_changed_since(two, data, ranker, tmp_path):
    paths = []
    for number, queries in enumerate(np.array_split(np.arange(data.n_queries), 2)):
        paths.append(tmp_path / f"{number}.parquet")
        tr.write(data.select(queries), paths[-1])
    placed = two.persist(cluster.read(paths))
    tr.write(data.select(np.arange(3)), paths[0])
    placed.redistribute()  # what a lost worker leads to
    with pytest.raises(DataError, match="other rows than when"):
        two.predict(ranker, placed)
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(DataError, match=r"0.parquet has other rows than when it was loaded"):
        two.write_predictions(ranker, placed, target)
    assert not list(target.iterdir())
