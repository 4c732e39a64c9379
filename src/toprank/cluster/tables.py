"""Files of tables that are partitions of one: all are read by the columns of the first."""

from __future__ import annotations

from collections.abc import Sequence

from toprank.cluster.sources import FilePart, Parts
from toprank.cluster.work import in_sentences
from toprank.data.frames.layout import USUAL_NAMES
from toprank.data.tables.reading import refuse_drift
from toprank.data.tables.sources import about, common_layout, sources_of

__all__ = ["agreed", "tables_of", "with_tables"]


def tables_of(parts: Parts) -> list[FilePart]:
    """The partitions that are files, where there are several, whose columns must agree."""
    files = [source for source in parts.sources if isinstance(source, FilePart)]
    return files if len(files) > 1 else []


@in_sentences
def agreed(files: Sequence[FilePart]) -> list[FilePart]:
    """Files of tables, to be read by the columns of the first; others as they are. Runs on a worker.

    Raises:
        FormatError: a file has other columns than the first, or of other types.
    """
    if files[0].kind not in ("parquet", "arrow", "csv"):
        return list(files)
    options = files[0].options
    given, features, dtype = (
        {role: options.get(role) for role in USUAL_NAMES},
        options.get("features"),
        options.get("dtype"),
    )
    tables = sources_of([file.path for file in files], options.get("format"))
    with about(tables[0].path):
        layout = common_layout(tables, given, features, dtype)
        refuse_drift(tables, layout, any_column=features is not None, any_number=dtype is not None)
    fixed = options | {role: layout.roles.get(role, False) for role in USUAL_NAMES}
    fixed |= {"features": layout.features, "dtype": layout.dtype}
    return [FilePart(file.path, fixed) for file in files]


def with_tables(parts: Parts, tables: Sequence[FilePart]) -> Parts:
    """The partitions with the files among them replaced, in their order."""
    others = iter(tables)
    return parts.replace([next(others) if isinstance(one, FilePart) else one for one in parts.sources])
