"""Paragraphs and tables of results, with output as plain text, HTML, Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from toprank.display.pictures import framed
from toprank.display.svg import Markup, tag

Kind = Literal["arrow", "pandas", "polars"]
_MAX_ROWS = 40  # rows of a table in a notebook; the frame has all rows
_PAGE_WIDTH = 90  # characters of a table that fit the text width in LaTeX
_DASH = "–"
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
_MAX_SENTENCES = 12  # longer lists are folded in a notebook


class Table(NamedTuple):
    """Table of text cells; the first `names` columns are left-aligned names, the others right-aligned numbers.

    Attributes:
        best: Cells to print bold in LaTeX, as (row, column).
        decimals: Number of decimals in LaTeX; None keeps the cells unchanged.

    >>> print(Table(("system", "ndcg@10"), [("bm25", "0.41"), ("ours", "-0.5")], names=1).text())
    system  ndcg@10
    ------  -------
    bm25       0.41
    ours       -0.5
    """

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    names: int
    best: frozenset[tuple[int, int]] = frozenset()
    decimals: int | None = None

    def text(self) -> str:
        """Return aligned columns for a terminal."""
        flat = [tuple(" ".join(cell.split()) for cell in row) for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*flat, strict=True)]
        lines = [flat[0], tuple("-" * width for width in widths), *flat[1:]]
        pads = [str.ljust if column < self.names else str.rjust for column in range(len(widths))]
        padded = [[pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)] for line in lines]
        return "\n".join("  ".join(cells).rstrip() for cells in padded)

    def markdown(self) -> str:
        """Return a Markdown pipe table with special characters escaped."""
        rule = tuple(":---" if column < self.names else "---:" for column in range(len(self.header)))
        escaped = [tuple(map(markdown_text, row)) for row in (self.header, *self.rows)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:]))

    def latex(self) -> str:
        r"""Return a ``tabular`` with rules of the booktabs package (``\usepackage{booktabs}``).

        Tables wider than the page are scaled to the text width with the graphicx package.
        """
        alignment = "l" * self.names + "r" * (len(self.header) - self.names)
        cells = [
            [self._latex_cell(cell, row, column) for column, cell in enumerate(line)]
            for row, line in enumerate(self.rows)
        ]
        head, *lines = [" & ".join(row) + r" \\" for row in (map(latex_text, self.header), *cells)]
        begin, end = rf"\begin{{tabular}}{{{alignment}}}", r"\end{tabular}"
        whole = "\n".join([begin, r"\toprule", head, r"\midrule", *lines, r"\bottomrule", end])
        width = sum(max(map(len, column)) + 2 for column in zip(self.header, *self.rows, strict=True))
        fitting = whole if width <= _PAGE_WIDTH else rf"\resizebox{{\textwidth}}{{!}}{{{whole}}}"
        return "\n".join([r"\begin{center}", fitting, r"\end{center}"])  # separate from the text, without indentation

    def _latex_cell(self, cell: str, row: int, column: int) -> str:
        if column < self.names:
            return latex_text(cell)
        if self.decimals is not None:
            cell = _NUMBER.sub(lambda match: _rounded(match.group(), self.decimals or 0), cell)
        written = latex_text(cell).replace("-", "$-$") if cell != _DASH else "--"
        return rf"\textbf{{{written}}}" if (row, column) in self.best else written

    def html(self) -> Markup:
        """Return HTML for a notebook; wide tables scroll, and long tables show their first rows."""

        def cells(row: tuple[str, ...], kind: str) -> Markup:
            return tag("tr", *(tag(kind, cell, cls="w" if i < self.names else None) for i, cell in enumerate(row)))

        body = tag("tbody", *(cells(row, "td") for row in self.rows[:_MAX_ROWS]))
        more = len(self.rows) - _MAX_ROWS
        rest = tag("p", f"… and {more:,} more rows; to_frame() has them all.", cls="note") if more > 0 else None
        return tag("div", tag("table", tag("thead", cells(self.header, "th")), body), rest, cls="wide")


_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_|<>[]~#&$"})
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "∞": r"$\infty$",
        "≤": r"$\le$", "≥": r"$\ge$", "≈": r"$\approx$", "→": r"$\to$", "−": "$-$", "–": "--", "—": "---",
        "…": r"\dots{}", "·": r"$\cdot$", "√": r"$\surd$", "²": r"$^2$", "³": r"$^3$",
        "“": "``", "”": "''", "’": "'",
        # at the beginning of a row, LaTeX would parse these as arguments of the preceding line break
        "*": "{*}", "[": "{[}", "]": "{]}",
    }
    | {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        letter: rf"$\{name}$"
        for letters, names in (
            ("αβγδεζηθικλμνξπρστυφχψω", "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi "
             "pi rho sigma tau upsilon varphi chi psi omega"),
            ("ΓΔΘΛΞΠΣΦΨΩ", "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"),
        )
        for letter, name in zip(letters, names.split(), strict=True)
    }
)  # fmt: skip


def _rounded(number: str, decimals: int) -> str:
    written = f"{float(number):.{decimals}f}"
    return written.removeprefix("-") if float(written) == 0 else written


def markdown_text(text: str) -> str:
    r"""Escape text for literal display in Markdown, on one line.

    >>> print(markdown_text("a_b | 50%"))
    a\_b \| 50%
    """
    return " ".join(text.split()).translate(_MARKDOWN)


def latex_text(text: str) -> str:
    r"""Escape text for literal output in LaTeX, on one line.

    >>> print(latex_text("a_b & 50%"))
    a\_b \& 50\%
    """
    return " ".join(text.split()).translate(_LATEX)


def with_packages(latex: str) -> str:
    r"""Prepend a comment that names the LaTeX packages that the tables need.

    >>> print(with_packages(r"\toprule"))
    % Put \usepackage{booktabs} into the preamble.
    \toprule
    >>> with_packages("No table.")
    'No table.'
    """
    needed = {"booktabs": r"\toprule", "graphicx": r"\resizebox"}
    names = ",".join(name for name, command in needed.items() if command in latex)
    return rf"% Put \usepackage{{{names}}} into the preamble." + f"\n{latex}" if names else latex


Part = str | tuple[str, ...] | Table


class DisplayMixin(ABC):
    """Mixin for results: derives every output form from paragraphs (str), sentence lists (tuples) and tables."""

    @abstractmethod
    def _parts(self) -> Sequence[Part]:
        """Return the parts of the description in order."""

    @property
    def summary(self) -> str:
        """Description of the result without tables."""
        prose = (part for part in self._parts() if part and not isinstance(part, Table))
        return "\n".join(part if isinstance(part, str) else "\n".join(part) for part in prose)

    def _written(self, table: Callable[[Table], str], text: Callable[[str], str], bullet: str) -> str:
        def written(part: Part) -> str:
            if isinstance(part, Table):
                return table(part)
            return text(part) if isinstance(part, str) else "\n".join(bullet + text(item) for item in part)

        return "\n\n".join(written(part) for part in self._parts() if part)

    def __str__(self) -> str:
        return self._written(Table.text, str, "")

    def to_markdown(self) -> str:
        """Return paragraphs and tables as Markdown."""
        return self._written(Table.markdown, markdown_text, "- ") + "\n"

    def to_latex(self) -> str:
        """Return paragraphs and tables as LaTeX; the first line names the required packages."""
        return with_packages(self._written(Table.latex, latex_text, "") + "\n")

    def __repr__(self) -> str:
        sentence = next(part for part in self._parts() if isinstance(part, str))
        return f"{type(self).__name__}({sentence.splitlines()[0].rstrip('.')})"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks."""
        return framed(*(_html(part) for part in self._parts() if part))


