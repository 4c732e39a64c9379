"""Files of tables: Parquet (one file or a folder of them), Arrow IPC / Feather, CSV; read in strips.

Memory stays near the size of the arrays: a strip of rows is converted, copied to its place, and forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from toprank.data.dataset import RankingData
from toprank.data.frames.conversion import gather, role_values
from toprank.data.frames.layout import USUAL_NAMES, Choice
from toprank.data.tables.sources import about, common_layout, sources_of
from toprank.data.tables.streaming import refuse_drift
from toprank.data.tables.writing import table_format, write_table

__all__ = ["read_table", "table_format", "write_table"]

PathLike = str | os.PathLike[str]


def read_table(
    paths: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    label: Choice = None,
    qid: Choice = None,
    features: Sequence[str] | None = None,
    document_id: Choice = None,
    weight: Choice = None,
    query_weight: Choice = None,
    position: Choice = None,
    dtype: npt.DTypeLike | None = None,
    regroup: bool = False,
) -> RankingData:
    """Ranking data from Parquet, Arrow IPC (Feather) or CSV files, or from a folder of Parquet files.

    The columns' roles are found as in `toprank.data.frames.from_frame`. Several files are read as one table, in
    order, and must have the same columns of the same types; `features` says which columns count, `dtype` settles the
    precision of the features. A CSV file needs a header line; it may be compressed (.gz, .zst); numbers are
    float64 unless `dtype` says otherwise; query ids that are all written as plain whole numbers are numbers.
    """
    given: dict[str, Choice] = {
        "label": label,
        "qid": qid,
        "document_id": document_id,
        "weight": weight,
        "query_weight": query_weight,
        "position": position,
    }
    sources = sources_of(paths, format)
    with about(sources[0].path):
        layout = common_layout(sources, given, features, dtype)
        refuse_drift(sources, layout, any_column=features is not None, any_number=dtype is not None)
        batches = (batch for source in sources for batch in source.batches(layout))
        n_rows = sum(source.n_rows or 0 for source in sources)
        return gather(batches, layout, n_rows, regroup=regroup, ids_from_text=sources[0].kind == "csv")


def query_ids(
    paths: PathLike | Sequence[PathLike], *, format: str | None = None, qid: Choice = None
) -> npt.NDArray[Any]:
    """The query id of each row, in the order of the files, however the rows are grouped."""
    given: dict[str, Choice] = {role: qid if role == "qid" else False for role in USUAL_NAMES}
    sources = sources_of(paths, format)
    with about(sources[0].path):
        layout = common_layout(sources, given, [], None)
        name = layout.roles["qid"]
        return role_values("qid", name, [batch.column(name) for source in sources for batch in source.batches(layout)])
