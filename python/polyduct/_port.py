"""What all ports have in common, and those of one array."""

from __future__ import annotations

import time
from traceback import TracebackException
from types import TracebackType
from typing import Literal, NamedTuple

from polyduct import _html, _native
from polyduct._arrays import Form, seconds
from polyduct._atexit import watch
from polyduct._domain import Domain
from polyduct._dtypes import DType
from polyduct._encode import code_of
from polyduct._layouts import Layout
from polyduct._ready import Readiness
from polyduct.errors import BadOption, Misuse, TimeoutError


class Stats(NamedTuple):
    """Counters of a port since it was opened. Times are in seconds."""

    steps: int
    """Steps written or read."""
    dropped: int
    """Steps that a lossy queue dropped: of a writer, those that it did not take; of a reader, those between
    the steps read."""
    bytes: int
    """Bytes of this unit's part, over all steps."""
    runs: int
    """Contiguous runs that they came in (readers of pipes; both of files)."""
    waited: float
    """Waiting for the other side."""
    copied: float
    """Copying."""
    opened: float
    """From the call of open to its return."""


class Addresses(NamedTuple):
    """Where the units on both sides of a pipe are in the domain of their ports."""

    writers: range
    """Addresses of the writer program's units, in their order."""
    readers: list[range]
    """Those of each reader program's units."""


def words_of(error: BaseException) -> str:
    """An exception's name and words, as a traceback ends with them; its name alone where it has none to give."""
    try:
        return "".join(TracebackException(type(error), error, None).format_exception_only()).strip()
    except Exception:
        return type(error).__name__


