"""Compile the kernels into one shared library: `python native/build.py`, or from the build backend (hatch_build.py).

Every .c file but library.c is compiled once for each set of instructions of the target (`VARIANTS`), library.c once.
The compiler is $CC, else the system's `cc` where it works, else the one in the `ziglang` package; other machines than
this one (`TARGETS`) are always built for by the latter. Only the standard library is used, so that a build environment
needs nothing else.

    python native/build.py                              # for this machine, into src/toprank
    python native/build.py --if-changed                 # only if the sources have changed
    python native/build.py --target aarch64-linux-musl  # for another machine, into build/kernels
    python native/build.py --sanitize                   # with the sanitizers, into build/kernels/sanitized
    python native/build.py --strict                     # a warning is an error; into build/kernels/strict
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "src" / "toprank"

# No option may change a bit: sums keep their order and are not fused with products. Floating-point error numbers and
# traps are unused.
FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"),
    *("-Wno-psabi", "-Wno-unused-function", "-Wno-unknown-warning-option"),
)
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize=vla-bound", "-fno-sanitize-recover=all", "-g", "-O1")
_AVX2 = ("-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt")
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "baseline": (),
        "avx2": _AVX2,
        "avx512": (
            *_AVX2,
            *("-mavx512f", "-mavx512dq", "-mavx512cd", "-mavx512bw", "-mavx512vl"),
            "-mprefer-vector-width=512",
        ),
    },
}
"""Instruction sets of each processor, in the order of `toprank_machine`; other processors have the baseline."""

TARGETS = {
    "x86_64-linux-gnu.2.17": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-linux-gnu.2.17": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "x86_64-linux-musl": "musllinux_1_2_x86_64",
    "aarch64-linux-musl": "musllinux_1_2_aarch64",
    "x86_64-macos.11.0": "macosx_11_0_x86_64",
    "aarch64-macos.11.0": "macosx_11_0_arm64",
    "x86_64-windows-gnu": "win_amd64",
}
"""Platforms with wheels: Zig's name and the wheel's tag."""


BASELINE_ONLY = "One set of instructions is enough"
"""Marker of C files with sequential loops, which do not benefit from wide registers."""


def sources() -> list[Path]:
    """Return the source files of the library, in a fixed order."""
    return sorted(path for path in HERE.iterdir() if path.suffix in {".c", ".h", ".inc"} or path.name == "build.py")


def identity() -> str:
    """Return a hash of the sources: a library with another hash is stale."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def is_current(out: Path) -> bool:
    """Return whether the library in the folder `out` is up to date with the sources."""
    library = out / library_name(sys.platform)
    return library.exists() and identity().encode() in library.read_bytes()


def library_name(system: str) -> str:
    """Return the file name of the library on a system (a value of `sys.platform`)."""
    return {"darwin": "_kernels.dylib", "win32": "_kernels.dll"}.get(system, "_kernels.so")


def system_compiler() -> list[str] | None:
    """Return $CC, or the system's `cc` if it works: headers may be missing, and macOS has a stub."""
    if named := os.environ.get("CC"):
        return shlex.split(named)
    found = shutil.which("cc")
    if found is None or sys.platform == "win32":
        return None
    if sys.platform == "darwin" and subprocess.run(["xcode-select", "-p"], capture_output=True).returncode != 0:
        return None
    tried = subprocess.run([found, "-E", "-x", "c", "-"], input=b"#include <math.h>\n", capture_output=True)
    return [found] if tried.returncode == 0 else None


def compiler(target: str | None) -> list[str]:
    """Return the compiler command for `target` (None: this machine)."""
    if target is None and (own := system_compiler()) is not None:
        return own
    if importlib.util.find_spec("ziglang") is None:
        sys.exit("There is no C compiler: install one, name it in CC, or `pip install ziglang`.")
    # Zig would otherwise compile even the baseline for the host's processor.
    command = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
    return command if target is None else [*command, "-target", target]