def _html(part: Part) -> Markup:
    if isinstance(part, Table):
        return part.html()
    if isinstance(part, str):
        return tag("p", part)
    listed = tag("ul", *(tag("li", item) for item in part))
    if len(part) <= _MAX_SENTENCES:
        return listed
    return tag("details", tag("summary", f"{len(part):,} sentences"), listed)


def frame_of(columns: Mapping[str, Sequence[Any]], kind: Kind) -> Any:
    """Convert columns to a pandas or polars frame or an Arrow table; columns of mixed types become text.

    >>> frame_of({"l2": [0.5, None], "hidden": [(64,), "none"]}, "arrow").to_pydict()
    {'l2': [0.5, None], 'hidden': ['(64,)', 'none']}
    """
    import pyarrow as pa

    from toprank.data.frames.arrow import as_frame

    def column(values: Sequence[Any]) -> Any:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array([None if value is None else str(value) for value in values])

    return as_frame(pa.table({name: column(values) for name, values in columns.items()}), kind)


def bracketed(low: float | None, high: float | None, digits: int = 3) -> str:
    """Format an interval in brackets; return an empty string for unknown or unbounded intervals.

    >>> bounds = (0.25, 0.5), (0.0, math.inf), (math.nan, math.nan), (-math.inf, math.inf)
    >>> tuple(bracketed(low, high) for low, high in bounds)
    ('[0.250, 0.500]', '[0.000, ∞]', '', '')
    """
    if low is None or high is None or not math.isfinite(low) or math.isnan(high):
        return ""
    return f"[{low:.{digits}f}, {'∞' if math.isinf(high) else f'{high:.{digits}f}'}]"


def percent(share: float) -> str:
    """Format a share, such as a confidence level, as a percentage with all its digits.

    >>> percent(0.95), percent(0.995)
    ('95%', '99.5%')
    """
    return f"{100 * share:g}%"


def json_numbers(value: Any) -> Any:
    """Replace non-finite numbers by None, recursively in lists, for JSON.

    >>> json_numbers([0.5, [math.inf, math.nan]])
    [0.5, [None, None]]
    """
    if isinstance(value, list):
        return [json_numbers(item) for item in value]
    return value if isinstance(value, str | None) or math.isfinite(value) else None


def json_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Convert columns to a list of row objects for JSON.

    >>> json_rows({"position": [1, 2], "propensity": [1.0, math.nan]})
    [{'position': 1, 'propensity': 1.0}, {'position': 2, 'propensity': None}]
    """
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, map(json_numbers, row), strict=True)) for row in rows]
