"""Cross-validation by query: the predefined folds of LETOR collections, k-fold, and hold-out splits.

Queries are assigned as a whole by a hash of id and seed, so the result does not depend on the platform, the NumPy
version or the order of the file. Parts are balanced, so a query may change its part when other queries are added or
removed. With `stable` the part depends only on id and seed, and sizes vary with the hash. With `time_column` the parts
follow time.
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
from toprank.data.arguments import check_whole, to_plain
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
    """Training, validation and test data of one fold."""

    name: str
    train: RankingData
    valid: RankingData
    test: RankingData

    @property
    def parts(self) -> dict[str, RankingData]:
        """The data by the name of the part: "train", "valid" and "test"."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


class Folds(Sequence[Fold]):
    """Lazy sequence of folds: ``folds[0]``, ``for fold in folds``, ``len(folds)``."""

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
        """Return folds to which `change` is applied lazily."""
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
    """Return train / validation / test folds, from a LETOR folder or by splitting data.

    Args:
        source: one of the following.

            - A folder with ``Fold1 … Fold5``, each with ``train/vali/test.txt`` (LETOR 4.0, MSLR) or
              ``trainingset/validationset/testset.txt`` (LETOR 3.0), also ``valid.txt``.
            - A folder with the partitions ``S1.txt … S5.txt``: fold f trains on S(f), S(f+1), S(f+2), validates on
              S(f+3), tests on S(f+4), modulo 5.
            - A folder with one train, validation and test file of these names: a single fold.
            - A folder that contains one of these in ``QueryLevelNorm`` or in its only subfolder.
            - Data, or a file that `toprank.read` reads: K-fold by query, where fold i tests on part i, validates on
              part i + 1 and trains on the rest.

            Text files may end in ``.gz`` or ``.zst``.
        k: number of parts when data are split, at least 3.
        seed: seed of the assignment of queries to parts.
        time_column: metadata column of dates or numbers for k folds with an expanding window. Time is split into k + 2
            periods with about the same number of queries; fold i trains on the first i, validates on the next one and
            tests on the one after it. A query has its latest date, and queries of the same date stay together. k may
            then be 1 or more.
        stable: whether the part of a query depends only on its id, the seed and k, so that it does not change when the
            data grow and no test query becomes a training query. Part sizes then vary (about n / k ± √(n / k) queries).
            By default, part sizes differ by at most one query, but many queries change their part when others are added
            or removed.
        **read_options: passed to `toprank.read`.

    >>> data = RankingData(np.zeros((10, 1)), np.zeros(10), qid=range(10))
    >>> [fold.test.n_queries for fold in folds(data, k=5)]
    [2, 2, 2, 2, 2]
    """
    if isinstance(source, RankingData):
        if read_options:
            raise DataError(f"{', '.join(read_options)} applies only to files, but data were given; leave it out.")
        return _folds_of_data(source, k, seed, time_column, stable)
    from toprank.data.files import format_of, is_readable_folder, read, with_metadata

    origin: Any = source
    if not isinstance(origin, str | os.PathLike):
        check_data("folds", origin)
    path = Path(origin)
    if not os.path.isdir(path) or is_readable_folder(path):
        if time_column is not None:
            read_options = with_metadata(read_options.get("format") or format_of(path), [time_column], read_options)
        return _folds_of_data(read(path, **read_options), k, seed, time_column, stable)
    for name, value, default in (
        ("time_column", time_column, None),
        ("stable", bool(stable), False),
        ("k", k, _N_PARTITIONS),
    ):
        if value != default:
            problem = f"{name}={to_plain(value)!r} applies only to data that are split here; leave it out."
            raise DataError(f"{path} has predefined folds; {problem}")
    return _letor_folds(path, lambda file, **options: read(file, **(options | read_options)))


