"""Tables of a reproduction: published and our figures, the fit of each convention, and the claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toprank.display.tables import Part, Table

if TYPE_CHECKING:
    from toprank.reproduce.findings import Case, DuelCount, Figure, Reproduction


def parts_of(reproduction: Reproduction) -> list[Part]:
    """Return all tables under the convention of the paper and under `standard`, with the outcome of the claims."""
    parts: list[Part] = [_head(reproduction)]
    for convention in dict.fromkeys((reproduction.study.convention, "standard")):
        parts += _under(reproduction, convention)
    return [*parts, *_fit(reproduction), _failures(reproduction), reproduction.study.remarks]


def _head(reproduction: Reproduction) -> str:
    study = reproduction.study
    return (
        f"{study.paper}\n"
        f"Datasets: {', '.join(reproduction.sets)}. Selected by {study.selection_metric} under {study.convention} on "
        "validation data. Figures are means of the fold means, each with its 95 % interval over queries; differences "
        "and p-values are paired, over the pooled queries."
    )


def _under(reproduction: Reproduction, convention: str) -> list[Part]:
    role = " (convention of the paper, as far as specified)" if convention == reproduction.study.convention else ""
    parts: list[Part] = [f"Under {convention}{role}"]
    figures = reproduction.figures(convention)
    for title in dict.fromkeys(figure.table for figure in figures):
        parts += [title, _figure_table([figure for figure in figures if figure.table == title])]
    counts = reproduction.counts(convention)
    cases = reproduction.cases(convention) if counts else []
    for title in dict.fromkeys(count.duel for count in counts):
        parts += [f"{title} (paper / ours)", _count_table([count for count in counts if count.duel == title])]
        parts += ["Case by case", _case_table([case for case in cases if case.duel == title])]
    tested = reproduction.tested_claims(convention)
    if tested:
        rows = [
            (
                *(claim.claim, claim.dataset, f"{claim.difference:+.4f}", f"[{claim.low:+.4f}, {claim.high:+.4f}]"),
                *(f"{claim.p:.3f}", claim.verdict),
            )
            for claim in tested
        ]
        parts += ["Claims", Table(("claim", "set", "difference", "interval", "p", "verdict"), rows, 2)]
    return parts


def _figure_table(figures: list[Figure]) -> Table:
    rows = [
        (
            *(figure.dataset, figure.metric, figure.system, _shown(figure.paper, ".3f"), _shown(figure.ours)),
            _shown(figure.difference, "+.4f"),
            "–" if figure.low is None or figure.high is None else f"[{figure.low:.4f}, {figure.high:.4f}]",
        )
        for figure in figures
    ]
    return Table(("set", "metric", "system", "paper", "ours", "difference", "interval"), rows, 3)


def _count_table(counts: list[DuelCount]) -> Table:
    rows = []
    for count in counts:
        paper = ("–",) * 4 if count.paper is None else (*map(str, count.paper[:3]), f"{count.paper[3]:+.1f} %")
        ours = (str(count.better), str(count.same), str(count.worse), f"{count.change:+.1f} %")
        rows.append((count.dataset, *(f"{theirs} / {mine}" for theirs, mine in zip(paper, ours, strict=True))))
    return Table(("set", "better", "same", "worse", "mean change"), rows, 1)


def _case_table(cases: list[Case]) -> Table:
    rows = [
        (
            case.dataset,
            case.new,
            case.old,
            case.metric,
            *map(_shown, (case.new_mean, case.old_mean, case.p)),
            case.verdict,
        )
        for case in cases
    ]
    return Table(("set", "new", "old", "metric", "new", "old", "p", "the new one is"), rows, 4)


def _fit(reproduction: Reproduction) -> list[Part]:
    """Return all published numbers under every convention, and the best-fitting convention."""
    parts: list[Part] = []
    if reproduction.fit:
        parts += [
            "Published figures, under every convention",
            _all_figures(reproduction),
            nearest_convention(reproduction),
        ]
    if reproduction.count_fit:
        parts += ["Better/same/worse, under every convention", _all_counts(reproduction)]
        fewest = min(reproduction.count_fit.values())
        best_ones = [name for name, misplaced in reproduction.count_fit.items() if misplaced == fewest]
        parts.append(f"Nearest to the paper's counts: {', '.join(best_ones)} ({fewest} cases differ).")
    return parts or ["No figures were published for the available datasets, so the best-fitting convention is unknown."]


def nearest_convention(reproduction: Reproduction) -> str:
    """Return a sentence on the best-fitting convention, or on those that rounding cannot separate."""
    best, named = reproduction.nearest, reproduction.study.convention
    if len(best) == 1:
        relation = (
            "the convention of the paper" if best[0] == named else f"while the text of the paper indicates {named}"
        )
        return f"The published figures are closest to ours under {best[0]}, {relation}."
    level = ", ".join(f"{name} ({reproduction.fit[name]:.4f})" for name in best)
    says = "is one of them" if named in best else "is not one of them"
    return (
        f"The published figures are equally close to ours under {level}, within their rounding error. {named}, which "
        f"the text of the paper indicates, {says}."
    )


def _all_figures(reproduction: Reproduction) -> Table:
    columns = {
        name: [figure for figure in reproduction.figures(name) if figure.paper is not None]
        for name in reproduction.conventions
    }
    rows = []
    for same in zip(*columns.values(), strict=True):
        first, ours = same[0], (_shown(figure.ours) for figure in same)
        rows.append((first.dataset, first.metric, first.system, _shown(first.paper, ".3f"), *ours))
    rows.append(("", "", "mean distance", "", *(_shown(reproduction.fit.get(name)) for name in columns)))
    head = ("set", "metric", "system", "paper", *columns)
    return Table(head, rows, 3)


def _all_counts(reproduction: Reproduction) -> Table:
    rows = []
    for name, misplaced in reproduction.count_fit.items():
        for count in reproduction.counts(name):
            if count.paper is not None:
                paper, ours = ("/".join(map(str, counts)) for counts in (count.paper[:3], count.tally))
                rows.append((name, count.dataset, paper, ours, f"{count.change:+.1f} %", str(misplaced)))
    head = ("convention", "set", "paper", "ours", "mean change", "cases that differ, all sets")
    return Table(head, rows, 2)


def _shown(value: float | None, how: str = ".4f") -> str:
    return "–" if value is None else format(value, how)


def _failures(reproduction: Reproduction) -> str:
    lines = [
        f"{failure.system} failed on {failure.dataset}, {failure.fold}: {failure.error}"
        for part in reproduction.parts
        for failure in part.failures
    ]
    lines += [f"Cannot be tested on these datasets: {claim}." for claim in reproduction.untested_claims()]
    return "\n".join(lines)
