"""Messages and calls under way: to be tested, waited for together, or awaited in asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from polyduct import _native
from polyduct._arrays import seconds
from polyduct._ready import reported
from polyduct.errors import Error, LimitReached, Misuse, TimeoutError

if TYPE_CHECKING:
    from polyduct._domain import Domain

_MOST = 4096
"""Sends of a unit that may wait for room."""


class Waitable(Protocol):
    """What `waitany` takes: what `Domain.isend`, `Domain.irecv` and `Domain.call` give."""

    @property
    def _domain(self) -> Domain: ...
    @property
    def _wanted(self) -> tuple[int | None, int | None] | None: ...
    @property
    def _call(self) -> _native.Call | None: ...
    def _settle(self) -> bool: ...


class Request:
    """A message under way, as `Domain.isend` and `Domain.irecv` give it. In asyncio it can be awaited."""

    _wanted: tuple[int | None, int | None] | None = None
    _call: _native.Call | None = None

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def test(self) -> bool:
        """Whether it is over. Does not wait."""
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> Any:
        """Waits until it is over, ``timeout`` seconds at most. Gives what was received; None for a message
        that was sent.

        Raises what `Domain.recv` and `Domain.send` do; `TimeoutError`, after which it can be waited for
        again."""
        raise NotImplementedError

    def _settle(self) -> bool:
        return self.test()

    def _ends(self, get: Callable[[], Any]) -> None:
        """It is over with what ``get`` gives or raises, but for a lack of time."""
        try:
            self._result = get()
        except TimeoutError:
            raise
        except Exception as e:
            self._error = e
        self._over.set()

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def __await__(self) -> Generator[Any, None, Any]:
        return awaited(self, self._outcome).__await__()


class Receive(Request):
    """A message that is to come."""

    def __init__(self, domain: Domain, from_: int | None, tag: int | None, out: Any) -> None:
        super().__init__(domain)
        self._wanted: tuple[int | None, int | None] = (from_, tag)
        self._out = out

    def test(self) -> bool:
        return self._over.is_set() or self._receive(tries=True)

    def wait(self, timeout: float | None = None) -> Any:
        seconds("timeout", timeout)
        if not self._over.is_set():
            # Another thread may wait for it, too.
            if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
                raise TimeoutError(f"timed out after {timeout}s waiting for a message that another thread is receiving")
            try:
                if not self._over.is_set():
                    self._ends(lambda: self._domain.recv(*self._wanted, out=self._out, timeout=timeout))
            finally:
                self._lock.release()
        return self._outcome()

    def _settle(self) -> bool:
        # A unit that is gone is an outcome, too.
        return self._over.is_set() or self._receive(tries=False)

    def _receive(self, *, tries: bool) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._over.is_set():
                return True
            if tries:
                return self._try()
            self._ends(lambda: self._domain.recv(*self._wanted, out=self._out, timeout=0.0))
        except TimeoutError:
            pass
        finally:
            self._lock.release()
        return self._over.is_set()

    def _try(self) -> bool:
        found = self._domain.try_recv(*self._wanted)
        if found is None:
            return False
        from polyduct._domain import _into

        self._ends(lambda: found.data if self._out is None else _into(self._out, found.data))
        return True


class Send(Request):
    """A message that waits for room, or went at once."""

    def __init__(self, domain: Domain, to: int, what: Any, tag: int) -> None:
        super().__init__(domain)
        self.to = to
        self._what = (to, what, tag)

    def wait(self, timeout: float | None = None) -> Any:
        seconds("timeout", timeout)
        start = time.monotonic()
        if not self._over.wait(timeout):
            waited = time.monotonic() - start
            raise TimeoutError(f"timed out after {waited:.1f}s waiting for a message to be sent")
        return self._outcome()

    def _go(self) -> None:
        self._ends(lambda: self._domain._port.send(*self._what, None))
        self._what = (self.to, None, 0)


class Later:
    """Sends that found no room, one after the other in a thread that lives as long as there are some."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._queue: deque[Send] = deque()
        self._changed = threading.Condition()

    def send(self, send: Send) -> None:
        """Sends now if that takes no time and nothing for the unit waits; else when it is its turn."""
        with self._changed:
            if all(other.to != send.to for other in self._queue) and self._domain._port.try_send(*send._what):
                send._over.set()
                return
            if len(self._queue) >= _MOST:
                raise LimitReached(f"{_MOST} messages wait for room already; wait for one of them")
            self._queue.append(send)
            if len(self._queue) == 1:
                threading.Thread(target=self._run, name="polyduct-sending", daemon=True).start()

    def _run(self) -> None:
        while True:
            send = self._queue[0]
            try:
                send._go()
            except BaseException as e:
                # Those that a handler raised to end the program, too: whoever waits gets them, and the next
                # has its turn.
                send._error = e
                send._over.set()
            with self._changed:
                self._queue.popleft()
                left = len(self._queue)
                self._changed.notify_all()
            self._domain._stir()
            if not left:
                return

    def drain(self, to: int | None, timeout: float | None) -> None:
        """Waits until nothing for the unit (any for None) waits: what is sent after it must come after it."""
        with self._changed:
            gone = lambda: not any(to is None or other.to == to for other in self._queue)  # noqa: E731
            if not self._changed.wait_for(gone, timeout):
                raise TimeoutError(f"timed out after {timeout}s waiting for messages given to isend to be sent")