def build(out: Path, target: str | None = None, sanitize: bool = False, strict: bool = False) -> Path:
    """Compile the library for `target` into the folder `out`, and return its path. The old one is replaced at the end.

    Only where `strict`, for those who work on the kernels, is a warning an error: the compiler of a user may be newer
    than all that we have seen.
    """
    if target is None:
        system, machine = sys.platform, platform.machine().lower()
    else:
        machine, _, rest = target.partition("-")
        system = "win32" if "windows" in rest else "darwin" if "macos" in rest else "linux"
    variants = VARIANTS.get({"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine), {"baseline": ()})
    command, flags = compiler(target), [*FLAGS, *(SANITIZERS if sanitize else ()), *(["-Werror"] if strict else [])]
    if system == "win32":
        flags.remove("-fPIC")
    files = [path for path in sources() if path.suffix == ".c" and path.name != "library.c"]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
            texts = pool.map(lambda path: _declarations(command, path), files)
            # enumerations of a header are included by every file
            lines = dict.fromkeys(line for text in texts for line in text)
            _write_header(work / "prototypes.h", list(lines), list(variants))
            jobs = [
                (path, work / f"{path.stem}-{name}.o", [*flags, *extra, f"-DTOPRANK_VARIANT={name}"])
                for path in files
                for name, extra in variants.items()
                if name == "baseline" or BASELINE_ONLY not in path.read_text()
            ]
            jobs.append(
                (HERE / "library.c", work / "library.o", [*flags, f"-I{work}", f'-DTOPRANK_IDENTITY="{identity()}"'])
            )
            for _ in pool.map(lambda job: _run([*command, *job[2], "-c", str(job[0]), "-o", str(job[1])]), jobs):
                pass
        linked = work / library_name(system)
        extra = list(SANITIZERS) if sanitize else []
        if system == "darwin":  # the library's name would otherwise be its path in the build folder
            extra += ["-Wl,-S", "-Wl,-x", f"-Wl,-install_name,@rpath/{linked.name}"]
        elif not sanitize:
            extra.append("-s")
        libraries = [] if system == "win32" else ["-lm"]
        _run([*command, "-shared", *extra, *(str(job[1]) for job in jobs), *libraries, "-o", str(linked)])
        if system == "win32":
            _drop_time(linked)
        out.mkdir(parents=True, exist_ok=True)
        beside = out / f".{linked.name}.{os.getpid()}"
        shutil.copyfile(linked, beside)
        return beside.replace(out / linked.name)


def _declarations(command: list[str], path: Path) -> list[str]:
    """Return the prototypes and enumerations of a file, one per line."""
    text = _run([*command, "-E", "-P", "-DTOPRANK_PROTOTYPES", "-DTOPRANK_VARIANT=any", str(path)])
    text = text.replace("_Bool", "bool")  # expansion of the macro bool
    kernels = re.findall(r"@kernel\s+(\w+)\s+(\w+)\s*\(([^{;]*)\)\s*\{", text)
    codes = re.findall(r"@codes\s+(\w+)\s*\{([^}]*)\}", text)
    return [
        *(f"codes {name}: {' '.join(members.split())}" for name, members in codes),
        *(f"{result} {name}({' '.join(arguments.split())})" for result, name, arguments in kernels),
    ]


def _write_header(path: Path, prototypes: list[str], variants: list[str]) -> None:
    text = "\n".join(f'    "{line}\\n"' for line in prototypes)
    path.write_text(f'#define TOPRANK_VARIANTS "{" ".join(variants)}"\nstatic const char TOPRANK_TEXT[] =\n{text};\n')


def _drop_time(library: Path) -> None:
    """Remove the link time from a Windows library, so that builds are reproducible."""
    content = bytearray(library.read_bytes())
    header = int.from_bytes(content[60:64], "little")
    content[header + 8 : header + 12] = bytes(4)
    library.write_bytes(content)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{done.stderr}")
    if done.stderr and "warning" in done.stderr:
        print(done.stderr, file=sys.stderr)
    return done.stdout


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compile toprank's kernels into one shared library.")
    parser.add_argument("--target", help="a target of Zig's, e.g. x86_64-linux-gnu.2.17; default: this machine")
    parser.add_argument(
        "--out", type=Path, help="folder for the library; default: src/toprank, or one under build/kernels"
    )
    parser.add_argument("--sanitize", action="store_true", help="with the address and undefined-behavior sanitizers")
    parser.add_argument("--strict", action="store_true", help="a warning of the compiler is an error")
    parser.add_argument("--if-changed", action="store_true", help="only where the library is of other sources")
    chosen = parser.parse_args()
    name = chosen.target or ("sanitized" if chosen.sanitize else "strict" if chosen.strict else None)
    out = chosen.out or (PACKAGE if name is None else HERE.parent / "build" / "kernels" / name)
    if chosen.if_changed and is_current(out):
        return
    print(build(out, chosen.target, chosen.sanitize, chosen.strict))


if __name__ == "__main__":
    main()
