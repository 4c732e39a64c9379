"""A plugin of pytest that notes what every call of a kernel was given and gave, to be compared between machines.

    pytest -p recording --record FILE    # with native/ on the path

A call is known by the digest of its arguments. Two machines need not see the same calls (NumPy's own sums differ in the
last places): only calls that both saw are compared. NaN has many bit patterns, and machines differ in the one
they make; it is noted as one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

LARGEST = 1 << 20
"""Calls with more bytes than this are not noted: hashing would take longer than the tests."""


def digest(values: list[Any]) -> str:
    """One word for arrays and numbers."""
    digest_so_far = hashlib.blake2b(digest_size=12)
    for value in values:
        if value is None:
            continue
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        digest_so_far.update(f"{array.dtype.str}{array.shape}".encode())
        digest_so_far.update(array.tobytes())
    return digest_so_far.hexdigest()


def pytest_addoption(parser: Any) -> None:
    """The file."""
    parser.addoption("--record", type=Path, required=True, help="file for the calls of kernels")


def pytest_configure(config: Any) -> None:
    """Stand between the callers and the kernels."""
    from toprank import compute, kernels

    if program := os.environ.get("TOPRANK_PYTHON"):  # in an emulator: what starts Python there
        sys.executable = program
    # What an array holds before a kernel writes into it is a part of its arguments, so it must not be left to chance.
    np.empty, np.empty_like = np.zeros, np.zeros_like  # type: ignore[misc, assignment]
    # Threads that write into one array at the same time would make its bits those of chance.
    compute.available_threads = lambda *_: 1
    calls: dict[str, dict[str, str]] = {}
    call = kernels.Kernel.__call__

    def noted(self: kernels.Kernel, *arguments: Any) -> Any:
        if sum(getattr(value, "nbytes", 0) for value in arguments) > LARGEST:
            return call(self, *arguments)
        key = digest(list(arguments))
        result = call(self, *arguments)
        written = [value for value, kind in zip(arguments, self.parameters, strict=True) if kind.written]
        calls.setdefault(self.name, {})[key] = digest([result, *written])
        return result

    kernels.Kernel.__call__ = noted  # type: ignore[method-assign]
    config.add_cleanup(lambda: config.getoption("record").write_text(json.dumps(calls)))
