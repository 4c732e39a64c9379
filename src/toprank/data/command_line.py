"""The command line of this process for models, results and reports, without private details of the machine.

Absolute paths are reduced to their last component; paths relative to the working directory stay unchanged.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

_FULL_PATH = re.compile(r"(?:^|(?<=[=,;]))(?:~[^/\\,;=]*|[A-Za-z]:|\.\.)?[/\\][^,;=]*")


def command_line() -> str:
    """Return the command line without the installation path, and with absolute paths shortened."""
    program, *words = sys.argv or [""]
    path = Path(program)
    ours = path.name == "toprank" or (path.name == "__main__.py" and path.parent.name == "toprank")
    return shlex.join(["toprank" if ours else without_folders(program), *(without_folders(word) for word in words)])


def without_folders(word: str) -> str:
    """Shorten the absolute paths in a word of a command to their last component.

    >>> [without_folders(word) for word in ("/home/ann/a.txt", "valid=~/b.txt", "C:/data/c.txt", "data/d.txt")]
    ['a.txt', 'valid=b.txt', 'c.txt', 'data/d.txt']
    """
    return _FULL_PATH.sub(lambda match: re.split(r"[/\\]", match[0].rstrip("/\\"))[-1] or match[0], word)
