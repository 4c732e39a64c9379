"""The log of a service: one JSON object per line on standard error, without any content sent by clients."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec


class Log:
    """JSON lines on a stream; `requests=False` omits the lines about requests."""

    def __init__(self, stream: TextIO | None = None, *, requests: bool = True) -> None:
        self._stream, self.requests = stream or sys.stderr, requests

    def __call__(self, event: str, **facts: Any) -> None:
        """Write a line."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = msgspec.json.encode({"time": when, "event": event, **facts}).decode()
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # The reader of the log is gone; keep serving.
            self.requests = False

    def request(self, endpoint: str, status: int, seconds: float, **facts: Any) -> None:
        """Write a line about an answered request."""
        if self.requests:
            self("request", endpoint=endpoint, status=status, ms=round(seconds * 1e3, 3), **facts)

    def capture_warnings(self, name: str) -> None:
        """Write the warnings of a library as lines of this log."""
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [_LogHandler(self)], False
        logger.setLevel(logging.WARNING)


class _LogHandler(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log("server", level=record.levelname.lower(), says=record.getMessage())


def where(problem: BaseException) -> str:
    """Return file and line of the innermost frame, without the message, which may quote a client."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
