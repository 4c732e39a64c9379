"""What is left of LightGBM in a forked process.

A fork copies the memory of LightGBM's pool of threads (OpenMP) but not the threads: the child would wait for them for
ever. With one thread it asks for none of them.
"""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["ForkedTreesWarning", "allowed_threads"]

_forked = False


class ForkedTreesWarning(UserWarning):
    """Trees were asked for several threads in a process that was forked from one that had used LightGBM."""


def allowed_threads(threads: int, asked: bool) -> int:
    """So many threads, or one in a forked process; said in a warning where several were asked for."""
    if not _forked or threads == 1:
        return threads
    if asked:
        warnings.warn(
            "This process was forked from one that had used LightGBM, whose threads do not survive that: trees have "
            "one thread here. For more, start processes with the 'spawn' or 'forkserver' method of multiprocessing.",
            ForkedTreesWarning,
            stacklevel=2,
        )
    return 1


def _keep_to_one_thread() -> None:
    global _forked
    basic = sys.modules.get("lightgbm.basic")
    if basic is not None:
        _forked = True
        basic._safe_call(basic._LIB.LGBM_SetMaxThreads(1))


if hasattr(os, "register_at_fork"):  # not on Windows, where there is no fork
    os.register_at_fork(after_in_child=_keep_to_one_thread)
