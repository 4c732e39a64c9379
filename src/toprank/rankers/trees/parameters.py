"""What a `TreeRanker` is asked for: checked, and said in LightGBM's words, threads included.

A fork copies the memory of LightGBM's pool of threads (OpenMP) but not the threads: the child would wait for them for
ever. With one thread it asks for none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, available_threads
from toprank.data.arguments import check_callbacks, check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.display.progress import ProgressLine, in_notebook
from toprank.errors import DataError, UnknownNameError, warn_user
from toprank.rankers.trees.cores import FreeCores, free_cores, leaves_busy_cores

if TYPE_CHECKING:
    from toprank.rankers.source import Source
    from toprank.rankers.trees.ranker import TreeRanker

_forked = False


class ForkedTreesWarning(UserWarning):
    """Trees were asked for several threads in a process that was forked from one that had used LightGBM."""


def allowed_threads(threads: int, explicit: bool) -> int:
    """So many threads, or one in a forked process; said in a warning where several were asked for."""
    if not _forked or threads == 1:
        return threads
    if explicit:
        warn_user(
            "This process was forked from one that had used LightGBM, whose threads do not survive that: trees have "
            "one thread here. For more, start processes with the 'spawn' or 'forkserver' method of multiprocessing.",
            ForkedTreesWarning,
        )
    return 1


def _keep_to_one_thread() -> None:
    global _forked
    basic = sys.modules.get("lightgbm.basic")
    if basic is not None:
        _forked = True
        basic._safe_call(basic._LIB.LGBM_SetMaxThreads(1))


if hasattr(os, "register_at_fork"):  # not on Windows, where there is no fork
    os.register_at_fork(after_in_child=_keep_to_one_thread)


_SHARE: dict[str, Any] = {"least": 0, "most": 1}
_NOT_NEGATIVE: dict[str, Any] = {"least": 0}
_NUMBERS: dict[str, dict[str, Any]] = {
    "min_sum_hessian_in_leaf": _NOT_NEGATIVE, "lambda_l1": _NOT_NEGATIVE, "min_gain_to_split": _NOT_NEGATIVE,
    "max_delta_step": {}, "path_smooth": _NOT_NEGATIVE, "feature_fraction_bynode": {"above": 0, "most": 1},
    "top_rate": _SHARE, "other_rate": _SHARE, "drop_rate": _SHARE, "skip_drop": _SHARE,
    "monotone_penalty": _NOT_NEGATIVE, "cat_smooth": _NOT_NEGATIVE, "cat_l2": _NOT_NEGATIVE, "histogram_pool_size": {},
}  # fmt: skip
_WHOLE = {
    "max_depth": -(2**31), "max_drop": -(2**31), "max_cat_threshold": 1, "max_cat_to_onehot": 1,
    "min_data_per_group": 1, "min_data_in_bin": 1, "bin_construct_sample_cnt": 1, "num_grad_quant_bins": 2,
}  # fmt: skip
_FLAGS = (
    "extra_trees", "uniform_drop", "xgboost_dart_mode", "enable_bundle", "use_missing", "zero_as_missing",
    "feature_pre_filter", "force_col_wise", "force_row_wise", "use_quantized_grad", "quant_train_renew_leaf",
    "stochastic_rounding",
)  # fmt: skip
_NAMES = {
    "data_sample_strategy": ("bagging", "goss"),
    "monotone_constraints_method": ("basic", "intermediate", "advanced"),
}
BY_FEATURE = ("feature_contri", "interaction_constraints", "max_bin_by_feature")
_FURTHER = (*_NUMBERS, *_WHOLE, *_FLAGS, *_NAMES, *BY_FEATURE)
"""LightGBM parameters that `lightgbm_params` accepts. Invalid values are refused here, because LightGBM writes its own
errors to the standard error of the process, whatever its verbosity."""
_OF_BUILT_IN = ("lambdarank_truncation_level", "lambdarank_norm", "sigmoid", "label_gain")
_COLUMNS_PER_THREAD = 8
_CELLS_PER_THREAD = 1 << 18
_PREFIX, _BUILT_IN = "lightgbm:", ("lambdarank", "rank_xendcg")


def built_in(loss: Any) -> str | None:
    """LightGBM's name of one of its own objectives, where `loss` asks for one.

    >>> built_in("lightgbm:lambdarank"), built_in("LambdaRank")
    ('lambdarank', None)
    """
    if not isinstance(loss, str) or not loss.lower().startswith(_PREFIX):
        return None
    name = loss.lower().removeprefix(_PREFIX)
    if name not in _BUILT_IN:
        raise UnknownNameError("loss", loss, [_PREFIX + known for known in _BUILT_IN])
    return name


def training_threads(threads: int | None, data: RankingData) -> FreeCores:
    """As many as were asked for; else as many as have enough to do: on small data threads mostly wait for each other.

    Where the machine is busy besides, that waiting can make training a hundred times slower; a process that is asked to
    (`toprank.rankers.trees.cores`) therefore looks how busy it is.
    """
    if threads is not None:
        return FreeCores(allowed_threads(available_threads(threads), explicit=True), "")
    enough = 1 + data.n_documents * data.n_features // _CELLS_PER_THREAD
    useful = allowed_threads(min(available_threads(), enough), explicit=False)
    if useful == 1 or not leaves_busy_cores():
        return FreeCores(useful, "")
    free = free_cores()
    return free if free.threads < useful else FreeCores(useful, "")


class BareColumns(NamedTuple):
    """Features of no data."""

    n_features: int
    feature_names: tuple[str, ...] | None = None


class InitialTrees(NamedTuple):
    """Trees that training goes on from."""

    booster: Any
    rounds: int
    intercept: FloatArray
    """What they start from, one number for each output."""
    gains: FloatArray
    """G of each grade; empty where the output is the score itself."""


def check_combination(ranker: TreeRanker) -> None:
    """Look at what a ranker is asked for; refuse parameters that do not go together, and callbacks of LightGBM's."""
    _check_callbacks(ranker.callbacks)
    grown(ranker)
    if ranker.lightgbm_params is not None and not isinstance(ranker.lightgbm_params, Mapping):
        raise DataError(
            f"lightgbm_params takes a dictionary such as {{'max_depth': 6}}, not {ranker.lightgbm_params!r}."
        )
    if ranker.outputs == "grades":
        if built_in(ranker.loss):
            raise DataError(f"{ranker.loss} scores documents; with outputs='grades' use a loss of toprank's.")
        if ranker.monotone is not None:
            raise DataError("monotone speaks of the score; with outputs='grades' there is one output for each grade.")
    _sampling(ranker)
    _further(ranker)


