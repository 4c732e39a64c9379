"""Files of tables: Parquet (one file or a folder of them), Arrow IPC / Feather, CSV; read in strips."""

from toprank.data.tables.reading import read_table
from toprank.data.tables.writing import write_table

__all__ = ["read_table", "write_table"]
