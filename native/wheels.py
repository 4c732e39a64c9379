"""Build the wheels of every machine (`TARGETS` of build.py) and the source distribution into dist/, and inspect them.

    python native/wheels.py          # needs hatchling and ziglang: `pip install '.[wheels]'`
    python native/wheels.py --try    # the wheel of this machine, installed and used where there is no compiler

What is looked for: a library may ask the system only for what every machine of its tag has (an old glibc, Windows' own
DLLs, macOS 11), and nothing of the machine that built it may be in it: the same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from build import HERE, TARGETS, identity

ROOT = HERE.parent
DIST = ROOT / "dist"
OLDEST_GLIBC, OLDEST_MACOS = (2, 17), (11, 0)
SYSTEM_DLLS = re.compile(rb"(?i)kernel32\.dll|api-ms-win-crt-[a-z0-9-]+\.dll|ucrtbase\.dll|_kernels\.dll")


def elf(library: bytes) -> list[str]:
    """Return the problems of a Linux library."""
    versions = {(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", library)}
    return [f"it asks for glibc {a}.{b}" for a, b in sorted(versions) if (a, b) > OLDEST_GLIBC]


def dll(library: bytes) -> list[str]:
    """Return the problems of a Windows library."""
    names = set(re.findall(rb"[\w.-]+\.dll", library, re.IGNORECASE))
    return [f"it asks for {name.decode()}" for name in sorted(names) if not SYSTEM_DLLS.fullmatch(name)]


def dylib(library: bytes) -> list[str]:
    """Return the problems of a macOS library, from its load commands."""
    count, at, found = struct.unpack_from("<I", library, 16)[0], 32, {}
    for _ in range(count):
        kind, size = struct.unpack_from("<II", library, at)
        found[kind & 0x7FFFFFFF] = library[at : at + size]
        at += size
    wrong = []
    if not found[0x0D].endswith(b"@rpath/_kernels.dylib" + bytes(len(found[0x0D]) - 24 - 21)):
        wrong.append(f"its name is {found[0x0D]!r}")
    version = struct.unpack_from("<I", found[0x32], 12)[0]
    if (version >> 16, version >> 8 & 0xFF) > OLDEST_MACOS:
        wrong.append(f"it asks for macOS {version >> 16}.{version >> 8 & 0xFF}")
    if struct.unpack_from("<I", library, 4)[0] == 0x0100000C and 0x1D not in found:
        wrong.append("it is not signed")  # Apple's processors do not load unsigned libraries.
    return wrong


def check(wheel: Path, tag: str) -> list[str]:
    """Return the problems of a wheel."""
    looks: dict[str, Callable[[bytes], list[str]]] = {".so": elf, ".dll": dll, ".dylib": dylib}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = archive.read(next(name for name in names if name.endswith(".dist-info/WHEEL"))).decode()
        libraries = [name for name in names if "/_kernels." in name]
        if len(libraries) != 1:
            return [f"it holds the libraries {libraries}"]
        library = archive.read(libraries[0])
    wrong = looks[Path(libraries[0]).suffix](library)
    if sorted(re.findall(r"(?m)^Tag: py3-none-(\S+)$", about)) != sorted(tag.split(".")):
        wrong.append(f"its tags are not {tag}")
    if "Root-Is-Purelib: false" not in about:
        wrong.append("it says that it is for any machine")
    if identity().encode() not in library:
        wrong.append("its library is made of other sources")
    if str(ROOT).encode() in library or tempfile.gettempdir().encode() + b"/" in library:
        wrong.append("its library names a folder of this machine")
    print(f"{wheel.name}: library of {len(library) / 1024:.0f} KB, wheel of {wheel.stat().st_size / 1024:.0f} KB")
    return wrong


def build_all() -> None:
    """Build and check the source distribution and every wheel."""
    builder = [sys.executable, "-m", "hatchling", "build", "-d", str(DIST), "-t"]
    subprocess.run([*builder, "sdist"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wrong = []
    for target, tag in TARGETS.items():
        environment = {**os.environ, "TOPRANK_TARGET": target}
        subprocess.run([*builder, "wheel"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)
        (wheel,) = DIST.glob(f"toprank-*-py3-none-{tag}.whl")
        wrong += [f"{wheel.name}: {text}." for text in check(wheel, tag)]
    if wrong:
        sys.exit("\n".join(wrong))


def try_here() -> None:
    """Install the Linux wheel into a separate environment without a compiler, and use it."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    flavour = "gnu.2.17" if platform.libc_ver()[0] == "glibc" else "musl"
    (wheel,) = DIST.glob(f"toprank-*-py3-none-{TARGETS[f'{machine}-linux-{flavour}']}.whl")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        programs = environment / "bin"
        bare = {"PATH": str(programs), "HOME": folder}
        passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "LANG"}
        subprocess.run([programs / "pip", "install", "--quiet", str(wheel)], check=True, env={**bare, **passed})
        subprocess.run([programs / "toprank", "demo", "-o", f"{folder}/demo"], check=True, env=bare, cwd=folder)
        code = "from toprank import kernels; library = kernels.library(); print(library.path, library.variant)"
        subprocess.run([programs / "python", "-c", code], check=True, env=bare, cwd=folder)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build and check toprank's wheels.")
    parser.add_argument("--try", dest="trial", action="store_true", help="use the wheel of this machine")
    if parser.parse_args().trial:
        try_here()
    else:
        build_all()


if __name__ == "__main__":
    main()
