"""Work beside the event loop: on threads, with a limit to how much waits for them and to the time it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore
from typing import TypeVar

from toprank.serving.requests import RefusedError

Result = TypeVar("Result")


class WorkerPool:
    """WorkerPool for what would keep others waiting.

    Args:
        count: how many work at a time.
        queue: how many requests may wait until one of them is free; the next is refused.
        name: what they are called.
    """

    def __init__(self, count: int, queue: int, name: str) -> None:
        self._pool, self._room = ThreadPoolExecutor(count, thread_name_prefix=name), Semaphore(count + queue)

    def submit(self, function: Callable[[], Result]) -> Future[Result] | None:
        """Call the function as soon as a thread is free; None, and no call, if too many wait already."""
        if not self._room.acquire(blocking=False):
            return None
        work = self._pool.submit(function)
        work.add_done_callback(lambda _: self._room.release())
        return work

    async def run(self, function: Callable[[], Result], seconds: float) -> Result:
        """What the function gives, within so many seconds; one that was not begun by then never is."""
        work = self.submit(function)
        if work is None:
            raise RefusedError(503, "The service is overloaded; try again later.")
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), seconds)
        except TimeoutError:
            if work.cancel():
                raise RefusedError(503, f"The request waited {seconds:g} s for its turn; ask again later.") from None
            raise RefusedError(503, f"The answer took longer than {seconds:g} s; ask for fewer documents.") from None

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