def split(
    data: RankingData,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    *,
    seed: int = 0,
    time_column: str | None = None,
    stable: bool = False,
) -> tuple[RankingData, ...]:
    """Split the queries into parts of about the given fractions; queries keep their order within a part.

    Args:
        data: data to split.
        fractions: fractions of the queries, which add up to 1.
        seed: seed of the assignment, which hashes the id of each query.
        time_column: metadata column of dates or numbers to split by, from the earliest part to the latest, without
            randomness. A query has its latest date, queries of the same date stay together, and parts are split at the
            change of date that is closest to the requested fraction.
        stable: whether the part of a query depends only on its id, the seed and the fractions, so that it does not
            change when other queries are added or removed; part sizes are then approximate. By default, part sizes are
            exact, and a few queries change their part.

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
    """Return the part number of each query, from 0; see `split`."""
    shares = numbers(fractions, "fractions").astype(np.float64)
    # Allow for rounding: 0.7 + 0.2 + 0.1 is 0.9999999999999999.
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
            f"{data.n_queries} queries are too few for the fractions {shares.tolist()}: a part would be empty. Use "
            "fewer parts."
        )
    part = np.empty(data.n_queries, dtype=np.int64)
    part[_hash_order(data.qids, seed)] = np.repeat(np.arange(len(sizes)), sizes)
    return part


def _folds_of_data(data: RankingData, k: int, seed: int, time_column: str | None, stable: bool) -> Folds:
    check_files(data)
    if time_column is None:
        return _k_fold(data, k, seed, stable)
    check_whole("k", k, 1)
    _refuse_chance(seed, stable)
    return folds_of(data, Division.expanding(periods(data, time_column, [1 / (k + 2)] * (k + 2)), validation=True))


def folds_of(data: RankingData, division: Division) -> Folds:
    """Convert the rounds of a division with validation queries to folds of the data."""
    rounds = division.on(data).rounds

    def load(number: int) -> Fold:
        train, test, valid = rounds[number]
        return Fold(f"Fold{number + 1}", train, valid, test)

    return Folds([f"Fold{number + 1}" for number in range(len(rounds))], load)


def _refuse_chance(seed: int, stable: bool) -> None:
    if seed != 0:
        raise DataError("A split by time is not random; leave out the seed.")
    if stable:
        raise DataError("A split by time does not use query ids; leave out stable.")


def _k_fold(data: RankingData, k: int, seed: int, stable: bool) -> Folds:
    check_whole("k", k, 1)
    if k < 3:
        raise DataError(f"k must be at least 3 (for training, validation and test), not {k}.")
    return folds_of(data, divided_in_folds(data, k, seed=seed, stable=stable, validation=True))


def divided_in_folds(
    data: RankingData, k: int, *, seed: int = 0, stable: bool = False, validation: bool = False
) -> Division:
    """Split the queries into k folds by a hash of seed and id; see `folds` for `stable`."""
    if data.n_queries < k:
        raise DataError(f"{data.n_queries} queries cannot be split into {k} parts; use fewer folds.")
    if stable:
        part = _stable_parts(data.qids, seed, np.full(k, 1 / k))
    else:
        part = np.empty(data.n_queries, dtype=np.int64)
        part[_hash_order(data.qids, seed)] = np.arange(data.n_queries) % k
    return Division.folds(part, validation=validation)


def _hash_order(qids: npt.NDArray[Any], seed: int) -> npt.NDArray[np.int64]:
    """Return the query numbers, sorted by a hash of seed and id."""
    keys = _hashes(qids, seed)
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _stable_parts(qids: npt.NDArray[Any], seed: int, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the part of each query from its hash, a number from 0 to 1, independent of other queries."""
    places = np.frombuffer(b"".join(_hashes(qids, seed)), dtype=">u8") / 2.0**64
    number = np.searchsorted(np.cumsum(shares)[:-1], places, side="right").astype(np.int64)
    sizes = np.bincount(number, minlength=len(shares))
    if sizes.min() < 1:
        raise DataError(
            f"With stable, part number {int(np.argmin(sizes))} (from 0) gets none of the {len(qids)} queries. Leave "
            "out stable for parts of exact sizes, or try another seed."
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
        f"{path} contains no folds. Expected Fold1 … with train.txt, vali.txt and test.txt (or trainingset.txt, "
        "validationset.txt and testset.txt), S1.txt … S5.txt, or train.txt, vali.txt and test.txt, in this folder, in "
        "QueryLevelNorm or in its only subfolder; names may end in .gz or .zst."
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
    """Return the train, validation and test file of a folder."""
    files = {}
    for part, stems in _PARTS.items():
        file = _existing(folder, stems)
        if file is None:
            names = ", ".join(f"{stem}.txt" for stem in stems)
            raise FileError(f"{folder} has no {part} file. Expected {names}, optionally with .gz or .zst.")
        files[part] = file
    return files


def _from_part_files(names: list[str], files: list[dict[str, Path]], read: Callable[..., RankingData]) -> Folds:
    return Folds(names, lambda number: Fold(names[number], *_read_aligned(list(files[number].values()), read)))


def _from_partitions(folder: Path, partitions: list[Path | None], read: Callable[..., RankingData]) -> Folds:
    files = [file for file in partitions if file is not None]
    if len(files) < _N_PARTITIONS:
        absent = ", ".join(f"S{number + 1}.txt" for number, file in enumerate(partitions) if file is None)
        raise FileError(f"{folder} has only some of the partitions S1.txt … S5.txt; missing: {absent}.")
    parts: list[RankingData] = []  # read when the first fold is requested

    def load(number: int) -> Fold:
        if not parts:
            parts.extend(_read_aligned(files, read))
        s = [parts[(number + step) % _N_PARTITIONS] for step in range(_N_PARTITIONS)]
        return Fold(f"Fold{number + 1}", concatenate(s[:3]), s[3], s[4])

    return Folds([f"Fold{number + 1}" for number in range(_N_PARTITIONS)], load)


def _read_aligned(files: list[Path], read: Callable[..., RankingData]) -> list[RankingData]:
    """Read files so that a column is the same feature in all of them."""
    from toprank.data.files import in_agreement

    return in_agreement([read(file) for file in files], lambda number, options: read(files[number], **options))
