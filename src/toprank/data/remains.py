"""Names for what is not finished yet, by which the remains of a process that was killed are known.

A file or folder under construction lies beside its target as ``.<target>.<machine>-<process>-<random><suffix>``. What a
process that was killed leaves behind is so told from the work of one that runs, and whoever writes there next clears it
away.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["abandoned", "clear_own", "temporary_sibling"]

_NAME_BYTES = 100  # of the target's name in a temporary one: file systems allow about 255 in all
_own = deque[Path](maxlen=1000)  # most of them finished, and so gone; older ones are


def temporary_sibling(target: Path, suffix: str) -> Path:
    """A name in the same folder (so that renaming is one step) that nobody else uses."""
    sibling = target.with_name(f".{_label(target)}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{suffix}")
    _own.append(sibling)
    return sibling


def clear_own() -> None:
    """Clear away what this process has not finished, since it will not: it is about to be ended."""
    for sibling in list(_own):
        if sibling.is_dir():
            shutil.rmtree(sibling, ignore_errors=True)
        else:
            with suppress(OSError):
                sibling.unlink()


def abandoned(folder: Path, suffix: str, target: Path | None = None) -> Iterator[Path]:
    """What processes of this machine that run no more left in a folder.

    Args:
        folder: where to look.
        suffix: how such names end.
        target: only what was to become this one. Default: whatever it was to become.
    """
    if os.name != "posix":  # elsewhere there is no harmless way to ask for a process
        return
    label = r"\..+" if target is None else re.escape(f".{_label(target)}")
    pattern = re.compile(rf"{label}\.{_machine()}-(\d{{1,9}})-[0-9a-f]{{8}}{re.escape(suffix)}", re.DOTALL)
    with suppress(OSError):  # who may not look may still write, or is told so then
        for name in os.listdir(folder):
            found = pattern.fullmatch(name) if name.endswith(suffix) else None
            if found is not None and not _runs(int(found[1])):
                yield folder / name


def _label(target: Path) -> str:
    name = os.fsencode(target.name)
    if len(name) <= _NAME_BYTES:
        return target.name
    # Cut by bytes, not within a letter; the hash keeps names that begin alike apart.
    return name[:_NAME_BYTES].decode(errors="ignore") + hashlib.blake2b(name, digest_size=4).hexdigest()


@cache
def _machine() -> str:
    """Tells apart the machines (and containers) that share a disk: numbers of processes mean something on one only."""
    known = [platform.node()]
    with suppress(OSError):
        known.append(Path("/etc/machine-id").read_text())
    with suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b("\n".join(known).encode(), digest_size=4).hexdigest()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True
