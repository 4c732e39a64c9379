"""Results as tables.

The tidy table has a row for each query, system, seed, convention and metric, and is stored as Parquet. Tables for
terminals, Markdown and LaTeX state whether they show the mean of fold means, as in papers, or the mean over pooled
queries, which the tests refer to.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.bytesource import output
from toprank.display.record import to_json
from toprank.display.tables import Part, Table
from toprank.errors import DataError, FileError, FormatError, count_of
from toprank.evaluation import Comparison, Difference
from toprank.significance.results import bounds, number

if TYPE_CHECKING:
    from toprank.experiment.results import Results

_METADATA = b"toprank"
_FORMAT, _VERSION = "toprank results", 1
_COLUMNS = ("dataset", "fold", "qid", "documents", "relevant", "system", "seed", "convention", "metric", "value")


class ResultBlock(NamedTuple):
    """Consecutive rows that differ only in the query."""

    dataset: str
    fold: str
    system: str
    seed: int | None
    convention: str
    metric: str
    qids: Sequence[str]
    documents: npt.NDArray[Any]
    relevant: npt.NDArray[Any]
    values: FloatArray
    slices: Sequence[str] | None = None

    @property
    def place(self) -> tuple[str, str, str, str, str, int | None]:
        """Key of the block: (dataset, convention, metric, system, fold, seed)."""
        return self.dataset, self.convention, self.metric, self.system, self.fold, self.seed


def table_of(blocks: Sequence[ResultBlock]) -> Any:
    """Return the blocks as one Arrow table; values of queries that are left out are null."""
    import pyarrow as pa

    sizes = np.array([len(block.values) for block in blocks], dtype=np.int64)

    def repeated(name: str) -> Any:
        words = {word: place for place, word in enumerate(dict.fromkeys(getattr(block, name) for block in blocks))}
        codes = np.repeat(np.array([words[getattr(block, name)] for block in blocks], dtype=np.int32), sizes)
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(words), pa.string()))

    def joined(name: str, kind: Any) -> npt.NDArray[Any]:
        parts = [np.asarray(getattr(block, name), dtype=kind) for block in blocks]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)

    seeds = np.repeat(np.array([-1 if block.seed is None else block.seed for block in blocks], dtype=np.int64), sizes)
    values = joined("values", np.float64)
    columns = {
        "dataset": repeated("dataset"),
        "fold": repeated("fold"),
        "qid": pa.array([qid for block in blocks for qid in block.qids], pa.string()).dictionary_encode(),
        "documents": pa.array(joined("documents", np.int32)),
        "relevant": pa.array(joined("relevant", np.int32)),
        "system": repeated("system"),
        "seed": pa.array(seeds, mask=seeds < 0),
        "convention": repeated("convention"),
        "metric": repeated("metric"),
        "value": pa.array(values, mask=np.isnan(values)),
    }
    if any(block.slices is not None for block in blocks):
        none: list[str | None] = [None]
        words = [word for block in blocks for word in block.slices or none * len(block.values)]
        columns["slice"] = pa.array(words, pa.string()).dictionary_encode()
    return pa.table(columns)


def blocks_of_table(table: Any) -> dict[tuple[str, str, str, str, str, int | None], FloatArray]:
    """Return values by `ResultBlock.place`, with NaN for null; queries of a fold are in the order of their first rows.

    Raises:
        DataError: if two blocks of a fold have different queries and cannot be paired.
    """
    names = ("dataset", "convention", "metric", "system", "fold")
    coded = [_codes(table.column(name)) for name in names]
    seeds = table.column("seed").fill_null(-1).to_numpy()
    values = table.column("value").to_numpy()
    if not len(values):
        return {}
    keys = np.column_stack([*(codes for codes, _ in coded), seeds])
    places, group = np.unique(keys, axis=0, return_inverse=True)
    queries = first_rows(table)
    order = np.lexsort((queries, group.reshape(-1)))
    ends = np.cumsum(np.bincount(group.reshape(-1), minlength=len(places)))
    blocks = {}
    expected: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
    for place, rows in zip(places.tolist(), np.split(order, ends[:-1]), strict=True):
        words = [coded[i][1][code] for i, code in enumerate(place[:-1])]
        if not np.array_equal(expected.setdefault((words[0], words[4]), queries[rows]), queries[rows]):
            raise DataError(
                f"{words[3]} on {words[0]} {words[4]} lacks rows for queries that another system, metric or seed has. "
                "Use the table as the experiment wrote it."
            )
        blocks[(*words, None if place[-1] < 0 else place[-1])] = values[rows].astype(np.float64)
    return blocks


def pooled_queries(table: Any, dataset: str, folds: Sequence[str]) -> Any:
    """Return one row per query of a dataset, in the order of `Results.query_values`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for fold in folds:
        rows = table
        for column, value in {"dataset": dataset, "fold": fold}.items():
            rows = rows.filter(pc.equal(pc.cast(rows.column(column), "string"), value))
        parts.append(rows.take(np.unique(first_rows(rows))))
    return pa.concat_tables(parts)


