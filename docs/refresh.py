"""Writes into the pages what their blocks print now: `python docs/refresh.py [PAGE ...]`, all pages by default.

A `text` block right behind a `python` or `sh` block is its output. `tests/test_docs.py` fails where the two differ; this
script, which runs the blocks in the same way, makes them equal. Read the difference before you commit it: the test is
there to notice numbers that should not have changed. A warning stops the script, as it does the tests.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from test_docs import PAGES, furnish, run_python, run_shell


def refreshed(page: Path) -> str:
    """The page with the outputs that its blocks have now."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        furnish(Path(folder))
        results = [*run_python(page), *run_shell(page)]
    text = page.read_text()
    outputs = {block.place: printed for block, printed in results if block.place is not None}
    for (start, end), printed in sorted(outputs.items(), reverse=True):  # from the end, so that places stay right
        text = text[:start] + printed.rstrip() + "\n" + text[end:]
    return text


def main(names: list[str]) -> None:
    warnings.simplefilter("error")
    for page in [Path(name).resolve() for name in names] or PAGES:
        new = refreshed(page)
        if new != page.read_text():
            page.write_text(new)
            sys.stdout.write(f"{page.name}: new output\n")


if __name__ == "__main__":
    main(sys.argv[1:])
