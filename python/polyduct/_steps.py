"""What the steps of one array and of several have in common: those that come, and those that are filled."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Comes(Generic[T]):
    """Gives step after step, in a loop of either kind."""

    __slots__ = ()

    def _come(self) -> T:
        """The next step; raises StopIteration after the last."""
        raise NotImplementedError

    async def _come_async(self) -> T:
        """The same; raises StopAsyncIteration."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._come()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return await self._come_async()


class ReadsSteps(Comes[T]):
    """A reading port: gives its steps, each within the port's patience."""

    _number: int | None = None
    _ended = False

    @property
    def ended(self) -> bool:
        """Whether the end of the stream was reached: no more steps will come."""
        return self._ended

    @property
    def number(self) -> int | None:
        """The writer's number of the step that was read last, from 0. It tells what a lossy queue dropped."""
        return self._number

    def _next(self, timeout: float | None) -> T:
        raise NotImplementedError

    async def _next_async(self, timeout: float | None) -> T:
        raise NotImplementedError

    def _come(self) -> T:
        return self._next(None)

    async def _come_async(self) -> T:
        return await self._next_async(None)


class LimitedSteps(Comes[T]):
    """The steps to come of a reading port, with a limit to the wait for each."""

    __slots__ = ("_reader", "_timeout")

    def __init__(self, reader: ReadsSteps[T], timeout: float | None) -> None:
        self._reader = reader
        self._timeout = timeout

    def _come(self) -> T:
        return self._reader._next(self._timeout)

    async def _come_async(self) -> T:
        return await self._reader._next_async(self._timeout)


class Fills(Generic[T]):
    """A step that is filled in a block of either kind; `_begin` tells whether it has begun, or could just now."""

    __slots__ = ()
    _writer: Any
    _timeout: float | None

    def _begin(self) -> bool:
        raise NotImplementedError

    def __enter__(self) -> T:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> T:
        start = time.monotonic()
        while not self._begin():
            await self._writer._wait(start, self._timeout, f"a free slot for step {self._writer.next_step}")
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)
