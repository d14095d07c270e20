"""The writing end of whatever a URL names, and its steps."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from numpy.typing import ArrayLike, DTypeLike

from polyduct import _native
from polyduct._arrays import Array, seconds
from polyduct._dtypes import kept, to_elem
from polyduct._port import _ArrayPort
from polyduct._steps import Fills
from polyduct.errors import Closed, Misuse, WrongType


class Writer(_ArrayPort):
    """One unit's writing port; `polyduct.open` makes it.

    As a context manager it is closed at the end, or aborted by an exception, so that the readers do not take
    an unfinished stream for a complete one.
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
        self._port = _native.open_writer(url, layout, shape, elem, {**options, "descr": kept(url, local)})
        self._staging: Array | None = None
        self._staged = False
        self._in_place = self._port.in_place
        self._start_array(url, local, options["timeout"])

    @property
    def next_step(self) -> int:
        """Number of the next step, from 0; while a step is being filled, its number.

        A replacement (``on_loss="wait"``) starts where the unit that it replaces stopped; across hosts, with
        the first step that some reader has yet to get, since the steps are gone with the unit. It writes the
        same values again: other readers may have them already.

            out = polyduct.open(url, "w", on_loss="wait", ...)
            while out.next_step < last:
                out.write(compute(out.next_step))
        """
        return self._port.next_step

    def step(self, timeout: float | None = None) -> Step:
        """The next step, to be filled in place; for room it waits ``timeout`` seconds at most (the port's by
        default):

            with out.step() as a:
                a[...] = compute()

        ``a`` is this unit's part in the memory that the readers copy from; its content is undefined at first.
        It becomes visible at the end of the block, together with those of the other units. An exception in
        the block leaves the step unpublished, and the next call gives it again.

        At the end of the block ``a`` becomes read-only: the memory belongs to the readers now, and later to a
        later step. NumPy cannot do the same for views of ``a`` (``a[1:]``, ``a.T``, ``a.reshape(...)``),
        which stay writable: do not use a view after the block. What is written through one, the readers get,
        in this step or a later one; what is read through one may be of a later step. The memory itself stays
        there for as long as ``a`` or a view lives.

        (In a file's port ``a`` is an array of this process, written at the end of the block.)

        In asyncio ``async with out.step() as a:`` lets other tasks run while it waits for room.
        """
        return Step(self, timeout if timeout is None else seconds("timeout", timeout))

    def try_step(self) -> Step | None:
        """As `step`, without waiting: gives None if there is no room now. A step that it gives is open from
        then on, and must be entered:

            if step := out.try_step():
                with step as a:
                    a[...] = compute()
        """
        step = Step(self, None)
        return step if step._try() else None

    def write(self, array: ArrayLike, timeout: float | None = None) -> bool:
        """Writes this unit's part of the next step from any array: one copy more than `step`.

        It must have `local_shape` and the port's dtype, in any memory order. False when a lossy queue dropped
        the step. For room it waits ``timeout`` seconds at most (the port's by default).
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
        """As `write`, for asyncio: other tasks run while it waits for room. If it is cancelled meanwhile,
        nothing was written."""
        if not self._in_place:
            # A file always has.
            return self.write(array, timeout)
        given, step = self._form.given(array), self.step(timeout)
        async with step as a:
            a[...] = given
        return bool(step.published)

    def _free_to_write(self) -> None:
        """Refuses for a file's port what that of a pipe refuses by itself: one array holds whatever step is
        open."""
        if self._staged:
            raise Misuse("the port has a step open: leave its `with` block first")

    def __enter__(self) -> Writer:
        return self


class Step(Fills[Array]):
    """One step of a writer, as a context manager; see `Writer.step`."""

    __slots__ = ("_array", "_flat", "_open", "_timeout", "_writer", "published")
    _writer: Writer

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

    def _begin(self) -> bool:
        return self._array is not None or self._open is not None or self._try()

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
