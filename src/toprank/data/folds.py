"""Cross-validation by query: the folds that LETOR collections bring along, K-fold, and hold-out splits.

Whole queries move together, by a hash of id and seed: the same on every platform and NumPy version, and whatever the
order of the file. Parts are balanced, so that a query's part depends on which others there are, and moves when queries
come or go; with `stable` it depends on id and seed alone, and sizes are as the hash gives them. With `time_column`, the
order of time decides.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from toprank.compute import numbers
from toprank.data.arguments import check_whole, plainer
from toprank.data.concatenation import concatenate
from toprank.data.dataset import RankingData, check_data, check_files
from toprank.data.division import Division
from toprank.data.periods import periods
from toprank.errors import DataError, FileError

_PARTS = {"train": ("train", "trainingset"), "valid": ("vali", "validationset", "valid"), "test": ("test", "testset")}
_SUFFIXES = (".txt", ".txt.gz", ".txt.zst")
_N_PARTITIONS = 5


@dataclass(frozen=True)
class Fold:
    """One division of the queries: to train on, to choose hyper-parameters on, and to report on."""

    name: str
    train: RankingData
    valid: RankingData
    test: RankingData

    @property
    def parts(self) -> dict[str, RankingData]:
        """The data by their part: "train", "valid" and "test"."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


class Folds(Sequence[Fold]):
    """Folds that are read or cut out when they are asked for; ``folds[0]``, ``for fold in folds``, ``len(folds)``."""

    def __init__(self, names: Sequence[str], load: Callable[[int], Fold]) -> None:
        self.names = tuple(names)
        self._load = load

    @overload
    def __getitem__(self, which: int) -> Fold: ...
    @overload
    def __getitem__(self, which: slice) -> Folds: ...
    def __getitem__(self, which: int | slice) -> Fold | Folds:
        numbers = range(len(self.names))[which]
        if isinstance(numbers, range):
            return Folds([self.names[number] for number in numbers], lambda place: self._load(numbers[place]))
        return self._load(numbers)

    def each(self, change: Callable[[Fold], Fold]) -> Folds:
        """The same folds, each changed when it is asked for."""
        return Folds(self.names, lambda number: change(self._load(number)))

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Fold]:
        return (self._load(number) for number in range(len(self)))

    def __repr__(self) -> str:
        return f"Folds({', '.join(self.names)})"


def folds(
    source: RankingData | str | os.PathLike[str],
    k: int = _N_PARTITIONS,
    *,
    seed: int = 0,
    time_column: str | None = None,
    stable: bool = False,
    **read_options: Any,
) -> Folds:
    """Train / validation / test folds, from a LETOR folder or by dividing data.

    Args:
        source: what to take folds of.

            - A folder with ``Fold1 … Fold5``, each with ``train/vali/test.txt`` (LETOR 4.0, MSLR) or
              ``trainingset/validationset/testset.txt`` (LETOR 3.0), also ``valid.txt``.
            - A folder with the partitions ``S1.txt … S5.txt``: fold f trains on S(f), S(f+1), S(f+2), validates on
              S(f+3), tests on S(f+4), modulo 5.
            - A folder with one such train, validation and test file: a single fold.
            - A folder with one of these one level down, in ``QueryLevelNorm`` or the only folder inside.
            - Data, or a file that `toprank.read` reads: K-fold by query, where fold i tests on part i, validates on
              part i + 1 and trains on the rest.

            Text files may end in ``.gz`` or ``.zst``.
        k: number of parts when data are divided, at least 3.
        seed: decides the division.
        time_column: a metadata column of dates or numbers: k folds as a window that expands. Time is cut into k + 2
            periods of about as many queries; fold i trains on the first i, validates on the next and tests on the one
            behind it. A query goes by its latest date, queries of one date stay together. k may then be 1 or more.
        stable: the part of a query depends on its id, the seed and k alone: it stays where it is when the data grow,
            and no query that was tested on comes to be trained on. Parts are then as large as a hash makes them (about
            n / k ± √(n / k) queries). Default: parts are of one size, give or take a query, and many queries change
            theirs when others come or go.
        **read_options: passed to `toprank.read`.

    >>> data = RankingData(np.zeros((10, 1)), np.zeros(10), qid=range(10))
    >>> [fold.test.n_queries for fold in folds(data, k=5)]
    [2, 2, 2, 2, 2]
    """
    if isinstance(source, RankingData):
        if read_options:
            raise DataError(f"The data are read already; {', '.join(read_options)} cannot apply.")
        return _divided(source, k, seed, time_column, stable)
    from toprank.data.files import format_of, is_readable_folder, read, with_metadata

    origin: Any = source
    if not isinstance(origin, str | os.PathLike):
        check_data("folds", origin)
    path = Path(origin)
    if not os.path.isdir(path) or is_readable_folder(path):
        if time_column is not None:
            read_options = with_metadata(read_options.get("format") or format_of(path), [time_column], read_options)
        return _divided(read(path, **read_options), k, seed, time_column, stable)
    for name, value, default in (
        ("time_column", time_column, None),
        ("stable", bool(stable), False),
        ("k", k, _N_PARTITIONS),
    ):
        if value != default:
            problem = f"{name}={plainer(value)!r} applies only to data that are divided here."
            raise DataError(f"{path} brings its own folds; {problem}")
    return _letor_folds(path, lambda file, **options: read(file, **(options | read_options)))