def _sampling(ranker: TreeRanker) -> dict[str, Any]:
    """Rows by LightGBM; whole queries by LightGBM for its own lambdarank, by the objective for our losses."""
    objective = built_in(ranker.loss)
    if ranker.row_fraction < 1 and ranker.query_fraction < 1 and objective is not None:
        raise DataError("LightGBM's own objectives sample rows or queries, not both; set one of the fractions to 1.")
    if ranker.row_fraction < 1:
        return {"bagging_fraction": ranker.row_fraction, "bagging_freq": 1}
    if ranker.query_fraction < 1 and objective is not None:
        if objective != "lambdarank":
            raise DataError(f"{ranker.loss} cannot sample whole queries; use row_fraction, or the loss XENDCG.")
        return {"bagging_fraction": ranker.query_fraction, "bagging_freq": 1, "bagging_by_query": True}
    return {}


def _further(ranker: TreeRanker) -> dict[str, Any]:
    """The parameters that LightGBM knows and `TreeRanker` has no name for."""
    lightgbm_params = dict(ranker.lightgbm_params or {})
    names = [*_FURTHER, *(_OF_BUILT_IN if built_in(ranker.loss) else ())]
    for name in lightgbm_params:
        if name not in names:
            raise UnknownNameError("further LightGBM parameter for lightgbm_params=", str(name), names)
    if "force_row_wise" in lightgbm_params or "force_col_wise" in lightgbm_params:
        lightgbm_params = {"force_row_wise": False, "force_col_wise": False} | lightgbm_params
    _check_further(lightgbm_params)
    if lightgbm_params.get("data_sample_strategy") == "goss":
        if _sampling(ranker):
            raise DataError("GOSS samples rows by their gradients; leave row_fraction and query_fraction at 1.")
        if lightgbm_params.get("top_rate", 0.2) + lightgbm_params.get("other_rate", 0.1) > 1:
            raise DataError("GOSS takes a share top_rate of the rows and other_rate of the rest: 1 at most together.")
    return lightgbm_params


