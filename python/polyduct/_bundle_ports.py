"""Ports of bundles, and their steps."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from polyduct import _arrays, _dataset, _html, _native
from polyduct._arrays import seconds
from polyduct._bundles import (
    ArrayInfo,
    Arrays,
    Places,
    check_names,
    chosen,
    described,
    empty,
    flatten,
    given,
    rules,
    written_down,
)
from polyduct._port import _Port
from polyduct.errors import Misuse, TimeoutError


class _BundlePort(_Port):
    """A port of several arrays."""

    _places: Places

    def _start_bundle(self, url: str, timeout: float | None) -> None:
        self._places = Places(self._port.arrays, self.unit, url)
        self._start(url, timeout)

    @property
    def arrays(self) -> dict[str, ArrayInfo]:
        """What is known of each array, by its name."""
        return {name: self._places.info(name) for name in self._places}

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [("unit", f"{self.unit} of {self.units}")]
        rows += [(info.name, f"{info.shape} {info.dtype}, {info.layout}") for info in self.arrays.values()][:50]
        if len(self._places) > 50:
            rows.append(("…", f"{len(self._places)} arrays"))
        closed = " (closed)" if self._closed else ""
        return _html.table(f"polyduct.{type(self).__name__} {self._url}{closed}", rows)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return (
            f"<polyduct.{type(self).__name__} {self._url!r}: unit {self.unit} of {self.units}, "
            f"{len(self._places)} arrays{state}>"
        )


class BundleWriter(_BundlePort):
    """One unit's writing port for several arrays in each step; `polyduct.open` with ``arrays=`` makes it.

    As a context manager it is closed at the end, or aborted by an exception, so that the readers do not take
    an unfinished stream for a complete one.
    """

    _port: _native.WritePort

    def __init__(self, url: str, arrays: object, options: dict[str, Any]) -> None:
        self._about = _dataset.about(arrays) if _dataset.is_dataset(arrays) else None
        """What makes a Dataset of the arrays, if one was given."""
        leaves = flatten("arrays", _dataset.arrays(arrays) if self._about else arrays)
        own = {**options, "descr": None, "written_down": written_down(leaves)}
        self._port = _native.open_bundle_writer(url, given(leaves), own)
        self._start_bundle(url, options["timeout"])
        appends = options["append"] and self._port.next_step > 0
        self._given = self._places.constant if appends else frozenset[str]()
        """The constant arrays, once they were given."""

    @property
    def next_step(self) -> int:
        """Number of the next step, from 0; while a step is being filled, its number. See `Writer.next_step`."""
        return self._port.next_step

    def step(self, *, timeout: float | None = None, **values: Any) -> BundleStep:
        """The next step, to be filled in place; for room it waits ``timeout`` seconds at most (the port's by
        default):

            with out.step(time=0.1) as s:
                s["u"][...] = compute()
                s.bring("particles", n)[...] = positions

        ``s`` gives this unit's part of each array by its name, in the memory that the readers copy from; its
        content is undefined at first. All of them become visible at the end of the block, together with
        those of the other units. An exception in the block leaves the step unpublished, and the next call
        gives it again. Arrays are not to be used after the block: see `Writer.step`.

        Of an array whose size changes `FilledStep.bring` says how large it is in this step. Constant arrays are
        filled in the first step, and cannot be written in the others.

        Whatever else is named (``time=0.1``) is a value of the step: None, a number, text, bytes, or lists and
        dictionaries of these, 1 MiB together at most; those of unit 0 count. More can be said in the block:
        ``s.values["residual"] = r``.
        """
        return BundleStep(self, timeout if timeout is None else seconds("timeout", timeout), self._said(values))

    def try_step(self, **values: Any) -> BundleStep | None:
        """As `step`, without waiting: gives None if there is no room now. A step that it gives is open from
        then on, and must be entered."""
        step = BundleStep(self, None, self._said(values))
        return step if step._try() else None

    def write(self, arrays: Mapping[Any, Any] | Arrays, *, timeout: float | None = None, **values: Any) -> bool:
        """Writes this unit's part of each array of the next step, given by their names: one copy more than
        `step`. Values are said as there.

        Each must have the array's local shape and dtype, in any memory order. Constant arrays are given with the
        first step alone. False when a lossy queue
        dropped the step. For room it waits ``timeout`` seconds at most (the port's by default).
        """
        seconds("timeout", timeout)
        parts = self._parts(arrays)
        self._port.set_values(self._said(values))
        written = self._port.write_arrays(parts, timeout)
        self._given = self._places.constant
        return written

    async def write_async(
        self, arrays: Mapping[Any, Any] | Arrays, *, timeout: float | None = None, **values: Any
    ) -> bool:
        """As `write`, for asyncio: other tasks run while it waits for room. If it is cancelled meanwhile,
        nothing was written."""
        parts, step = self._parts(arrays), self.step(timeout=timeout, **values)
        async with step:
            assert step._memory is not None
            for name, part in zip(self._places, parts):
                if name not in self._given:
                    step._memory[self._places.at(name)] = part
        return bool(step.published)

    def _said(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values of a step, with that which makes a Dataset of it."""
        return values if self._about is None else {_dataset.VALUE: self._about, **values}

    def _parts(self, tree: object) -> list[_arrays.Array]:
        """The bytes of each array of a step, from wherever a program has them: all that the port has and no
        others."""
        tree = _dataset.variables(tree) if _dataset.is_dataset(tree) else tree
        places, leaves = self._places, flatten("arrays", tree)
        check_names(places, leaves, self._given)
        for name in places.changing:
            if places.open(name) != -1:
                self._bring(name, _arrays.unmasked(leaves[name]).shape)

        def part(name: str) -> _arrays.Array:
            form = places.form(name)
            return empty(0) if name in self._given else form.to_flat(form.given(leaves[name]))

        return [part(name) for name in places]

    def bring(self, name: str, shape: int | Sequence[int]) -> None:
        """Says how large an array is in the next step, as `FilledStep.bring`: needed before `write` for one that
        changes its shape as a whole."""
        self._bring(name, shape)

    def _bring(self, name: str, shape: int | Sequence[int]) -> None:
        places = self._places
        if name not in places:
            raise Misuse(f"{self._url}: no array of it is called {name!r}")
        form, dim = places.form(name), places.open(name)
        sizes = _arrays.dims("shape", shape)
        if dim is not None and dim >= 0 and hasattr(shape, "__index__"):
            # The size of the open dimension; the others are what they are.
            sizes = [sizes[0] if at == dim else n for at, n in enumerate(form.shape)]
        places.resize(self._port.bring(places.index(name), sizes))

    def __enter__(self) -> BundleWriter:
        return self


class FilledStep(Arrays):
    """A step of a `BundleWriter` that is being filled: this unit's part of each array, by its name."""

    __slots__ = ("_step", "values")

    def __init__(self, step: BundleStep, memory: _arrays.Bytes, values: dict[str, Any]) -> None:
        places = step._writer._places
        given = step._writer._given

        def find(name: str) -> _arrays.Array:
            view = places.form(name).over(memory[places.at(name)])
            if name in given:
                view.flags.writeable = False
            return view

        super().__init__(places, find)
        self._step = step
        self.values = values
        """Values of the step, by name; those of unit 0 count."""

    def bring(self, name: str, shape: int | Sequence[int]) -> _arrays.Array:
        """Says how large an array is in this step, and gives it, its content undefined: where a dimension is
        open how many this unit brings (or the shape of its piece), else the shape of the whole array, which all
        units say alike. What was said of the last step holds until it is said anew; at first it is nothing.

        Raises `Misuse` for more than was declared.
        """
        self._step._writer._bring(name, shape)
        self._views.pop(name, None)
        array: _arrays.Array = self[name]
        return array


class BundleStep:
    """One step of a `BundleWriter`, as a context manager; see `BundleWriter.step`."""

    __slots__ = ("_entered", "_memory", "_timeout", "_values", "_writer", "published")

    def __init__(self, writer: BundleWriter, timeout: float | None, values: dict[str, Any]) -> None:
        self._writer = writer
        self._timeout = timeout
        self._values = values
        self._memory: _arrays.Bytes | None = None
        self._entered = False
        self.published: bool | None = None
        """After the block: whether the queue took the step. None before, and after an exception."""

    def __enter__(self) -> FilledStep:
        if self._entered:
            raise Misuse("a step is entered once; take the next one from step()")
        if self._memory is None:
            own = self._own()
            self._memory = self._writer._port.begin(self._timeout) if own is None else own
        self._entered = True
        return FilledStep(self, self._memory, self._values)

    def _try(self) -> bool:
        """Begins the step, if there is room."""
        own = self._own()
        self._memory = self._writer._port.try_begin() if own is None else own
        return self._memory is not None

    def _own(self) -> _arrays.Bytes | None:
        """Memory for a step that is written when it is filled: a file's."""
        port = self._writer._port
        return None if port.in_place else empty(port.len_bytes)

    async def __aenter__(self) -> FilledStep:
        start = time.monotonic()
        while self._memory is None and not self._try():
            await self._writer._wait(start, self._timeout, f"a free slot for step {self._writer.next_step}")
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        memory, port = self._memory, self._writer
        if memory is None:
            return
        if kind is None:
            try:
                if self._values:
                    port._port.set_values(self._values)
                if port._port.in_place:
                    self.published = port._port.publish(memory)
                else:
                    memory.flags.writeable = False
                    self.published = port._port.write(memory, self._timeout)
                port._given = port._places.constant
                return
            except Misuse:
                self._discard(memory)
                raise
        self._discard(memory)

    def _discard(self, memory: _arrays.Bytes) -> None:
        memory.flags.writeable = False
        if self._writer._port.in_place and not self._writer.closed and self._writer._port.ours:
            self._writer._port.discard()


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


class BundleReader(_BundlePort):
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
        self._start_bundle(url, options["timeout"])
        self._len = self._port.len_bytes
        self._memory: _arrays.Bytes | None = None
        self._step: ReadStep | None = None
        self._number: int | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the end of the stream was reached: no more steps will come."""
        return self._ended

    @property
    def number(self) -> int | None:
        """The writer's number of the step that was read last, from 0. It tells what a lossy queue dropped."""
        return self._number

    def read(self, out: Mapping[Any, Any] | Arrays | None = None, timeout: float | None = None) -> ReadStep | None:
        """Waits for the next step and gives this unit's part of each array: in the arrays of ``out``, which
        has one for each name, or in new ones. None at the end.

        Arrays of ``out`` must have the local shape and dtype; they are filled fastest when they are stored in
        the layout's order without gaps. It waits ``timeout`` seconds at most (the port's by default): a
        `TimeoutError` then, after which the step can be asked for again.
        """
        seconds("timeout", timeout)
        if self._places.changing and not self._peek(timeout):
            return self._found(None, None)
        if out is None:
            memory = empty(self._len)
            return self._found(self._port.read(memory, timeout), memory)
        return self._fill(out, timeout)

    def peek(self, timeout: float | None = None) -> dict[str, ArrayInfo] | None:
        """Waits for the next step and says what the arrays are like in it, without reading it: how large those
        are whose size changes. None at the end."""
        if not self._peek(timeout):
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
        memory = self._try_memory()
        return None if memory is None else self._found(self._port.try_read(memory), memory)

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
        check_names(places, leaves)
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
            room = own if own is not None else self._try_memory()
            if room is not None:
                found = self._found(self._port.try_read(room), room)
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
        number = self._port.read(memory, timeout)
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

    def __iter__(self) -> Iterator[ReadStep]:
        return self

    def __next__(self) -> ReadStep:
        return self._next(None)

    def __aiter__(self) -> AsyncIterator[ReadStep]:
        return self

    async def __anext__(self) -> ReadStep:
        return await self._next_async(None)

    def __enter__(self) -> BundleReader:
        return self


class BundleSteps:
    """The steps to come, with a limit to the wait for each; `BundleReader.steps` gives it."""

    __slots__ = ("_reader", "_timeout")

    def __init__(self, reader: BundleReader, timeout: float | None) -> None:
        self._reader = reader
        self._timeout = timeout

    def __iter__(self) -> Iterator[ReadStep]:
        return self

    def __next__(self) -> ReadStep:
        return self._reader._next(self._timeout)

    def __aiter__(self) -> AsyncIterator[ReadStep]:
        return self

    async def __anext__(self) -> ReadStep:
        return await self._reader._next_async(self._timeout)
