"""Findings of the data doctor, with counts and remedies, and the report that collects them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from toprank.display.svg import shortened
from toprank.display.tables import DisplayMixin, Kind, Part, frame_of
from toprank.errors import count_of

Severity = Literal["problem", "warning", "note"]
_SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
_MAX_EXAMPLES = 5


@dataclass(frozen=True)
class Finding:
    """One finding about the data.

    Attributes:
        code: short name that is stable between versions, such as ``blank-queries``.
        severity: ``problem`` if it makes results wrong, ``warning`` if it may, ``note`` for information.
        summary: description with counts.
        count: number of affected queries, documents, features …
        examples: first few of them.
        remedy: recommended action.
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
    """Name and size of a checked data set."""

    name: str
    queries: int
    documents: int
    features: int

    def __str__(self) -> str:
        sizes = (
            count_of(self.queries, "query"),
            count_of(self.documents, "document"),
            count_of(self.features, "feature"),
        )
        return f"{self.name}: {', '.join(sizes)}"


@dataclass(frozen=True, repr=False)
class Report(DisplayMixin):
    """All findings, sorted by severity."""

    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def from_findings(cls, subjects: Iterable[Subject], findings: Iterable[Finding]) -> Report:
        """Build a report with findings sorted by severity (stable)."""
        ranked = sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))
        return cls(tuple(subjects), tuple(ranked))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-serializable values."""
        return {
            "data": [asdict(subject) for subject in self.subjects],
            "findings": [asdict(finding) | {"examples": list(finding.examples)} for finding in self.findings],
        }

    def to_frame(self, kind: Kind = "pandas") -> Any:
        """Return a pandas, polars or Arrow frame with one row for each finding."""
        names = [field.name for field in fields(Finding)]
        return frame_of({name: [getattr(finding, name) for finding in self.findings] for name in names}, kind)

    def _parts(self) -> Sequence[Part]:
        sentences = tuple(str(finding) for finding in self.findings)
        return ["\n".join(str(subject) for subject in self.subjects), sentences or "Nothing was found."]

    def __str__(self) -> str:
        lines = [str(subject) for subject in self.subjects]
        return "\n".join(lines + ([f"- {finding}" for finding in self.findings] or ["Nothing was found."]))


def examples_of(items: Iterable[Any]) -> tuple[str, ...]:
    """Return the first few items as short strings."""
    return tuple(shortened(str(item), 40) for item in itertools.islice(items, _MAX_EXAMPLES))


def inflected(count: int, words: str) -> str:
    """Choose singular or plural forms, written as ``is|are``, for a count.

    >>> inflected(1, "query|queries has|have"), inflected(2, "query|queries has|have")
    ('query has', 'queries have')
    """
    return re.sub(r"(\w+)\|(\w+)", r"\1" if count == 1 else r"\2", words)


def some(count: int, total: int, words: str) -> str:
    """Describe a count out of a total; the first of `words` is the counted noun.

    >>> some(1, 7, "query|queries has|have"), some(7, 7, "query|queries has|have")
    ('1 of 7 queries has', 'All 7 queries have')
    """
    if total == 1:
        return f"The only {inflected(1, words)}"
    if count == total:
        return f"All {total:,} {inflected(total, words)}"
    noun, _, verb = words.partition(" ")
    return f"{count:,} of {total:,} {inflected(total, noun)} {inflected(count, verb)}"


def finding_about(
    code: str, severity: Severity, count: int, total: int, words: str, examples: Iterable[Any], remedy: str
) -> Iterator[Finding]:
    """Yield the finding that `words` apply to `count` of all queries, documents …, if any."""
    if count:
        yield Finding(code, severity, some(count, total, words) + ".", count, examples_of(examples), remedy)
