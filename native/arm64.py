"""Test the ARM64 kernels in an emulator on this machine, and compare their results with ours, bit by bit.

    python native/arm64.py                        # the tests of kernels
    python native/arm64.py tests/test_compute.py  # others; words are given to pytest

What it needs is fetched into build/arm64, and nothing is installed: the emulator and an ARM64 Python from Debian's
archive, the packages by pip. So it runs on Debian and its descendants; nothing here needs to be root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from build import HERE, build

ROOT = HERE.parent
WORK = ROOT / "build" / "arm64"
SYSTEM, SITE, APT = WORK / "root", WORK / "site", WORK / "apt"
EMULATOR = WORK / "emulator" / "usr" / "bin" / "qemu-aarch64-static"
TARGET = "aarch64-linux-gnu.2.17"
SUBJECTS = (
    "kernels",
    "significance",
    "metrics_*",
    "losses_*",
    "letor_*",
    "reading_fuzz",
    "trec_files",
    "theory*",
    "clicks_models",
)
"""Tests with the best coverage of kernels; the emulator is about ten times slower."""
# Comparisons with these packages run here; in the emulator they would need hundreds of megabytes.
LEFT_OUT = {"test_losses_triton.py", "test_metrics_trec.py"}


def fetch_system(version: str) -> None:
    """Install the emulator, and Debian's Python for ARM64 with its libraries."""
    if (WORK / "ready").exists():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        sys.exit("The emulator and the Python of ARM64 come from Debian's archive: there is no apt-get here.")
    for folder in (APT / "lists" / "partial", APT / "archives" / "partial", SYSTEM, WORK / "own"):
        folder.mkdir(parents=True, exist_ok=True)
    (APT / "status").touch()
    settings = APT / "apt.conf"
    settings.write_text(
        f'Dir::State "{APT}"; Dir::State::status "{APT}/status"; Dir::Cache "{APT}"; APT::Sandbox::User "";\n'
        'APT::Architecture "arm64"; APT::Architectures { "arm64"; };\n'
    )
    own = {**os.environ, "APT_CONFIG": str(settings)}
    subprocess.run(["apt-get", "-qq", "update"], check=True, env=own)
    packages = [f"python{version}", "libstdc++6", "libgomp1"]
    options = ["-qq", "--yes", "--download-only", "--no-install-recommends"]
    subprocess.run(["apt-get", *options, "install", *packages], check=True, env=own)
    subprocess.run(["apt-get", "-qq", "download", "qemu-user-static"], check=True, cwd=WORK / "own")
    for package in (APT / "archives").glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(SYSTEM)], check=True)
    for package in (WORK / "own").glob("qemu-user-static_*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(WORK / "emulator")], check=True)
    (WORK / "ready").touch()


def debian_python() -> str:
    """Return the version of Debian's Python."""
    listing = subprocess.run(["apt-cache", "depends", "python3-minimal"], capture_output=True, text=True, check=True)
    package = next(word for word in listing.stdout.split() if word.startswith("python3."))
    return package.split("-")[0].removeprefix("python")


def fetch_packages(version: str) -> None:
    """Install the dependencies of toprank and its tests for ARM64."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = [text for text in project["optional-dependencies"]["dev"] if text.startswith(("pytest>", "hypo", "mpmath"))]
    wanted = [*project["dependencies"], *tools]
    stamp = SITE / "wanted.json"
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return
    shutil.rmtree(SITE, ignore_errors=True)
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28, 31, 34, 35)]
    words = ["-m", "pip", "install", "--quiet", f"--target={SITE}", "--only-binary=:all:", *platforms]
    words += ["--platform=manylinux2014_aarch64", "--implementation=cp", f"--python-version={version}"]
    subprocess.run([sys.executable, *words, *wanted], check=True)
    stamp.write_text(json.dumps(wanted))


def starter(version: str) -> Path:
    """Write a program that starts Python in the emulator."""
    path = WORK / "python"
    path.write_text(f'#!/bin/sh\nexec "{EMULATOR}" -L "{SYSTEM}" "{SYSTEM}/usr/bin/python{version}" "$@"\n')
    path.chmod(0o755)
    return path


def run_tests(python: Path, record: Path, words: list[str], more: dict[str, str]) -> bool:
    """Run the tests, recording every call of a kernel."""
    path = os.pathsep.join([more.pop("PYTHONPATH", ""), str(ROOT / "src"), str(HERE)])
    environment = os.environ | more | {"PYTHONPATH": path, "HYPOTHESIS_PROFILE": "toprank"}
    # Run without xdist, so that one process records all calls.
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-p", "recording", "--record", str(record)]
    words = [str(python), "-m", "pytest", "-q", *options, "-m", "not nightly", *words]
    return subprocess.run(words, cwd=ROOT, env=environment).returncode == 0


def compare(here: Path, there: Path) -> bool:
    """Return whether calls with the same arguments gave the same bits; print those that did not."""
    one, other = json.loads(here.read_text()), json.loads(there.read_text())
    same, compared = True, 0
    for name in sorted(one.keys() | other.keys()):
        common = one.get(name, {}).keys() & other.get(name, {}).keys()
        differ = sum(one[name][key] != other[name][key] for key in common)
        print(f"{name}: {len(common)} calls on both machines, {differ or 'none'} with other bits")
        same, compared = same and differ == 0, compared + len(common)
    return same and compared > 0


def main() -> None:
    """Download, build, run, and compare."""
    version = debian_python()
    fetch_system(version)
    fetch_packages(version)
    build(WORK / "kernels", TARGET)
    files = [str(path) for subject in SUBJECTS for path in sorted((ROOT / "tests").glob(f"test_{subject}.py"))]
    words = sys.argv[1:] or [path for path in files if Path(path).name not in LEFT_OUT]
    here, there = WORK / "here.json", WORK / "there.json"
    passed = run_tests(Path(sys.executable), here, words, {})
    python = starter(version)
    folder = {"TOPRANK_KERNELS_FOLDER": str(WORK / "kernels"), "TOPRANK_KERNELS": "", "TOPRANK_PYTHON": str(python)}
    passed = run_tests(python, there, words, {**folder, "PYTHONPATH": str(SITE)}) and passed
    if not (compare(here, there) and passed):
        sys.exit("The kernels of ARM64 failed, or gave other bits than those of this machine.")


if __name__ == "__main__":
    main()