def check_features(ranker: TreeRanker, n_features: int) -> None:
    """Refuse what `lightgbm_params` says of single features where the data have others."""
    lightgbm_params = ranker.lightgbm_params or {}
    for name in ("feature_contri", "max_bin_by_feature"):
        numbers = lightgbm_params.get(name)
        if numbers is not None and len(numbers) != n_features:
            raise DataError(f"lightgbm_params['{name}'] has {len(numbers)} numbers for {n_features} features.")
    for feature in (feature for group in lightgbm_params.get("interaction_constraints", ()) for feature in group):
        if feature >= n_features:
            raise DataError(
                f"lightgbm_params['interaction_constraints'] names the feature {feature}; the last is {n_features - 1}."
            )


def _check_further(lightgbm_params: Mapping[str, Any]) -> None:
    """Refuse values that LightGBM would refuse."""
    for name, value in lightgbm_params.items():
        called = f"lightgbm_params['{name}']"
        if name in _NUMBERS:
            check_number(called, value, **_NUMBERS[name])
        elif name in _WHOLE:
            check_whole(called, value, _WHOLE[name], below=2**31)
        elif name in _NAMES and value not in _NAMES[name]:
            raise UnknownNameError(called, str(value), _NAMES[name])
        elif (name in _FLAGS or name == "lambdarank_norm") and not (isinstance(value, bool | int) and value in (0, 1)):
            raise DataError(f"{called} must be True or False, not {value!r}.")
        elif name == "lambdarank_truncation_level":
            check_whole(called, value, 1, below=2**31)
        elif name == "sigmoid":
            check_number(called, value, above=0)
        elif name in ("feature_contri", "label_gain", "max_bin_by_feature"):
            for feature in _listed(called, value):
                if name == "max_bin_by_feature":
                    check_whole(f"every number of {called}", feature, 2, below=2**31)
                else:
                    check_number(f"every number of {called}", feature, least=0)
        elif name == "interaction_constraints":
            for group in _listed(called, value):
                for feature in _listed(f"every group of {called}", group):
                    check_whole(f"every feature of {called}", feature, 0)
    if lightgbm_params.get("force_row_wise") and lightgbm_params.get("force_col_wise"):
        raise DataError("lightgbm_params= forces histograms by rows and by columns at once; leave one of the two out.")


def _listed(called: str, value: Any) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise DataError(f"{called} must be a list, not {value!r}.")
    return list(value)


def grown(ranker: TreeRanker) -> InitialTrees | None:
    """Return the trees of `init_model`, to go on from; refuse those of other outputs."""
    before = ranker.init_model
    if before is None:
        return None
    outputs = before.as_fitted.outputs
    if outputs != ranker.outputs:
        raise DataError(f"init_model has outputs='{outputs}', so it cannot go on with '{ranker.outputs}'.")
    return InitialTrees(before.booster_, before.best_iteration_, before.intercept_, before.gains_)


def _check_callbacks(callbacks: Any) -> None:
    check_callbacks(callbacks, "a Round")
    for callback in callbacks:
        if type(callback).__module__.partition(".")[0] == "lightgbm":
            raise DataError(
                f"{type(callback).__name__.strip('_')} is a callback of LightGBM's and knows nothing of a Round. Use "
                "early_stopping=, verbose= and history_, or a function of your own."
            )


