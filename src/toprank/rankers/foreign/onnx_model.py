"""`OnnxRanker`: a model in ONNX, run by onnxruntime after `onnx_checks` has found nothing in it that could do harm."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.errors import DataError, refuse_if, require_extra
from toprank.rankers.foreign.onnx_checks import Checked, checked
from toprank.rankers.foreign.ranker import ImportedRanker
from toprank.rankers.schema import State, needed

_TRIED = 4  # rows that a model is tried on
_MIXED = 1e-3  # a difference of scores that is no rounding


def read(content: bytes) -> OnnxRanker:
    """The ranker in a file."""
    return OnnxRanker.from_bytes(content)


@dataclass(eq=False, repr=False)
class OnnxRanker(ImportedRanker):
    """A model in ONNX that gives one number a row, run by onnxruntime (``pip install 'toprank[export]'``).

    It must have one input of floats or doubles, (rows, features), and one output of them, (rows,) or (rows, 1).
    `toprank.load` makes one of a file.

    Args:
        source: what wrote the file, as it says itself.
        threads: number of threads of onnxruntime; None: all cores.

    After loading: `content_` (the bytes of the model), `training_`.
    """

    supports_sparse: ClassVar[bool] = False
    propagates_infinity: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("onnxruntime",)

    source: str = "ONNX"
    _: KW_ONLY
    threads: int | None = None
    _session: tuple[int | None, Any] | None = field(init=False, default=None)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The ranker of a model's bytes."""
        model = checked(content)
        ranker = cls(model.producer)
        ranker._open(content, model)
        ranker._describe(model.features, None, {"library": model.producer})
        return ranker.finalized()

    def _open(self, content: bytes, model: Checked) -> None:
        """Start onnxruntime on bytes that were checked, and try a row of zeros, then some rows together and alone."""
        self.content_, self._checked = content, model
        try:
            self._run(np.zeros((1, model.features), model.kind))
        except (ImportError, DataError):
            raise
        except Exception as problem:  # noqa: BLE001 - onnxruntime has a dozen exceptions of its own
            raise DataError(f"onnxruntime refuses it ({_reason(problem)})") from None
        self._check_alone()

    def _check_alone(self) -> None:
        """Refuse a model whose score of a row depends on the rows that come with it, as far as some rows tell."""
        shape = (min(_TRIED, self._checked.rows), self._checked.features)
        rows = np.random.default_rng(0).uniform(0.0, 0.9, shape).astype(self._checked.kind)
        try:
            together, alone = self._run(rows), np.concatenate([self._run(row[None]) for row in rows])
        except DataError:
            raise
        except Exception:  # noqa: BLE001 - a model that takes only some numbers, such as codes of categories
            return
        with np.errstate(invalid="ignore"):
            refuse_if(
                (np.abs(together - alone) > _MIXED * np.maximum(1.0, np.abs(alone))).any(),
                "the score of a row depends on the other rows that it comes with, and rows are scored in batches "
                "of any size; export it so that it scores each row alone",
            )

    def _run(self, rows: npt.NDArray[Any]) -> FloatArray:
        [out] = self._opened().run(None, {self._checked.input_name: rows})
        scores = np.asarray(out, np.float64)
        refuse_if(
            scores.shape not in ((len(rows),), (len(rows), 1)),
            f"The ONNX model gives an array of shape {scores.shape} for {len(rows)} rows.",
        )
        return scores.reshape(len(rows))

    def _opened(self) -> Any:
        """The session of onnxruntime, for as many threads as are asked for now."""
        session = self._session or self.as_fitted._session
        if session is None or session[0] != self.threads:
            session = (self.threads, _session(self.content_, self.threads))
            vars(self)["_session"] = session  # made anew where it is missing, so no part of what was learned
        return session[1]

    def _scores(self, X: Any) -> FloatArray:
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(X, self._checked.kind)
        each = self._checked.rows
        try:
            parts = [self._run(rows[first : first + each]) for first in range(0, len(rows), each)]
        except DataError:
            raise
        except Exception as problem:  # noqa: BLE001 - onnxruntime has a dozen exceptions of its own
            raise DataError(f"onnxruntime cannot score these rows by this model ({_reason(problem)}).") from None
        return np.concatenate(parts)

    @override
    def _formula(self) -> NoReturn:
        raise DataError(
            "This model is an ONNX file already, and what is in its graph cannot be told in another format. Hand that "
            "file on as it is."
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without the session of onnxruntime, which no other process can take over: it starts its own."""
        return vars(self) | {"_session": None}

    def __copy__(self) -> Self:
        """Within this process a copy shares the session."""
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def state(self) -> State:
        """See `Ranker.state`; the model is kept as it came."""
        return super().state()._replace(arrays={"onnx": np.frombuffer(self.content_, np.uint8)})

    @classmethod
    @override
    def restore(cls, state: State) -> Self:
        ranker = super().restore(state)
        array = needed(state.arrays, "onnx")
        refuse_if(array.dtype != np.uint8 or array.ndim != 1, "the array onnx does not hold bytes")
        content = array.tobytes()
        ranker._open(content, checked(content))
        return ranker

    @override
    def check_restored(self) -> None:
        super().check_restored()
        refuse_if(self._checked.features != self.n_features_in_, "the ONNX model does not fit the number of features")


def _reason(problem: Exception) -> str:
    return str(problem).strip()[:300]


def _session(content: bytes, threads: int | None) -> Any:
    runtime = require_extra("onnxruntime", "export", "An ONNX model")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
