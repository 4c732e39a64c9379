"""Kernels are compiled before anybody installs them: where nothing can be written they work like anywhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import toprank

SCRIPT = """
import numpy as np
import toprank as tr
print(tr.evaluate([0.0, 1.0], [0, 1], "ndcg", qid=[2, 2]).mean["ndcg"])
"""


def test_kernels_work_where_nothing_can_be_written(tmp_path):
    """Nobody may write below a plain file, not even the superuser whom permissions do not bind."""
    package = tmp_path / "site" / "toprank"
    shutil.copytree(Path(toprank.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = kept | {"HOME": str(home / "me"), "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (found.returncode, found.stdout) == (0, "1.0\n"), found.stderr
