"""Results by slice of the queries: intervals for each slice, and a table."""

from __future__ import annotations

from toprank.display.svg import Markup, join, tag
from toprank.evaluation.plots import intervals
from toprank.report.content import RankedCollection
from toprank.report.headline import difference_between
from toprank.report.parts import Panel, panel, plain_table, sentences, side_by_side

_MAX_PAIRS = 4  # pairs with a plot, all with the leader or the baseline; the table has all


def _slices(part: RankedCollection, _: str) -> Markup | None:
    sliced = part.comparison.slices
    if sliced is None:
        return None
    metric, reference = part.comparison.metrics[0], part.comparison.baseline or part.ranked_systems[0]
    panels = []
    for name in [name for name in part.ranked_systems if name != reference][:_MAX_PAIRS]:
        rows = [row for row in sliced.differences if row.metric == metric and {row.a, row.b} == {name, reference}]
        tested = [(row.slice, row.tested) for row in rows if row.tested is not None]
        whole = difference_between(part.comparison, name, reference, metric)
        if not tested or whole is None:
            continue
        words = [f"{slice_} ({d.n:,})" for slice_, d in tested] + [f"all queries ({whole.n:,})"]
        drawn = intervals([*(d for _, d in tested), whole], part.comparison.margin, words).figure()
        panels.append(panel(f"{whole.a} − {whole.b}, {metric}", drawn))
    verdicts = sentences(sliced.summary.splitlines())
    table = tag(
        "details", tag("summary", "All slices as a table"), plain_table(sliced.table(), "Slices"), open=not panels
    )
    return join(
        [side_by_side(*panels) if panels else Markup(), verdicts, table, tag("p", sliced.methods, cls="remark")]
    )


def _remark(part: RankedCollection) -> str:
    sliced = part.comparison.slices
    by = "" if sliced is None else f" by {sliced.slices.column}"
    too_small = (
        "" if sliced is None else f" Slices of fewer than {sliced.min_queries} queries are listed but not tested."
    )
    title = f"The comparison by slice of the queries{by}"
    return f"{title}. An overall mean can hide slices that lose.{too_small}"


SLICES = Panel("slices", "Slices", "Results by slice", _remark, _slices)
