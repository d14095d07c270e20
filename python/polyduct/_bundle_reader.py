"""The reading port of bundles, and the steps that are read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from polyduct import _arrays, _dataset, _native
from polyduct._arrays import seconds
from polyduct._bundle_port import _BundlePort
from polyduct._bundles import (
    ArrayInfo,
    Arrays,
    Places,
    check_names,
    chosen,
    described,
    empty,
    expected,
    flatten,
    rules,
)
from polyduct._dtypes import DType, from_elem
from polyduct._steps import LimitedSteps, ReadsSteps
from polyduct.errors import TimeoutError


class ReadStep(Arrays):
    """A step that a `BundleReader` gives: this unit's part of each array, by its name."""

    __slots__ = ("number", "values")

    def __init__(self, names: Places, find: Any, number: int, values: dict[str, Any]) -> None:
        super().__init__(names, find)
        self.number = number
        """The writer's number of the step, from 0."""
        self.values = values
        """What the writer said of the step, by name."""

    def dataset(self) -> Any:
        """The step as a Dataset of xarray, which must be installed: what a writer that was opened with a Dataset brings
        has its dimensions, coordinates and attributes. Of other arrays the dimensions are called after them.

        Each array is this unit's part; so those that share a dimension must be divided alike in it. The memory is
        that of the step.
        """
        return _dataset.dataset(self)


