"""Thread pools for work outside of the event loop, with a limited queue and time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore
from typing import TypeVar

from toprank.serving.requests import RefusedError

Result = TypeVar("Result")


class WorkerPool:
    """A thread pool for work that would block the event loop.

    Args:
        count: number of threads.
        queue: maximum number of waiting requests; further ones are rejected.
        name: name of the threads.
    """

    def __init__(self, count: int, queue: int, name: str) -> None:
        self._pool, self._room = ThreadPoolExecutor(count, thread_name_prefix=name), Semaphore(count + queue)

    def submit(self, function: Callable[[], Result]) -> Future[Result] | None:
        """Run a function as soon as a thread is free; return None without running it if the queue is full."""
        if not self._room.acquire(blocking=False):
            return None
        work = self._pool.submit(function)
        work.add_done_callback(lambda _: self._room.release())
        return work

    async def run(self, function: Callable[[], Result], seconds: float) -> Result:
        """Return the result of a function within a time limit; it is not started after the limit."""
        work = self.submit(function)
        if work is None:
            raise RefusedError(503, "The service is overloaded. Try again later.")
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), seconds)
        except TimeoutError:
            if work.cancel():
                raise RefusedError(
                    503, f"The request waited in the queue for {seconds:g} s. Try again later."
                ) from None
            raise RefusedError(503, f"The request took longer than {seconds:g} s. Send fewer documents.") from None

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
