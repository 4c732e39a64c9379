"""What the data doctor says: findings, each a sentence with counts and a remedy, gathered in a report."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from toprank.display.svg import shortened
from toprank.display.tables import DisplayMixin, Kind, Part, frame_of

Severity = Literal["problem", "warning", "note"]
_SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
_MAX_EXAMPLES = 5


@dataclass(frozen=True)
class Finding:
    """One thing to know about the data.

    Attributes:
        code: a short name that stays the same between versions, such as ``blank-queries``.
        severity: a ``problem`` makes results wrong, a ``warning`` may, a ``note`` is good to know.
        summary: what was found, with counts.
        count: how many queries, documents, features … it concerns.
        examples: the first few of them.
        remedy: what to do about it.
    """

    code: str
    severity: Severity
    summary: str
    count: int
    examples: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.examples) else ""
        shown = f" ({', '.join(self.examples)}{more})" if self.examples else ""
        return f"{self.severity}: {self.summary.removesuffix('.')}{shown}. {self.remedy}"


@dataclass(frozen=True)
class Subject:
    """The size of one data set that was scanned."""

    name: str
    queries: int
    documents: int
    features: int

    def __str__(self) -> str:
        return f"{self.name}: {self.queries:,} queries, {self.documents:,} documents, {self.features:,} features"


@dataclass(frozen=True, repr=False)
class Report(DisplayMixin):
    """Everything that was found, worst first."""

    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def from_findings(cls, subjects: Iterable[Subject], findings: Iterable[Finding]) -> Report:
        """A report with the findings sorted by severity, otherwise in their order."""
        ranked = sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))
        return cls(tuple(subjects), tuple(ranked))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON."""
        return {
            "data": [asdict(subject) for subject in self.subjects],
            "findings": [asdict(finding) | {"examples": list(finding.examples)} for finding in self.findings],
        }

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """One row for each finding; a frame of pandas or polars, or Arrow's."""
        names = [field.name for field in fields(Finding)]
        return frame_of({name: [getattr(finding, name) for finding in self.findings] for name in names}, kind)

    def _parts(self) -> Sequence[Part]:
        sentences = tuple(str(finding) for finding in self.findings)
        return ["\n".join(str(subject) for subject in self.subjects), sentences or "Nothing was found."]

    def __str__(self) -> str:
        lines = [str(subject) for subject in self.subjects]
        return "\n".join(lines + ([f"- {finding}" for finding in self.findings] or ["Nothing was found."]))


def examples_of(items: Iterable[Any]) -> tuple[str, ...]:
    """The first few items as short strings."""
    return tuple(shortened(str(item), 40) for item in itertools.islice(items, _MAX_EXAMPLES))


def agreeing(count: int, words: str) -> str:
    """Words that agree with a number; ``is|are`` stands for the one or the other.

    >>> agreeing(1, "query|queries has|have"), agreeing(2, "query|queries has|have")
    ('query has', 'queries have')
    """
    return re.sub(r"(\w+)\|(\w+)", r"\1" if count == 1 else r"\2", words)


def some(count: int, total: int, words: str) -> str:
    """How many of how many, in words that agree; the first of them is what is counted.

    >>> some(1, 7, "query|queries has|have"), some(7, 7, "query|queries has|have")
    ('1 of 7 queries has', 'All 7 queries have')
    """
    if total == 1:
        return f"The only {agreeing(1, words)}"
    if count == total:
        return f"All {total:,} {agreeing(total, words)}"
    noun, _, verb = words.partition(" ")
    return f"{count:,} of {total:,} {agreeing(total, noun)} {agreeing(count, verb)}"


def about_some(
    code: str, severity: Severity, count: int, total: int, words: str, examples: Iterable[Any], remedy: str
) -> Iterator[Finding]:
    """The finding that `words` hold for some of all queries, documents …, where there are any."""
    if count:
        yield Finding(code, severity, some(count, total, words) + ".", count, examples_of(examples), remedy)
