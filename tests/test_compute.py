"""How kernels are compiled: with a cache where there is a place for one, and without it where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import toprank

SCRIPT = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import numpy as np
    from toprank.data.synthetic import mixed
    print(mixed(np.uint64(0)) + 42)
for one in said:
    print(one.category.__name__, one.message)
"""


def test_kernels_work_where_nothing_can_be_written(tmp_path):
    """Nobody may write below a plain file, not even the superuser whom permissions do not bind."""
    package = tmp_path / "site" / "toprank"
    shutil.copytree(Path(toprank.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "NUMBA_"))}
    environment = kept | {"HOME": str(home / "me"), "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", SCRIPT]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    number, *said = found.stdout.splitlines()
    assert number == "42"
    assert len(said) == 1
    assert said[0].startswith(f"RuntimeWarning Compiled code cannot be kept: neither {package} nor")
    assert said[0].endswith("Name a folder that can be written in the variable NUMBA_CACHE_DIR.")
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert found.stdout == "42\n", found.stderr
    assert list((tmp_path / "cache").rglob("*.nbc"))
