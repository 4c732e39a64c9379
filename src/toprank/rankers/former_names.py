"""Names in model files of format versions 1 to 3, translated to the names of version 4."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toprank.errors import refuse_if

_KINDS = {"WeightsRanker": "ImportedLinearRanker"}
_EVERY_RANKER = {"level_means": "target_encoding"}
_LINEAR = {"refine": "active_set", "scale": "standardize", "start": "init"}
_PARAMETERS: dict[str, dict[str, str]] = {
    "LinearRanker": _LINEAR,
    "ExpectedGainRanker": _LINEAR,
    "AdaRank": {"max_in_a_row": "max_consecutive", "patience": "early_stopping"},
    "TreeRanker": {"extra": "lightgbm_params"},
    "NeuralRanker": {"clip": "max_grad_norm", "native": "gpu_loss", "train_metric": "eval_train"},
}
_SOLVERS = {"Redrawn": "AveragedStochastic"}
_SOLVER_OPTIONS = {
    "Bundle": {"idle": "max_idle"},
    "GradientDescent": {"rate": "learning_rate"},
    "Newton": {"plain": "full_steps"},
}
_TRAINING = {"level_means": "target_encoding"}
_ENCODINGS = {"examined": "z_scores", "judged_on": "evaluated_on"}
_COLUMNS = {"centre": "center"}
_ARRAY = re.compile(r"((?:m\d+_)*)(centre|level_mean)((?:_\d+)?)")
_ARRAYS = {"centre": "center", "level_mean": "target_encoding"}


def array_name(name: str) -> str:
    """Return the present name of an array; arrays of blend members begin with ``m0_``, ``m1_`` …

    >>> array_name("m1_centre"), array_name("level_mean_0"), array_name("coef")
    ('m1_center', 'target_encoding_0', 'coef')
    """
    match = _ARRAY.fullmatch(name)
    return name if match is None else f"{match[1]}{_ARRAYS[match[2]]}{match[3]}"


def upgraded(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a model, or of a member of a blend, with the present names.

    Values of unexpected types stay as they are, to be refused where they are read.
    """
    described = dict(metadata)
    kind = described.get("kind")
    described["kind"] = kind = _KINDS.get(kind, kind) if isinstance(kind, str) else kind
    for holder in (described, described.get("features")):  # members have no `features`
        if isinstance(holder, dict) and "one_hot" in holder:
            holder["one_hot"] = _renamed(holder["one_hot"], _COLUMNS)
    training = described["training"] = _renamed(described.get("training"), _TRAINING)
    if isinstance(training, dict) and "target_encoding" in training:
        training["target_encoding"] = _renamed(training["target_encoding"], _ENCODINGS)
    state = described.get("state")
    if isinstance(state, dict):
        names = _EVERY_RANKER | (_PARAMETERS.get(kind, {}) if isinstance(kind, str) else {})
        parameters = _renamed(state.get("parameters"), names)
        if isinstance(parameters, dict) and "solver" in parameters:
            parameters["solver"] = _solver(parameters["solver"])
        described["state"] = state | {"parameters": parameters}
        if isinstance(members := state.get("members"), list):
            described["state"]["members"] = [upgraded(one) if isinstance(one, dict) else one for one in members]
    return described


def _solver(value: Any) -> Any:
    """Return the description of a solver, which may hold another one, with the present names."""
    if not isinstance(value, dict) or not isinstance(options := value.get("solver"), dict):
        return value
    name = options.get("name")
    name = _SOLVERS.get(name, name) if isinstance(name, str) else name
    options = _renamed(options, _SOLVER_OPTIONS.get(name, {}) if isinstance(name, str) else {})
    inner = {"solver": _solver(options["solver"])} if "solver" in options else {}
    return {"solver": options | {"name": name} | inner}


def _renamed(values: Any, names: Mapping[str, str]) -> Any:
    """Return a dictionary with renamed keys; refuse one that has both the former name and the present one."""
    if not isinstance(values, dict):
        return values
    result: dict[str, Any] = {}
    for former, value in values.items():
        name = names.get(former, former)
        refuse_if(name in result, f"there is no parameter '{former}' beside '{name}'")
        result[name] = value
    return result