def lightgbm_parameters(ranker: TreeRanker, data: RankingData, outputs: int, categorical: list[int]) -> dict[str, Any]:
    """The parameters of LightGBM for a training on these data."""
    threads, why = training_threads(ranker.threads, data)
    if why and ranker.verbose and not in_notebook():
        ProgressLine()(why)
    parameters: dict[str, Any] = {
        "boosting": ranker.boosting,
        "num_leaves": ranker.num_leaves,
        "learning_rate": ranker.learning_rate,
        "min_data_in_leaf": ranker.min_data_in_leaf,
        "lambda_l2": ranker.l2,
        "feature_fraction": ranker.feature_fraction,
        "max_bin": ranker.max_bin,
        "seed": ranker.seed,
        "num_threads": threads,
        "deterministic": True,
        "feature_pre_filter": False,  # LightGBM cannot train once it has filtered every feature away
        "metric": "None",
        "verbosity": -1,
    }
    if outputs > 1:
        parameters["num_class"] = outputs
    # Left to itself LightGBM times both layouts of its histograms and takes the faster: not the same trees every time.
    # By columns, threads share out the features; with few of them, the rows.
    by_rows = data.n_features < _COLUMNS_PER_THREAD * threads
    parameters["force_row_wise" if by_rows else "force_col_wise"] = True
    directions = ranker.directions_of_columns(data)
    if directions is not None:
        both = [column for column in categorical if directions[column]]
        if both:
            raise DataError(f"Feature number {both[0]} (from 0) cannot be both categorical and monotone.")
        parameters["monotone_constraints"] = directions
    return parameters | _sampling(ranker) | _further(ranker)


def monotone_directions(monotone: Any, data: RankingData | Source | BareColumns) -> list[int] | None:
    """−1, 0 or 1 for each feature, or None where nothing is constrained."""
    if monotone is None:
        return None
    if isinstance(monotone, Mapping):
        directions = [0] * data.n_features
        for feature, direction in monotone.items():
            directions[place_of(feature, data, "monotone")] = direction
    elif isinstance(monotone, Iterable) and not isinstance(monotone, str):
        directions = list(monotone)
    else:
        raise DataError(f"monotone takes a list such as [1, 0, -1], or a dictionary, not {monotone!r}.")
    if len(directions) != data.n_features:
        raise DataError(f"monotone has {len(directions)} directions for {data.n_features} features.")
    if any(direction not in (-1, 0, 1) for direction in directions):
        raise DataError("monotone takes 1 (rising), -1 (falling) or 0 (free) for each feature.")
    return [int(direction) for direction in directions]


def categorical_columns(categorical: Sequence[int | str], data: RankingData) -> list[int]:
    """Numbers of the columns that hold categories; their values must be whole numbers from 0 on, or missing."""
    if isinstance(categorical, str) or not isinstance(categorical, Iterable):
        raise DataError(f"categorical takes a list of features, such as [0, 3], not {categorical!r} alone.")
    columns = sorted({place_of(feature, data, "categorical") for feature in categorical})
    coded = () if data.encoding is None else data.encoding.categories
    for column in columns:
        if column in coded:
            continue
        values = data.X[:, column]
        values = np.asarray(values.data if data.is_sparse else values)
        wrong = (values < 0) | (values != np.floor(values)) | (values >= 2**31)
        wrong &= ~np.isnan(values)
        if wrong.any():
            raise DataError(
                f"Feature number {column} (from 0) is categorical but holds {values[np.argmax(wrong)]:g}; categories "
                "are whole numbers from 0 on, or NaN. Number them first."
            )
    return sorted({*columns, *coded})


def place_of(feature: Any, data: RankingData | Source | BareColumns, role: str) -> int:
    """The number of a feature that is named, or given by its number; `role` is the parameter that does so."""
    if isinstance(feature, str):
        names = data.feature_names
        if names is None:
            raise DataError(f"{role} names the feature '{feature}', but the features have no names; use their numbers.")
        if feature not in names:
            raise UnknownNameError("feature", feature, names)
        return int(names.index(feature))
    if isinstance(feature, bool) or not isinstance(feature, int | np.integer) or not 0 <= feature < data.n_features:
        raise DataError(f"{role} names the feature {feature!r}; they are numbered from 0 to {data.n_features - 1}.")
    return int(feature)