class Watcher:
    """A thread that waits for what is awaited in asyncio, and lives as long as there is something."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._lock = threading.Lock()
        self._awaited: list[tuple[Waitable, asyncio.Future[None], asyncio.AbstractEventLoop]] = []
        self._stop: _native.Stop | None = None

    def add(self, request: Waitable) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(lambda _: self._look())
        with self._lock:
            self._awaited.append((request, future, loop))
            if len(self._awaited) == 1 and self._stop is None:
                self._stop = _native.Stop()
                threading.Thread(target=self._run, name="polyduct-awaiting", daemon=True).start()
                return future
        self._look()
        return future

    def _look(self) -> None:
        with self._lock:
            stop = self._stop
        if stop is not None and not self._domain.closed:
            self._domain._port.stop_serving(stop)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._awaited = [one for one in self._awaited if not one[1].done()]
                if not self._awaited:
                    self._stop = None
                    return
                self._stop = stop = _native.Stop()
                now = list(self._awaited)
            try:
                wait_any(self._domain, [one[0] for one in now], stop, None)
                # What has come is left to who awaits it: one that is cancelled meanwhile must not have taken
                # it.
                over = [one for one in now if is_over(one[0])]
                error = None
            except Error as e:
                over, error = now, e
            except BaseException as e:
                # A handler wanted to end the program, which no thread beside the first can.
                reported(e)
                continue
            with self._lock:
                self._awaited = [one for one in self._awaited if one not in over]
            for _, future, loop in over:
                try:
                    loop.call_soon_threadsafe(tell, future, error)
                except RuntimeError:
                    # The loop was closed, and nobody awaits it any more.
                    pass


def tell(future: asyncio.Future[None], error: Error | None) -> None:
    """Ends a future that nobody has cancelled meanwhile."""
    if not future.done():
        future.set_result(None) if error is None else future.set_exception(error)


async def awaited(request: Waitable, outcome: Callable[[], Any]) -> Any:
    """What comes of a request, without holding up the loop."""
    while not request._settle():
        await request._domain._watch().add(request)
    return outcome()


def is_over(request: Waitable) -> bool:
    """Whether a request may be over. Takes nothing."""
    if request._wanted is None and request._call is None:
        return request._settle()
    return wait_any(request._domain, [request], _native.Stop(), 0.0)


def wait_any(domain: Domain, requests: Iterable[Waitable], stop: _native.Stop, timeout: float | None) -> bool:
    """Waits until one of these may be over, or ``stop``."""
    wanted = [r._wanted for r in requests if r._wanted is not None]
    calls = [r._call for r in requests if r._call is not None]
    with domain._stirred(stop):
        if any(r._wanted is None and r._call is None and r._settle() for r in requests):
            return True
        return domain._port.wait_any(wanted, calls, stop, timeout)


def waitany(requests: Iterable[Waitable], timeout: float | None = None) -> int:
    """Waits until one of these messages or calls is over, and says which by its place among them. ``wait`` or
    ``result`` then does not wait.

    They are of one domain. Raises `TimeoutError` after ``timeout`` seconds (the domain's by default);
    `Misuse` for none at all.
    """
    given = list(requests)
    seconds("timeout", timeout)
    if len({id(r._domain) for r in given}) != 1:
        raise Misuse(
            "waitany is given nothing to wait for" if not given else "the requests are of several domains"
        )
    start = time.monotonic()
    while True:
        for n, request in enumerate(given):
            if request._settle():
                return n
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - start))
        if not wait_any(given[0]._domain, given, _native.Stop(), left):
            raise TimeoutError(
                f"timed out after {time.monotonic() - start:.1f}s waiting for any of {len(given)} requests"
            )
