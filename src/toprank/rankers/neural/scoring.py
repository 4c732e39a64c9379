"""A network that scores: on which device, with how many threads and bounded memory, and from a model file.

The parameters of a file say which arrays there must be; nothing else is believed.
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
        there = "PyTorch finds none" if count == 0 else f"PyTorch finds {count}"
        raise DataError(
            f"device='{name}' needs an NVIDIA GPU, but {there} here. Use device='cpu', or 'auto' to take what is there."
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
        return available_threads(threads)
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


_CHUNK = 1 << 13  # documents that go through the network at a time
_CHUNK_ON_GPU = 1 << 17  # there, where a small step costs as much as a large one
_SHARE = 0.5  # of a GPU's free memory that the features may take


class NetworkRows:
    """Features as the network sees them: prepared once, or batch by batch where they are sparse or lie on a disk.

    `keep`: prepare all of them now, where X lies in memory.
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
        """Some of the rows, in single precision."""
        if self.whole is None:
            return torch.from_numpy(self.inputs.rows(self.X[rows], self.threads)).to(self.device)
        if isinstance(rows, slice):
            return self.whole[rows].to(self.device)
        index = torch.from_numpy(rows).to(self.whole.device)
        return self.whole.index_select(0, index).to(self.device)


def _fits(whole: Tensor, device: torch.device) -> bool:
    return device.type != "cuda" or whole.nbytes < _SHARE * torch.cuda.mem_get_info(device)[0]


def prediction_network(network: nn.Module, device: torch.device) -> nn.Module:
    """A copy for prediction: in double precision on a CPU, so that batches leave no trace in scores; else in single."""
    copy = deepcopy(network).to(device, torch.float64 if device.type == "cpu" else torch.float32)
    return copy.eval().requires_grad_(False)


def outputs_of(network: nn.Module, rows: NetworkRows, queries: Queries, *, twins: bool = False) -> FloatArray:
    """(documents, outputs) of a `prediction_network`; attention sees the documents of each query together.

    `twins`: documents of a query with equal rows get equal outputs. Left to itself a product of matrices rounds last
    bits by the place of a row, so that twins would be ranked by that.
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
    """A number for each row that is the same for equal rows, and hardly ever for others."""
    factors = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, rows.shape[1]) | 1
    bits = (rows + 0.0).view(torch.int32).to(torch.int64)  # 0 and -0 are equal, but not in bits
    return (bits * torch.from_numpy(factors).to(rows.device)).sum(dim=1).cpu().numpy()


def _settle_twins(outputs: FloatArray, keys: npt.NDArray[np.int64], rows: NetworkRows, queries: Queries) -> None:
    """Give documents whose rows equal those of an earlier one of their query the outputs of the first of these."""
    candidates = _repeated(keys)
    of_query = queries.document_query[candidates]
    order = candidates[np.lexsort((keys[candidates], of_query))]
    of_query = queries.document_query[order]
    again = (np.diff(keys[order]) == 0) & (np.diff(of_query) == 0)
    if not again.any():
        return
    places = np.arange(len(order))
    places[1:][again] = 0
    leaders = order[np.maximum.accumulate(places)]  # sorting is stable: the first of those with one key
    twins, leaders = order[1:][again], leaders[1:][again]
    for start in range(0, len(twins), _CHUNK):
        part = slice(start, start + _CHUNK)
        equal = (rows.take(twins[part]) == rows.take(leaders[part])).all(dim=1).cpu().numpy()
        outputs[twins[part][equal]] = outputs[leaders[part][equal]]


def _repeated(keys: npt.NDArray[np.int64]) -> IntArray:
    """Places of the numbers that occur more than once, rising: few, and numbers alone sort much faster than places.

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
    """The scores that rank the documents: the output itself, or the expected gain of the grades."""
    if not len(gains):
        return outputs[:, 0]
    return expected_gains(grade_probabilities(outputs), gains)


def restored_network(ranker: NeuralRanker, arrays: Mapping[str, npt.NDArray[Any]], other_arrays: Set[str]) -> nn.Module:
    """The network of a ranker's parameters with the weights of a file; refused where a weight does not fit.

    `other_arrays`: names of the file's arrays that are no weights.
    """
    check_form(ranker)
    # Of any size that a file may announce, without its memory.
    network = build(architecture(ranker, len(ranker.inputs_.center), max(len(ranker.gains_), 1)))
    wanted_weights = network.state_dict()
    refuse_if(
        set(arrays) - other_arrays - {name.replace(".", "_") for name in wanted_weights},
        "there are arrays that do not belong to the network",
    )
    weights = {}
    for name, wanted in wanted_weights.items():
        array = arrays.get(name.replace(".", "_"))
        if array is None or array.shape != tuple(wanted.shape):
            raise DataError(f"the weights {name} are missing or do not fit the network")
        refuse_if(
            array.dtype.kind not in "fiu" or not np.isfinite(array).all(), f"the weights {name} are not finite numbers"
        )
        weights[name] = torch.from_numpy(np.array(array, order="C")).to(wanted.dtype)
    network.load_state_dict(weights, assign=True)
    return prediction_network(network, torch.device("cpu"))


def check_inputs(ranker: NeuralRanker) -> None:
    """Refuse a transform that does not fit the number of features."""
    inputs, d = ranker.inputs_, ranker.n_columns_
    refuse_if(
        inputs.center.shape != (d,) or inputs.spread.shape != (d,) or inputs.knots.shape[1:] != (d,),
        "the transform does not fit the number of features",
    )
    refuse_if(
        not (inputs.spread > 0).all() or (inputs.kind == "quantile") != (len(inputs.knots) > 0),
        "the transform is not what the parameters say",
    )
    refuse_if((np.diff(inputs.knots, axis=0) < 0).any(), "the quantiles of the transform do not rise")
    refuse_if((ranker.outputs == "grades") != (len(ranker.gains_) > 0), "the gains do not fit the outputs")
