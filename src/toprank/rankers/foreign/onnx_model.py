"""`OnnxRanker`: an ONNX model, run by onnxruntime after validation by `onnx_checks`."""

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

_N_TEST_ROWS = 4
_TEST_TOLERANCE = 1e-3  # larger differences of scores are not rounding


def read(content: bytes) -> OnnxRanker:
    """Build a ranker from a file."""
    return OnnxRanker.from_bytes(content)


@dataclass(eq=False, repr=False)
class OnnxRanker(ImportedRanker):
    """An ONNX model that predicts one number per row, run by onnxruntime (``pip install 'toprank[export]'``).

    It must have one float or double input, (rows, features), and one such output, (rows,) or (rows, 1). `toprank.load`
    builds one from a file.

    Args:
        source: the producer named in the file.
        threads: number of threads of onnxruntime; None for all cores.

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
        """Build a ranker from the bytes of a model."""
        model = checked(content)
        ranker = cls(model.producer)
        ranker._open(content, model)
        ranker._describe(model.features, None, {"library": model.producer})
        return ranker.finalized()

    def _open(self, content: bytes, model: Checked) -> None:
        """Start onnxruntime on validated bytes, and score a row of zeros, then several rows together and one by one."""
        self.content_, self._checked = content, model
        try:
            self._run(np.zeros((1, model.features), model.kind))
        except (ImportError, DataError):
            raise
        except Exception as problem:  # noqa: BLE001 - onnxruntime raises a dozen kinds of exceptions
            raise DataError(f"onnxruntime refuses it ({_reason(problem)})") from None
        self._check_alone()

    def _check_alone(self) -> None:
        """Refuse a model whose score of a row depends on the other rows of a batch, by a test on a few rows."""
        shape = (min(_N_TEST_ROWS, self._checked.rows), self._checked.features)
        rows = np.random.default_rng(0).uniform(0.0, 0.9, shape).astype(self._checked.kind)
        try:
            together, alone = self._run(rows), np.concatenate([self._run(row[None]) for row in rows])
        except DataError:
            raise
        except Exception:  # noqa: BLE001 - models may accept only some values, such as category codes
            return
        with np.errstate(invalid="ignore"):
            refuse_if(
                (np.abs(together - alone) > _TEST_TOLERANCE * np.maximum(1.0, np.abs(alone))).any(),
                "the score of a row depends on the other rows of its batch; export it so that it scores each row "
                "independently",
            )

    def _run(self, rows: npt.NDArray[Any]) -> FloatArray:
        [out] = self._opened().run(None, {self._checked.input_name: rows})
        scores = np.asarray(out, np.float64)
        refuse_if(
            scores.shape not in ((len(rows),), (len(rows), 1)),
            f"The ONNX model returned an array of shape {scores.shape} for {len(rows)} rows.",
        )
        return scores.reshape(len(rows))

    def _opened(self) -> Any:
        """Return the onnxruntime session for the current number of threads."""
        session = self._session or self.as_fitted._session
        if session is None or session[0] != self.threads:
            session = (self.threads, _session(self.content_, self.threads))
            vars(self)["_session"] = session  # a cache, not a fitted attribute
        return session[1]

    def _scores(self, X: Any) -> FloatArray:
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(X, self._checked.kind)
        each = self._checked.rows
        try:
            parts = [self._run(rows[first : first + each]) for first in range(0, len(rows), each)]
        except DataError:
            raise
        except Exception as problem:  # noqa: BLE001 - onnxruntime raises a dozen kinds of exceptions
            raise DataError(f"onnxruntime cannot score these rows with this model ({_reason(problem)}).") from None
        return np.concatenate(parts)

    @override
    def _formula(self) -> NoReturn:
        raise DataError(
            "This model is an ONNX file, whose graph cannot be converted to other formats. Use the ONNX file itself."
        )

    def __getstate__(self) -> dict[str, Any]:
        """Drop the onnxruntime session, which cannot be pickled; another process starts its own."""
        return vars(self) | {"_session": None}

    def __copy__(self) -> Self:
        """Copy within this process; the copy shares the session."""
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def state(self) -> State:
        """See `Ranker.state`. The model is saved unchanged."""
        return super().state()._replace(arrays={"onnx": np.frombuffer(self.content_, np.uint8)})

    @classmethod
    @override
    def restore(cls, state: State) -> Self:
        ranker = super().restore(state)
        array = needed(state.arrays, "onnx")
        refuse_if(array.dtype != np.uint8 or array.ndim != 1, "the array onnx does not contain bytes")
        content = array.tobytes()
        ranker._open(content, checked(content))
        return ranker

    @override
    def check_restored(self) -> None:
        super().check_restored()
        refuse_if(self._checked.features != self.n_features_in_, "the ONNX model does not match the number of features")


def _reason(problem: Exception) -> str:
    return str(problem).strip()[:300]


def _session(content: bytes, threads: int | None) -> Any:
    runtime = require_extra("onnxruntime", "export", "An ONNX model")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
