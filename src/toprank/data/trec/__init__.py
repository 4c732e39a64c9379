"""TREC files: judgments (qrels) and rankings (runs), as columns, and to and from `RankingData`."""

from toprank.data.trec.files import (
    data_of_qrels,
    data_of_run,
    qrels_of,
    read_qrels,
    read_run,
    run_of,
    write_qrels,
    write_run,
)
from toprank.data.trec.tables import Qrels, Run

__all__ = [
    "Qrels", "Run", "data_of_qrels", "data_of_run", "qrels_of", "read_qrels", "read_run", "run_of", "write_qrels",
    "write_run",
]  # fmt: skip
