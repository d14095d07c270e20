"""Descriptors to poll, and waiting for them in asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable

from polyduct import _native
from polyduct.errors import Error, InHandler


class Readiness:
    """Coroutines that wait until a call of a port would not wait. None of them takes anything, so any may be
    cancelled."""

    def __init__(self, fileno: Callable[[], int]) -> None:
        self._fileno = fileno
        self._waiting: dict[asyncio.AbstractEventLoop, set[asyncio.Future[bool]]] = {}

    async def wait(self, timeout: float | None) -> bool:
        """Waits ``timeout`` seconds at most (None: for ever), and gives False then. May end early: the call
        is to be tried."""
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


_LOOK = 1.0
"""How soon a thread that waits sees that it is of no further use, in seconds."""


def reported(error: BaseException) -> None:
    """Says what a handler raised that is no error, as of any thread that it ends."""
    args = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(args))


class Polled:
    """A descriptor of a domain that is readable while a message waits to be received, and the thread that
    sees to it: it receives, and runs handlers, while the program polls. It does not keep the domain's object
    alive: the thread ends when that is dropped."""

    def __init__(self, port: _native.Domain) -> None:
        self._port = port
        self._stop = _native.Stop()
        self._changed = threading.Condition()
        self._is_set = False
        self._over = False
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="polyduct-polled", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """After a call that may have taken a message."""
        port = self._port
        if not port.ours:
            # A fork shares the descriptor, which tells of its parent's messages.
            return
        try:
            # Whether `recv` would not wait: also for an error. Handlers may run meanwhile, so nobody is kept
            # out.
            is_set = port.wait_any([(None, None)], [], _native.Stop(), 0.0)
        except InHandler:
            # Whoever receives next looks again.
            return
        except Error:
            is_set = True
        # Of two who look at once the later may say what was true before: the thread looks again, or
        # `try_recv` finds nothing.
        with self._changed:
            self._set(self._over or is_set)

    def _set(self, is_set: bool) -> None:
        if self._is_set != is_set:
            self._is_set = is_set
            os.eventfd_write(self.fd, 1) if is_set else os.eventfd_read(self.fd)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                # Who lets go of this wakes nobody for sure.
                while not self._changed.wait_for(lambda: self._over or not self._is_set, _LOOK):
                    pass
                if self._over:
                    return
            try:
                with contextlib.suppress(Error):  # the next call to receive raises it
                    self._port.wait_any([(None, None)], [], self._stop, None)
                self.look()
            except BaseException as e:
                # A handler wanted to end the program, which no thread beside the first can.
                reported(e)

    def let_go(self) -> None:
        """Has the thread end. Waits for nothing: a finalizer may run anywhere."""
        self._over = True
        if self._changed.acquire(blocking=False):
            self._changed.notify_all()
            self._changed.release()
        with contextlib.suppress(Error):
            self._port.stop_serving(self._stop)

    def end(self) -> None:
        """Ends the thread, and waits until it has. The descriptor stays readable: nothing is waited for any
        more."""
        with self._changed:
            if self._over:
                return
            self._over = True
            self._set(True)
            self._changed.notify_all()
        # Where another thread has left meanwhile, that has ended the wait.
        with contextlib.suppress(Error):
            self._port.stop_serving(self._stop)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __del__(self) -> None:
        os.close(self.fd)
