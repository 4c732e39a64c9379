"""Run pytest with the library of `build.py --sanitize`: an invalid access or undefined behavior ends the run.

    python native/build.py --sanitize && python native/sanitized.py tests/test_kernels.py

Words are given to pytest as they are. The library stays where it is built (build/kernels/sanitized); the ordinary one
is not touched. The address sanitizer has to be loaded before everything else, so this needs GCC on Linux.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from build import HERE, is_current, system_compiler

LEFT_OUT = {
    "a browser does not start with the sanitizer loaded into it": (
        "tests/test_report_browser.py",
        "tests/test_serving_process.py::test_the_page_ranks_and_shows_markup_as_text_by_keyboard_alone",
    ),
    "the sanitizer's own memory counts": (
        "tests/test_stored_training.py::test_training_and_prediction_fit_in_less_memory_than_the_features",
        "tests/test_stored_training.py::test_conversion_fits_in_less_memory_than_the_features",
        "tests/test_stored_training.py::test_trees_take_a_byte_a_value_and_no_copy_of_the_features",
        "tests/test_serving_process.py::test_nothing_is_dropped_and_memory_stays_flat",
    ),
}
"""Reasons for skipped tests."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that make Python load the library of `folder` and the sanitizer."""
    compiler = system_compiler()
    if compiler is None or sys.platform != "linux":
        sys.exit("The sanitizers need GCC on Linux.")
    # Preload the C++ library, so that the sanitizer sees the exceptions of PyTorch and LightGBM.
    wanted = ("libasan.so", "libubsan.so", "libstdc++.so")
    paths = [subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True) for name in wanted]
    first = [str(Path(path.stdout.strip()).resolve()) for path in paths]
    # Python frees memory only at exit, which is no leak; failing allocations are tested; and pytrec_eval frees memory
    # of new[] with free().
    options = "detect_leaks=0:allocator_may_return_null=1:handle_segv=0:alloc_dealloc_mismatch=0"
    return os.environ | {
        "TOPRANK_KERNELS_FOLDER": str(folder),
        "LD_PRELOAD": ":".join(first),
        "ASAN_OPTIONS": options,
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def main() -> None:
    """Run pytest with the sanitized library."""
    folder = HERE.parent / "build" / "kernels" / "sanitized"
    if not is_current(folder):
        sys.exit(f"There is no library with sanitizers in {folder}: run `python native/build.py --sanitize`.")
    left_out = [f"--deselect={test}" for tests in LEFT_OUT.values() for test in tests]
    words = [sys.executable, "-m", "pytest", *left_out, *sys.argv[1:]]
    sys.exit(subprocess.run(words, cwd=HERE.parent, env=environment(folder)).returncode)


if __name__ == "__main__":
    main()
