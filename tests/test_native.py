"""The compiled library: how it is built, that a stale one is refused, and that calling it quickly checks as much."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toprank import kernels

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "native"


@pytest.fixture
def checkout(tmp_path):
    """A copy of the package and of the smallest library, to change."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "_kernels.*"))
    (tmp_path / "native").mkdir()
    for name in ("build.py", "library.c", "toprank.h", "vectors.h", "vectors.c"):
        shutil.copy(NATIVE / name, tmp_path / "native")
    shutil.copy(ROOT / "Makefile", tmp_path)
    return tmp_path


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    own = {"PYTHONPATH": str(folder / "src"), "TOPRANK_KERNELS_FOLDER": "", "LD_PRELOAD": ""}
    return subprocess.run([sys.executable, *words], cwd=folder, env=os.environ | own, capture_output=True, text=True)


CALL = "from toprank import kernels; print(kernels.library().path, kernels.{}(1))"
ADDED = "\nKERNEL(i8, successor)(i8 x) { return x + 1; }\n"


def test_a_changed_source_is_noticed_and_built_anew(checkout):
    build, source = checkout / "native" / "build.py", checkout / "native" / "vectors.c"
    assert python(checkout, str(build), "--if-changed").stdout.strip() == str(kernels_of(checkout))
    source.write_text(source.read_text() + ADDED)
    # As a checkout of an older version leaves it: times say nothing, contents do.
    os.utime(source, (1, 1))
    refused = python(checkout, "-c", CALL.format("successor"))
    assert refused.returncode != 0
    assert f"{kernels_of(checkout)} were not built from the sources" in refused.stderr
    assert python(checkout, str(build), "--if-changed").stdout.strip() == str(kernels_of(checkout))
    assert python(checkout, "-c", CALL.format("successor")).stdout.split() == [str(kernels_of(checkout)), "2"]
    before = kernels_of(checkout).stat()
    assert python(checkout, str(build), "--if-changed").stdout == ""
    assert kernels_of(checkout).stat().st_mtime_ns == before.st_mtime_ns


def test_codes_are_numbered_by_the_source_alone(checkout):
    """Two members change places in C, one is given a number: Python follows, and has nothing to be changed."""
    source = checkout / "native" / "vectors.c"
    text, asked = source.read_text(), "from toprank import kernels; print(vars(kernels.Shape))"
    for members, numbers in (
        ("ROUND, SQUARE, FLAT", {"ROUND": 0, "SQUARE": 1, "FLAT": 2}),
        ("SQUARE, ROUND = 5,\n FLAT", {"SQUARE": 0, "ROUND": 5, "FLAT": 6}),
    ):
        source.write_text(f"{text}\nCODES(Shape, {members})\nKERNEL(i8, flat)(i8 x) {{ return x + FLAT; }}\n")
        assert python(checkout, "native/build.py").returncode == 0
        assert ast.literal_eval(python(checkout, "-c", asked).stdout) == numbers
        assert python(checkout, "-c", CALL.format("flat")).stdout.split()[1] == str(1 + numbers["FLAT"])


def test_a_warning_stops_a_strict_build_alone(checkout):
    source = checkout / "native" / "vectors.c"
    source.write_text(source.read_text() + "\nKERNEL(i8, odd)(i8 x, u8 y) { return x < y; }\n")
    assert python(checkout, "native/build.py").returncode == 0
    refused = python(checkout, "native/build.py", "--strict")
    assert refused.returncode != 0
    assert "sign-compare" in refused.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_builds_what_changed_and_nothing_else(checkout):
    def make():
        # -o: the environment of the copy is the one that runs this test.
        words = ["make", "--no-print-directory", "-o", ".venv/.core", f"BIN={Path(sys.executable).parent}", "kernels"]
        return subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=True).stdout.splitlines()[1:]

    assert make() == [str(kernels_of(checkout))]
    assert make() == []
    (checkout / "native" / "more.c").write_text('#include "toprank.h"' + ADDED)
    assert make() == [str(kernels_of(checkout))]
    (checkout / "native" / "more.c").unlink()
    assert make() == [str(kernels_of(checkout))]
    assert make() == []


def kernels_of(folder: Path) -> Path:
    return folder / "src" / "toprank" / Path(kernels.library().path).name


def test_a_source_that_does_not_compile_leaves_the_library_alone(checkout):
    build = checkout / "native" / "build.py"
    assert python(checkout, str(build)).returncode == 0
    before = kernels_of(checkout).read_bytes()
    (checkout / "native" / "more.c").write_text('#include "toprank.h"\nKERNEL(i8, wrong)(i8 x) { return y; }\n')
    failed = python(checkout, str(build))
    assert failed.returncode != 0
    assert "more.c" in failed.stderr
    assert kernels_of(checkout).read_bytes() == before
    assert sorted(path.name for path in kernels_of(checkout).parent.glob("*_kernels*.*")) == sorted(
        path.name for path in (ROOT / "src" / "toprank").glob("_kernels*.*")
    )


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs GCC on Linux")
@pytest.mark.parametrize(
    ("line", "report"), [("return x[n];", "heap-buffer-overflow"), ("return INT64_MAX - 1 + n;", "integer overflow")]
)
def test_the_sanitizers_stop_a_run(checkout, line, report):
    (checkout / "native" / "more.c").write_text(f'#include "toprank.h"\nKERNEL(i8, bad)(i8 n, i8 x[n]) {{ {line} }}\n')
    shutil.copy(NATIVE / "sanitized.py", checkout / "native")
    test = "import numpy as np\nfrom toprank import kernels\ndef test(): kernels.bad(np.zeros({}, dtype=np.int64))\n"
    built = python(checkout, "native/build.py", "--sanitize")
    assert built.returncode == 0, built.stderr
    for length, fails in ((1 if "INT64" in line else 500, "x[n]" in line), (500, True)):
        (checkout / "test_bad.py").write_text(test.format(length))
        done = python(checkout, "native/sanitized.py", "-q", "-s", "test_bad.py")
        assert (done.returncode != 0) == fails, done.stderr
        assert (report in done.stderr) == fails, done.stderr


