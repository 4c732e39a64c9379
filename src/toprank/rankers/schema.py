"""The schema of model files: parameters as JSON, values of the declared types, arrays of the declared shapes.

Everything else is refused. The types of parameters are those of the ranker's constructor; each class declares its
fitted values and arrays (`saved_values`, `saved_arrays`). Every error message completes the sentence "The model is
inconsistent: …". Losses and solvers are described by name and options; functions and objects of other libraries are
refused.
"""

from __future__ import annotations

import collections.abc
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt

from toprank import losses, solvers
from toprank.compute import FloatArray
from toprank.data.encoding import Encoding
from toprank.errors import DataError, refuse_if
from toprank.lazy_imports import exported_names
from toprank.losses.unknown_loss import UnknownLoss, named
from toprank.metrics.conventions import CONVENTIONS, Convention
from toprank.metrics.measure import Measure
from toprank.rankers.estimator import Recorded
from toprank.rankers.seen_columns import TABLE, SeenColumns
from toprank.scorers.features import Standardization
from toprank.text.tables import TextFeatures

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker


def plain(name: str, value: Any) -> Any:
    """Return a parameter in a form that JSON supports."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    return _described(name, value)


_REMEDIES = {
    "classifier": " Models that contain a scikit-learn classifier cannot be saved; train under a loss instead.",
    "convention": " Use the name of a convention, and set differences in the metric: metric='ndcg(gain=linear)'.",
}


def _described(name: str, value: object) -> Any:
    if isinstance(value, losses.Loss):
        return {"own_loss": named(value)} if _is_own(value) else {"loss": losses.to_spec(value)}
    if isinstance(value, Measure):
        return str(value)  # can be parsed again if it is one of ours; the name for custom metrics
    if isinstance(value, Convention) and CONVENTIONS.get(value.name) == value:
        return value.name
    if isinstance(value, solvers.Solver):
        options = {field.name: plain(name, getattr(value, field.name)) for field in fields(cast(Any, value))}
        return {"solver": {"name": type(value).__name__, **options}}
    raise DataError(
        f"The parameter {name} is a {type(value).__name__}, which cannot be saved, because loading it would execute "
        f"code.{_REMEDIES.get(name, '')}"
    )


def _is_own(loss: losses.Loss) -> bool:
    """Return whether a file can only name the loss, because its class is not ours or it contains functions."""
    if not type(loss).__module__.startswith("toprank.losses.") or isinstance(loss, UnknownLoss):
        return True
    held = vars(loss).values()
    if any(isinstance(value, losses.Loss) and _is_own(value) for value in held):
        return True
    functions = any(callable(value) or getattr(value, "function", None) is not None for value in held)
    return functions and loss.traits.space == "score"


def from_plain(value: Any) -> Any:
    """Return the parameter that `plain` converted."""
    if isinstance(value, dict) and "loss" in value:
        return losses.from_spec(value["loss"])
    if isinstance(value, dict) and "own_loss" in value:
        kinds, stated = get_type_hints(UnknownLoss), value["own_loss"]
        if isinstance(stated, dict):
            stated.setdefault("columns", "grades")  # missing in older files
        return UnknownLoss(*(read_value(stated, field.name, kinds[field.name]) for field in fields(UnknownLoss)))
    if isinstance(value, dict) and "solver" in value:
        options = dict(value["solver"])
        name = options.pop("name")
        refuse_if(name not in exported_names("toprank.solvers"), f"there is no solver '{name}'")
        return getattr(solvers, name)(**{option: from_plain(inner) for option, inner in options.items()})
    return value


RUN_PARAMETERS = ("threads", "verbose")
"""Parameters of a run rather than of a model: they are not saved, and ignored in files that contain them."""

_LARGEST = sys.float_info.max
_ARRAY = get_origin(FloatArray)  # the type of arrays; NumPy 2.5 and later use their own alias


class Numbers:
    """An array of finite numbers.

    Args:
        axes: the name of each axis: ``features``, or a name specific to the ranker; axes with the same name have equal
            length.
        whole: whether the numbers must be integers.
    """

    def __init__(self, *axes: str, whole: bool = False) -> None:
        self.axes, self.whole = axes, whole

    def read(self, name: str, array: Any) -> npt.NDArray[Any]:
        """Return the array of a file with the dtype used for computation; its lengths are checked later."""
        if not isinstance(array, np.ndarray) or array.ndim != len(self.axes):
            raise DataError(f"the array {name} does not have {len(self.axes)} axes")
        refuse_if(
            array.dtype.kind not in ("iu" if self.whole else "fiu"),
            f"the array {name} does not contain {'integers' if self.whole else 'finite numbers'}",
        )
        numbers = np.require(array, np.int64 if self.whole else np.float64, ["C", "A", "W"])
        refuse_if(not np.isfinite(numbers).all(), f"the array {name} does not contain finite numbers")
        return numbers

    def check_lengths(self, name: str, array: npt.NDArray[Any], lengths: dict[str, int]) -> None:
        """Refuse an array whose axes differ from `lengths`; lengths of new axes are added to it."""
        for axis, length in zip(self.axes, array.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                where = "number of features" if axis == "features" else f"number of {axis}"
                raise DataError(f"the array {name} does not match the {where}")


def fits(value: Any, hint: Any) -> bool:
    """Return whether a plain value has the type of an annotation; numbers must be finite, and lists may represent
    arrays.

    >>> fits([1, 2.5], float | list[float]), fits(True, int), fits("a", Literal["a", "b"])
    (True, False, True)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, member) for member in inner)
    if origin is Literal:
        return any(type(value) is type(literal) and value == literal for literal in inner)
    if hint in (int, float):
        kinds = int if hint is int else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
    if origin is _ARRAY:
        return isinstance(value, list | tuple | np.ndarray) and all(fits(item, float) for item in value)
    if origin in (collections.abc.Sequence, list, tuple):
        return isinstance(value, list | tuple) and all(fits(item, inner[0]) for item in value)
    if origin in (collections.abc.Mapping, dict):
        return isinstance(value, dict) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if origin is collections.abc.Callable:
        return callable(value)
    return isinstance(value, type(None) if hint is None else hint)


