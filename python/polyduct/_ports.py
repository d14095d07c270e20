"""Ports: the two ends of whatever a URL names."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from polyduct import _html, _native
from polyduct._at import At
from polyduct._arrays import Array, Form, dims, is_text, natural, refused, seconds
from polyduct._atexit import watch
from polyduct._domain import Domain
from polyduct._dtypes import DType, from_elem, same, to_descr, to_elem
from polyduct._encode import code_of
from polyduct._layouts import Box, Layout, text_of
from polyduct._ready import Readiness
from polyduct.errors import BadOption, BadUrl, Closed, Misuse, TimeoutError, WrongType


class Stats(NamedTuple):
    """Counters of a port since it was opened. Times are in seconds."""

    steps: int
    """Steps written or read."""
    dropped: int
    """Steps that a lossy queue dropped: of a writer, those that it did not take; of a reader, those between the steps read."""
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


class _Port:
    """What writers and readers have in common."""

    _port: _native.WritePort | _native.ReadPort
    _url: str
    _closed: bool
    _dtype: DType
    _layout: Layout
    _form: Form
    _common: bool

    def _start(self, url: str, dtype: DType, timeout: float | None) -> None:
        self._url = url
        self._closed = False
        self._timeout = timeout
        self._readiness = Readiness(self._port.fileno)
        self._domain: Domain | None = None
        self._dtype = dtype
        self._layout = Layout._of(self._port.layout)
        self._form = Form(self._port.layout, self.unit, dtype, url=url)
        elem, fortran = code_of(self._form.dtype), self._form.is_fortran
        self._common = elem is not None and fortran is not None
        if elem is not None and fortran is not None:
            # What steps of a few bytes have time for: the native module makes and knows the arrays itself.
            self._port.set_form(elem, self._form.shape, fortran)
        watch(self)

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
        """Where all units are in the domain of the port: ``port.addresses.readers[0][2]`` is unit 2 of the first reader.

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

        The first call joins it, and waits until all units of all programs have asked; later ones give the same again.
        Messages are independent of steps. Closing the port leaves the domain, unless the caller still has it.

        timeout, open_timeout
            As for `polyduct.domain`, in seconds. By default the port's.
        on_loss
            As for `polyduct.domain`.

        Raises `Refused` when the others do not ask in time, after which it can be asked for again; `PeerLost` and
        `PeerAborted` when somebody is gone who would have to; `Misuse` for a file.
        """
        if self._domain is None:
            self._domain = Domain(
                self._port.domain(seconds("timeout", timeout), seconds("open_timeout", open_timeout), on_loss)
            )
        return self._domain

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of this unit's part, its halo included."""
        return self._form.shape

    @property
    def local_dtype(self) -> DType:
        """Type of the elements of this unit's array: `dtype`, or bytes for a layout that counts bytes."""
        return self._form.dtype

    @property
    def closed(self) -> bool:
        """Whether the port was closed or aborted."""
        return self._closed

    def stats(self) -> Stats:
        """Counters since the port was opened. They stay when it is closed."""
        return Stats(*self._port.stats())

    def fileno(self) -> int:
        """A descriptor for ``select``, ``selectors`` and event loops, to be polled and never read: readable for as long as the next
        `Reader.read` or `Writer.step` would not wait, since the step or the room is there, the stream has ended, or an error is to
        be raised. Then `Reader.try_read` or `Writer.try_step` does the work; who gets None polls on.

        It stays readable after `close`, and is valid as long as the port's object lives. The first call starts a thread of the
        port, which watches it; of a port across hosts it also receives ahead, for one copy more. In asyncio ports are awaited
        instead: ``async for a in port``, `Reader.read_async`, ``async with port.step() as a``, `Writer.write_async`.
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

        What waits for others (across hosts a writer waits until the readers have fetched its steps) does so ``timeout`` seconds at
        most, the port's by default: then it raises `TimeoutError`, and the stream or file is given up. A writer that failed before
        raises its error again: there is no complete stream or file.
        """
        seconds("timeout", timeout)
        if not self._closed:
            self._closed = True
            self._domain = None
            self._port.close(timeout)

    def abort(self) -> None:
        """Gives up: the other units get `PeerAborted`, or with ``on_loss="wait"`` wait for a replacement; no file appears.

        So a reader with ``on_loss="wait"`` leaves whom another one follows, now or later; after `close` nobody is waited for.
        """
        if not self._closed:
            self._closed = True
            self._domain = None
            self._port.abort()

    def _stop_serving(self) -> None:
        """Nothing runs beside a port."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._port.ours:
            # A fork comes through its parent's blocks when it exits, and the port is not its to close.
            return
        if kind is None:
            self.close()
        else:
            self.abort()

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


class Writer(_Port):
    """One unit's writing port; `polyduct.open` makes it.

    As a context manager it is closed at the end, or aborted by an exception, so that the readers do not take an
    unfinished stream for a complete one.
    """

    _port: _native.WritePort

    def __init__(
        self,
        url: str,
        shape: list[int],
        dtype: DTypeLike,
        layout: str | None,
        options: dict[str, Any],
    ) -> None:
        elem, local = to_elem(dtype)
        self._port = _native.open_writer(url, layout, shape, elem, {**options, "descr": _kept(url, local)})
        self._staging: Array | None = None
        self._staged = False
        self._in_place = self._port.in_place
        self._start(url, local, options["timeout"])

    @property
    def next_step(self) -> int:
        """Number of the next step, from 0; while a step is being filled, its number.

        A replacement (``on_loss="wait"``) starts where the unit that it replaces stopped; across hosts, with the first step that
        some reader has yet to get, since the steps are gone with the unit. It writes the same values again: other readers may
        have them already.

            out = polyduct.open(url, "w", on_loss="wait", ...)
            while out.next_step < last:
                out.write(compute(out.next_step))
        """
        return self._port.next_step

    def step(self, timeout: float | None = None) -> Step:
        """The next step, to be filled in place; for room it waits ``timeout`` seconds at most (the port's by default):

            with out.step() as a:
                a[...] = compute()

        ``a`` is this unit's part in the memory that the readers copy from; its content is undefined at first. It becomes
        visible at the end of the block, together with those of the other units. An exception in the block leaves the step
        unpublished, and the next call gives it again.

        At the end of the block ``a`` becomes read-only: the memory belongs to the readers now, and later to a later step.
        NumPy cannot do the same for views of ``a`` (``a[1:]``, ``a.T``, ``a.reshape(...)``), which stay writable: do not
        use a view after the block. What is written through one, the readers get, in this step or a later one; what is
        read through one may be of a later step. The memory itself stays there for as long as ``a`` or a view lives.

        (In a file's port ``a`` is an array of this process, written at the end of the block.)

        In asyncio ``async with out.step() as a:`` lets other tasks run while it waits for room.
        """
        return Step(self, timeout if timeout is None else seconds("timeout", timeout))

    def try_step(self) -> Step | None:
        """As `step`, for who does not wait: None if there is no room now. A step that it gives is open from then on, and has
        to be entered:

            if step := out.try_step():
                with step as a:
                    a[...] = compute()
        """
        step = Step(self, None)
        return step if step._try() else None

    def write(self, array: ArrayLike, timeout: float | None = None) -> bool:
        """Writes this unit's part of the next step from any array: one copy more than `step`.

        It must have `local_shape` and the port's dtype, in any memory order. False when a lossy queue dropped the step. For
        room it waits ``timeout`` seconds at most (the port's by default).
        """
        if timeout is not None:
            seconds("timeout", timeout)
        if self._staged:
            self._free_to_write()
        written = self._port.write_array(array, timeout)
        if written is not None:
            return written
        return self._port.write(self._form.to_flat(self._form.given(array)), timeout)

    async def write_async(self, array: ArrayLike, timeout: float | None = None) -> bool:
        """As `write`, for asyncio: other tasks run while it waits for room. Cancelled then, it has written nothing."""
        if not self._in_place:
            # A file always has.
            return self.write(array, timeout)
        given, step = self._form.given(array), self.step(timeout)
        async with step as a:
            a[...] = given
        return bool(step.published)

    def _free_to_write(self) -> None:
        """Refuses for a file's port what that of a pipe refuses by itself: one array holds whatever step is open."""
        if self._staged:
            raise Misuse("the port has a step open: leave its `with` block first")

    def __enter__(self) -> Writer:
        return self


def _kept(url: str, dtype: DType) -> str | None:
    """What NumPy takes the elements for, where the other end keeps that."""
    if url.startswith("store:") or url.endswith(".npy"):
        return to_descr(dtype)
    if url != "-":
        return None
    try:
        return to_descr(dtype)
    except WrongType:
        # It may be a pipe, which carries bytes and nothing else.
        return None


class Step:
    """One step of a writer, as a context manager; see `Writer.step`."""

    __slots__ = ("_array", "_flat", "_open", "_timeout", "_writer", "published")

    def __init__(self, writer: Writer, timeout: float | None) -> None:
        self._writer = writer
        self._timeout = timeout
        self._open: Array | None = None
        self._array: Array | None = None
        self._flat: Array | None = None
        self.published: bool | None = None
        """After the block: whether the queue took the step. None before, and after an exception."""

    def __enter__(self) -> Array:
        if self._array is not None:
            raise Misuse("a step is entered once; take the next one from step()")
        port = self._writer
        form = port._form
        if port._in_place:
            given = port._port.begin(self._timeout) if self._open is None else self._open
            if port._common:
                self._array = given
            else:
                self._flat, self._array = given, form.over(given)
        else:
            port._free_to_write()
            if port._closed:
                error = Closed(f"{port._url}: the port is closed")
                error.url = port._url
                raise error
            if port._staging is None:
                port._staging = form.empty()
            self._array = port._staging[...]
            port._staged = True
        return self._array

    def _try(self) -> bool:
        """Begins the step, if there is room."""
        if not self._writer._in_place:
            # A file always has.
            return True
        self._open = self._writer._port.try_begin()
        return self._open is not None

    async def __aenter__(self) -> Array:
        start = time.monotonic()
        while self._array is None and self._open is None and not self._try():
            await self._writer._wait(start, self._timeout, f"a free slot for step {self._writer.next_step}")
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        array, port = self._array, self._writer
        if array is None:
            return
        if kind is None and self._flat is None and port._in_place:
            self.published = port._port.publish(array)
            return
        array.flags.writeable = False
        if self._flat is not None:
            self._flat.flags.writeable = False
        port._staged = False
        if kind is not None:
            if port._in_place and not port.closed and port._port.ours:
                port._port.discard()
        elif self._flat is not None:
            self.published = port._port.publish(array)
        else:
            assert port._staging is not None
            self.published = port._port.write(port._form.to_flat(port._staging), self._timeout)


class Reader(_Port):
    """One unit's reading port; `polyduct.open` makes it.

    Iterating, by ``for`` or in asyncio by ``async for``, gives each step in one array that the next step overwrites: new memory is
    slow. See `steps` for a limit to each wait.
    """

    _port: _native.ReadPort

    def __init__(
        self,
        url: str,
        shape: list[int] | None,
        dtype: DTypeLike | None,
        layout: str | None,
        convert: bool,
        options: dict[str, Any],
    ) -> None:
        elem, local = (None, None) if dtype is None else to_elem(dtype)
        self._port = _native.open_reader(url, layout, shape, elem, convert, {**options, "descr": None})
        given = from_elem(self._port.layout.elem, self._port.descr)
        dtype = given if local is None or not same(local, given) and elem != "bf16" else local
        self._start(url, dtype, options["timeout"])
        self._array: Array | None = None
        self._number: int | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the stream's end was found: no step comes any more."""
        return self._ended

    @property
    def number(self) -> int | None:
        """The writer's number of the step that was read last, from 0. It tells what a lossy queue dropped."""
        return self._number

    def read(self, out: Array | None = None, timeout: float | None = None) -> Array | None:
        """Waits for the next step and gives this unit's part of it: in ``out``, or in a new array. None at the end.

        ``out`` must have `local_shape` and the port's dtype; it is filled fastest when it is stored in the layout's
        order without gaps. It waits ``timeout`` seconds at most (the port's by default): a `TimeoutError` then, after which
        the step can be asked for again.
        """
        if timeout is not None:
            seconds("timeout", timeout)
        array = self._form.empty() if out is None else out
        number = self._port.fill(array, timeout) if isinstance(array, np.ndarray) else -1
        if number is None or number >= 0:
            return self._found(number, array)
        return self._into(self._form.check_out(array), lambda flat: self._port.read(flat, timeout))

    def try_read(self, out: Array | None = None) -> Array | None:
        """As `read`, for who does not wait: None if the next step is not there now, or if there is none (`ended`)."""
        return self._into(self._form.empty() if out is None else self._form.check_out(out), self._port.try_read)

    async def read_async(self, out: Array | None = None, timeout: float | None = None) -> Array | None:
        """As `read`, for asyncio: other tasks run while it waits. Cancelled then, it has taken nothing, and the step is the next
        one's to read.

            a, b = await asyncio.gather(left.read_async(), right.read_async())
        """
        seconds("timeout", timeout)
        start, array = time.monotonic(), self._form.empty() if out is None else self._form.check_out(out)
        while True:
            found = self._into(array, self._port.try_read)
            if found is not None or self._ended:
                return found
            await self._wait(start, timeout, "the next step")

    def steps(self, timeout: float | None = None) -> Steps:
        """Iterates as the port itself does, and waits ``timeout`` seconds at most for each step (the port's by default): a
        `TimeoutError` then, after which it goes on where it was.

            for a in port.steps(timeout=10):
                ...
        """
        return Steps(self, timeout if timeout is None else seconds("timeout", timeout))

    def _into(self, array: Array, read: Callable[[Array], int | None]) -> Array | None:
        """Has a step read into an array of any order, by way of one in the layout's if need be."""
        flat = self._form.flat(array)
        if flat is not None:
            return self._found(read(flat), array)
        if self._array is None:
            self._array = self._form.empty()
        found = self._found(read(self._form.to_flat(self._array)), self._array)
        if found is None:
            return None
        array[...] = found
        return array

    def _found(self, number: int | None, array: Array) -> Array | None:
        """The array, if there was a step: the number of one, None at the end, -1 while it is not there."""
        if number is None:
            self._ended = True
            return None
        if number < 0:
            return None
        self._number = number
        return array

    def at(self, box: Box) -> At:
        """A box of an array in a store, to be read and overwritten by this unit alone, whatever its own part is:

            port = polyduct.open("store:/data/run7/density", layout="block,*")
            corner = port.at(((0, 10), (0, 10)))
            corner.write(corner.read() + 1)

        box
            A pair (lo, hi) for each dimension, as `Layout.boxes` gives them.

        Raises `BadIndex` for what is not within the array; `Misuse` for a port of anything but a store, or one that converts.
        """
        return At(self, box)

    def _next(self, timeout: float | None) -> Array | None:
        """The next step in the port's own array."""
        array = self._array
        if array is None:
            self._array = array = self._form.empty()
        number = self._port.fill(array, timeout)
        if number is not None and number < 0:
            number = self._port.read(self._form.to_flat(array), timeout)
        return self._found(number, array)

    async def _next_async(self, timeout: float | None) -> Array:
        if self._array is None:
            self._array = self._form.empty()
        found = await self.read_async(self._array, timeout)
        if found is None:
            raise StopAsyncIteration
        return found

    def __iter__(self) -> Iterator[Array]:
        return self

    def __next__(self) -> Array:
        array = self._next(None)
        if array is None:
            raise StopIteration
        return array

    def __aiter__(self) -> AsyncIterator[Array]:
        return self

    async def __anext__(self) -> Array:
        return await self._next_async(None)

    def __enter__(self) -> Reader:
        return self


class Steps:
    """The steps that are to come, each waited for no longer than was said; `Reader.steps` gives it."""

    __slots__ = ("_reader", "_timeout")

    def __init__(self, reader: Reader, timeout: float | None) -> None:
        self._reader = reader
        self._timeout = timeout

    def __iter__(self) -> Iterator[Array]:
        return self

    def __next__(self) -> Array:
        array = self._reader._next(self._timeout)
        if array is None:
            raise StopIteration
        return array

    def __aiter__(self) -> AsyncIterator[Array]:
        return self

    async def __anext__(self) -> Array:
        return await self._reader._next_async(self._timeout)


Policy = Literal["block", "latest", "drop_oldest", "drop_newest"]
OnLoss = Literal["raise", "wait"]


@overload
def open(
    url: str | os.PathLike[str],
    mode: Literal["w"],
    *,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    layout: str | Layout | None = None,
    unit: int | None = None,
    units: int | None = None,
    depth: int | None = None,
    policy: Policy | None = None,
    readers: int | Literal["any"] | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    append: bool = False,
) -> Writer: ...
@overload
def open(
    url: str | os.PathLike[str],
    mode: Literal["r"] = "r",
    *,
    layout: str | Layout | None = None,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    unit: int | None = None,
    units: int | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    convert: bool = False,
) -> Reader: ...
def open(
    url: str | os.PathLike[str],
    mode: Literal["r", "w"] = "r",
    *,
    layout: str | Layout | None = None,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    unit: int | None = None,
    units: int | None = None,
    depth: int | None = None,
    policy: Policy | None = None,
    readers: int | Literal["any"] | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    convert: bool = False,
    append: bool = False,
) -> Writer | Reader:
    """Opens a port, and waits until all units on both sides have come.

    url
        ``-`` (what ``polyduct run`` gave), ``pipe:NAME``, ``pipe://HOST:PORT/NAME``, ``PATH.npy``, ``PATH.raw``,
        ``PATH.safetensors`` (a file of one tensor), ``PATH.safetensors#NAME`` (one of several; writing leaves the others),
        ``PATH.zarr`` (a directory, Zarr version 2 or 3) or ``store:DIR/NAME``, a dataset in a `Store`; a path may be a `pathlib.Path`.
    mode
        ``w`` or ``r``.
    layout
        How this program's units hold the array: ``block,*``, ``*,block;halo=0,2``, ``cyclic(64),block@2x3``, … A program of
        one unit may leave it out and has all of it.
    shape, dtype
        The whole array. A writer says them; a reader may say what it expects, and must where plain bytes come.
    unit, units
        Which unit this is, and how many there are. By default what the launcher says (``polyduct run``, mpiexec, srun,
        torchrun); without a launcher the only one.
    depth
        Slots of each writer unit (default 2). Only ``w``.
    policy
        What a writer does when all slots are full: ``block`` (default), ``latest``, ``drop_oldest``, ``drop_newest``.
        Only ``w``.
    readers
        Reader programs that the writer waits for (default 1). Or ``"any"``, on one host, with the policy ``latest``: it waits for
        none and never ends for lack of them. Up to 8 at once come, leave or are killed, and come again, each with its own number
        of units and layout; each begins with the newest step that is there, and gets steps newer than the last from then on. A
        ``depth`` of one more than the programs that read at once keeps slow ones from holding up others. Only ``w``.
    timeout
        Longest wait of any call, in seconds. By default 60 s for the others to come, and then no limit: the death of a
        peer is noticed at once without it.
    on_loss
        ``raise`` (default), or ``wait``: the survivors wait for a replacement that opens with the lost unit's number. It finds
        the pipe through the writers' unit 0, whose ``close`` waits until nobody can need one any more, and which itself can be
        replaced on one host only. Across hosts the writer's ``policy`` must be ``block``, and a writer that replaces another
        begins with the first step that some reader has yet to get: it must write what its predecessor did.
    program
        Name of this program, the same in all its units: tells several reader programs of one pipe apart.
    job
        Job that the name of a pipe belongs to: programs with the same one meet. By default ``POLYDUCT_JOB``, or what tells the
        launcher's jobs apart; empty text: none, the name belongs to the user alone.
    convert
        Lets a reader have another floating dtype than the writer's, converted on the way (f32↔bf16, f32↔f16, f64↔f32).
        Only ``r``.
    append
        Lets the steps follow those that are in the store under this name, if there are any. Only ``w``, of a store.

    A file has no slots and no readers to wait for: with one, ``depth``, ``policy`` and ``readers`` do nothing, but must be
    what a pipe would take. ``on_loss="wait"`` is for pipes: `BadOption` for files and stores.
    """
    if mode not in ("r", "w"):
        raise refused("mode", f"{mode!r}; expected 'r' or 'w'")
    url = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not is_text(url):
        raise BadUrl(f"the url is {url!r}; expected text or a path, in UTF-8")
    options: dict[str, Any] = {
        "unit": unit,
        "units": units,
        "program": program,
        "job": job,
        "depth": depth,
        "policy": policy,
        "readers": readers,
        "timeout": timeout,
        "on_loss": on_loss,
        "append": append,
    }
    if not isinstance(append, bool):
        raise refused("append", f"{append!r}; expected True or False")
    for name in ("unit", "units", "depth", "readers"):
        if options[name] is not None and (name, readers) != ("readers", "any"):
            options[name] = natural(name, options[name], 2**32, BadOption)
    for name in ("program", "job", "policy", "on_loss"):
        if options[name] is not None and not is_text(options[name]):
            raise refused(name, f"{options[name]!r}; expected text")
    text = None if layout is None else text_of(layout)
    seconds("timeout", timeout)
    if mode == "w":
        if shape is None or dtype is None:
            raise Misuse("a writer must say shape and dtype")
        if convert:
            raise refused("convert", "for readers: the writer's dtype is what its arrays hold")
        return Writer(url, dims("shape", shape), dtype, text, options)
    for name in ("depth", "policy", "readers"):
        if options[name] is not None:
            raise refused(name, "the writer's to say")
    if append:
        raise refused("append", "the writer's to say")
    if convert and dtype is None:
        raise refused("convert", "True; expected the dtype to convert to as well")
    return Reader(url, None if shape is None else dims("shape", shape), dtype, text, convert, options)
