"""What goes into a cluster: said in a sentence where it cannot be, sent once, and forgotten when it is not needed."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

import numpy as np
import pytest

import toprank as tr
from toprank import cluster
from toprank.cluster.dataset import check_loss
from toprank.cluster.runner import Runner
from toprank.cluster.sources import DataPart, FilePart, StorePart
from toprank.data.frames import to_frame
from toprank.errors import DataError, FormatError, UnknownNameError

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def two():
    """Two workers in this process: quick to start, and the same tasks."""
    with cluster.connect(workers=2, processes=False, timeout=60) as connected:
        yield connected


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(n_queries=30, seed=0)


@pytest.fixture(scope="module")
def frame(data):
    return to_frame(data, "pandas")


def dask_frame(frame, partitions=3):
    import dask.dataframe

    return dask.dataframe.from_pandas(frame, npartitions=partitions, sort=False)


def by_queries(frame, data, count=3):
    """A Dask frame whose partitions hold whole queries."""
    import dask.dataframe

    groups = np.array_split(data.qids, count)
    pieces = [frame[frame["qid"].isin(group)] for group in groups]
    return dask.dataframe.concat([dask.dataframe.from_pandas(piece, npartitions=1, sort=False) for piece in pieces])


# ---- connecting ----


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1, not 0"),
        ({"workers": -1}, "workers must be a whole number"),
        ({"workers": "2"}, "workers must be a whole number"),
        ({"workers": 1.5}, "workers must be a whole number"),
        ({"workers": 1, "timeout": "x"}, "timeout must be a positive number, not 'x'"),
        ({"workers": 1, "checkpoint_every": 2.5}, "checkpoint_every must be a whole number"),
        ({"address": 8786}, r"address must be a string such as .*Cluster\(client\)"),
        ({"address": object()}, "address must be a string"),
    ],
)
def test_settings_that_cannot_be(options, said):
    with pytest.raises(DataError, match=said):
        cluster.connect(**options)


def test_a_cluster_is_made_of_a_client(two):
    with pytest.raises(DataError, match="Dask client, not a str"):
        cluster.Cluster("tcp://127.0.0.1:8786")
    with pytest.raises(DataError, match="timeout must be"):
        cluster.Cluster(two.client, timeout=-1)


@pytest.mark.parametrize("address", ["localhost", "tcp://127.0.0.1:1", "nonsense://127.0.0.1:1"])
def test_an_address_in_vain_leaves_the_current_client(two, address):
    with pytest.raises(cluster.ClusterError, match=f"No Dask scheduler replies at {address}"):
        cluster.connect(address, timeout=1)
    assert cluster.connect().client is two.client
    assert two.client.status == "running"


def test_a_client_that_is_closed_is_refused(two):
    client = distributed.Client(two.client.scheduler.address, set_as_default=False)
    client.close()
    with pytest.raises(cluster.ClusterError, match="not connected"):
        cluster.Cluster(client)


# ---- placing ----


def test_what_place_does_not_take(two, data, frame):
    import dask.array

    parts = dask_frame(frame)
    with pytest.raises(DataError, match="Data of type Array cannot be distributed"):
        two.persist(dask.array.ones((4, 2)))
    with pytest.raises(DataError, match="Data of type Series cannot be distributed"):
        two.persist(parts["label"])
    with pytest.raises(UnknownNameError, match="role of a column called 'lable'; did you mean 'label'"):
        two.persist(parts, lable="label")
    with pytest.raises(DataError, match="label= names a column of a frame"):
        two.persist(cluster.read(["a.parquet"]), label="rel")
    with pytest.raises(DataError, match="label= names a column of a frame"):
        two.persist(data, label="rel")
    placed = two.persist(data)
    with pytest.raises(DataError, match="distributed already"):
        two.persist(placed, on_split_queries="all")
    with pytest.raises(DataError, match="distributed already"):
        two.persist(placed, label="rel")
    with pytest.raises(UnknownNameError, match="rule for split queries"):
        two.persist(data, on_split_queries="some")


def test_repair_said_to_place_counts(two, tmp_path):
    for number, qid in enumerate([[1, 2], [1, 3]]):
        tr.write(tr.RankingData(np.ones((2, 1)), [0, 1], qid=qid), tmp_path / f"{number}.parquet")
    parts = cluster.read(tmp_path)
    with pytest.raises(DataError, match="not at the border"):
        two.persist(parts)
    with pytest.warns(cluster.QueriesMovedWarning, match=r"1 query \(1\).* 1 rows were moved"):
        assert two.persist(parts, on_split_queries="all").n_queries == 3


def test_a_folder_written_by_dask(two, data, frame, tmp_path):
    """part.2 comes before part.10; a query that is cut by the border between them is cut by no other."""
    dask_frame(frame, 12).to_parquet(tmp_path / "d", write_index=False)
    with pytest.warns(cluster.QueriesMovedWarning):
        placed = two.persist(cluster.read(tmp_path / "d"))
    assert placed.n_queries == data.n_queries
    assert len(placed.parts) == 12


def test_a_damaged_file_is_named(two, data, tmp_path):
    for number, queries in enumerate(np.array_split(np.arange(data.n_queries), 3)):
        tr.write(data.select(queries), tmp_path / f"{number}.parquet")
    whole = (tmp_path / "1.parquet").read_bytes()
    (tmp_path / "1.parquet").write_bytes(whole[:-20])
    for parts in (cluster.read(tmp_path), cluster.read([tmp_path / "1.parquet"])):
        with pytest.raises(FormatError, match=r"1\.parquet: This is not a readable Parquet file"):
            two.persist(parts)


def test_a_partition_that_cannot_be_computed_is_named(two, frame, data):
    parts = by_queries(frame, data)
    feature = frame.columns[-1]

    def lacking(part, partition_info=None):
        return part.drop(columns=feature) if partition_info and partition_info["number"] == 1 else part

    def failing(part, partition_info=None):
        return part.assign(label=1 / 0) if partition_info and partition_info["number"] == 2 else part

    with pytest.raises(DataError, match=r"artition 1 of the frame.*" + feature):
        two.persist(parts.map_partitions(lacking, meta=parts._meta))
    with pytest.raises(DataError, match=r"Partition 2 of the frame cannot be computed \(ZeroDivisionError: division"):
        two.persist(parts.map_partitions(failing, meta=parts._meta))


def test_positions_are_there_in_all_partitions_or_in_none(two, data):
    halves = [data.select(half) for half in np.array_split(np.arange(data.n_queries), 2)]
    halves[1] = halves[1].replace(positions=np.ones(halves[1].n_documents, dtype=int))
    with pytest.raises(
        DataError, match="second differs from first: positions are present in one and absent in the other"
    ):
        two.persist(cluster.Partitions([DataPart(halves[0], "first"), DataPart(halves[1], "second")]))


def test_files_and_other_partitions_together(two, data, tmp_path):
    first, second, third = (data.select(queries) for queries in np.array_split(np.arange(data.n_queries), 3))
    tr.write(first, tmp_path / "a.parquet")
    tr.write(second, tmp_path / "s.toprank-data")
    tr.write(third, tmp_path / "b.parquet")
    sources = [
        FilePart(str(tmp_path / "a.parquet")),
        StorePart(str(tmp_path / "s.toprank-data"), 0, second.n_queries),
        FilePart(str(tmp_path / "b.parquet")),
    ]
    placed = two.persist(cluster.Partitions(sources))
    assert placed.n_documents == data.n_documents
    assert [one.qids.tolist() for one in placed.summaries] == [part.qids.tolist() for part in (first, second, third)]


def test_only_files_are_sent_to_be_compared(two, data, tmp_path, monkeypatch):
    sent = []
    submit = Runner.submit

    def noting(self, function, *args, **where):
        sent.append((function.__name__, args))
        return submit(self, function, *args, **where)

    monkeypatch.setattr(Runner, "submit", noting)
    two.persist(data)
    assert not sent  # rows in memory go to their worker, and nowhere else
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, queries in zip(paths, np.array_split(np.arange(data.n_queries), 2), strict=True):
        tr.write(data.select(queries), path)
    two.persist(cluster.read(paths))
    assert [name for name, _ in sent] == ["agreed", "load", "load"]


# ---- fitting ----


def test_dask_frames_without_a_cluster(frame, data, two):
    for ranker in (tr.LinearRanker(), tr.TreeRanker()):
        with pytest.raises(DataError, match=r"Data on a cluster need .*\.fit\(ranker, train"):
            ranker.fit(dask_frame(frame))
    with pytest.raises(DataError, match="Data on a cluster need"):
        tr.LinearRanker().fit(data, valid=dask_frame(frame))


def test_validation_parts_go_where_the_data_are(two, data, tmp_path):
    valid = tr.synthetic(n_queries=12, seed=1)
    tr.write(valid, tmp_path / "d.toprank-data")
    parts = cluster.read(tmp_path / "d.toprank-data", partitions=3)
    options = {"l2": [1e-3, 1.0]}
    one = tr.LinearRanker("ListNet", **options).fit(data, valid=valid)
    other = two.fit(tr.LinearRanker("ListNet", **options), two.persist(data), valid=parts)
    assert other.training_["valid"] == pytest.approx(one.training_["valid"], abs=1e-12)


def test_data_of_another_cluster_are_refused(two, data):
    placed = two.persist(data)
    with cluster.connect(workers=1, processes=False, timeout=60) as other:
        with pytest.raises(DataError, match="on another cluster"):
            other.fit(tr.LinearRanker(), placed)
        with pytest.raises(DataError, match="on another cluster"):
            other.predict(tr.LinearRanker().fit(data), placed)
    again = distributed.Client(two.client.scheduler.address, set_as_default=False)
    try:
        tr.cluster.Cluster(again).fit(tr.LinearRanker("ListNet", l2=1.0), placed)  # the same one, by another client
    finally:
        again.close()


def test_losses_that_draw_by_place_are_known_by_what_they_are(two, data):
    @dataclass(frozen=True)
    class Mine(tr.losses.XENDCG):
        pass

    @dataclass(frozen=True)
    class Theirs(tr.losses.BoltzRank):
        pass

    with pytest.raises(DataError, match="Mine with gamma='uniform' uses random numbers by global document index"):
        check_loss(Mine(), [])
    with pytest.raises(DataError, match="Theirs samples rankings"):
        check_loss(Theirs(), [])
    check_loss(Mine(gamma=0.5), [])


def known_tasks(two, until=0):
    """How many results the scheduler knows, once that many are left; releases take a moment to reach it."""
    deadline = time.monotonic() + 300
    while True:
        found = two.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        if found <= until or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def test_rows_are_forgotten_at_once(two, data):
    gc.collect()
    before = known_tasks(two)
    gc.disable()  # what waits for the collector may wait for long
    try:
        two.fit(tr.LinearRanker("ListNet", l2=0.1), data)
        assert known_tasks(two, before) <= before
        placed = two.persist(data)
        assert known_tasks(two, 10**9) > before
        del placed
        assert known_tasks(two, before) <= before
        with pytest.raises(DataError) as kept:  # the traceback holds the data, not the workers' rows
            two.fit(tr.LinearRanker("XENDCG"), data)
        assert known_tasks(two, before) <= before
        assert "random numbers" in str(kept.value)
    finally:
        gc.enable()


def test_what_was_released_is_placed_anew(two, data):
    placed = two.persist(data)
    ranker = two.fit(tr.LinearRanker("ListNet", l2=0.1), placed)
    placed.release()
    np.testing.assert_array_equal(two.fit(tr.LinearRanker("ListNet", l2=0.1), placed).coef_, ranker.coef_)


# ---- fingerprints ----


def test_fingerprints_are_those_of_the_content(two, data, frame, tmp_path):
    tr.write(data, tmp_path / "d.toprank-data")
    cuts = [cluster.read(tmp_path / "d.toprank-data", partitions=count) for count in (2, 5)]
    assert {two.persist(way).fingerprint for way in (data, *cuts)} == {data.fingerprint}
    X = np.array(data.X)
    X[-1, -1] += 1
    other = data.replace(X=X)
    assert two.persist(other).fingerprint == other.fingerprint
    parts, changed = by_queries(frame, data), by_queries(to_frame(other, "pandas"), other)
    found = [two.persist(one).fingerprint for one in (parts, parts, changed)]
    assert found[0] == found[1] != found[2]
    assert found[0].startswith("parts-")
    half = StorePart(str(tmp_path / "d.toprank-data"), 0, 5)  # not the whole copy
    assert two.persist(cluster.Partitions([half])).fingerprint.startswith("parts-")


def test_files_by_name_are_read_on_the_workers_as_tr_read_reads_them(two, tmp_path):
    data = tr.synthetic(n_queries=30, seed=0)
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for file, queries in zip(files, np.split(np.arange(30), 3), strict=True):
        tr.write(data.select(queries), file)
    wanted = tr.LinearRanker().fit(data)
    for given in ([str(file) for file in files], files, tmp_path, str(tmp_path)):
        ranker = two.fit(tr.LinearRanker(), given, valid=files[0])
        np.testing.assert_allclose(ranker.coef_, wanted.coef_, rtol=1e-6)
    np.testing.assert_allclose(two.predict(ranker, files), ranker.predict(data), rtol=1e-12)
    placed = two.persist([str(file) for file in files], label="label", qid="qid")
    assert placed.n_documents == data.n_documents
    for wrong in ([], [data], 3):
        with pytest.raises(DataError, match="pass paths"):
            two.fit(tr.LinearRanker(), wrong)
