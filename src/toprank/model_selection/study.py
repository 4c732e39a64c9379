"""Storage of Optuna studies: the database file, the check that a study can be resumed, and its trials."""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toprank.errors import DataError, FileError, FormatError, Remedy
from toprank.model_selection.search import State, Trial
from toprank.model_selection.space import Space

NAME = "tune"
_IDENTITY = "toprank"
_DIFFERS = {
    "system": "a study of {there}, not of {here}",
    "metric": "a study evaluated by {there}, not by {here}",
    "train": "a study of other training data",
    "judges": "a study with other validation data ({there}, here {here})",
    "valid": "a study with other validation data",
    "fixed": "a study with other fixed options ({there}, here {here})",
    "space": "a study of another space ({there}, here {here})",
    "seed": "a study with the seed {there}, not {here}",
}


def storage_path(storage: str | os.PathLike[str] | None) -> Path | None:
    """Return the path of the database; refuse other files, since tables would be written into them."""
    if storage is None:
        return None
    text = os.fspath(storage)
    if "://" in text or "?" in text:
        raise DataError(f"storage must be a file path without '?', such as 'study.db', not {text!r}.")
    path = Path(text)
    if path.is_dir():
        raise FileError(f"{path} is a folder; storage must be a file.")
    if not path.absolute().parent.is_dir():
        raise FileError(f"{path} cannot be written: the folder {path.parent} does not exist.")
    if path.exists() and path.stat().st_size:
        _check_database(path)
    return path


def _check_database(path: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as problem:
        raise FormatError(
            f"This file is not a database of studies ({problem}). Pass another storage.", path=path
        ) from None
    if tables and not {"studies", "trials"} <= tables:
        raise FormatError("This database does not contain studies. Pass another storage.", path=path)


class StudyLocation(NamedTuple):
    """File and name of a study, and the properties that must match to resume it; path None keeps it in memory."""

    path: Path | None
    name: str
    identity: Mapping[str, Any]


@contextlib.contextmanager
def open_study(optuna: Any, place: StudyLocation, *, maximize: bool, pruner: Any) -> Iterator[Any]:
    """Create or resume a study, and silence Optuna's log for the duration of the block.

    Raises:
        DataError: if a study of that name has other data, options or another system.
        FileError: if the database cannot be read or written.
    """
    from sqlalchemy.exc import SQLAlchemyError

    path, name, identity = place
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = None if path is None else _database(optuna, path)
            direction = "maximize" if maximize else "minimize"
            study = optuna.create_study(
                storage=storage, study_name=name, direction=direction, pruner=pruner, load_if_exists=True
            )
            _check_identity(study, identity, path)
            _end_stale_trials(optuna, study, path)
            yield study
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as problem:
        cause = getattr(problem, "orig", None) or getattr(problem.__cause__, "orig", None) or problem
        raise FileError(f"{path} cannot be used for a study: {cause}.") from None
    finally:
        optuna.logging.set_verbosity(before)
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def _database(optuna: Any, path: Path) -> Any:
    try:
        return optuna.storages.RDBStorage(f"sqlite:///{path.absolute()}")
    except RuntimeError as problem:  # tables of another version of Optuna
        raise FileError(f"{path} cannot be used for a study: {problem}") from None


def _check_identity(study: Any, identity: Mapping[str, Any], path: Path | None) -> None:
    there = study.user_attrs.get(_IDENTITY)
    if there is None:
        if study.trials:
            raise DataError(f"{path} contains a study '{study.study_name}' from another program; choose another name.")
        study.set_user_attr(_IDENTITY, dict(identity))
        return
    for key, words in _DIFFERS.items():
        if there.get(key) != identity[key]:
            what = words.format(there=there.get(key), here=identity[key])
            raise DataError(
                f"{path} contains {what}. Pass another storage, or start a new study in the same file:",
                remedy=Remedy("{study_name}.", study_name="another"),
            )


def process() -> dict[str, Any]:
    """Return host, process id and start time of this process, to mark the trials that it runs."""
    return {"host": platform.node(), "pid": os.getpid(), "began": _began(os.getpid())}


def _began(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot, or None if unknown.

    Process ids are reused, quickly so in containers; the start time distinguishes them.
    """
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return None
    return after_name.split()[19]


def _end_stale_trials(optuna: Any, study: Any, path: Path | None) -> None:
    """Mark trials of a killed process as failed; refuse the study if the process is still running."""
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        worker = trial.user_attrs.get("process", {})
        if worker.get("host") == platform.node() and _alive(worker["pid"], worker.get("began")):
            raise DataError(
                f"Process {worker['pid']} is running the study in {path}; wait until it ends, or start another study."
            )
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def _alive(pid: int, began: str | None) -> bool:
    """Return whether this process is running, and not a later one with the same id."""
    if os.name != "posix" or pid == os.getpid():
        return False
    now = _began(pid)
    if began is not None and now is not None and began != now:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def trials_of(study: Any, space: Space, name: str) -> list[Trial]:
    """Return the finished trials of a study in order."""
    trials = []
    for trial in study.get_trials(deepcopy=False):
        if not trial.state.is_finished() or set(space.dimensions) - set(trial.params):
            continue
        failure = trial.user_attrs.get("failure")
        facts = dict(trial.user_attrs.get("noted", {}))
        states: dict[str, State] = {
            "COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "interrupted" if failure is None else "failed",
        }  # fmt: skip
        trials.append(
            Trial(
                name,
                space.options(trial.params),
                trial.value,
                trial.number,
                state=states[trial.state.name],
                seconds=None if trial.duration is None else trial.duration.total_seconds(),
                remark=failure or facts.pop("remark", ""),
                facts=facts,
            )
        )
    return trials
