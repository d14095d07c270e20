"""The reading end of whatever a URL names."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from polyduct import _native
from polyduct._arrays import Array, seconds
from polyduct._at import At
from polyduct._dtypes import from_elem, same, to_elem
from polyduct._layouts import Box
from polyduct._port import _ArrayPort
from polyduct._steps import LimitedSteps, ReadsSteps


class Reader(_ArrayPort, ReadsSteps[Array]):
    """One unit's reading port; `polyduct.open` makes it.

    Iterating, by ``for`` or in asyncio by ``async for``, gives each step in one array that the next step
    overwrites: new memory is slow. See `steps` for a limit to each wait.
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
        self._start_array(url, dtype, options["timeout"])
        self._array: Array | None = None

    def read(self, out: Array | None = None, timeout: float | None = None) -> Array | None:
        """Waits for the next step and gives this unit's part of it: in ``out``, or in a new array. None at
        the end.

        ``out`` must have `local_shape` and the port's dtype; it is filled fastest when it is stored in the
        layout's order without gaps. It waits ``timeout`` seconds at most (the port's by default): a
        `TimeoutError` then, after which the step can be asked for again.
        """
        if timeout is not None:
            seconds("timeout", timeout)
        array = self._form.empty() if out is None else out
        number = self._port.fill(array, timeout) if isinstance(array, np.ndarray) else -1
        if number is None or number >= 0:
            return self._found(number, array)
        return self._into(self._form.check_out(array), lambda flat: self._port.read(flat, timeout))

    def try_read(self, out: Array | None = None) -> Array | None:
        """As `read`, without waiting: gives None if the next step is not there yet, or if there is none
        (`ended`)."""
        return self._into(
            self._form.empty() if out is None else self._form.check_out(out), self._port.try_read
        )

    async def read_async(self, out: Array | None = None, timeout: float | None = None) -> Array | None:
        """As `read`, for asyncio: other tasks run while it waits. If it is cancelled meanwhile, it has taken
        nothing, and the next call gives the step.

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
        """Iterates as the port itself does, and waits ``timeout`` seconds at most for each step (the port's
        by default): a `TimeoutError` then, after which it goes on where it was.

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
        """A box of an array in a store, to be read and overwritten by this unit alone, whatever its own part
        is:

            port = polyduct.open("store:/data/run7/density", layout="block,*")
            corner = port.at(((0, 10), (0, 10)))
            corner.write(corner.read() + 1)

        box
            A pair (lo, hi) for each dimension, as `Layout.boxes` gives them.

        Raises `BadIndex` for what is not within the array; `Misuse` for a port of anything but a store, or
        one that converts.
        """
        return At(self, box)

    def _next(self, timeout: float | None) -> Array:
        """The next step in the port's own array."""
        array = self._array
        if array is None:
            self._array = array = self._form.empty()
        number = self._port.fill(array, timeout)
        if number is not None and number < 0:
            number = self._port.read(self._form.to_flat(array), timeout)
        found = self._found(number, array)
        if found is None:
            raise StopIteration
        return found

    async def _next_async(self, timeout: float | None) -> Array:
        if self._array is None:
            self._array = self._form.empty()
        found = await self.read_async(self._array, timeout)
        if found is None:
            raise StopAsyncIteration
        return found

    def __enter__(self) -> Reader:
        return self


class Steps(LimitedSteps[Array]):
    """The steps to come, with a limit to the wait for each; `Reader.steps` gives it."""

    __slots__ = ()