def split(
    data: RankingData,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    *,
    seed: int = 0,
    time_column: str | None = None,
    stable: bool = False,
) -> tuple[RankingData, ...]:
    """Divide the queries into parts of about the given fractions; queries keep their order within a part.

    Args:
        data: what to divide.
        fractions: the shares of the queries, which add up to 1.
        seed: decides the division, by a hash of each query's id.
        time_column: a metadata column of dates or numbers: the first part is then the earliest, the last the latest,
            and nothing is random. A query goes by its latest date, queries of one date stay together, and a border lies
            at the change of date that is nearest to the wanted share.
        stable: the part of a query depends on its id, the seed and the fractions alone, and stays when queries come or
            go; parts have the wanted shares as nearly as a hash gives them. Default: parts have the wanted sizes, and
            queries near a border change sides when others come or go.

    >>> data = RankingData(np.zeros((10, 1)), np.zeros(10), qid=range(10))
    >>> [part.n_queries for part in split(data)]
    [6, 2, 2]
    """
    check_data("split", data)
    part = part_numbers(data, fractions, seed=seed, time_column=time_column, stable=stable)
    return tuple(data.select(part == number) for number in range(len(fractions)))


def part_numbers(
    data: RankingData,
    fractions: Sequence[float],
    *,
    seed: int = 0,
    time_column: str | None = None,
    stable: bool = False,
) -> npt.NDArray[np.int64]:
    """Return the number of each query's part, from 0; see `split`."""
    shares = numbers(fractions, "fractions").astype(np.float64)
    # 0.7 + 0.2 + 0.1 is 0.9999999999999999: shares may miss 1 by rounding.
    if shares.ndim != 1 or len(shares) == 0 or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise DataError(f"Fractions must be positive and add up to 1, not {shares.tolist()}.")
    if time_column is not None:
        _refuse_chance(seed, stable)
        return periods(data, time_column, shares.tolist())
    if stable:
        return _stable_parts(data.qids, seed, shares)
    ends = np.round(np.cumsum(shares) * data.n_queries).astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    if sizes.min() < 1:
        raise DataError(
            f"{data.n_queries} queries are too few for the fractions {shares.tolist()}: a part would be empty."
        )
    part = np.empty(data.n_queries, dtype=np.int64)
    part[_shuffled(data.qids, seed)] = np.repeat(np.arange(len(sizes)), sizes)
    return part


def _divided(data: RankingData, k: int, seed: int, time_column: str | None, stable: bool) -> Folds:
    check_files(data)
    if time_column is None:
        return _k_fold(data, k, seed, stable)
    check_whole("k", k, 1)
    _refuse_chance(seed, stable)
    return folds_of(data, Division.expanding(periods(data, time_column, [1 / (k + 2)] * (k + 2)), validation=True))


def folds_of(data: RankingData, division: Division) -> Folds:
    """Return the rounds of a division that sets validation queries apart, as folds of the data."""
    rounds = division.on(data).rounds

    def load(number: int) -> Fold:
        train, test, valid = rounds[number]
        return Fold(f"Fold{number + 1}", train, valid, test)

    return Folds([f"Fold{number + 1}" for number in range(len(rounds))], load)


def _refuse_chance(seed: int, stable: bool) -> None:
    if seed != 0:
        raise DataError("By time nothing is random; leave the seed out.")
    if stable:
        raise DataError("By time a query goes by its date, not by its id; leave stable out.")


def _k_fold(data: RankingData, k: int, seed: int, stable: bool) -> Folds:
    check_whole("k", k, 1)
    if k < 3:
        raise DataError(f"k must be at least 3 (one part each to test, to validate, to train), not {k}.")
    return folds_of(data, divided_in_folds(data, k, seed=seed, stable=stable, validation=True))


def divided_in_folds(
    data: RankingData, k: int, *, seed: int = 0, stable: bool = False, validation: bool = False
) -> Division:
    """Divide the queries into k folds by a hash of seed and id; see `folds` for `stable`."""
    if data.n_queries < k:
        raise DataError(f"{data.n_queries} queries cannot be divided into {k} parts; ask for fewer.")
    if stable:
        part = _stable_parts(data.qids, seed, np.full(k, 1 / k))
    else:
        part = np.empty(data.n_queries, dtype=np.int64)
        part[_shuffled(data.qids, seed)] = np.arange(data.n_queries) % k
    return Division.folds(part, validation=validation)


