"""`python -m toprank.serving`: the command `toprank serve` for images that contain only the packages for scoring."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from toprank.errors import ToprankError
from toprank.serving import check_installed
from toprank.serving.settings import Option, Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service and return the exit status: 0 (stopped as requested), 1 (failed to start), 2 (wrong usage), 130,
    143.
    """
    # PID 1 of a container ignores signals without a handler.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        check_installed()
    except ToprankError as problem:  # Check before the imports that need the extra.
        return _failed(str(problem), 1)
    try:
        from toprank.serving.startup import start

        given = vars(_parser().parse_args(arguments))
        models, quiet = given.pop("models"), given.pop("quiet")
        if given["interleave"] is not None:
            given["interleave"] = tuple(given["interleave"])
        start(models, Settings(**given), requests=not quiet)
        return 0
    except ToprankError as problem:
        from toprank.serving.startup import for_service

        return _failed(for_service(problem.args[0]), 1)
    except KeyboardInterrupt:
        return _failed("Interrupted.", 130)
    except MemoryError:
        return _failed("Out of memory.", 1)
    except OSError as problem:
        about = "" if problem.filename is None else f"{problem.filename}: "
        return _failed(f"{about}{problem.strerror or problem}.", 1)


def _failed(sentence: str, status: int) -> int:
    sys.stderr.write(f"toprank: {sentence}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    """Return the parser with the options of `Settings`."""
    parser = argparse.ArgumentParser("python -m toprank.serving", description="Answer HTTP requests with models.")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="A model file, or NAME=FILE; the first is primary.")
    hints = get_type_hints(Settings, include_extras=True)
    for field in fields(Settings):
        kind, option = get_args(hints[field.name])
        shown = "" if field.default is None else f" (default: {field.default})"
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            default=field.default,
            help=option.help + shown,
            **_taken(kind, option),
        )
    parser.add_argument("--quiet", "-q", action="store_true", help="Do not log requests.")
    return parser


def _taken(kind: Any, option: Option) -> dict[str, Any]:
    """Return the arguments of `add_argument` for a type."""
    if isinstance(kind, UnionType):
        (kind,) = (member for member in get_args(kind) if member is not NoneType)
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(kind) is list:
        return {"action": "append", "metavar": option.metavar}
    if get_origin(kind) is tuple:
        return {"nargs": len(get_args(kind)), "metavar": tuple((option.metavar or "").split())}

    def read(text: str) -> Any:
        value = kind(text)
        if (option.least is not None and not value >= option.least) or (
            option.most is not None and not value <= option.most
        ):
            raise ValueError
        return value

    read.__name__ = "value" if option.least is None else f"value (at least {option.least:g})"
    return {"type": read, "metavar": option.metavar}


if __name__ == "__main__":
    sys.exit(main())