class _Port:
    """What all ports have in common."""

    _port: _native.WritePort | _native.ReadPort
    _url: str
    _closed: bool

    def _start(self, url: str, timeout: float | None) -> None:
        self._url = url
        self._closed = False
        self._timeout = timeout
        self._readiness = Readiness(self._port.fileno)
        self._domain: Domain | None = None
        watch(self)

    @property
    def unit(self) -> int:
        """Number of this unit, from 0."""
        return self._port.unit

    @property
    def units(self) -> int:
        """Units of this program."""
        return self._port.units

    @property
    def program(self) -> str:
        """Name of this program."""
        return self._port.program

    @property
    def addresses(self) -> Addresses:
        """Where all units are in the domain of the port: ``port.addresses.readers[0][2]`` is unit 2 of the
        first reader.

        Raises `Misuse` for a file.
        """
        places = self._port.addresses
        if places is None:
            raise Misuse("a file has no units on another side")
        writers, readers = places
        return Addresses(range(*writers), [range(*each) for each in readers])

    def domain(
        self,
        *,
        timeout: float | None = None,
        open_timeout: float | None = None,
        on_loss: Literal["raise", "continue"] = "raise",
    ) -> Domain:
        """The message domain of the port: all units on both sides of the pipe, at their `addresses`.

        The first call joins it, and waits until all units of all programs have asked; later ones give the
        same again. Messages are independent of steps. Closing the port leaves the domain, unless the caller
        still has it.

        timeout, open_timeout
            As for `polyduct.domain`, in seconds. By default the port's.
        on_loss
            As for `polyduct.domain`.

        Raises `Refused` when the others do not ask in time, after which it can be asked for again; `PeerLost`
        and `PeerAborted` when a unit that would have to ask is gone; `Misuse` for a file.
        """
        if self._domain is None:
            self._domain = Domain(
                self._port.domain(seconds("timeout", timeout), seconds("open_timeout", open_timeout), on_loss)
            )
        return self._domain

    @property
    def closed(self) -> bool:
        """Whether the port was closed or aborted."""
        return self._closed

    def stats(self) -> Stats:
        """Counters since the port was opened. They stay when it is closed."""
        return Stats(*self._port.stats())

    def fileno(self) -> int:
        """A descriptor for ``select``, ``selectors`` and event loops, to be polled and never read: readable
        for as long as the next `Reader.read` or `Writer.step` would not wait, since the step or the room is
        there, the stream has ended, or an error is to be raised. Then `Reader.try_read` or `Writer.try_step`
        does the work; if it gives None, poll on.

        It stays readable after `close`, and is valid as long as the port's object lives. The first call
        starts a thread of the port, which watches it; of a port across hosts it also receives ahead, for one
        copy more. In asyncio ports are awaited instead: ``async for a in port``, `Reader.read_async`, ``async
        with port.step() as a``, `Writer.write_async`.
        """
        return self._port.fileno()

    async def _wait(self, start: float, timeout: float | None, what: str) -> None:
        """Waits for the next look, ``timeout`` seconds at most since ``start`` (the port's by default)."""
        limit = self._timeout if timeout is None else timeout
        left = None if limit is None else start + limit - time.monotonic()
        if not await self._readiness.wait(left):
            waited = time.monotonic() - start
            error = TimeoutError(f"{self._url}: timed out after {waited:.1f}s waiting for {what}")
            error.waited = waited
            raise error

    def close(self, timeout: float | None = None) -> None:
        """Ends the stream, or completes the file. Closing again does nothing.

        Where it has to wait for others (across hosts a writer waits until the readers have fetched its
        steps), it waits ``timeout`` seconds at most (the port's by default): then it raises `TimeoutError`,
        and the stream or file is given up. A writer that failed before raises its error again: there is no
        complete stream or file.
        """
        seconds("timeout", timeout)
        if not self._closed:
            self._closed = True
            domain, self._domain = self._domain, None
            try:
                self._port.close(timeout)
            except BadOption:
                # A time that is none: nothing was done.
                self._closed, self._domain = False, domain
                raise

    def abort(self, reason: str = "") -> None:
        """Gives up: the other units get `PeerAborted`, or with ``on_loss="wait"`` wait for a replacement; no
        file appears.

        The others' error says the ``reason`` (of a pipe its first 552 bytes in UTF-8), or nothing if it is
        empty.

        A reader with ``on_loss="wait"`` leaves this way if another one is to follow it, now or later; after
        `close` no replacement is waited for.
        """
        # A lone surrogate is no text anywhere else.
        words = reason.encode("utf-8", "replace").decode()
        if not self._closed:
            self._closed = True
            self._domain = None
            self._port.abort(words)

    def _stop_serving(self) -> None:
        """Nothing runs beside a port."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._port.ours:
            # A fork comes through its parent's blocks when it exits, and the port is not its to close.
            return
        if error is None:
            self.close()
        else:
            self.abort(words_of(error))


class _ArrayPort(_Port):
    """A port of one array."""

    _dtype: DType
    _layout: Layout
    _form: Form
    _common: bool

    def _start_array(self, url: str, dtype: DType, timeout: float | None) -> None:
        self._dtype = dtype
        self._layout = Layout._of(self._port.layout)
        self._form = Form(self._port.layout, self.unit, dtype, url=url)
        elem, fortran = code_of(self._form.dtype), self._form.is_fortran
        self._common = elem is not None and fortran is not None
        if elem is not None and fortran is not None:
            # What steps of a few bytes have time for: the native module makes and knows the arrays itself.
            self._port.set_form(elem, self._form.shape, fortran)
        self._start(url, timeout)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self._layout.shape

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._dtype

    @property
    def layout(self) -> Layout:
        """This program's layout; ``str(port.layout)`` is its text."""
        return self._layout

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of this unit's part, its halo included."""
        return self._form.shape

    @property
    def local_dtype(self) -> DType:
        """Type of the elements of this unit's array: `dtype`, or bytes for a layout that counts bytes."""
        return self._form.dtype

    def _repr_html_(self) -> str:
        rows = [
            ("unit", f"{self.unit} of {self.units}"),
            ("shape", self.shape),
            ("dtype", self.dtype),
            ("this unit's part", self.local_shape),
            ("layout", self.layout),
        ]
        closed = " (closed)" if self._closed else ""
        title = f"polyduct.{type(self).__name__} {self._url}{closed}"
        return _html.table(title, rows, _html.drawing(self.layout, self.unit))

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return (
            f"<polyduct.{type(self).__name__} {self._url!r}: unit {self.unit} of {self.units}, "
            f"{self.local_shape} of {self.shape} {self.dtype}, {str(self.layout)!r}{state}>"
        )
