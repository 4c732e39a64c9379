"""A reproduction as text: paper | ours | difference | interval, the conventions that fit, and the claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toprank.showing.tables import Part, Table

if TYPE_CHECKING:
    from toprank.reproduce.findings import Case, DuelCount, Figure, Reproduction

__all__ = ["nearest_convention", "parts_of"]


def parts_of(found: Reproduction) -> list[Part]:
    """All tables under the paper's convention and under `standard`, and what holds."""
    parts: list[Part] = [_head(found)]
    for convention in dict.fromkeys((found.study.convention, "standard")):
        parts += _under(found, convention)
    return [*parts, *_fit(found), _failures(found), found.study.remarks]


def _head(found: Reproduction) -> str:
    study = found.study
    return (
        f"{study.paper}\n"
        f"Sets: {', '.join(found.sets)}. Chosen by {study.select_by} under {study.convention} on validation data. "
        "Figures are means of the fold means, each with its 95 % interval over queries; differences and p-values are "
        "paired, over the pooled queries."
    )


def _under(found: Reproduction, convention: str) -> list[Part]:
    role = " (the paper's, as far as it says)" if convention == found.study.convention else ""
    parts: list[Part] = [f"Under {convention}{role}"]
    figures = found.figures(convention)
    for title in dict.fromkeys(figure.table for figure in figures):
        parts += [title, _figure_table([one for one in figures if one.table == title])]
    counts = found.counts(convention)
    cases = found.cases(convention) if counts else []
    for title in dict.fromkeys(count.duel for count in counts):
        parts += [f"{title} (paper / ours)", _count_table([one for one in counts if one.duel == title])]
        parts += ["Case by case", _case_table([one for one in cases if one.duel == title])]
    judged = found.judgements(convention)
    if judged:
        rows = []
        for one in judged:
            numbers = (f"{one.difference:+.4f}", f"[{one.low:+.4f}, {one.high:+.4f}]", f"{one.p:.3f}")
            rows.append((one.claim, one.dataset, *numbers, one.verdict))
        parts += ["Claims", Table(("claim", "set", "difference", "interval", "p", "verdict"), rows, 2)]
    return parts


def _figure_table(figures: list[Figure]) -> Table:
    rows = []
    for one in figures:
        interval = "–" if one.low is None or one.high is None else f"[{one.low:.4f}, {one.high:.4f}]"
        numbers = (_shown(one.paper, ".3f"), _shown(one.ours), _shown(one.difference, "+.4f"), interval)
        rows.append((one.dataset, one.metric, one.system, *numbers))
    return Table(("set", "metric", "system", "paper", "ours", "difference", "interval"), rows, 3)


def _count_table(counts: list[DuelCount]) -> Table:
    rows = []
    for one in counts:
        paper = ("–",) * 4 if one.paper is None else (*map(str, one.paper[:3]), f"{one.paper[3]:+.1f} %")
        ours = (str(one.better), str(one.same), str(one.worse), f"{one.change:+.1f} %")
        rows.append((one.dataset, *(f"{theirs} / {mine}" for theirs, mine in zip(paper, ours, strict=True))))
    return Table(("set", "better", "same", "worse", "mean change"), rows, 1)


def _case_table(cases: list[Case]) -> Table:
    rows = []
    for one in cases:
        numbers = (_shown(value) for value in (one.new_mean, one.old_mean, one.p))
        rows.append((one.dataset, one.new, one.old, one.metric, *numbers, one.verdict))
    return Table(("set", "new", "old", "metric", "new", "old", "p", "the new one is"), rows, 4)


def _fit(found: Reproduction) -> list[Part]:
    """Every published number under every convention, and the convention that comes nearest."""
    parts: list[Part] = []
    if found.fit:
        parts += ["Published figures, under every convention", _all_figures(found), nearest_convention(found)]
    if found.count_fit:
        parts += ["Better/same/worse, under every convention", _all_counts(found)]
        fewest = min(found.count_fit.values())
        best_ones = [name for name, misplaced in found.count_fit.items() if misplaced == fewest]
        parts.append(f"Nearest to the paper's counts: {', '.join(best_ones)} ({fewest} cases fall otherwise).")
    return parts or [
        "No figure was published for the sets at hand, so no convention can be said to fit the paper best."
    ]


def nearest_convention(found: Reproduction) -> str:
    """Which convention comes nearest, where the published figures are fine enough to say."""
    best, named = found.nearest, found.study.convention
    if len(best) == 1:
        said = "which is the one the paper names" if best[0] == named else f"while the paper's text points to {named}"
        return f"The published figures are nearest to ours under {best[0]}, {said}."
    level = ", ".join(f"{name} ({found.fit[name]:.4f})" for name in best)
    says = "is one of them" if named in best else "is not one of them"
    return (
        f"The published figures are level under {level}: their distances from ours differ by no more than the rounding "
        f"of what was published, so they tell none of these from the others. {named}, to which the paper's text "
        f"points, {says}."
    )


def _all_figures(found: Reproduction) -> Table:
    columns = {name: [one for one in found.figures(name) if one.paper is not None] for name in found.conventions}
    rows = []
    for same in zip(*columns.values(), strict=True):
        first, ours = same[0], (_shown(one.ours) for one in same)
        rows.append((first.dataset, first.metric, first.system, _shown(first.paper, ".3f"), *ours))
    rows.append(("", "", "mean distance", "", *(_shown(found.fit.get(name)) for name in columns)))
    head = ("set", "metric", "system", "paper", *columns)
    return Table(head, rows, 3)


def _all_counts(found: Reproduction) -> Table:
    rows = []
    for name, misplaced in found.count_fit.items():
        for one in found.counts(name):
            if one.paper is not None:
                paper, ours = ("/".join(map(str, counts)) for counts in (one.paper[:3], one.tally))
                rows.append((name, one.dataset, paper, ours, f"{one.change:+.1f} %", str(misplaced)))
    head = ("convention", "set", "paper", "ours", "mean change", "cases that fall otherwise, all sets")
    return Table(head, rows, 2)


def _shown(value: float | None, how: str = ".4f") -> str:
    return "–" if value is None else format(value, how)


def _failures(found: Reproduction) -> str:
    lines = [
        f"{one.system} failed on {one.dataset}, {one.fold}: {one.error}"
        for part in found.parts
        for one in part.failures
    ]
    lines += [f"Cannot be judged with these sets: {claim}." for claim in found.unjudged()]
    return "\n".join(lines)
