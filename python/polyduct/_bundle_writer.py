"""The writing port of bundles, and the steps that are filled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from polyduct import _arrays, _dataset, _native
from polyduct._arrays import seconds
from polyduct._bundle_port import _BundlePort
from polyduct._bundles import (
    Arrays,
    carried,
    check_names,
    empty,
    flatten,
    given,
    layout_of,
    written_down,
)
from polyduct._steps import Fills
from polyduct.errors import Misuse, NoMemory, WrongSize


Memory = TypeVar("Memory", bound="_arrays.Bytes | None")


class BundleWriter(_BundlePort):
    """One unit's writing port for several arrays in each step; `polyduct.open` with ``arrays=`` makes it.

    As a context manager it is closed at the end, or aborted by an exception, so that the readers do not take
    an unfinished stream for a complete one.
    """

    _port: _native.WritePort

    def __init__(self, url: str, arrays: object, options: dict[str, Any]) -> None:
        self._about = _dataset.about(arrays) if _dataset.is_dataset(arrays) else None
        """What makes a Dataset of the arrays, if one was given."""
        said = flatten("arrays", _dataset.arrays(arrays) if self._about else arrays)
        leaves = {name: layout_of(leaf) for name, leaf in said.items()}
        dtypes = carried(leaves)
        noted = written_down(url, leaves, dtypes)
        if self._about is not None:
            noted.append(("", json.dumps(_dataset.attributes(arrays), default=str), None, None))
        own = {**options, "descr": None, "written_down": noted}
        self._port = _native.open_bundle_writer(url, given(leaves), own)
        self._start_bundle(url, options["timeout"], dtypes)
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
        ``s.values["residual"] = r``. Files keep what JSON has; a group of Zarr with several steps keeps a value
        None as one that was not said.
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
        # Says that there is no room for a step before what is wrong with it.
        self._port.set_values(self._said(values))
        parts = self._parts(arrays)
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
        check_names("a step", places, leaves, self._given)
        for name in places.changing:
            given = _arrays.unmasked(leaves[name]).shape
            # One unit brings the whole of an array that changes its shape.
            if places.open(name) != -1 or self.units == 1:
                self._bring(name, given)
            elif given != (own := places.form(name).shape):
                raise WrongSize(
                    f"{self._url}, array {name!r}, unit {self.unit}: the array has shape {given}; expected {own}, of the shape "
                    f"that was said of the whole: say another with bring({name!r}, shape) before write"
                )

        def part(name: str) -> _arrays.Array:
            form = places.form(name)
            return empty(0) if name in self._given else form.to_flat(form.given(leaves[name]))

        return [part(name) for name in places]

    def bring(self, name: str, shape: int | Sequence[int]) -> None:
        """Says how large an array is in the next step, as `FilledStep.bring`: needed before `write` for one that
        changes its shape as a whole, if the program has several units."""
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
        try:
            places.resize(self._port.bring(places.index(name), sizes))
        except NoMemory:
            places.resize_nothing([name])
            raise

    def _begun(self, begin: Callable[[], Memory]) -> Memory:
        """The memory of a step. One that does not begin for want of memory leaves nothing of what was said of sizes."""
        try:
            return begin()
        except NoMemory:
            self._places.resize_nothing(self._places.changing)
            raise

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

        Raises `Misuse` for more than was declared, and `NoMemory` where there is none for it: then the array has
        nothing. A step that does not begin for want of memory for what was said of the last leaves nothing of that.
        """
        self._views.pop(name, None)
        self._step._writer._bring(name, shape)
        array: _arrays.Array = self[name]
        return array


class BundleStep(Fills[FilledStep]):
    """One step of a `BundleWriter`, as a context manager; see `BundleWriter.step`."""

    __slots__ = ("_entered", "_memory", "_timeout", "_values", "_writer", "published")
    _writer: BundleWriter

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
            begin = self._writer._port.begin
            self._memory = self._writer._begun(lambda: begin(self._timeout)) if own is None else own
        self._entered = True
        return FilledStep(self, self._memory, self._values)

    def _try(self) -> bool:
        """Begins the step, if there is room."""
        own = self._own()
        self._memory = self._writer._begun(self._writer._port.try_begin) if own is None else own
        return self._memory is not None

    def _own(self) -> _arrays.Bytes | None:
        """Memory for a step that is written when it is filled: a file's."""
        port = self._writer._port
        return None if port.in_place else empty(port.len_bytes)

    def _begin(self) -> bool:
        return self._memory is not None or self._try()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        memory, port = self._memory, self._writer
        if memory is None:
            return
        if kind is None:
            try:
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
