"""One table, three ways to write it: plain text, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Table", "latex_text", "markdown_text"]


class Table(NamedTuple):
    """Cells as plain text; the first `names` columns hold names (left), the others numbers (right).

    >>> print(Table(("system", "ndcg@10"), [("bm25", "0.41"), ("ours", "-0.5")], names=1).text())
    system  ndcg@10
    ------  -------
    bm25       0.41
    ours       -0.5
    """

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    names: int

    def text(self) -> str:
        """Aligned columns for a terminal."""
        flat = [tuple(" ".join(cell.split()) for cell in row) for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*flat, strict=True)]
        lines = [flat[0], tuple("-" * width for width in widths), *flat[1:]]
        pads = [str.ljust if column < self.names else str.rjust for column in range(len(widths))]
        padded = [[pad(cell, width) for pad, cell, width in zip(pads, line, widths, strict=True)] for line in lines]
        return "\n".join("  ".join(cells).rstrip() for cells in padded)

    def markdown(self) -> str:
        """A pipe table; characters that Markdown would interpret are escaped."""
        rule = tuple(":---" if column < self.names else "---:" for column in range(len(self.header)))
        escaped = [tuple(map(markdown_text, row)) for row in (self.header, *self.rows)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:]))

    def latex(self) -> str:
        r"""A ``tabular`` with the rules of the booktabs package (``\usepackage{booktabs}``)."""
        alignment = "l" * self.names + "r" * (len(self.header) - self.names)
        body = [
            [*map(latex_text, row[: self.names]), *(latex_text(cell).replace("-", "$-$") for cell in row[self.names :])]
            for row in self.rows
        ]
        head, *lines = [" & ".join(row) + r" \\" for row in (map(latex_text, self.header), *body)]
        begin, end = rf"\begin{{tabular}}{{{alignment}}}", r"\end{tabular}"
        return "\n".join([begin, r"\toprule", head, r"\midrule", *lines, r"\bottomrule", end])


_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_|<>[]~#&$"})
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "∞": r"$\infty$",
        # at the beginning of a row these would be read as arguments of the line break before it
        "*": "{*}", "[": "{[}", "]": "{]}",
    }
    | {character: f"\\{character}" for character in "&%$#_{}"}
)  # fmt: skip


def markdown_text(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> print(markdown_text("a_b | 50%"))
    a\_b \| 50%
    """
    return " ".join(text.split()).translate(_MARKDOWN)


def latex_text(text: str) -> str:
    r"""Text that LaTeX prints as it is, on one line.

    >>> print(latex_text("a_b & 50%"))
    a\_b \& 50\%
    """
    return " ".join(text.split()).translate(_LATEX)
