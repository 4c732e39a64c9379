"""Table files: Parquet (files or folders), Arrow IPC / Feather and CSV, read in blocks."""

from toprank.data.tables.reading import read_table
from toprank.data.tables.writing import write_table

__all__ = ["read_table", "write_table"]
