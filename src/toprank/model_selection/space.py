"""Search spaces of hyper-parameters from plain values: a tuple is a range, a list is a set of choices.

The default space combines the space of the ranker, or the range of the system's grid, with the hyper-parameters of the
loss. It is available without PyTorch, for networks too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from toprank.errors import DataError, Remedy, UnknownNameError
from toprank.systems import System, get

Plain = dict[str, Any]

_LOSSES: Mapping[str, Plain] = {
    "LambdaRank": {"loss.sigma": (0.3, 4.0, "log")},
    "LambdaLoss": {"loss.sigma": (0.3, 4.0, "log"), "loss.mu": (1.0, 30.0, "log")},
    "ListNet": {"loss.alpha": (0.1, 10.0, "log")},
    "BoltzRank": {"loss.alpha": (0.1, 10.0, "log")},
    "CostSensitiveListMLE": {"loss.pcf": (1.0, 6.0)},
    "PowerRegression": {"loss.power": (2.0, 8.0)},
    "ImportanceWeightedSquared": {"loss.delta": (0.1, 2.0, "log"), "loss.u": (0.1, 10.0, "log")},
    "ApproxNDCG": {"loss.temperature": (0.01, 1.0, "log")},
    "ApproxMRR": {"loss.temperature": (0.01, 1.0, "log")},
    "ApproxMetric": {"loss.temperature": (0.01, 1.0, "log")},
    "NeuralNDCG": {"loss.temperature": (0.1, 10.0, "log")},
    "SoftRank": {"loss.noise": (0.1, 10.0, "log")},
}


def default_space(system: System | str) -> Plain:
    """Return the space that `tune` searches for a system by default, as plain values that can be modified.

    Trees and networks define their own spaces; other rankers are searched within the range of the system's grid. The
    hyper-parameters of the loss are added. The space is empty if a system has none of these.

    >>> default_space("ListNet")
    {'l2': (0.0001, 0.1, 'log'), 'loss.alpha': (0.1, 10.0, 'log')}
    >>> {**default_space("LambdaMART"), "num_leaves": (4, 16)}["num_leaves"]
    (4, 16)
    """
    chosen = get(system) if isinstance(system, str) else system
    of_loss = _LOSSES.get(chosen.loss or "", {})
    known = {name.removeprefix("loss.") for name in of_loss}
    own = chosen.make().search_space()
    if own is None:
        own = {name: _between(values) for name, values in chosen.grid.items() if name not in known}
    return {**own, **of_loss}


def _between(values: tuple[Any, ...]) -> Any:
    """Return the range of a grid of numbers, logarithmic if positive; return other grids as lists of choices."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numbers or len(set(values)) < 2:
        return list(values)
    low, high = min(values), max(values)
    return (low, high, "log") if low > 0 else (low, high)


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high` inclusive, sampled uniformly or log-uniformly."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def distribution(self, optuna: Any) -> Any:
        """Return the distribution of Optuna."""
        kinds = optuna.distributions
        kind = kinds.IntDistribution if self.whole else kinds.FloatDistribution
        return kind(self.low, self.high, log=self.log)

    def holds(self, value: Any) -> bool:
        """Return whether the value is within the range."""
        return is_number(value) and self.low <= value <= self.high

    def decoded(self, drawn: Any) -> Any:
        """Convert a sampled value to an option."""
        return int(drawn) if self.whole else float(drawn)

    def encoded(self, value: Any) -> Any:
        """Convert an option to the value that Optuna stores."""
        return value


@dataclass(frozen=True)
class OneOf:
    """A choice among values of any type. Optuna stores their `repr`, since its database has no tuples."""

    values: tuple[Any, ...]

    def distribution(self, optuna: Any) -> Any:
        """Return the distribution of Optuna."""
        return optuna.distributions.CategoricalDistribution([repr(value) for value in self.values])

    def holds(self, value: Any) -> bool:
        """Return whether the value is one of the choices."""
        return any(_same(value, choice) for choice in self.values)

    def decoded(self, drawn: Any) -> Any:
        """Convert a sampled value to an option."""
        return {repr(value): value for value in self.values}[drawn]

    def encoded(self, value: Any) -> Any:
        """Convert an option to the value that Optuna stores."""
        return next(repr(choice) for choice in self.values if _same(value, choice))


Dimension = Range | OneOf


@dataclass(frozen=True)
class Space:
    """Dimensions of a search by name, and the system's default values."""

    dimensions: Mapping[str, Dimension]
    defaults: Mapping[str, Any]

    def distributions(self, optuna: Any) -> dict[str, Any]:
        """Return the distributions of Optuna by name."""
        return {name: dimension.distribution(optuna) for name, dimension in self.dimensions.items()}

    def options(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Convert sampled parameters to options of the system."""
        return {name: dimension.decoded(drawn[name]) for name, dimension in self.dimensions.items()}

    def start(self) -> dict[str, Any]:
        """Return the system's default values in Optuna's form, without those outside of the space."""
        return {
            name: dimension.encoded(self.defaults[name])
            for name, dimension in self.dimensions.items()
            if dimension.holds(self.defaults[name])
        }


_EXAMPLES: Mapping[str, Any] = {
    "l2": (0.0001, 1.0, "log"),
    "learning_rate": (0.01, 0.3, "log"),
    "max_iterations": [10, 100],
    "max_rounds": [100, 300],
    "restarts": [1, 5],
}


def _example(parameters: Mapping[str, Any], fixed_names: Collection[str]) -> dict[str, Any]:
    """Return an example space from options that the ranker has and that are not fixed."""
    return {name: values for name, values in _EXAMPLES.items() if name in parameters and name not in fixed_names}


def read_space(system: System, space: Mapping[str, Any] | None, fixed: Mapping[str, Any]) -> Space:
    """Return the validated search space: the given one, or the system's default without fixed options.

    Raises:
        UnknownNameError: if the system has no such option.
        DataError: if a range is invalid or empty, does not suit the option, or the space is empty.
    """
    made = system.make(**fixed)
    parameters = made.get_params(deep=False)
    fixed_names = {_full_name(name, parameters) for name in fixed}
    if space is None:
        plain = {
            name: values
            for name, values in default_space(system).items()
            if _full_name(name, parameters) not in fixed_names
        }
    elif isinstance(space, Mapping):
        plain = dict(space)
    else:
        raise DataError(f"space must be a dictionary from options to ranges or lists, not {type(space).__name__}.")
    if not plain:
        raise DataError(
            f"{system.name} has no default search space. Pass one, for example",
            remedy=Remedy("{space}.", space=_example(parameters, fixed_names) or ...),
        )
    _check_names(plain, fixed_names, parameters)
    defaults = {name: _default(system, made, name) for name in plain}
    dimensions = {name: _read_dimension(name, values, defaults[name]) for name, values in plain.items()}
    for name, dimension in dimensions.items():
        for value in dimension.values if isinstance(dimension, OneOf) else (dimension.low, dimension.high):
            # Constraints that involve the data or several searched options are checked by the fit.
            system.make(**{**fixed, name: value}).check_parameters()
    return Space(dimensions, defaults)


def _full_name(name: str, parameters: Mapping[str, Any]) -> str:
    """Return `loss.alpha` for both spellings of an option of the loss."""
    return name if name in parameters or name.startswith("loss.") else f"loss.{name}"


def _check_names(plain: Mapping[str, Any], fixed_names: set[str], parameters: Mapping[str, Any]) -> None:
    seen: dict[str, str] = {}
    for name in plain:
        if not isinstance(name, str):
            raise DataError(f"The keys of space must be names of options, not {name!r}.")
        if name == "C":
            raise DataError("C is 1/l2; pass a range of l2 instead.")
        full = _full_name(name, parameters)
        if full in fixed_names:
            raise DataError(f"{name} is both fixed and searched; omit one of the two.")
        if full in seen:
            raise DataError(f"{name} and {seen[full]} are the same option; omit one of the two.")
        seen[full] = name


def _default(system: System, made: Any, name: str) -> Any:
    parameters = made.get_params(deep=False)
    if name in parameters:
        if name == "loss":
            system.make(loss=None)  # raises the error that a system has a fixed loss
        return parameters[name]
    of_loss = {} if system.loss is None else {field.name: getattr(made.loss, field.name) for field in fields(made.loss)}
    bare = name.removeprefix("loss.")
    if bare not in of_loss:
        raise UnknownNameError(f"option of {system.name}", name, sorted({*parameters, *of_loss} - {"loss"}))
    return of_loss[bare]


def _read_dimension(name: str, values: Any, default: Any) -> Dimension:
    if isinstance(values, tuple):
        return _read_range(name, values, default)
    if isinstance(values, list):
        if not values:
            raise DataError(f"{name} has no values to choose from.")
        if any(_same(a, b) for at, a in enumerate(values) for b in values[:at]):
            raise DataError(f"{name} has a value twice: {values}.")
        return OneOf(tuple(values))
    raise DataError(
        f"The dimension {name} must be a range (low, high) or (low, high, 'log'), or a list of values, not {values!r}. "
        f"To fix it, pass it as an option: {name}={values!r}."
    )


def _read_range(name: str, values: tuple[Any, ...], default: Any) -> Range:
    if len(values) not in (2, 3):
        raise DataError(f"The range of {name} must be (low, high) or (low, high, 'log'), not {values!r}.")
    low, high = values[:2]
    scale = values[2] if len(values) == 3 else "linear"
    if scale not in ("log", "linear"):
        raise UnknownNameError(f"scale of {name}", str(scale), ["log", "linear"])
    if not is_number(low) or not is_number(high):
        raise DataError(f"The bounds of {name} must be finite numbers, not {low!r} and {high!r}.")
    if low >= high:
        raise DataError(f"The range of {name} is empty: {low!r} is not below {high!r}.")
    if scale == "log" and low <= 0:
        raise DataError(f"A logarithmic range must start above 0, but the range of {name} starts at {low!r}.")
    takes_whole = isinstance(default, int) and not isinstance(default, bool)
    if takes_whole and not (float(low).is_integer() and float(high).is_integer()):
        raise DataError(f"{name} takes whole numbers, but the bounds of its range are {low!r} and {high!r}.")
    if takes_whole or (not isinstance(default, float) and isinstance(low, int) and isinstance(high, int)):
        return Range(int(low), int(high), scale == "log", whole=True)
    return Range(float(low), float(high), scale == "log")


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are the same option: 1 equals 1.0, a list equals a tuple, but 1 is not True."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return list(a) == list(b)
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def is_number(value: Any) -> bool:
    """Return whether the value is a finite number and not a Boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