def test_a_library_in_another_folder_can_be_named(tmp_path, monkeypatch):
    shutil.copy(kernels.library().path, tmp_path)
    monkeypatch.setenv("TOPRANK_KERNELS_FOLDER", str(tmp_path))
    assert kernels.library.__wrapped__().path == tmp_path / Path(kernels.library().path).name
    monkeypatch.setenv("TOPRANK_KERNELS_FOLDER", str(tmp_path / "nowhere"))
    with pytest.raises(ImportError, match="nowhere"):
        kernels.library.__wrapped__()


class Recorded:
    """A function of a library that only notes what it is given."""

    def __init__(self):
        self.calls = []

    def __call__(self, *given):
        self.calls.append(tuple(one if isinstance(one, (int, float)) else None for one in given))
        return 0


WRITABLE, MATRIX, WHOLE = np.zeros(6), np.zeros((3, 2)), np.zeros(4, dtype=np.int64)
FROZEN = np.zeros(6)
FROZEN.flags.writeable = False
VALUES = [
    *(WRITABLE, FROZEN, MATRIX, WHOLE, MATRIX.T, WRITABLE[::2], np.zeros(0), np.zeros((0, 2)), np.zeros((2, 0))),
    *(
        np.zeros(0, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(6, dtype=np.float32),
        np.zeros(6, dtype=">f8"),
    ),
    *(
        np.zeros(5),
        np.zeros(7),
        np.zeros(12),
        np.zeros(6).view(np.recarray),
        np.zeros(49, dtype="u1")[1:].view("f8"),
        None,
        [1.0],
    ),
    *(0, 1, 2, -1, 255, 256, 2**63, 1.0, 1.5, True, np.int64(3), np.float64(2.0), np.bool_(True), "2", np.zeros(())),
]
PROTOTYPES = [
    "i8 one(i8 n, const f8 x[n])",
    "void two(i8 n, i8 q, const f8 x[n], const i8 offsets[q + 1], f8 out[n])",
    "i8 three(i8 n, i8 k, const f8 x[n][k], f8 out[n * k])",
    "i8 four(i8 n, const f8 x[2 * n], f8 room[static n + 2])",
    "f8 five(i8 n, const f8 x[n - 1], i8 count)",
    "f8 six(i8 count, f8 x[count], u1 small)",
    "i8 seven(f8 x, bool flag, u8 word)",
    "i8 eight(i8 n, i8 k, const f8 x[n], const f8 y[static k], i8 more)",
    "i8 nine(i8 n, const f8 x[n], const f8 y[static k * n], i8 k)",
]


@pytest.mark.parametrize("prototype", PROTOTYPES)
def test_the_quick_call_accepts_and_passes_what_the_full_check_does(prototype):
    kernel = kernels.Kernel(prototype, Recorded())
    random = np.random.default_rng(1)
    count, accepted = len(kernel.parameters), 0
    drawn = random.integers(len(VALUES), size=(min(4000, len(VALUES) ** count), count))
    every = [[VALUES[i] for i in row] for row in drawn] + [list(row) for row in matching(kernel)]
    for given in every:
        outcomes = [outcome(call, kernel._function, given) for call in (kernel, kernel.checked)]
        assert outcomes[0] == outcomes[1], given
        accepted += outcomes[0][0] == "called"
    assert 0 < accepted < len(every)


def matching(kernel):
    """Arguments of the right kinds, and of lengths that now and then agree."""
    random = np.random.default_rng(2)
    for _ in range(500):
        yield [
            np.zeros(random.integers(4, size=len(one.lengths)), dtype=one.dtype)
            if one.lengths
            else {"f": 1.5, "b": True}.get(one.kind[0], int(random.integers(3)))
            for one in kernel.parameters
        ]


def outcome(call, function, given):
    before = len(function.calls)
    try:
        result = call(*given)
    except (TypeError, ValueError) as problem:
        assert len(function.calls) == before
        return type(problem), str(problem)
    assert len(function.calls) == before + 1
    return "called", result, repr(function.calls[-1]).replace("True", "1")  # which C takes for 1


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_newest_installs_the_versions_that_weekly_recorded_last(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)

    def planned(*words):
        done = subprocess.run(["make", "-n", *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if ".venv-newest" in line and "pip install" in line]

    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    assert ["--constraint" in line for line in planned("newest")] == [False]
    (tmp_path / "constraints-newest.txt").touch()
    assert ["--constraint constraints-newest.txt" in line for line in planned("newest")] == [True]
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "newest.txt").touch()  # which the first of both installations writes
    assert ["--constraint build/newest.txt" in line for line in planned("weekly")] == [False, True]
