"""The command as it was typed, for records that are handed on: models, results and reports say nothing of the machine.

Of a full path only the last name is kept; a path within the working folder stays as it was typed.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

_FULL_PATH = re.compile(r"(?:^|(?<=[=,;]))(?:~[^/\\,;=]*|[A-Za-z]:|\.\.)?[/\\][^,;=]*")


def command_line() -> str:
    """The command of this process, without the place where toprank is installed, and full paths by their last name."""
    program, *words = sys.argv or [""]
    path = Path(program)
    ours = path.name == "toprank" or (path.name == "__main__.py" and path.parent.name == "toprank")
    return shlex.join(["toprank" if ours else without_folders(program), *(without_folders(word) for word in words)])


def without_folders(word: str) -> str:
    """A word of a command, the full paths in it by their last name.

    >>> [without_folders(word) for word in ("/home/ann/a.txt", "valid=~/b.txt", "C:/data/c.txt", "data/d.txt")]
    ['a.txt', 'valid=b.txt', 'c.txt', 'data/d.txt']
    """
    return _FULL_PATH.sub(lambda match: re.split(r"[/\\]", match[0].rstrip("/\\"))[-1] or match[0], word)
