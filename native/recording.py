"""Pytest plugin that records arguments and results of every kernel call, for comparison between machines.

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
"""Larger calls are not recorded, since hashing would take longer than the tests."""


def digest(values: list[Any]) -> str:
    """Return a hash of arrays and numbers."""
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
    """Write the file."""
    parser.addoption("--record", type=Path, required=True, help="file for the calls of kernels")


def pytest_configure(config: Any) -> None:
    """Wrap the kernels to record their calls."""
    from toprank import compute, kernels

    if program := os.environ.get("TOPRANK_PYTHON"):  # in an emulator: the command that starts Python there
        sys.executable = program
    # The content of an output array is part of the arguments, so it must be deterministic.
    np.empty, np.empty_like = np.zeros, np.zeros_like  # type: ignore[misc, assignment]
    # Concurrent writes into one array would make its content random.
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
