"""What several test modules share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared_data(*parts: str) -> Path:
    """A path below TOPRANK_DATA; the test is skipped, with the reason, where the data are not at hand."""
    root = os.environ.get("TOPRANK_DATA")
    if not root:
        pytest.skip("TOPRANK_DATA is not set: the benchmark collections are not at hand")
    path = Path(root, *parts)
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


def nightly(*values: object) -> list[object]:
    """Values of a parameter that take long: left out of `make test`. A tuple is several."""
    return [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.nightly) for v in values]
