"""Hyper-parameters as plain values for a model file, and back. Functions and foreign objects are refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import numpy as np

from toprank import losses, solvers
from toprank.errors import DataError

__all__ = ["from_plain", "plain"]


def plain(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    return _described(name, value)


def _described(name: str, value: object) -> Any:
    if isinstance(value, losses.Loss):
        return {"loss": losses.to_spec(value)}
    if isinstance(value, solvers.Solver):
        options = {field.name: plain(name, getattr(value, field.name)) for field in fields(cast(Any, value))}
        return {"solver": {"name": type(value).__name__, **options}}
    raise DataError(
        f"The parameter {name} is a {type(value).__name__}, which a model file cannot hold without running code when "
        "it is read. Models with a scikit-learn classifier inside cannot be saved; train under a loss instead."
    )


def from_plain(value: Any) -> Any:
    """The parameter that `plain` wrote down."""
    if isinstance(value, dict) and "loss" in value:
        return losses.from_spec(value["loss"])
    if isinstance(value, dict) and "solver" in value:
        options = dict(value["solver"])
        name = options.pop("name")
        if name not in solvers.__all__:
            raise DataError(f"There is no solver called '{name}'.")
        return getattr(solvers, name)(**options)
    return value