class BundleReader(_BundlePort, ReadsSteps[ReadStep]):
    """One unit's reading port for several arrays in each step; `polyduct.open` with ``layouts=`` makes it.

    Iterating, by ``for`` or in asyncio by ``async for``, gives each step in arrays that the next step
    overwrites: new memory is slow. See `steps` for a limit to each wait.
    """

    _port: _native.ReadPort

    def __init__(self, url: str, layouts: object, convert: bool, options: dict[str, Any]) -> None:
        options = {**options, "descr": None}
        if _dataset.is_dataset(layouts):
            layouts = _dataset.arrays(layouts)
        elif callable(layouts):
            layouts = chosen(layouts, described(_native.describe(url, options)))
        self._port = _native.open_bundle_reader(url, rules(layouts), convert, options)
        said = expected(layouts)
        dtypes: dict[str, DType] = {}
        for (name, form, *_), descr in zip_longest(self._port.arrays, self._port.descrs):
            if (dtype := said(name)) is not None or descr is not None:
                dtypes[name] = dtype or from_elem(form.elem, descr)
        self._start_bundle(url, options["timeout"], dtypes)
        self._len = self._port.len_bytes
        self._memory: _arrays.Bytes | None = None
        self._step: ReadStep | None = None
        self._turn = threading.Lock()

    def read(self, out: Mapping[Any, Any] | Arrays | None = None, timeout: float | None = None) -> ReadStep | None:
        """Waits for the next step and gives this unit's part of each array: in the arrays of ``out``, which
        has one for each name, or in new ones. None at the end.

        Arrays of ``out`` must have the local shape and dtype; they are filled fastest when they are stored in
        the layout's order without gaps. It waits ``timeout`` seconds at most (the port's by default): a
        `TimeoutError` then, after which the step can be asked for again.
        """
        seconds("timeout", timeout)
        with self._alone(timeout) as left:
            if self._places.changing and not self._peek(left):
                return self._found(None, None)
            if out is None:
                memory = empty(self._len)
                return self._found(self._port.read(memory, left), memory)
            return self._fill(out, left)

    @contextlib.contextmanager
    def _alone(self, timeout: float | None) -> Iterator[float | None]:
        """Another thread takes its step first: what belongs to a step is found in several calls. Gives the time that is
        left."""
        if self._turn.acquire(blocking=False):
            left = timeout
        else:
            start, limit = time.monotonic(), self._timeout if timeout is None else timeout
            if not self._turn.acquire(timeout=-1 if limit is None else limit):
                raise TimeoutError(f"{self._url}: timed out waiting for another thread that reads")
            left = None if limit is None else max(0.0, limit - (time.monotonic() - start))
        try:
            yield left
        finally:
            self._turn.release()

    def peek(self, timeout: float | None = None) -> dict[str, ArrayInfo] | None:
        """Waits for the next step and says what the arrays are like in it, without reading it: how large those
        are whose size changes. None at the end."""
        with self._alone(timeout) as left:
            if not self._peek(left):
                self._ended = True
                return None
            return self.arrays

    def _peek(self, timeout: float | None) -> bool:
        """Has all arrays be as in the next step; False at the end."""
        found = self._port.peek(timeout)
        if found is None:
            return False
        _, changing, self._len = found
        for placed in changing:
            self._places.resize(placed)
        return True

    def try_read(self) -> ReadStep | None:
        """As `read`, without waiting: gives None if the next step is not there yet, or if there is none
        (`ended`)."""
        return self._try(None)

    def _try(self, own: _arrays.Bytes | None) -> ReadStep | None:
        """The next step, if it is there and no other thread takes it, in this memory or its own."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            memory = self._try_memory() if own is None else own
            return None if memory is None else self._found(self._port.try_read(memory), memory)
        finally:
            self._turn.release()

    def _try_memory(self) -> _arrays.Bytes | None:
        """Memory for the next step; None while nothing is known of it."""
        if self._places.changing:
            try:
                if not self._peek(0.0):
                    self._ended = True
                    return None
            except TimeoutError:
                return None
        return empty(self._len)

    async def read_async(self, timeout: float | None = None) -> ReadStep | None:
        """As `read`, for asyncio: other tasks run while it waits. If it is cancelled meanwhile, it has taken
        nothing, and the next call gives the step."""
        seconds("timeout", timeout)
        return await self._await(timeout, lambda: None)

    def steps(self, timeout: float | None = None) -> BundleSteps:
        """Iterates as the port itself does, and waits ``timeout`` seconds at most for each step (the port's
        by default): a `TimeoutError` then, after which it goes on where it was."""
        return BundleSteps(self, timeout if timeout is None else seconds("timeout", timeout))

    def _fill(self, out: Mapping[Any, Any] | Arrays, timeout: float | None) -> ReadStep | None:
        places, leaves = self._places, flatten("out", out)
        check_names("out", places, leaves)
        arrays = {name: places.form(name).check_out(leaves[name]) for name in places}
        flats = {name: places.form(name).flat(array) for name, array in arrays.items()}
        # Those in another order are filled by way of one in the layout's.
        through = {name: places.form(name).empty() for name, flat in flats.items() if flat is None}
        filled = [
            places.form(name).to_flat(through[name]) if flat is None else flat for name, flat in flats.items()
        ]
        number = self._port.read_arrays(filled, timeout)
        if number is None:
            self._ended = True
            return None
        for name, array in through.items():
            arrays[name][...] = array
        self._number = number
        return ReadStep(places, leaves.__getitem__, number, self._port.values())

    def _found(self, number: int | None, memory: _arrays.Bytes | None) -> ReadStep | None:
        """The arrays in this memory, if there was a step: the number of one, None at the end, -1 while it is
        not there."""
        if number is None:
            self._ended = True
            return None
        if number < 0 or memory is None:
            return None
        self._number, places = number, self._places
        views = {name: places.form(name).over(memory[places.at(name)]) for name in places.changing}

        def find(name: str) -> _arrays.Array:
            view = views.get(name)
            return places.form(name).over(memory[places.at(name)]) if view is None else view

        return ReadStep(places, find, number, self._port.values())

    async def _await(
        self, timeout: float | None, memory: Callable[[], _arrays.Bytes | None]
    ) -> ReadStep | None:
        start, own = time.monotonic(), memory()
        while True:
            found = self._try(own)
            if found is not None:
                return found
            if self._ended:
                return None
            await self._wait(start, timeout, "the next step")

    def _own(self) -> _arrays.Bytes | None:
        """The port's own memory, where steps have one size."""
        if self._places.changing:
            return None
        if self._memory is None:
            self._memory = empty(self._len)
        return self._memory

    def _next(self, timeout: float | None) -> ReadStep:
        memory = self._own()
        step = self.read(timeout=timeout) if memory is None else self._again(memory, timeout)
        if step is None:
            raise StopIteration
        return step

    def _again(self, memory: _arrays.Bytes, timeout: float | None) -> ReadStep | None:
        """The next step in the port's own arrays."""
        with self._alone(timeout) as left:
            number = self._port.read(memory, left)
            if self._step is None or number is None:
                self._step = self._found(number, memory)
            else:
                self._number = self._step.number = number
                self._step.values = self._port.values()
            return self._step

    async def _next_async(self, timeout: float | None) -> ReadStep:
        step = await self._await(timeout, self._own)
        if step is None:
            raise StopAsyncIteration
        return step

    def __enter__(self) -> BundleReader:
        return self


class BundleSteps(LimitedSteps[ReadStep]):
    """The steps to come, with a limit to the wait for each; `BundleReader.steps` gives it."""

    __slots__ = ()
