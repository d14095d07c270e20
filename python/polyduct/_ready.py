"""Waiting for ports in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Readiness:
    """Coroutines that wait until a call of a port would not wait. None of them takes anything, so any may be cancelled."""

    def __init__(self, fileno: Callable[[], int]) -> None:
        self._fileno = fileno
        self._waiting: dict[asyncio.AbstractEventLoop, set[asyncio.Future[bool]]] = {}

    async def wait(self, timeout: float | None) -> bool:
        """Waits ``timeout`` seconds at most (None: for ever), and gives False then. May end early: the call is to be tried."""
        loop, fd = asyncio.get_running_loop(), self._fileno()
        future: asyncio.Future[bool] = loop.create_future()
        waiting = self._waiting.setdefault(loop, set())
        if not waiting:
            # A loop knows one callback for each descriptor.
            loop.add_reader(fd, _tell, waiting)
        waiting.add(future)
        timer = None if timeout is None else loop.call_later(max(timeout, 0.0), _end, future, False)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            waiting.discard(future)
            if not waiting and self._waiting.pop(loop, None) is not None:
                loop.remove_reader(fd)


def _tell(waiting: set[asyncio.Future[bool]]) -> None:
    for future in waiting:
        _end(future, True)


def _end(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)
