"""Frames and files of tables: every column finds its role or is refused by name, and round trips lose nothing."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import csv, feather, ipc, parquet

from ragged import ranking_data
from toprank.data.converting import convert
from toprank.data.dataset import RankingData
from toprank.data.files import read
from toprank.data.frames import from_frame, to_frame
from toprank.data.frames.options import TableOptions
from toprank.data.tables import read_table, reading, sources, write_table
from toprank.data.warnings import WeightsWarning
from toprank.errors import DataError, FileError, FormatError, ToprankError, UnknownNameError

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
file_settings = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
TABLE = {"qid": ["a", "a", "b"], "label": [0, 2, 1], "bm25": [0.5, 0.25, 4.0], "hits": [3, 1, 0]}


def dense(data: RankingData) -> RankingData:
    return data.replace(X=data.X.toarray()) if data.is_sparse else data


@pytest.fixture(params=KINDS)
def frame_of(request):
    return KINDS[request.param]


# Roles


def test_usual_names_need_no_arguments(frame_of):
    data = RankingData.from_frame(frame_of(TABLE))
    assert data.feature_names == ("bm25", "hits")
    assert data.X.tolist() == [[0.5, 3], [0.25, 1], [4, 0]]
    assert data.qids.tolist() == ["a", "b"]
    assert data.labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("label", "qid", "document"),
    [("Relevance", "query_id", "docno"), ("label", "SEARCH_ID", "did"), ("grade", "session_id", "doc_id")],
)
def test_roles_are_inferred_from_names_in_any_case_but_never_weights(frame_of, label, qid, document):
    frame = frame_of(
        {qid: [1, 1], label: [0, 1], document: ["x", "y"], "weight": [1, 2], "query_weight": [3, 3], "f": [5, 6]}
    )
    data = from_frame(frame)
    assert data.document_ids.tolist() == ["x", "y"]
    assert data.document_weights is None
    assert data.query_weights is None
    assert data.feature_names == ("weight", "query_weight", "f")
    given = from_frame(frame, weight="weight", query_weight="query_weight")
    assert given.document_weights.tolist() == [1, 2]
    assert given.query_weights.tolist() == [3]
    assert given.feature_names == ("f",)
    told = f"inferred from column names: label '{label}', query '{qid}', document id '{document}'"
    assert str(data).endswith(told)
    assert str(given).endswith(told)


@pytest.mark.parametrize("name", ["query", "group", "q_id", "Group"])
def test_a_column_that_may_hold_anything_is_no_query(frame_of, name):
    with pytest.raises(DataError, match="Only a column called 'qid', 'query_id', 'search_id' or 'session_id'"):
        from_frame(frame_of({name: [1, 1], "label": [0, 1], "f": [5, 6]}))


@pytest.mark.parametrize("name", ["y", "rel", "target"])
def test_a_column_that_may_hold_anything_is_no_label(frame_of, name):
    with pytest.raises(DataError, match="Only a column called 'label', 'relevance' or 'grade'"):
        from_frame(frame_of({"qid": [1, 1], name: [0, 1], "f": [5, 6]}))


def test_given_roles_win_and_listed_features_are_never_guessed(frame_of):
    frame = frame_of(TABLE | {"y": [5, 6, 7], "weight": [1, 2, 3]})
    data = from_frame(frame, label="y", features=["weight", "label"])
    assert data.labels.tolist() == [5, 6, 7]
    assert data.X.tolist() == [[1, 0], [2, 2], [3, 1]]
    assert data.document_weights is None


def test_false_means_there_is_none(frame_of):
    data = from_frame(frame_of(TABLE | {"weight": [1, 2, 3]}), label=False, qid=False, weight=False, features=["hits"])
    assert not data.judged.any()
    assert data.n_queries == 1
    assert data.document_weights is None


@pytest.mark.parametrize(
    ("table", "roles", "message"),
    [
        (
            {"qid": [1], "f": [2]},
            {},
            r"looks like the label. The columns are: qid, f. Only .* Give label='COLUMN', or label=False",
        ),
        ({"label": [1], "f": [2]}, {}, r"looks like the qid\. .*qid=False"),
        ({"label": [1], "grade": [2], "qid": [1]}, {}, "could be the label: 'label', 'grade'. Choose one with label="),
        ({"label": [1], "session_id": [2], "qid": [1]}, {}, "the qid: 'session_id', 'qid'. Choose one with qid="),
        ({"label": [1], "qid": [1], "docno": ["x"], "did": ["x"]}, {}, "could be the document_id"),
        ({"label": [1], "qid": [1], "tags": [[1]]}, {}, "This column cannot be a feature: 'tags' .*features="),
        ({"label": [1], "qid": [1], "f": [1]}, {"weight": "label"}, "looks like the label. The columns are: qid, f"),
        ({"label": [1], "qid": [1]}, {"weight": "label", "label": "label"}, "'label' has two roles"),
        ({"label": [1], "qid": [1], "f": [1]}, {"features": ["f", "f"]}, "'f' has two roles"),
        ({"label": ["x"], "qid": [1], "f": [1]}, {}, "'label' has the role 'label' and must contain numbers"),
        ({"label": [1], "qid": [[1]], "f": [1]}, {}, "must contain whole numbers or text"),
        ({"label": [1], "qid": [1], "f": [1]}, {"dtype": "int32"}, "float32 or float64, not int32"),
        (
            {"label": [0, 1, 2], "qid": [1, 2, 1], "f": [1, 1, 1]},
            {"regroup": False},
            "query 1 are not contiguous.*row 2",
        ),
        ({"label": [0, 1], "qid": [1, None], "f": [1, 1]}, {}, "'qid' .qid. is empty in row 1"),
        ({"label": [0, 1], "qid": ["a", None], "f": [1, 1]}, {}, "'qid' .qid. is empty in row 1"),
        ({"label": [0, 1], "qid": [1, 1], "w": [1, 2]}, {"query_weight": "w"}, "Query 1 has several query weights"),
        ({"label": [], "qid": [], "f": []}, {}, "no rows"),
    ],
)
def test_tables_that_do_not_tell_are_refused(frame_of, table, roles, message):
    with pytest.raises(DataError, match=message):
        from_frame(frame_of(table), **roles)


@pytest.mark.parametrize("role", ["qid", "document_id"])
def test_decimal_ids_are_told_apart_to_the_last_digit(tmp_path, role):
    ids = [2**53, 2**53 + 1, 2**64, 2**64 + 1]
    table = pa.table({"label": [0] * 4, "f": [1.0] * 4, "qid": [1] * 4})
    table = table.drop_columns("qid") if role == "qid" else table
    table = table.append_column(role, pa.array(ids, pa.decimal128(38, 2)))
    parquet.write_table(table, tmp_path / "data.parquet")
    for data in (
        from_frame(table),
        read(tmp_path / "data.parquet"),
        convert(tmp_path / "data.parquet", tmp_path / "c.toprank-data"),
    ):
        found = data.qids if role == "qid" else data.document_ids
        assert found.tolist() == list(map(str, ids))  # too large for 64 bits, and so text
    small = table.slice(0, 2)
    assert from_frame(small).qids.tolist() == (ids[:2] if role == "qid" else [1])
    odd = small.drop_columns(role).append_column(role, pa.array([Decimal("1.5"), Decimal(2)], pa.decimal128(38, 2)))
    with pytest.raises(DataError, match=f"Column '{role}' contains ids, .* row 0 .* has 1.50"):
        from_frame(odd)
    floats = small.drop_columns(role).append_column(role, pa.array([1.0, 2.0**53 + 2]))
    with pytest.raises(DataError, match="float64, which is exact only for integers below 9007199254740992; row 1"):
        from_frame(floats)


def test_ids_that_arrays_of_strings_would_cut_short_are_refused(frame_of):
    with pytest.raises(DataError, match="in row 1; ids may not end in a zero byte"):
        from_frame(frame_of(TABLE | {"qid": ["a", "a\0", "b"]}))


def test_unknown_columns_and_frames_are_refused(frame_of):
    with pytest.raises(UnknownNameError, match="column called 'lable'; did you mean 'label'"):
        from_frame(frame_of(TABLE), label="lable")
    with pytest.raises(DataError, match="dict is not a supported frame"):
        from_frame({"label": [1]})
    with pytest.raises(DataError, match="LazyFrame is not a supported frame"):
        from_frame(pl.DataFrame(TABLE).lazy())
    with pytest.raises(UnknownNameError, match="kind of frame called 'panda'"):
        to_frame(from_frame(frame_of(TABLE)), "panda")


def test_columns_of_one_name_are_refused():
    with pytest.raises(DataError, match="Two columns are called 'f'"):
        from_frame(pd.DataFrame([[1, 1, 2, 3]], columns=["qid", "label", "f", "f"]))
    with pytest.raises(DataError, match="Two columns are called 'f'"):
        from_frame(pa.Table.from_arrays([pa.array([1])] * 4, names=["qid", "label", "f", "f"]))


def test_an_object_column_of_mixed_types_is_refused():
    frame = pd.DataFrame({"qid": [1, 1], "label": [0, 1], "f": np.array([1, "x"], object), "g": [1j, 2j], "h": [3, 4]})
    with pytest.raises(DataError, match=r"cannot be features: 'f' \(object of int, str\), 'g' \(complex128\)"):
        from_frame(frame)
    assert from_frame(frame, features=["h"]).X.tolist() == [[3], [4]]
    with pytest.raises(DataError, match=r"'f' has the role 'qid' and must contain .* text, not object of int, str"):
        from_frame(frame, qid="f", features=["h"])
    with pytest.raises(DataError, match="metadata column 'g' contains complex128"):
        from_frame(frame, metadata="g", features=["h"])


# Values


def test_empty_cells_are_missing_values_and_unjudged_documents(frame_of):
    data = from_frame(frame_of({"qid": [1, 1], "label": [None, 1.0], "f": [None, 2.5], "b": [True, None]}))
    np.testing.assert_array_equal(data.X, [[np.nan, 1], [2.5, np.nan]])
    assert data.judged.tolist() == [False, True]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["float32", "float32"], "float32"),
        (["float32", "int16"], "float32"),
        (["bool", "uint8"], "float32"),
        (["float32", "int32"], "float64"),
        (["float32", "float64"], "float64"),
        (["float16", "int8"], "float32"),
    ],
)
def test_float32_is_kept_where_it_holds_every_value(types, expected):
    columns = {f"f{i}": np.ones(2).astype(kind) for i, kind in enumerate(types)}
    for frame_of in KINDS.values():
        frame = frame_of({"qid": [1, 1], "label": [0, 1]} | columns)
        assert from_frame(frame).X.dtype == expected
        assert from_frame(frame, dtype="float32").X.dtype == "float32"
        assert from_frame(frame).X.tolist() == np.ones((2, len(types))).tolist()


def test_categories_decimals_and_nullable_numbers():
    from decimal import Decimal

    frame = pd.DataFrame({"qid": pd.Categorical(["a", "a", "b"]), "label": pd.array([1, None, 0], dtype="Int8")})
    frame["f"] = [Decimal("1.5"), Decimal("2.25"), None]
    data = from_frame(frame)
    assert data.qids.tolist() == ["a", "b"]
    np.testing.assert_array_equal(data.labels, [1, np.nan, 0])
    np.testing.assert_array_equal(data.X[:, 0], [1.5, 2.25, np.nan])


def test_regroup_moves_whole_rows(frame_of):
    frame = frame_of({"qid": [1, 2, 1], "label": [0, 1, 2], "query_weight": [3, 4, 3], "f": [7, 8, 9]})
    data = from_frame(frame, query_weight="query_weight", regroup=True)
    assert data.labels.tolist() == [0, 2, 1]
    assert data.X[:, 0].tolist() == [7, 9, 8]
    assert data.query_weights.tolist() == [3, 4]


# Round trips


def weights_of(data):
    """What has to be said of weights where a table does not remember its roles."""
    weights = {"weight": data.document_weights, "query_weight": data.query_weights}
    return {role: role for role, values in weights.items() if values is not None}


@given(ranking_data(), st.sampled_from(list(KINDS)))
@file_settings
def test_to_frame_and_back(data, kind):
    frame = to_frame(data, kind)
    if kind != "arrow":  # other frames forget that toprank made them, and an empty text is an empty cell to them
        every = [*data.qids.tolist(), *([] if data.document_ids is None else data.document_ids.tolist())]
        assume(all(str(one).strip() for one in every))
    assert type(frame) is {"arrow": pa.Table, "pandas": pd.DataFrame, "polars": pl.DataFrame}[kind]
    assert from_frame(frame, dtype=data.X.dtype, **weights_of(data)).equals(dense(data))


@pytest.mark.parametrize(
    ("kinds", "type_of"), [((), pd.DataFrame), (("polars",), pl.DataFrame), (("arrow",), pa.Table)]
)
def test_data_become_a_frame_by_a_method(kinds, type_of):
    data = RankingData([[1.5], [2.5]], [0, 1], qid=["a", "a"])
    frame = data.to_frame(*kinds)
    assert type(frame) is type_of
    assert RankingData.from_frame(frame).equals(from_frame(to_frame(data)))


@given(ranking_data(), st.sampled_from(["parquet", "arrow", "feather", "pq"]))
@file_settings
def test_parquet_and_arrow_files_read_back_exactly(tmp_path, data, suffix):
    path = tmp_path / f"data.{suffix}"
    write_table(data, path)
    if data.n_features:
        assert read_table(path).equals(dense(data))
    else:
        assert read_table(path, dtype=data.X.dtype).equals(dense(data))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    path.unlink()


@given(
    ranking_data(ids=st.sampled_from(["1", "007", "a,b", 'q"', "é", "NA", "x\ny", " 1", "+1", "1.0"] * 2)),
    st.sampled_from(["csv", "tsv", "csv.gz", "tsv.zst"]),
)
@file_settings
def test_csv_files_read_back_exactly(tmp_path, data, suffix):
    path = tmp_path / f"data.{suffix}"
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        write_table(data, path)
    assert [record.category for record in records] == ([WeightsWarning] if weights_of(data) else [])
    again = read_table(path, dtype=data.X.dtype, **weights_of(data))
    if data.qids.tolist() == ["1"]:  # the one thing that text cannot tell
        again = again.replace(qids=["1"])
    assert again.equals(dense(data))
    path.unlink()


def test_strips_of_many_rows_join_seamlessly(tmp_path):
    rng = np.random.default_rng(0)
    n = 70_000
    data = RankingData(rng.normal(size=(n, 3)), rng.integers(0, 5, n), qid=np.arange(n) // 7, document_ids=np.arange(n))
    for suffix in ("parquet", "arrow", "csv"):
        write_table(data, tmp_path / f"data.{suffix}")
        assert read_table(tmp_path / f"data.{suffix}").equals(data)


def test_files_remember_features_with_the_names_of_roles(tmp_path):
    data = RankingData([[1.0, 2.0]], [1], feature_names=["weight", "grade"])
    write_table(data, tmp_path / "data.parquet")
    assert read_table(tmp_path / "data.parquet").equals(data)
    with pytest.raises(DataError, match="'grade' would be read as the label"):
        write_table(data, tmp_path / "data.csv")
    with pytest.raises(DataError, match="A feature is called 'label'"):
        to_frame(data.replace(feature_names=["label", "f"]))
    assert not (tmp_path / "data.csv").exists()


def test_remembered_roles_outlive_a_changed_table():
    table = to_frame(RankingData([[1.0, 2.0]], [1], feature_names=["weight", "f"]))
    renamed = table.rename_columns(["query_id", "relevance", "weight", "f"]).replace_schema_metadata(
        table.schema.metadata
    )
    data = from_frame(renamed)
    assert data.labels.tolist() == [1]
    assert data.feature_names == ("weight", "f")
    with pytest.raises(DataError, match="metadata is damaged"):
        from_frame(table.replace_schema_metadata({"toprank": json.dumps({"roles": 3})}))


def test_several_files_and_folders_are_one_table(tmp_path):
    data = from_frame(pa.table(TABLE))
    folder = tmp_path / "parts"
    folder.mkdir()
    write_table(data.select([1]), folder / "part-1.parquet")
    write_table(data.select([0]), folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".part-2.parquet.crc").touch()
    assert read_table(folder).equals(data)
    assert read_table([folder / "part-1.parquet", folder / "part-0.parquet"]).equals(data.select([1, 0]))


def test_files_of_a_folder_are_taken_by_their_numbers(tmp_path):
    parts = [pa.table({"qid": [i, i], "label": [0, 1], "f": [float(i), -1.0]}) for i in range(12)]
    for number, part in enumerate(parts):
        parquet.write_table(part, tmp_path / f"part.{number}.parquet")  # as Dask names them: 10 follows 9, not 1
    assert read_table(tmp_path).qids.tolist() == list(range(12))


def test_files_of_one_table_have_the_same_columns_and_types(tmp_path):
    first = {"qid": [1], "label": [0], "f": np.float32([0.5])}
    parquet.write_table(pa.table(first), tmp_path / "0.parquet")
    parquet.write_table(pa.table({"f": [2**24 + 1], "label": [1], "qid": [2]}), tmp_path / "1.parquet")
    for regroup in (False, True):
        with pytest.raises(FormatError, match=r"1\.parquet: Column 'f' holds int64, but float in .*0\.parquet.*dtype="):
            read_table(tmp_path, regroup=regroup)
    data = read_table(tmp_path, dtype="float64")
    assert data.X.tolist() == [[0.5], [2**24 + 1]]
    parquet.write_table(pa.table(first | {"g": [1.0]}), tmp_path / "1.parquet")
    with pytest.raises(FormatError, match=r"1\.parquet: .*0\.parquet does not have the column 'g' of this file"):
        read_table(tmp_path)
    assert read_table(tmp_path, features=["f"]).n_features == 1
    parquet.write_table(pa.table({"qid": [3], "label": [1]}), tmp_path / "1.parquet")
    with pytest.raises(FormatError, match=r"1\.parquet: The column 'f' of .*0\.parquet is missing here"):
        read_table(tmp_path)


def test_the_index_of_a_pandas_frame_is_no_feature(tmp_path):
    frame = pd.DataFrame({"qid": [1, 1, 2, 2], "label": [0, 1, 0, 1], "f": [1.0, 2, 3, 4]})
    some = frame[frame.f != 2]
    frame.iloc[:1].to_parquet(tmp_path / "0.parquet")  # its index is a plain range, which takes no column
    some[1:].to_parquet(tmp_path / "1.parquet")
    assert "__index_level_0__" in parquet.read_schema(tmp_path / "1.parquet").names
    expected = from_frame(some)
    assert expected.feature_names == ("f",)
    assert read_table(tmp_path).equals(expected)
    assert read_table(sorted(tmp_path.iterdir(), reverse=True)).equals(expected.select([1, 0]))
    assert from_frame(pa.Table.from_pandas(some)).equals(expected)
    assert read_table(tmp_path / "1.parquet", features=["__index_level_0__"]).X[:, 0].tolist() == [2, 3]
    frame.set_index("qid").to_parquet(tmp_path / "2.parquet")  # an index may still play a role
    assert read_table(tmp_path / "2.parquet").qids.tolist() == [1, 2]


@pytest.mark.parametrize(
    "metadata", [b"", b"[]", b"{", b'{"index_columns": 3}', b'{"index_columns": [{"kind": "range"}]}']
)
def test_strange_metadata_of_pandas_do_no_harm(metadata):
    table = pa.table(TABLE).replace_schema_metadata({b"pandas": metadata})
    assert from_frame(table).equals(from_frame(pa.table(TABLE)))


def test_folders_among_files_and_folders_called_like_a_file(tmp_path):
    data = from_frame(pa.table(TABLE | {"qid": ["a", "b", "c"]}))
    inner = tmp_path / "one" / "sub.parquet"
    inner.mkdir(parents=True)
    write_table(data.select([0]), tmp_path / "one" / "first.parquet")
    write_table(data.select([1]), inner / "part.parquet")
    write_table(data.select([2]), tmp_path / "last.parquet")
    assert read_table([tmp_path / "one", tmp_path / "last.parquet"]).equals(data)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="empty contains no Parquet files"):
        read_table([tmp_path / "one", tmp_path / "empty"])


@pytest.mark.parametrize(("name", "kind"), [("data.csv", "gz"), ("data.tsv", "zst"), ("data.csv.gz", "csv")])
def test_compressed_tables_are_told_by_content(tmp_path, name, kind):
    data, suffix = from_frame(pa.table(TABLE)), name.split(".")[1]
    written = tmp_path / ("other.csv" if kind == "csv" else f"other.{suffix}.{kind}")
    write_table(data, written)
    written.rename(tmp_path / name)
    assert read_table(tmp_path / name).equals(data)


def test_what_is_not_used_of_an_arrow_file_is_not_unpacked(tmp_path):
    rows = 20_000
    wide = {f"f{number}": np.random.default_rng(number).random(rows) for number in range(20)}
    table = pa.table({"qid": np.zeros(rows, int), "label": np.zeros(rows)} | wide)
    feather.write_feather(table, tmp_path / "data.feather", compression="zstd")
    [source] = sources.sources_of(tmp_path / "data.feather")
    layout = reading.common_layout([source], TableOptions(features=["f3"]))
    assert source.n_rows == rows
    before, unpacked = pa.total_allocated_bytes(), []
    for batch in source.batches(layout):
        unpacked.append(pa.total_allocated_bytes() - before)
        assert batch.schema.names == ["label", "qid", "f3"]
    assert max(unpacked) < 4 * 8 * rows < wide["f0"].nbytes * len(wide) / 4


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_table_that_becomes_shorter_is_refused(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"data.{suffix}"
    write_table(from_frame(pa.table({"qid": [1] * 3000, "label": [0] * 3000, "f": [1.0] * 3000})), path)
    monkeypatch.setattr(sources, "_STRIP", 1024)
    [source] = sources.sources_of(path)
    layout = reading.common_layout([source], TableOptions())
    batches = source.batches(layout)
    assert next(batches).num_rows == 1024
    getsize = sources.os.path.getsize
    monkeypatch.setattr(sources.os.path, "getsize", lambda file: getsize(file) - 1)
    with pytest.raises(FileError, match=rf"{path.name} became shorter while it was read"):
        next(batches)


def test_a_query_split_over_files_is_refused_or_regrouped(tmp_path):
    for number, qid in enumerate([1, 2, 1]):
        parquet.write_table(pa.table({"qid": [qid], "label": [number], "f": [0.5]}), tmp_path / f"{number}.parquet")
    with pytest.raises(FormatError, match="query 1 are not contiguous"):
        read_table(tmp_path, regroup=False)
    assert read_table(tmp_path).labels.tolist() == [0, 2, 1]


# Damaged files


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "Empty CSV"),
        ("qid,label,f\n", None, "no rows"),
        ("qid,label,f\n1,0,0.5\n1,1,high\n", 3, "column 3, .*'high'"),
        ("qid,label,f\n1,0,0.5\n1,1\n", 3, "Expected 3 columns, got 2"),
        ("qid,label,f\n1,low,0.5\n", 2, "column 2, .*'low'"),
        ("qid,label,f\n1,inf,0.5\n", None, "label of row 0 is inf"),
        ("qid,label,f,f\n1,0,1,2\n", None, "Two columns are called 'f'"),
        ('qid,label,f\n"1,0,0.5\n', 2, "Expected 3 columns"),
        (b"qid,label,f\n\xff\xfe,0,1\n", 2, "UTF8"),
        (b"\xff\xfe\x00,label,f\n1,0,1\n", None, "utf-8"),
        (b"\x00" * 1000, None, "."),
        ("qid,label,f\n1,0,1\n1,0,1e400\n", 3, "'1e400' in column 'f' is too large for float64"),
        ("qid,label,f\n1,0,inf\n1,0,-1" + "0" * 400 + "\n", 3, "'-10000.* in column 'f' is too large for float64"),
        ("qid,label,f\n1,0,1\n1,2e+999,1\n", 3, "'2e[+]999' in column 'label' is too large"),
        ("qid,label,f\n1,0,1\n,0,1\n", 3, "Column 'qid' is empty; give every row an id"),
        ('qid,label,f\n"",0,1\n', 2, "Column 'qid' is empty"),
        ("qid,label,docid\n1,0,a\n1,0,\n", 3, "Column 'docid' is empty"),
        ("qid,label,docid\n1,0,a\n1,0,a\0\n", None, "ids may not end in a zero byte"),
    ],
)
def test_malformed_csv_is_refused_in_a_sentence(tmp_path, text, line, message):
    path = tmp_path / "data.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FormatError, match=message) as caught:
        read_table(path)
    assert caught.value.line == line
    assert str(path) in str(caught.value)


def test_csv_holds_infinities_that_are_written_as_such_and_floats_of_their_size(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("qid,label,f,g\n1,0,inf,1e38\n1,0,-Infinity,3.4e38\n1,0,1e-400,1e10\n")
    expected = [[np.inf, 1e38], [-np.inf, 3.4e38], [0, 1e10]]
    np.testing.assert_array_equal(read_table(path).X, expected)
    np.testing.assert_array_equal(read_table(path, dtype="float32").X, np.array(expected, dtype=np.float32))
    path.write_text("qid,label,f\n1,0,1e39\n")
    with pytest.raises(FormatError, match="too large for float32; read with dtype='float64'"):
        read_table(path, dtype="float32")


def test_csv_ids_are_told_apart_to_the_last_digit(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(f"qid,label,docid\n{2**53},0,{2**53}\n{2**53 + 1},0,{2**53 + 1}\n")
    data = read_table(path)
    assert data.qids.tolist() == [2**53, 2**53 + 1]
    assert data.document_ids.tolist() == [str(2**53), str(2**53 + 1)]


def test_csv_lines_may_end_as_on_old_macs(tmp_path):
    (tmp_path / "data.csv").write_bytes(b"qid,label,f\r1,0,1\r1,1,2\r")
    assert read_table(tmp_path / "data.csv").X.tolist() == [[1], [2]]


def test_csv_rows_may_be_longer_than_a_block(tmp_path, monkeypatch):
    rows = 2_000
    lines = [f"{row // 3},0,{row},{'x' * (9_000 if row % 700 == 699 else 2)}\n" for row in range(rows)]
    path = tmp_path / "data.csv"
    path.write_text("qid,label,f,title\n" + "".join(lines))
    monkeypatch.setattr(sources, "_CSV_BLOCKS", (1 << 12, 1 << 16))
    data = read_table(path, features=["f"])
    np.testing.assert_array_equal(data.X[:, 0], np.arange(rows))
    np.testing.assert_array_equal(data.qid, np.arange(rows) // 3)
    monkeypatch.setattr(sources, "_CSV_BLOCKS", (1 << 10, 1 << 11))
    with pytest.raises(FormatError, match=r"has more than 0 MiB of text\. Look for a missing closing quotation mark"):
        read_table(path, features=["f"])
    path.write_text("qid,label,f,title\n1,0,1," + "x" * (3 << 20) + "\n")
    monkeypatch.undo()
    assert read_table(path, features=["f"]).n_documents == 1


@pytest.mark.parametrize(("change", "kind"), [({"qid": ["", "b"]}, "query"), ({"document_ids": ["", "b"]}, "document")])
def test_empty_ids_are_not_written_to_csv(tmp_path, change, kind):
    data = RankingData([[1.0], [2.0]], **({"qid": [1, 1]} | change))
    with pytest.raises(DataError, match=f"A {kind} id is empty, which CSV cannot represent"):
        write_table(data, tmp_path / "data.csv")
    write_table(data, tmp_path / "data.parquet")
    assert read_table(tmp_path / "data.parquet").equals(data)


@pytest.mark.parametrize("nothing", ["", "  ", None])
@pytest.mark.parametrize("column", ["qid", "sku"])
def test_ids_that_are_blank_are_refused_by_row(tmp_path, nothing, column):
    frame = pd.DataFrame({"qid": ["a", "a b"], "sku": ["x", "y 1"], "label": [0, 1], "f": [1.0, 2.0]})
    assert from_frame(frame).qids.tolist() == ["a", "a b"]
    frame.loc[1, column] = nothing
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    stored = tmp_path / "t.toprank-data"
    doors = [
        lambda: from_frame(frame),
        lambda: read(tmp_path / "t.parquet"),
        lambda: read(tmp_path / "t.csv"),
        lambda: convert(tmp_path / "t.parquet", stored),
    ]
    for door in doors:
        empty = (
            rf"Column '{column}' .*is empty( in row 1 \(counted from 0\); fill it in every row|; give every row an id)"
        )
        with pytest.raises(DataError, match=empty):
            door()
    assert not stored.exists()


def test_numbers_may_follow_after_the_first_megabyte(tmp_path):
    rows = 200_000
    path = tmp_path / "data.csv"
    path.write_text("qid,label,f\n" + "1,0,1\n" * rows + "1,0,0.5\n")
    assert read_table(path).X[-1, 0] == 0.5
    path.write_text("qid,label,f\n" + "1,0,1\n" * rows + "1,0,oops\n")
    with pytest.raises(FormatError, match="'oops'") as caught:
        read_table(path)
    assert caught.value.line == rows + 2


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv.gz"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"junk" * 100, "half"])
def test_truncated_and_foreign_files_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"data.{suffix}"
    write_table(from_frame(pa.table(TABLE)), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(FormatError, match=path.name):
        read_table(path)


@given(st.data())
@file_settings
def test_flipped_bytes_never_crash(tmp_path, data):
    kind = data.draw(st.sampled_from(["parquet", "arrow", "csv"]))
    path = tmp_path / f"data.{kind}"
    write_table(from_frame(pa.table(TABLE)), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(ToprankError):
        assert read_table(path).n_documents > 0


def test_missing_files_and_useless_folders(tmp_path):
    for name in ("no.parquet", "no.arrow", "no.csv"):
        with pytest.raises(FileError, match="cannot be read: No such file"):
            read_table(tmp_path / name)
    with pytest.raises(FileError, match="contains no Parquet files"):
        read_table(tmp_path)
    with pytest.raises(DataError, match="list of paths is empty"):
        read_table([])
    with pytest.raises(DataError, match="is not clear from its name; give format= as one of parquet, arrow, csv"):
        read_table(tmp_path / "data.txt")


def test_nothing_is_left_behind_when_writing_fails(tmp_path):
    data = from_frame(pa.table(TABLE))
    with pytest.raises(FileError, match="cannot be written: No such file"):
        write_table(data, tmp_path / "absent" / "data.parquet")
    (tmp_path / "data.csv").mkdir()
    with pytest.raises(FileError, match="cannot be written"):
        write_table(data, tmp_path / "data.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_files_are_ordinary_tables_to_others(tmp_path):
    data = from_frame(pa.table(TABLE))
    for suffix in ("parquet", "arrow", "csv"):
        write_table(data, tmp_path / f"data.{suffix}")
    expected = {"qid": TABLE["qid"], "label": TABLE["label"], "bm25": TABLE["bm25"], "hits": TABLE["hits"]}
    assert parquet.read_table(tmp_path / "data.parquet").to_pydict() == expected
    assert ipc.open_file(tmp_path / "data.arrow").read_all().to_pydict() == expected
    assert csv.read_csv(tmp_path / "data.csv").to_pydict() == expected


def test_the_index_of_pandas_is_no_feature_through_polars_either(tmp_path):
    import polars

    frame = pd.DataFrame({"qid": [1, 1, 2], "label": [0, 1, 1], "f": [0.5, 1.5, 2.5]}, index=[30, 10, 20])
    frame.to_parquet(tmp_path / "t.parquet")
    through = polars.read_parquet(tmp_path / "t.parquet")
    through.write_parquet(tmp_path / "p.parquet")
    assert "__index_level_0__" in through.columns
    for one in (through, through.to_pandas(), through.to_arrow()):
        assert from_frame(one).feature_names == ("f",)
        assert from_frame(one, features=["f", "__index_level_0__"]).X[:, 1].tolist() == [30, 10, 20]
        assert from_frame(one, document_id="__index_level_0__").document_ids.tolist() == ["30", "10", "20"]
    assert read_table(tmp_path / "p.parquet").feature_names == ("f",)
    floats = through.select("f", polars.col("__index_level_0__").cast(polars.Float64)).to_pandas()
    assert RankingData(floats, [0, 1, 1], qid=[1, 1, 2]).feature_names == ("f",)


def test_a_column_name_that_no_file_can_hold_is_refused():
    """Half a surrogate pair, which NumPy takes and Arrow does not."""
    frame = pd.DataFrame(np.ones((2, 1)), columns=pd.Index(["a\ud800b"], dtype=object)).assign(qid=1, label=[0, 1])
    with pytest.raises(DataError, match=r"The column name 'a\\ud800b' cannot be written as UTF-8"):
        from_frame(frame)
