"""What is searched, read from plain values: a tuple is a range, a list is a choice.

Where nothing is said, the ranker says it, or the system's grid, and the loss adds its own. The space of a network can
be looked at without PyTorch.
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
    """The space that `tune` searches for a system, in plain values, to look at or to change.

    Trees and networks have spaces of their own; other rankers are searched between the ends of the system's grid. To
    these come the hyper-parameters of the loss. A system with none of them has an empty space.

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
    """A grid as a range, on the scale on which its values are even; a grid of words, or of one value, as it is."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numbers or len(set(values)) < 2:
        return list(values)
    low, high = min(values), max(values)
    return (low, high, "log") if low > 0 else (low, high)


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included; drawn evenly on their own or on the logarithmic scale."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def distribution(self, optuna: Any) -> Any:
        """As Optuna knows it."""
        kinds = optuna.distributions
        kind = kinds.IntDistribution if self.whole else kinds.FloatDistribution
        return kind(self.low, self.high, log=self.log)

    def holds(self, value: Any) -> bool:
        """Whether the value lies within."""
        return is_number(value) and self.low <= value <= self.high

    def decoded(self, drawn: Any) -> Any:
        """The value that Optuna drew."""
        return int(drawn) if self.whole else float(drawn)

    def encoded(self, value: Any) -> Any:
        """The value as Optuna draws it."""
        return value


@dataclass(frozen=True)
class OneOf:
    """One of some values of any kind. Optuna sees their texts: a database could not hold a tuple."""

    values: tuple[Any, ...]

    def distribution(self, optuna: Any) -> Any:
        """As Optuna knows it."""
        return optuna.distributions.CategoricalDistribution([repr(value) for value in self.values])

    def holds(self, value: Any) -> bool:
        """Whether the value is one of them."""
        return any(_same(value, choice) for choice in self.values)

    def decoded(self, drawn: Any) -> Any:
        """The value that Optuna drew."""
        return {repr(value): value for value in self.values}[drawn]

    def encoded(self, value: Any) -> Any:
        """The value as Optuna draws it."""
        return next(repr(choice) for choice in self.values if _same(value, choice))


Dimension = Range | OneOf


@dataclass(frozen=True)
class Space:
    """The hyper-parameters that are searched, by name, and the values that the system has without a search."""

    dimensions: Mapping[str, Dimension]
    defaults: Mapping[str, Any]

    def distributions(self, optuna: Any) -> dict[str, Any]:
        """As Optuna knows them."""
        return {name: dimension.distribution(optuna) for name, dimension in self.dimensions.items()}

    def options(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """What Optuna drew, as options of the system."""
        return {name: dimension.decoded(drawn[name]) for name, dimension in self.dimensions.items()}

    def start(self) -> dict[str, Any]:
        """The system's own values, as Optuna would draw them; those outside of the space are left out."""
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


def _example(parameters: Mapping[str, Any], settled: Collection[str]) -> dict[str, Any]:
    """Return a space of options that a ranker with these parameters has and that are not settled."""
    return {name: values for name, values in _EXAMPLES.items() if name in parameters and name not in settled}


def read_space(system: System, space: Mapping[str, Any] | None, fixed: Mapping[str, Any]) -> Space:
    """The space to search: the given one, or the system's default without what is fixed.

    Raises:
        UnknownNameError: the system has no such option.
        DataError: a range is empty, is none, or does not suit the option; or nothing is searched.
    """
    made = system.make(**fixed)
    parameters = made.get_params(deep=False)
    settled = {_full_name(name, parameters) for name in fixed}
    if space is None:
        plain = {
            name: values
            for name, values in default_space(system).items()
            if _full_name(name, parameters) not in settled
        }
    elif isinstance(space, Mapping):
        plain = dict(space)
    else:
        raise DataError(f"space must be a dictionary from options to ranges or lists, not {type(space).__name__}.")
    if not plain:
        raise DataError(
            f"There is nothing to search for {system.name}: say where, for example with",
            remedy=Remedy("{space}.", space=_example(parameters, settled) or ...),
        )
    _check_names(plain, settled, parameters)
    defaults = {name: _default(system, made, name) for name in plain}
    dimensions = {name: _read_dimension(name, values, defaults[name]) for name, values in plain.items()}
    for name, dimension in dimensions.items():
        for value in dimension.values if isinstance(dimension, OneOf) else (dimension.low, dimension.high):
            # What depends on data, or on options that are searched too, is left to the fit.
            system.make(**{**fixed, name: value}).check_parameters()
    return Space(dimensions, defaults)


def _full_name(name: str, parameters: Mapping[str, Any]) -> str:
    """`loss.alpha` for both spellings of an option of the loss."""
    return name if name in parameters or name.startswith("loss.") else f"loss.{name}"


def _check_names(plain: Mapping[str, Any], settled: set[str], parameters: Mapping[str, Any]) -> None:
    seen: dict[str, str] = {}
    for name in plain:
        if not isinstance(name, str):
            raise DataError(f"Options are searched by their names, not by {name!r}.")
        if name == "C":
            raise DataError("C is 1/l2; give a range of l2.")
        full = _full_name(name, parameters)
        if full in settled:
            raise DataError(f"{name} is both fixed and searched; leave one of them out.")
        if full in seen:
            raise DataError(f"{name} and {seen[full]} are the same option; leave one of them out.")
        seen[full] = name


def _default(system: System, made: Any, name: str) -> Any:
    parameters = made.get_params(deep=False)
    if name in parameters:
        if name == "loss":
            system.make(loss=None)  # refused in a sentence: a system has a loss of its own
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
        f"{name} is searched in a range (low, high) or (low, high, 'log'), or in a list of values, not in {values!r}. "
        f"To fix it, give it as an option: {name}={values!r}."
    )


def _read_range(name: str, values: tuple[Any, ...], default: Any) -> Range:
    if len(values) not in (2, 3):
        raise DataError(f"The range of {name} must be (low, high) or (low, high, 'log'), not {values!r}.")
    low, high = values[:2]
    scale = values[2] if len(values) == 3 else "linear"
    if scale not in ("log", "linear"):
        raise UnknownNameError(f"scale of {name}", str(scale), ["log", "linear"])
    if not is_number(low) or not is_number(high):
        raise DataError(f"The range of {name} must go from a number to a number, not from {low!r} to {high!r}.")
    if low >= high:
        raise DataError(f"The range of {name} is empty: it goes from {low!r} to {high!r}.")
    if scale == "log" and low <= 0:
        raise DataError(f"A logarithmic range must begin above 0, but that of {name} begins at {low!r}.")
    takes_whole = isinstance(default, int) and not isinstance(default, bool)
    if takes_whole and not (float(low).is_integer() and float(high).is_integer()):
        raise DataError(f"{name} takes whole numbers, but its range goes from {low!r} to {high!r}.")
    if takes_whole or (not isinstance(default, float) and isinstance(low, int) and isinstance(high, int)):
        return Range(int(low), int(high), scale == "log", whole=True)
    return Range(float(low), float(high), scale == "log")


def _same(a: Any, b: Any) -> bool:
    """Whether two values mean the same option: 1 and 1.0 do, a list and a tuple do, 1 and True do not."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return list(a) == list(b)
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def is_number(value: Any) -> bool:
    """Whether the value is a finite number, and not yes or no."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
