"""Where a network computes: the device, and the number of threads on a CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from toprank.compute import available_threads
from toprank.errors import DataError, UnknownNameError

__all__ = ["chosen_device", "threads_for", "torch_threads"]

_DEVICES = ("auto", "cpu", "cuda", "mps")
_MOST_THREADS = 8  # batches of a few thousand rows keep no more busy
_PRODUCTS = 1 << 30  # of weights and documents, that occupy a thread in one pass over the data
_lock = threading.Lock()
_users = 0
_before = 1
_own = threading.local()


def chosen_device(name: str, place: int | None = None) -> torch.device:
    """``auto`` takes CUDA where it is there, else the CPU; a device asked for by name must be there.

    Processes that train together have a `place` each on their machine; GPUs that are not asked for by number go round.
    """
    kind, _, number = str(name).partition(":")
    if kind not in _DEVICES or (number and (kind != "cuda" or not number.isdecimal())):
        raise UnknownNameError("device", str(name), _DEVICES)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count and place is not None and (kind == "auto" or (kind == "cuda" and not number)):
        return torch.device(f"cuda:{place % count}")
    if kind == "auto":
        return torch.device("cuda" if count else "cpu")
    if kind == "cuda" and int(number or 0) >= count:
        found = "PyTorch finds none" if count == 0 else f"PyTorch finds {count}"
        raise DataError(
            f"device='{name}' needs an NVIDIA GPU, but {found} here. Use device='cpu', or 'auto' to take what is there."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DataError(
            "device='mps' needs an Apple GPU, but PyTorch finds none here. Use device='cpu', or 'auto' to take what is "
            "there."
        )
    return torch.device(str(name))


def threads_for(threads: int | None, documents: int, network: nn.Module) -> int:
    """As many as were asked for; else as many as have enough to do: threads of little work mostly wait for each other.

    They wait busily, and where the machine is busy besides that makes training ten times slower.
    """
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int | np.integer):
            raise DataError(f"threads must be a whole number of at least 1, or None, not {threads!r}.")
        return available_threads(int(threads))
    products = documents * sum(weight.numel() for weight in network.parameters())
    return min(available_threads(), _MOST_THREADS, 1 + products // _PRODUCTS)


@contextmanager
def torch_threads(threads: int) -> Iterator[int]:
    """PyTorch on so many threads, and afterwards on as many as before.

    PyTorch keeps the number for each thread of Python, and one for threads that are yet to come. Several trainings may
    run at a time: whoever leaves restores what was set before the first came. A use within another one of the same
    thread (a callback that predicts) restores what the outer one had set.
    """
    global _users, _before
    inside = getattr(_own, "inside", False)
    outer = torch.get_num_threads()
    with _lock:
        if not inside:
            if _users == 0:
                _before = outer
            _users += 1
        _own.inside = True
        torch.set_num_threads(threads)
    try:
        yield threads
    finally:
        with _lock:
            if not inside:
                _users -= 1
            _own.inside = inside
            torch.set_num_threads(outer if inside else _before)
