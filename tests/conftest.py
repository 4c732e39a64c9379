"""Settings for all tests."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

from hypothesis import settings

# Timings have no place in tests, and the first call of a kernel compiles it. A change is judged by the same examples
# every time; `make nightly` draws new ones (HYPOTHESIS_PROFILE=explore), and what it finds becomes a test.
settings.register_profile("toprank", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "toprank"))

# Without a GPU, kernels for one are run by Triton's interpreter; it looks at this when they are defined.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_configure(config):
    """Let Ctrl-C be heard, whoever started the tests, and see that no stale kernel is tested."""
    # Started in the background by a shell, a process ignores SIGINT, and so would every process that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        _drop_stale_kernels()


def _drop_stale_kernels():
    """Drop compiled kernels when the source of any changed: Numba looks only at the file of the kernel itself."""
    source = Path(__file__).parent.parent / "src" / "toprank"
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        text = path.read_bytes()
        if b"kernel" in text:
            digest.update(text)
    stamp = source / "__pycache__" / "kernels.stamp"
    if not stamp.exists() or stamp.read_text() != digest.hexdigest():
        for compiled in source.rglob("*.nb[ci]"):
            compiled.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest.hexdigest())