def needed(parts: Any, name: str) -> Any:
    """Return a part by its name; refuse a missing part, and `parts` that are not a mapping."""
    if not isinstance(parts, Mapping) or name not in parts:
        raise DataError(f"{name} is missing")
    return parts[name]


def read_value(parts: Any, name: str, hint: Any) -> Any:
    """Return a value of a file; refuse one that does not have the declared type."""
    value = needed(parts, name)
    refuse_if(not fits(value, hint), f"{name} has the invalid value {reprlib.repr(value)}")
    return value


def read_parameters(kind: type, written_values: Any) -> dict[str, Any]:
    """Return the arguments of a ranker's constructor from the plain values of a file, each of its declared type."""
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    hints.pop("return")
    parameters = {}
    for name, value in read_value({"parameters": written_values}, "parameters", dict[str, Any]).items():
        if name in RUN_PARAMETERS:
            continue
        refuse_if(name not in hints, f"there is no parameter {reprlib.repr(name)}")
        called = f"the parameter {name}"
        parameters[name] = read_value({called: from_plain(value)}, called, hints[name])
    return parameters


def describe(ranker: Ranker, metadata: Any, text_arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Set the features and the training provenance of a restored ranker, which every model file contains.

    `text_arrays` are the word statistics that its text features need.
    """
    features = read_value(metadata, "features", dict[str, Any])
    count, names = read_value(features, "count", int), read_value(features, "names", list[str] | None)
    refuse_if(
        count < 1 or (names is not None and len(names) != count),
        "the number of feature names does not match the number of features",
    )
    ranker.n_features_in_ = count
    if names is not None:
        ranker.feature_names_in_ = np.array(names, dtype=object)
    first = read_value(features, "first_id", int | None)
    if first is not None:
        ranker.first_feature_id_ = first
    if "columns" in features:
        encoding = Encoding.from_plain(features["columns"])
        refuse_if(list(encoding.names) != names, "the columns do not match the features")
        ranker.encode(encoding, features.get("one_hot"))
    if "text" in features:
        ranker.text_ = TextFeatures.restore(features["text"], text_arrays, names, ranker.encoding_)
    ranker.training_ = read_training(metadata)


def read_training(parts: Any) -> dict[str, Any]:
    """Return the provenance of a model from its file."""
    training: dict[str, Any] = read_value(parts, "training", dict[str, Any])
    read_value(training, "queries", int)
    return training


_PER_FEATURE = Numbers("features")


class State(NamedTuple):
    """The saved state of a ranker: plain values, arrays and texts."""

    values: dict[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]
    texts: Mapping[str, str]


class Savable(Recorded):
    """A ranker that declares the contents of its model file."""

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {}
    """Fitted arrays in the model file, with their shapes and types."""
    saved_values: ClassVar[Mapping[str, Any]] = {}
    """Fitted plain values in the model file, with their types."""
    standardizes: ClassVar[bool] = False
    """Whether a model file contains the standardization of the features."""

    n_features_in_: int
    encoding_: Encoding | None
    columns_: SeenColumns | None
    standardization_: Standardization

    @property
    def column_names_(self) -> tuple[str, ...] | None:
        """The names of the input columns: of the features, or including one-hot levels and target encodings."""
        names = getattr(self, "feature_names_in_", None)
        return self.columns_.names if self.columns_ is not None else None if names is None else tuple(names)

    @property
    def n_columns_(self) -> int:
        """Number of input columns."""
        return self.n_features_in_ if self.columns_ is None else self.columns_.width

    def state(self) -> State:
        """Return everything that `restore` needs, as plain values, arrays and texts."""
        parameters_of_fit = self._saved_parameters().items()
        parameters = {name: plain(name, value) for name, value in parameters_of_fit if name not in RUN_PARAMETERS}
        arrays = {name.rstrip("_"): np.asarray(getattr(self, name)) for name in self.saved_arrays}
        if self.standardizes:
            arrays |= {"center": self.standardization_.center, "spread": self.standardization_.spread}
        arrays |= {} if self.columns_ is None else self.columns_.arrays()
        values = {name.rstrip("_"): getattr(self, name) for name in self.saved_values}
        return State({"parameters": parameters, "fitted": values}, arrays, {})

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters of the fit, for the model file."""
        return self.as_fitted.get_params(deep=False)

    def check_restored(self) -> None:
        """Refuse arrays that do not match the number of features, or each other."""
        refuse_if("_tables_in_file" in vars(self), "there are target encodings, but no categories")
        lengths = {"features": self.n_columns_}
        for name, numbers in self.saved_arrays.items():
            numbers.check_lengths(name.rstrip("_"), getattr(self, name), lengths)
        if self.standardizes:
            center, spread = self.standardization_.center, self.standardization_.spread
            for name, array in (("center", center), ("spread", spread)):
                _PER_FEATURE.check_lengths(name, array, lengths)
            refuse_if(not (spread > 0).all(), "the standardization has a spread that is not positive")

    def encode(self, encoding: Encoding | None, columns: Any) -> None:
        """Set the types of a restored ranker's features; `columns` is the file's description of the input columns."""
        self.encoding_ = encoding
        if encoding is not None and encoding.categories and (columns is not None or not self.supports_categories):
            tables = vars(self).pop("_tables_in_file", [])
            self.columns_ = SeenColumns.from_plain(encoding, columns, tables, self.supports_categories)

    @classmethod
    def restore(cls, state: State) -> Self:
        """Return the ranker that `state` described: a draft, to be `finalized` after the rest of the file is read."""
        ranker = cls(**read_parameters(cls, needed(state.values, "parameters")))
        for name, numbers in cls.saved_arrays.items():
            part = name.rstrip("_")
            setattr(ranker, name, numbers.read(part, needed(state.arrays, part)))
        fitted = needed(state.values, "fitted")
        for name, hint in cls.saved_values.items():
            setattr(ranker, name, read_value(fitted, name.rstrip("_"), hint))
        if cls.standardizes:
            center, spread = (_PER_FEATURE.read(name, needed(state.arrays, name)) for name in ("center", "spread"))
            ranker.standardization_ = Standardization(center, spread)
        if f"{TABLE}0" in state.arrays:
            ranker._tables_in_file = [state.arrays[name] for name in SeenColumns.tables(state.arrays)]
        return ranker
