"""Scoring with a network: devices, threads, memory limits, and networks restored from model files.

The parameters in a file determine which arrays must exist; everything else is validated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from toprank.compute import FloatArray, IntArray, available_threads, row_parts
from toprank.data.queries import Queries
from toprank.errors import DataError, UnknownNameError, refuse_if
from toprank.rankers.neural.inputs import Inputs, plan_prediction
from toprank.rankers.neural.parameters import architecture, check_form
from toprank.scorers.expected_gain import expected_gains, grade_probabilities
from toprank.scorers.networks import QueryTable, SetAttention, build

if TYPE_CHECKING:
    from toprank.rankers.neural.ranker import NeuralRanker

_DEVICES = ("auto", "cpu", "cuda", "mps")
_MAX_THREADS = 8  # batches of a few thousand rows do not benefit from more
_PRODUCTS_PER_THREAD = 1 << 30  # weights times documents that justify a thread
_lock = threading.Lock()
_users = 0
_before = 1
_own = threading.local()


def chosen_device(name: str, place: int | None = None) -> torch.device:
    """Return the device: ``auto`` is CUDA if available, else the CPU; a device requested by name must exist.

    Processes that train together have a `place` each on their machine, which assigns GPUs unless their number is given.
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
        there = "PyTorch found none" if count == 0 else f"PyTorch found {count}"
        raise DataError(
            f"device='{name}' needs an NVIDIA GPU, but {there}. Use device='cpu', or 'auto' for any available device."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DataError(
            "device='mps' needs an Apple GPU, but PyTorch found none. Use device='cpu', or 'auto' for any available "
            "device."
        )
    return torch.device(str(name))


def threads_for(threads: int | None, documents: int, network: nn.Module) -> int:
    """Return the requested number of threads, or as many as the work justifies.

    Idle threads wait actively, which can make training ten times slower on a busy machine.
    """
    if threads is not None:
        return available_threads(threads)
    products = documents * sum(weight.numel() for weight in network.parameters())
    return min(available_threads(), _MAX_THREADS, 1 + products // _PRODUCTS_PER_THREAD)


@contextmanager
def torch_threads(threads: int) -> Iterator[int]:
    """Set PyTorch's number of threads, and restore it afterwards.

    PyTorch stores the number for each Python thread, and one for future threads. Several trainings may run at the same
    time: each restores the number from before the first. A nested use in the same thread (a callback that predicts)
    restores the number of the outer use.
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


_CHUNK = 1 << 13  # documents scored at a time
_CHUNK_ON_GPU = 1 << 17  # documents scored at a time on GPUs, where small steps are as slow as large ones
_MAX_MEMORY_SHARE = 0.5  # of a GPU's free memory for the features


class NetworkRows:
    """Network inputs, computed once, or batch by batch for sparse and memory-mapped features.

    `keep` computes all of them now, if X is in memory.
    """

    def __init__(
        self, X: Any, inputs: Inputs, device: torch.device, threads: int | None = 1, *, keep: bool = True
    ) -> None:
        self.X, self.inputs, self.device, self.threads = X, inputs, device, threads
        self.whole: Tensor | None = None
        if keep and isinstance(X, np.ndarray) and not isinstance(X, np.memmap):
            self.whole = torch.from_numpy(inputs.rows(X, threads))
            if _fits(self.whole, device):
                self.whole = self.whole.to(device)

    def take(self, rows: slice | IntArray) -> Tensor:
        """Return some of the rows, in single precision."""
        if self.whole is None:
            return torch.from_numpy(self.inputs.rows(self.X[rows], self.threads)).to(self.device)
        if isinstance(rows, slice):
            return self.whole[rows].to(self.device)
        index = torch.from_numpy(rows).to(self.whole.device)
        return self.whole.index_select(0, index).to(self.device)


def _fits(whole: Tensor, device: torch.device) -> bool:
    return device.type != "cuda" or whole.nbytes < _MAX_MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]


def prediction_network(network: nn.Module, device: torch.device) -> nn.Module:
    """Return a copy for prediction: on a CPU in double precision, so batches do not affect scores; else in single."""
    copy = deepcopy(network).to(device, torch.float64 if device.type == "cpu" else torch.float32)
    return copy.eval().requires_grad_(False)


def outputs_of(network: nn.Module, rows: NetworkRows, queries: Queries, *, twins: bool = False) -> FloatArray:
    """Return the outputs of a `prediction_network`, (documents, outputs); attention relates the documents of a query.

    `twins` gives documents of a query with equal rows equal outputs. Matrix products round differently by the position
    of a row, which would otherwise order them.
    """
    parameter = next(network.parameters())
    result: FloatArray | None = None
    chunk = _CHUNK_ON_GPU if rows.device.type == "cuda" else _CHUNK
    plan = plan_prediction(queries, _CHUNK) if isinstance(network, SetAttention) else None
    n = queries.n_documents
    keys = np.empty(n if twins else 0, np.int64)
    parts: list[Any] = list(plan.batches) if plan else row_parts(slice(0, n), chunk)
    with torch.inference_mode():
        for part in parts:
            where = plan.rows[plan.documents(part)] if plan else part
            layout = QueryTable(plan.queries.sizes[slice(*part)], rows.device) if plan else None
            taken = rows.take(where)
            if twins:
                keys[where] = _keys(taken)
            outputs = network(taken.to(parameter.dtype), layout).cpu().numpy()
            if result is None:
                result = np.empty((n, outputs.shape[1]))
            result[where] = outputs
        assert result is not None
        if twins:
            _settle_twins(result, keys, rows, queries)
    return result


def _keys(rows: Tensor) -> npt.NDArray[np.int64]:
    """Return a hash for each row; equal rows have equal hashes."""
    factors = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, rows.shape[1]) | 1
    bits = (rows + 0.0).view(torch.int32).to(torch.int64)  # 0 and -0 are equal but differ in bits
    return (bits * torch.from_numpy(factors).to(rows.device)).sum(dim=1).cpu().numpy()


def _settle_twins(outputs: FloatArray, keys: npt.NDArray[np.int64], rows: NetworkRows, queries: Queries) -> None:
    """Copy outputs of the first of equal rows in a query to the others."""
    candidates = _repeated(keys)
    of_query = queries.document_query[candidates]
    order = candidates[np.lexsort((keys[candidates], of_query))]
    of_query = queries.document_query[order]
    again = (np.diff(keys[order]) == 0) & (np.diff(of_query) == 0)
    if not again.any():
        return
    places = np.arange(len(order))
    places[1:][again] = 0
    leaders = order[np.maximum.accumulate(places)]  # sorting is stable, so this is the first row with the key
    twins, leaders = order[1:][again], leaders[1:][again]
    for start in range(0, len(twins), _CHUNK):
        part = slice(start, start + _CHUNK)
        equal = (rows.take(twins[part]) == rows.take(leaders[part])).all(dim=1).cpu().numpy()
        outputs[twins[part][equal]] = outputs[leaders[part][equal]]


def _repeated(keys: npt.NDArray[np.int64]) -> IntArray:
    """Return the indices of values that occur more than once, in ascending order.

    Few do, and sorting values is much faster than sorting indices.

    >>> _repeated(np.array([5, 3, 5, 4, 3, 5])).tolist()
    [0, 1, 2, 4, 5]
    """
    rising = np.sort(keys)
    several = rising[1:][rising[1:] == rising[:-1]]
    if not len(several):
        return np.empty(0, np.int64)
    near = np.minimum(np.searchsorted(several, keys), len(several) - 1)
    return np.flatnonzero(several[near] == keys)


def scores_of(outputs: FloatArray, gains: FloatArray) -> FloatArray:
    """Return the ranking scores: the output itself, or the expected gain of the grades."""
    if not len(gains):
        return outputs[:, 0]
    return expected_gains(grade_probabilities(outputs), gains)


def restored_network(ranker: NeuralRanker, arrays: Mapping[str, npt.NDArray[Any]], other_arrays: Set[str]) -> nn.Module:
    """Return a ranker's network with the weights of a file; refuse weights that do not match.

    `other_arrays` are the names of arrays in the file that are not weights.
    """
    check_form(ranker)
    # On the meta device, so the sizes in a file allocate no memory.
    network = build(architecture(ranker, len(ranker.inputs_.center), max(len(ranker.gains_), 1)))
    wanted_weights = network.state_dict()
    refuse_if(
        set(arrays) - other_arrays - {name.replace(".", "_") for name in wanted_weights},
        "some arrays do not belong to the network",
    )
    weights = {}
    for name, wanted in wanted_weights.items():
        array = arrays.get(name.replace(".", "_"))
        if array is None or array.shape != tuple(wanted.shape):
            raise DataError(f"the weights {name} are missing or do not match the network")
        refuse_if(
            array.dtype.kind not in "fiu" or not np.isfinite(array).all(), f"the weights {name} are not finite numbers"
        )
        weights[name] = torch.from_numpy(np.array(array, order="C")).to(wanted.dtype)
    network.load_state_dict(weights, assign=True)
    return prediction_network(network, torch.device("cpu"))


def check_inputs(ranker: NeuralRanker) -> None:
    """Refuse a transform that does not match the number of features."""
    inputs, d = ranker.inputs_, ranker.n_columns_
    refuse_if(
        inputs.center.shape != (d,) or inputs.spread.shape != (d,) or inputs.knots.shape[1:] != (d,),
        "the transform does not match the number of features",
    )
    refuse_if(
        not (inputs.spread > 0).all() or (inputs.kind == "quantile") != (len(inputs.knots) > 0),
        "the transform contradicts the parameters",
    )
    refuse_if((np.diff(inputs.knots, axis=0) < 0).any(), "the quantiles of the transform are not ascending")
    refuse_if((ranker.outputs == "grades") != (len(ranker.gains_) > 0), "the gains do not match the outputs")
