"""Writes into the pages what their code says now: `python docs/refresh.py [PAGE ...]`, all pages by default.

A `text` block right behind a `python` or `sh` block is its output, and a table between `<!-- begin NAME -->` and
`<!-- end -->` is made from the code. `tests/test_docs.py` fails where the page says something else; this script, which
uses the functions of that test, makes them equal. Read the difference before you commit it: the test is there to notice
numbers that should not have changed. A warning stops the script, as it does the tests.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_docs import PAGES, TABLE, TABLES, furnish, run_python, run_shell


def refreshed(page: Path) -> str:
    """The page with the outputs and tables of now."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        furnish(Path(folder))
        results = [*run_python(page), *run_shell(page)]
    text = page.read_text()
    outputs = {block.place: printed for block, printed in results if block.place is not None}
    for (start, end), printed in sorted(outputs.items(), reverse=True):  # from the end, so that places stay right
        text = text[:start] + printed.rstrip() + "\n" + text[end:]
    return TABLE.sub(lambda found: "\n".join([f"<!-- begin {found[1]} -->", *TABLES[found[1]](), "<!-- end -->"]), text)


def main(names: list[str]) -> None:
    warnings.simplefilter("error")
    for page in [Path(name).resolve() for name in names] or PAGES:
        new = refreshed(page)
        if new != page.read_text():
            page.write_text(new)
            sys.stdout.write(f"{page.name}: new output\n")


if __name__ == "__main__":
    main(sys.argv[1:])