def first_rows(table: Any) -> npt.NDArray[np.int64]:
    """Return, for each row, the index of the first row with the same query and fold."""
    codes = np.column_stack([_codes(table.column(name))[0] for name in ("dataset", "fold", "qid")])
    _, first, query = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return first[query.reshape(-1)]


def _codes(column: Any) -> tuple[npt.NDArray[np.int64], list[str]]:
    import pyarrow as pa

    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary.to_pylist()


def write_table(table: Any, provenance: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the table with its provenance as Parquet, atomically."""
    import pyarrow.parquet as pq

    text = json.dumps({"format": _FORMAT, "format_version": _VERSION, **to_json(provenance, repr)}, ensure_ascii=False)
    with output(path) as stream:
        pq.write_table(table.replace_schema_metadata({_METADATA: text.encode()}), stream, compression="zstd")


def read_table(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """Return a table written by `write_table`, and its provenance."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise FileError(f"File not found: {os.fspath(path)}.") from None
    except (OSError, pa.ArrowException) as problem:
        raise FormatError(f"The file is not a readable Parquet file ({problem}).", path=path) from None
    try:
        provenance = json.loads((table.schema.metadata or {})[_METADATA])
        ours = provenance.pop("format") == _FORMAT and set(_COLUMNS) <= set(table.column_names)
        version = int(provenance.pop("format_version"))
    except (KeyError, ValueError, TypeError):
        ours, version = False, 0
    if not ours:
        raise FormatError("This Parquet file does not contain the results of an experiment.", path=path)
    if version > _VERSION:
        raise FormatError(
            f"The results have format {version}, but this version of toprank reads up to {_VERSION}. Update toprank.",
            path=path,
        )
    return table, provenance


_DASH = "–"
_DECIMALS = 4  # of LaTeX tables, as in LETOR papers


def dictionary(results: Results) -> dict[str, Any]:
    """Return the results as plain values for JSON."""
    datasets = {
        dataset: {
            **results.provenance["datasets"][dataset],
            "conventions": {convention: _numbers(results, dataset, convention) for convention in results.conventions},
        }
        for dataset in results.datasets
    }
    provenance = {name: value for name, value in results.provenance.items() if name != "datasets"}
    return {
        "datasets": to_json(datasets, repr),
        "cells": [cell.to_dict() for cell in results.cells],
        "failures": [asdict(failure) for failure in results.failures],
        "provenance": to_json(provenance, repr),
    }


def _numbers(results: Results, dataset: str, convention: str) -> dict[str, Any]:
    def each(function: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        return {metric: function(metric, convention, dataset) for metric in results.metrics}

    compared = comparison_of(results, dataset, convention)
    return {
        "mean_of_fold_means": each(results.fold_means),
        "by_fold": each(results.by_fold),
        "pooled_mean": each(results.pooled),
        "seed_std": each(results.seed_std),
        "pooled_comparison": None if compared is None else compared.to_dict(),
    }


def reference_of(results: Results, dataset: str, convention: str) -> str | None:
    """Return the system to compare the others with: the baseline, or the best by the first metric."""
    means = {name: value for name, value in results.pooled(None, convention, dataset).items() if not math.isnan(value)}
    baseline = results.provenance["baseline"]
    if baseline in means:
        return str(baseline)
    higher = results.provenance["metrics"][results.metrics[0]]["higher_is_better"]
    return (max if higher else min)(means, key=lambda name: means[name]) if means else None


def comparison_of(results: Results, dataset: str, convention: str) -> Comparison | None:
    """Compare all systems with the reference; None with fewer than two systems or an undefined metric."""
    reference = reference_of(results, dataset, convention)
    means = [results.pooled(metric, convention, dataset) for metric in results.metrics]
    if reference is None or len(means[0]) < 2 or any(math.isnan(value) for of in means for value in of.values()):
        return None
    return results.compare(dataset, baseline=reference, convention=convention)


def parts_of(results: Results) -> Sequence[Part]:
    """Return the paragraphs and tables of the results."""
    parts = [part for dataset in results.datasets for part in _dataset(results, dataset)]
    return [*parts, *results.inapplicable, *_warned(results)]


def _dataset(results: Results, dataset: str) -> list[Part]:
    parts = [part for convention in results.conventions for part in _under(results, dataset, convention)]
    failed: dict[tuple[str, str], list[str]] = {}
    for failure in results.failures:
        if failure.dataset == dataset:
            failed.setdefault((failure.system, failure.error), []).append(failure.fold)
    parts += [
        f"{_DASH} {system} failed on {', '.join(dict.fromkeys(folds))}: {error}"
        for (system, error), folds in failed.items()
    ]
    return parts


def _under(results: Results, dataset: str, convention: str) -> list[Part]:
    folds = results.provenance["datasets"][dataset]["folds"]
    queries = sum(fold["queries"]["test"] for fold in folds)
    seeds = (
        f", systems that use randomness: mean over {results.n_seeds} seeds ± their standard deviation"
        if results.n_seeds > 1
        else ""
    )
    size = f"{count_of(len(folds), 'fold')}, {count_of(queries, 'test query')}"
    heading = f"{dataset}: {size}, convention {convention}{seeds}."
    compared = comparison_of(results, dataset, convention)
    means = _means_table(results, dataset, convention, compared)
    if compared is None:
        return [heading, "Mean of fold means:", means, *_in_slices(results, dataset, convention)]
    why = "the baseline" if compared.baseline == results.provenance["baseline"] else f"the best by {results.metrics[0]}"
    level = f"{100 * compared.confidence:g} %"
    return [
        heading,
        f"Mean of fold means; * differs from {compared.baseline}, {why}:",
        means,
        f"Pooled queries: mean, and paired difference to {compared.baseline} with {level} interval:",
        _pooled_table(results, compared),
        _methods(compared, results.n_seeds),
        *(() if compared.slices is None else compared.slices._parts()),
    ]


def _in_slices(results: Results, dataset: str, convention: str) -> list[Part]:
    """Return the means in slices, for a single system."""
    slices = results.slices(dataset)
    if slices is None:
        return []
    means = {metric: results.by_slice(metric, convention, dataset) for metric in results.metrics}
    rows = [
        (name, system, f"{size:,}", *(number_or_dash(means[metric][system][name]) for metric in results.metrics))
        for name, size in slices.sizes.items()
        for system in means[results.metrics[0]]
    ]
    table = Table((slices.column, "system", "queries", *results.metrics), rows, names=2)
    return [f"By {slices.column}, means over pooled queries:", table, slices.rule]


def number_or_dash(value: float | None) -> str:
    """Format a mean; a dash if it is unknown."""
    return _DASH if value is None or math.isnan(value) else number(value)


def around(spread: float | None) -> str:
    """Format the standard deviation over seeds, or an empty string for a single seed."""
    return "" if spread is None or math.isnan(spread) else f" ± {number(spread)}"


def _methods(compared: Comparison, seeds: int) -> str:
    """Describe the tests and intervals."""
    correction = "uncorrected" if compared.correction == "none" else f"{compared.correction.capitalize()} over"
    systems, metrics = len(compared.systems) - 1, len(compared.metrics)
    family = f"{correction} {compared.tests} ({count_of(systems, 'system')} × {count_of(metrics, 'metric')})"
    return (
        f"*: p ≤ {compared.alpha:g}, paired {compared.test} test on the pooled queries, two-sided, {family}. "
        f"{compared.interval_method} Seed {compared.seed}.{_SEEDED if seeds > 1 else ''}"
    )


_SEEDED = " The test compares means over these seeds, so it does not cover other seeds."


def _means_table(results: Results, dataset: str, convention: str, compared: Comparison | None) -> Table:
    means = {metric: results.fold_means(metric, convention, dataset) for metric in results.metrics}
    spread = {metric: results.seed_std(metric, convention, dataset) for metric in results.metrics}
    stars = {(d.a, d.metric) for d in compared.differences if d.significant} if compared is not None else set()

    def cell(system: str, metric: str) -> str:
        star = "*" if (system, metric) in stars else ""
        return number_or_dash(means[metric].get(system)) + star + around(spread[metric].get(system))

    rows = [(system, *(cell(system, metric) for metric in results.metrics)) for system in results.systems]
    best = {
        (list(results.systems).index(s), 1 + at)
        for at, m in enumerate(results.metrics)
        for s in _best(results, m, means[m])
    }
    return Table(("system", *results.metrics), rows, names=1, best=frozenset(best), decimals=_DECIMALS)


def _best(results: Results, metric: str, means: Mapping[str, float]) -> list[str]:
    """Return the systems with the best mean, as printed."""
    sign = 1 if results.provenance["metrics"][metric]["higher_is_better"] else -1
    signed = {name: sign * round(value, _DECIMALS) for name, value in means.items() if not math.isnan(value)}
    return [name for name, value in signed.items() if value == max(signed.values())]


def _pooled_table(results: Results, compared: Comparison) -> Table:
    differences = {(d.a, d.metric): d for d in compared.differences}
    header = ("system", *(word for metric in compared.metrics for word in (metric, "difference")))
    rows = []
    for system in compared.systems:
        row = [system]
        for metric in compared.metrics:
            difference = differences.get((system, metric))
            row += [number(compared.means[system][metric]), "" if difference is None else _difference(difference)]
        rows.append(tuple(row))
    shown = list(compared.systems)
    best = {
        (shown.index(name), 1 + 2 * at)
        for at, metric in enumerate(compared.metrics)
        for name in _best(results, metric, {system: compared.means[system][metric] for system in shown})
    }
    rows += [(system, *([_DASH] * (len(header) - 1))) for system in results.systems if system not in compared.systems]
    return Table(header, rows, names=1, best=frozenset(best), decimals=_DECIMALS)


def _difference(difference: Difference) -> str:
    star = "*" if difference.significant else ""
    return f"{number(difference.difference)} {bounds(*difference.interval)}{star}"


def _warned(results: Results) -> list[str]:
    warned = [cell for cell in results.cells if cell.warnings]
    if not warned:
        return []
    first = warned[0]
    where = f"{first.system} on {first.dataset} {first.fold}: {first.warnings[0]}"
    return [f"{count_of(len(warned), 'cell')} warned (see Results.cells); the first, {where}"]