def _shuffled(qids: npt.NDArray[Any], seed: int) -> npt.NDArray[np.int64]:
    """Query numbers ordered by a hash of seed and id."""
    keys = _hashes(qids, seed)
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _stable_parts(qids: npt.NDArray[Any], seed: int, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The part of each query by its own hash, a number from 0 to 1: whatever the other queries are."""
    places = np.frombuffer(b"".join(_hashes(qids, seed)), dtype=">u8") / 2.0**64
    number = np.searchsorted(np.cumsum(shares)[:-1], places, side="right").astype(np.int64)
    sizes = np.bincount(number, minlength=len(shares))
    if sizes.min() < 1:
        raise DataError(
            f"By the hashes of their ids, none of {len(qids)} queries falls into part number {int(np.argmin(sizes))} "
            "(from 0); leave stable out, which makes parts of the wanted sizes, or try another seed."
        )
    return number


def _hashes(qids: npt.NDArray[Any], seed: int) -> list[bytes]:
    check_whole("seed", seed, 0)
    return [hashlib.blake2b(f"{seed}/{qid}".encode(), digest_size=8).digest() for qid in qids.tolist()]


# Folders


def _letor_folds(path: Path, read: Callable[..., RankingData]) -> Folds:
    for folder in (path, *_one_level_down(path)):
        numbered = _numbered_folders(folder)
        if numbered:
            files = [_part_files(fold) for fold in numbered]
            return _from_part_files([fold.name for fold in numbered], files, read)
        partitions = [_existing(folder, (f"S{number}",)) for number in range(1, _N_PARTITIONS + 1)]
        if any(partitions):
            return _from_partitions(folder, partitions, read)
        if _existing(folder, _PARTS["train"]):
            return _from_part_files([folder.name], [_part_files(folder)], read)
    raise FileError(
        f"{path} holds no folds: looked for Fold1 … with train.txt, vali.txt and test.txt (or trainingset.txt, "
        "validationset.txt and testset.txt), for S1.txt … S5.txt, and for train.txt, vali.txt and test.txt, here and "
        "one level down in QueryLevelNorm or an only subfolder; also with .gz or .zst."
    )


def _one_level_down(path: Path) -> list[Path]:
    inside = [entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    return [entry for entry in inside if entry.name.lower() == "querylevelnorm"] or (inside if len(inside) == 1 else [])


def _numbered_folders(folder: Path) -> list[Path]:
    numbered = [
        (int(match[1]), entry) for entry in folder.iterdir() if (match := re.fullmatch(r"Fold(\d+)", entry.name))
    ]
    return [entry for _, entry in sorted(numbered) if entry.is_dir()]


def _existing(folder: Path, stems: Sequence[str]) -> Path | None:
    candidates = (folder / f"{stem}{suffix}" for stem in stems for suffix in _SUFFIXES)
    return next((file for file in candidates if file.is_file()), None)


def _part_files(folder: Path) -> dict[str, Path]:
    """The train, validation and test file of a folder."""
    files = {}
    for part, stems in _PARTS.items():
        file = _existing(folder, stems)
        if file is None:
            names = ", ".join(f"{stem}.txt" for stem in stems)
            raise FileError(f"{folder} has no {part} file; looked for {names}, also with .gz or .zst.")
        files[part] = file
    return files


def _from_part_files(names: list[str], files: list[dict[str, Path]], read: Callable[..., RankingData]) -> Folds:
    return Folds(names, lambda number: Fold(names[number], *_alike(list(files[number].values()), read)))


def _from_partitions(folder: Path, partitions: list[Path | None], read: Callable[..., RankingData]) -> Folds:
    files = [file for file in partitions if file is not None]
    if len(files) < _N_PARTITIONS:
        absent = ", ".join(f"S{number + 1}.txt" for number, file in enumerate(partitions) if file is None)
        raise FileError(f"{folder} has only some of the partitions S1.txt … S5.txt; missing: {absent}.")
    parts: list[RankingData] = []  # read once, when the first fold is asked for

    def load(number: int) -> Fold:
        if not parts:
            parts.extend(_alike(files, read))
        s = [parts[(number + step) % _N_PARTITIONS] for step in range(_N_PARTITIONS)]
        return Fold(f"Fold{number + 1}", concatenate(s[:3]), s[3], s[4])

    return Folds([f"Fold{number + 1}" for number in range(_N_PARTITIONS)], load)


def _alike(files: list[Path], read: Callable[..., RankingData]) -> list[RankingData]:
    """Read files so that a column is the same feature in all of them."""
    from toprank.data.files import in_agreement

    return in_agreement([read(file) for file in files], lambda number, options: read(files[number], **options))
