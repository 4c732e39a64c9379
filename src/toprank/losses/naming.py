"""Losses by their names, and as plain values for a file."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from toprank import losses
from toprank.errors import DataError, UnknownNameError
from toprank.importing import exports
from toprank.losses.base import Loss, Traits

__all__ = ["from_spec", "make", "names", "to_spec"]

_HOME_OF_NONE = "toprank.losses.base"  # what the losses share; every other class that the package exports is a loss
_LOSSES = tuple(name for name, home in exports("toprank.losses").items() if name[0].isupper() and home != _HOME_OF_NONE)


def names() -> tuple[str, ...]:
    """The names of all losses."""
    return _LOSSES


def make(loss: Loss | str, /, **options: Any) -> Loss:
    """The loss of that name (capitals and punctuation do not matter), or the loss itself.

    >>> make("list-net", alpha=2.0)
    ListNet(alpha=2.0, psi='linear', top_k=1)
    """
    if isinstance(loss, Loss):
        if not isinstance(getattr(loss, "traits", None), Traits):
            raise DataError(
                f"{type(loss).__name__} does not say what is true of it, by which solvers are chosen: give the class "
                "traits = toprank.losses.Traits(convex=…, smooth=…)."
            )
        return loss
    if not isinstance(loss, str):
        raise DataError(f"A loss is a value of toprank.losses or its name, not {type(loss).__name__}.")
    by_key = {_key(name): name for name in _LOSSES}
    if _key(loss) not in by_key:
        raise UnknownNameError("loss", loss, _LOSSES)
    kind = getattr(losses, by_key[_key(loss)])
    known = {field.name for field in fields(kind)}
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {kind.__name__}", option, sorted(known))
    try:
        made: Loss = kind(**options)
    except TypeError:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise DataError(f"{kind.__name__} cannot be made from {given}: a value is of the wrong kind.") from None
    return made


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def to_spec(loss: Loss) -> dict[str, Any]:
    """The loss as plain values for a file; refused where it holds a function of yours."""
    spec: dict[str, Any] = {"name": type(loss).__name__}
    if spec["name"] not in _LOSSES:
        raise DataError(f"{spec['name']} is not a loss of toprank; a model file can name only those.")
    for field in fields(loss):
        value = getattr(loss, field.name)
        if callable(value) or getattr(value, "function", None) is not None:
            raise DataError(f"{field.name} of {spec['name']} is a function of yours, which a model file cannot hold.")
        if isinstance(value, Loss):
            spec[field.name] = to_spec(value)
            continue
        if isinstance(value, tuple):
            value = [float(number) for number in value]
        spec[field.name] = value if isinstance(value, str | int | float | bool | list | None) else str(value)
    return spec


def from_spec(spec: dict[str, Any]) -> Loss:
    """The loss that `to_spec` wrote down."""
    options = {name: value for name, value in spec.items() if name != "name"}
    for name, value in options.items():
        if isinstance(value, dict):
            options[name] = from_spec(value)
        elif isinstance(value, list):
            if not all(isinstance(number, int | float) for number in value):
                raise DataError(f"{name} of {spec['name']} is a list of numbers, and cannot be {value!r}.")
            options[name] = tuple(value)
    if "name" not in spec:
        raise DataError("A loss has no name.")
    return make(spec["name"], **options)
