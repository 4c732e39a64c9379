"""The headline of a report: which system wins, by how much, and whether the difference is significant."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from toprank.evaluation import Comparison, Difference
from toprank.report.content import ranked_systems
from toprank.significance.results import bounds, number, p_value, queries


class Headline(NamedTuple):
    """Headline, its kind ("shown", "noise" or "equivalent"), a short verdict, and supporting numbers."""

    sentence: str
    kind: str
    verdict: str
    support: str


def difference_between(comparison: Comparison, a: str, b: str, metric: str) -> Difference | None:
    """Return the difference between two systems in either order, or None if they were not compared."""
    pair = {a, b}
    return next((d for d in comparison.differences if d.metric == metric and {d.a, d.b} == pair), None)


def reversed_difference(d: Difference) -> Difference:
    """Return the same difference with the two systems exchanged."""
    effect = None if d.effect_size is None else -d.effect_size
    return replace(
        d, a=d.b, b=d.a, mean_a=d.mean_b, mean_b=d.mean_a, difference=-d.difference, interval=-d.interval,
        effect_size=effect, wins=d.losses, losses=d.wins,
    )  # fmt: skip


def headline(comparison: Comparison, against_leader: bool = False) -> Headline:
    """Return the headline of a comparison by its first metric.

    `against_leader`: the baseline was not chosen by the user, so compare the best system with the runner-up.

    >>> from toprank.evaluation import compare_values
    >>> values = {"a": {"map": [0.5, 0.4, 0.7, 0.6, 0.5, 0.3, 0.8]}, "b": {"map": [0.3, 0.3, 0.6, 0.3, 0.4, 0.2, 0.7]}}
    >>> headline(compare_values(values)).sentence
    'a wins by 0.1429 map over b, a significant difference.'
    """
    metric = comparison.metrics[0]
    order = ranked_systems(comparison)
    if comparison.baseline is None or against_leader:
        first, second = order[0], order[1]
    else:
        first = next(name for name in order if name != comparison.baseline)
        second = comparison.baseline
    d = difference_between(comparison, first, second, metric)
    assert d is not None, "all pairs, or all against the baseline, were compared"
    asked = comparison.baseline is not None and not against_leader
    sentence = _sentence(d, first, second, asked, comparison.margin)
    kind, verdict = _sureness(comparison, d)
    return Headline(sentence, kind, verdict, f"{_size(comparison, d)} {_others(comparison, first, asked)}".strip())


def _sentence(d: Difference, first: str, second: str, baseline: bool, margin: float) -> str:
    by = f"{number(abs(d.difference))} {d.metric}"
    if d.winner is None:
        return f"{first} and {second} have equal {d.metric}."
    other = second if d.winner == first else first
    if d.equivalent and not d.significant:
        if _leaves_out_zero(d):
            return f"{d.winner} leads {other} by {by}, within the equivalence margin of {margin:g}."
        return f"{d.winner} and {other} are equivalent: they differ by {by}."
    if not d.significant:
        return f"{d.winner} leads {other} by {by}, which is not significant."
    small = f", but within the equivalence margin of {margin:g}" if d.equivalent else ""
    role = ", the baseline," if baseline else ""
    if d.winner == first:
        return f"{first} wins by {by} over {second}{role or ','} a significant difference{small}."
    return f"{second}{role} wins by {by} over {first}, a significant difference{small}."


def _sureness(comparison: Comparison, d: Difference) -> tuple[str, str]:
    within = f"equivalent within ±{comparison.margin:g}: {p_value(d.equivalence_p)}"
    p = p_value(d.p_adjusted)
    if d.significant:
        return "shown", f"Significant: {p}" + (f", but {within}" if d.equivalent else "")
    return ("equivalent", within.capitalize()) if d.equivalent else ("noise", f"Not significant: {p}")


def _size(comparison: Comparison, d: Difference) -> str:
    """Return both means with the interval of their difference."""
    better, worse = (d.mean_a, d.mean_b) if d.winner != d.b else (d.mean_b, d.mean_a)
    low, high = d.interval if d.difference >= 0 else -d.interval
    level = f"{100 * comparison.confidence:g} % interval of the difference"
    needed = d.queries_needed
    more = (
        f" About {queries(needed)} would be needed to detect a difference of this size."
        if not d.significant and not d.equivalent and needed is not None and needed > d.n
        else ""
    )
    lower = ", less is better" if d.lower_is_better else ""
    ends = bounds(low, high).replace("-", "−")
    return f"{number(better)} against {number(worse)}{lower}; {level} {ends}.{_disagreement(comparison, d)}{more}"


def _leaves_out_zero(d: Difference) -> bool:
    return d.interval.low > 0 or d.interval.high < 0


def _disagreement(comparison: Comparison, d: Difference) -> str:
    """Explain a disagreement between interval and test; empty if they agree."""
    out = _leaves_out_zero(d)
    if out == d.significant:
        return ""
    if out and d.p <= comparison.alpha:
        return (
            " The interval excludes 0, but it is not adjusted for multiple testing; p is adjusted for "
            f"{comparison.tests}."
        )
    return (
        f" The interval {'excludes' if out else 'includes'} 0 in contrast to the test. They use different methods, and"
        " this is a borderline case."
    )


def _others(comparison: Comparison, first: str, baseline: bool) -> str:
    """Return how many of the other systems differ significantly."""
    metric = comparison.metrics[0]
    level = f"at level {comparison.alpha:g}"
    if comparison.correction != "none":
        level += f" after {comparison.correction.capitalize()}'s correction"
    if baseline:
        differences = [d for d in comparison.differences if d.metric == metric]
        better = sum(d.significant and d.winner == d.a for d in differences)
        worse = sum(d.significant and d.winner == d.b for d in differences)
        if len(differences) == 1:
            return ""
        verb = "is" if better == 1 else "are"
        return (
            f"Of {len(differences)} compared with {comparison.baseline}, {better} {verb} better and {worse} worse "
            f"{level}."
        )
    pairs = [difference_between(comparison, first, other, metric) for other in comparison.systems if other != first]
    if len(pairs) == 1:
        return ""
    beaten = sum(d is not None and d.significant and d.winner == first for d in pairs)
    return f"{first} is better than {beaten or 'none'} of its {len(pairs)} rivals {level}."
