"""Arrays in memory that other units put into and get from."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from polyduct._arrays import Array, natural, seconds, unmasked
from polyduct._dtypes import DType, same
from polyduct._encode import read_description
from polyduct.errors import BadOption, Misuse, RegionError, WrongSize, WrongType

if TYPE_CHECKING:
    from polyduct._domain import Domain

Index: TypeAlias = "int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]"
"""Where in a region: integers and slices, as in NumPy."""

Notice: TypeAlias = "tuple[str] | tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int] | tuple[str, int, int, int, int]"
"""The handler to call when a put or get is done: its name, and up to four integers for it."""

MOST_DESCRIPTION = 1 << 16
"""Bytes of what stands at the end of a region and says what it holds, at most."""


class Remote:
    """Arrays that the units of a domain have under one name, each put into and got from by the others."""

    __slots__ = ("_copy_now", "_domain", "_id", "_is_there", "_views", "name")

    _kind = "array"
    """What errors call it."""

    def __init__(self, domain: Domain, name: int | str, id_: int) -> None:
        self._domain = domain
        self._id = id_
        self._is_there = domain._port.is_there
        self._copy_now = domain._port.copy_now
        self._views: dict[int, Array] = {}
        """Arrays of units where they lie, which were found before: the common case takes one native call."""
        self.name = name
        """Its name, or its number."""

    def _find(self, unit: int, timeout: float | None) -> tuple[int | None, Array]:
        """A unit's array: where it lies, with None; or the number of the region of its elements, with a
        `shadow` of it."""
        raise NotImplementedError

    def _named(self) -> Named:
        return Named(f"{self._kind} {self.name!r}")

    def put(
        self,
        to: int,
        values: ArrayLike,
        index: Index = ...,
        *,
        notify: Notice | None = None,
        timeout: float | None = None,
    ) -> None:
        """Writes ``values`` into a unit's array: ``array[index] = values`` there, with NumPy's broadcasting.
        On another host, and into what is lent, parts that do not lie together are written one by one.

        ``notify=("handler", 1, 2)`` then posts to a handler of that unit: when it runs, the values are there.
        ``timeout`` is the longest wait in seconds for each of two things, that the values are there and that
        the post is sent; the domain's by default.

        Raises `RegionError` for an index beyond its end, and where the unit has no such array (any more);
        `WrongType` for values of another dtype (lists and Python's numbers take the array's), `WrongSize` for
        values that do not fit, `UnknownHandler`, in all these cases with nothing written; `PeerLost` and
        `PeerLeft`, `TimeoutError`; and as `Domain.post`.
        """
        if notify is None and timeout is None and type(to) is int:
            seen = self._views.get(to)
            if seen is not None:
                if index is ... and self._copy_now(to, seen, values):
                    return
                if self._is_there(to):
                    part = part_of(seen, index)
                    part[...] = values_for(seen.dtype, part, values)
                    return
        seconds("timeout", timeout)
        to = natural("to", to)
        number, array = self._find(to, timeout)
        part = part_of(array, index)
        given = values_for(array.dtype, part, values)
        tell = telling(self._domain, to, notify, timeout)
        if number is None:
            part[...] = given
        else:
            with self._named():
                put_runs(self._domain, to, number, array, part, given, timeout)
        tell()

    def get(
        self,
        from_: int,
        index: Index = ...,
        *,
        out: Array | None = None,
        notify: Notice | None = None,
        timeout: float | None = None,
    ) -> Array:
        """A copy of ``array[index]`` of a unit; in ``out``, of the same shape and dtype, if that is given.

        ``notify=("handler", 1, 2)`` then posts to a handler of that unit: when it runs, the values were read.

        Raises as `put`.
        """
        if notify is None and timeout is None and type(from_) is int:
            seen = self._views.get(from_)
            if seen is not None:
                if index is ... and out is not None and self._copy_now(from_, out, seen):
                    return out
                if self._is_there(from_):
                    part = part_of(seen, index)
                    return part.copy() if out is None else fill(out, part)
        check_out(out)
        seconds("timeout", timeout)
        from_ = natural("from_", from_)
        number, array = self._find(from_, timeout)
        part = part_of(array, index)
        tell = telling(self._domain, from_, notify, timeout)
        if number is not None:
            with self._named():
                part = get_runs(self._domain, from_, number, array, part, timeout)
        found = fill(out, part) if out is not None else part.copy() if number is None else part
        tell()
        return found


class Region(Remote):
    """An array that the other units put into and get from.

    `Domain.region` makes it. It lies in shared memory: units of this host use it without this unit's doing.
    For units of other hosts this unit must receive: wait, poll or serve; each contiguous run of an index is a
    message there and back (more for long ones), so that a row costs one, and a column one for each row. A put
    is there when the call returns, and a message sent after it arrives after it. Two units that use the same
    element at once must order that by messages or a barrier.
    """

    __slots__ = ("_far", "array")

    _kind = "region"

    def __init__(self, domain: Domain, name: int | str, array: Array, id_: int) -> None:
        super().__init__(domain, name, id_)
        self._views[domain.unit] = array
        self._far: dict[int, Array] = {}
        self.array: Array = array
        """This unit's own array. It stays valid for as long as it is referred to, also after the domain was
        left."""

    def at(self, unit: int, *, timeout: float | None = None) -> Array:
        """The array that a unit has under this region's name, where it lies: that unit sees what is written
        there.

        Raises `RegionError` where the unit has no such region (it may not have made it yet: a barrier helps),
        or is on another host; `TimeoutError` after ``timeout`` seconds (the domain's by default); `PeerLost`
        and `PeerLeft` where the unit is gone. An array that was given before stays readable after that.
        """
        seconds("timeout", timeout)
        unit = natural("unit", unit)
        if unit == self._domain.unit:
            self._domain._port.config()  # raises Closed
            return self.array
        with self._named():
            found = self._domain._port.region_of(unit, self._id, timeout)
        if unit not in self._views:
            self._views[unit] = array_in(found.array(), self.name, unit)
        return self._views[unit]

    def _find(self, unit: int, timeout: float | None) -> tuple[int | None, Array]:
        if self._domain._port.maps(unit):
            return None, self.at(unit, timeout=timeout)
        return self._id, self._shadow(unit, timeout)

    def _shadow(self, unit: int, timeout: float | None) -> Array:
        """An array like a unit's own on another host, to find places in, as `described` gives it."""
        if unit not in self._far:
            port = self._domain._port
            with self._named():
                length = port.region_len(unit, self._id, timeout)
                end = np.empty(min(length, MOST_DESCRIPTION), np.uint8)
                port.get(unit, self._id, [length - len(end)], end, timeout)
            self._far[unit] = described(end, length, self.name, unit)
        return self._far[unit]

    def __repr__(self) -> str:
        return f"<polyduct.Region {self.name!r}: {self.array.shape} {self.array.dtype}>"


class Named:
    """Has errors name a region as the program does: the native module knows its number alone."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, RegionError) and error.reason is not None:
            named = RegionError(f"{self._what}: {error.reason}")
            named.reason = error.reason
            raise named from None


def is_like(values: object, part: Array) -> TypeGuard[Array]:
    """Whether these are an array that goes into a part of another as it is."""
    return type(values) is np.ndarray and values.dtype == part.dtype and values.shape == part.shape


def values_for(dtype: DType, part: Array, values: ArrayLike) -> Array:
    """The values as they go into a part of an array, with its shape."""
    if is_like(values, part):
        return values
    given = unmasked(values)
    if not hasattr(values, "dtype") and np.can_cast(given.dtype, dtype, "same_kind"):
        given = given.astype(dtype, copy=False)
    if not same(given.dtype, dtype):
        raise WrongType(f"the values have dtype {given.dtype}; the region has {dtype}")
    while given.ndim > part.ndim and given.shape[0] == 1:
        given = given[0]
    try:
        return np.broadcast_to(given, part.shape)
    except ValueError as e:
        raise WrongSize(f"values of shape {given.shape} do not fit into {part.shape}: {e}") from None


def telling(domain: Domain, unit: int, notify: Notice | None, timeout: float | None) -> Callable[[], None]:
    """What tells a unit that a put or get is done. Raises now where that cannot be."""
    if notify is None:
        return lambda: None
    if not isinstance(notify, tuple) or not notify or not isinstance(notify[0], str):
        raise WrongType(f"notify is {notify!r}; expected a tuple of a handler's name and up to four integers")
    name, *args = notify
    domain._port.look_up(unit, name, tuple(args))
    return lambda: domain._port.post(unit, name, tuple(args), b"", timeout)


def check_out(out: object) -> None:
    if out is not None and not isinstance(out, np.ndarray):
        raise WrongType(f"out is a {type(out).__name__}; expected a numpy.ndarray")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise Misuse("out is read-only")


def fill(out: Array, data: object) -> Array:
    check_out(out)
    if not isinstance(data, np.ndarray) or not same(data.dtype, out.dtype):
        found = data.dtype if isinstance(data, np.ndarray) else "bytes"
        raise WrongType(f"out has dtype {out.dtype}; the data have {found}")
    if data.shape != out.shape:
        raise WrongSize(f"out has shape {out.shape}; the data have {data.shape}")
    out[...] = data
    return out


def region_id(name: object) -> int:
    if isinstance(name, str):
        import zlib

        # Names have the upper half of the numbers. Where two meet in one unit, `Domain.region` refuses the
        # second; where they meet across units, the name that stands in the region tells.
        return zlib.crc32(name.encode()) | 1 << 31
    return natural("the number of a region", name, 2**31, BadOption)


def rounded(size: int) -> int:
    return -(-size // 64) * 64


def array_in(flat: Array, name: object, unit: int) -> Array:
    """The array in the memory of a region, by the description at its end."""
    found = described(flat, len(flat), name, unit)
    return flat[: found.nbytes].view(found.dtype).reshape(found.shape) if found.nbytes else found


def described(end: Array, total: int, name: object, unit: int) -> Array:
    """A `shadow` of the array in a region of ``total`` bytes, by the description at its end."""
    try:
        length = int.from_bytes(end[-4:].tobytes(), "little")
        if length > min(MOST_DESCRIPTION, len(end)) - 4:
            raise ValueError("no description")
        found, dtype, shape = read_description(end[len(end) - 4 - length : -4].tobytes())
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size > total - 4 - length:
            raise ValueError("it is shorter than its description says")
        array = shadow(dtype, shape) if size else np.empty(shape, dtype)
    except (ValueError, TypeError, IndexError, KeyError, MemoryError, RecursionError, OverflowError) as e:
        raise RegionError(f"region {name!r} of unit {unit} holds no array: {e}") from None
    if found != str(name):
        raise RegionError(f"unit {unit} has a region {found!r}, not {name!r}")
    return array


def part_of(array: Array, index: Index) -> Array:
    """``array[index]`` as a view. NumPy cuts slices off at the end; here that is an error."""
    if index is Ellipsis:
        return array
    given: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
    if (
        sum(part is Ellipsis for part in given) > 1
        or sum(part is not Ellipsis for part in given) > array.ndim
    ):
        raise RegionError(f"{index!r} is no index of an array of {array.ndim} dimensions")
    if Ellipsis in given:
        at = given.index(Ellipsis)
        given = (*given[:at], *[slice(None)] * (array.ndim - len(given) + 1), *given[at + 1 :])
    full: list[Any] = []
    for part, n in zip(given, array.shape):
        if isinstance(part, slice):
            if any(k is not None and not -n <= k <= n for k in (part.start, part.stop)):
                raise RegionError(f"{index!r} goes beyond the region's shape {array.shape}")
            full.append(part)
        elif hasattr(part, "__index__"):
            if not -n <= part.__index__() < n:
                raise RegionError(f"{index!r} lies beyond the region's shape {array.shape}")
            full.append(part.__index__())
        else:
            raise WrongType(f"{part!r} is no index of a region; expected integers, slices and ...")
    view: Array = array[(*full, ...)]
    return view


def flat_of(array: Array) -> Array:
    """The bytes of an array in C order, where they lie."""
    return array.reshape(-1).view(np.uint8)


def shadow(dtype: DType, shape: tuple[int, ...]) -> Array:
    """An array without memory of its own, to find places in: it must not be read or written."""
    if int(np.prod(shape, dtype=object)) * max(dtype.itemsize, 1) >= 1 << 47:
        raise ValueError(f"shape {shape} does not fit into memory")
    strides, step = [], dtype.itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    one: Array = np.empty(1, dtype)
    return np.lib.stride_tricks.as_strided(one, shape, strides[::-1])


def runs_of(whole: Array, part: Array) -> tuple[int, list[int]]:
    """Bytes of each run of a part that lies together, and where in the whole each begins."""
    if part.size == 0 or part.itemsize == 0:
        return 0, []
    size, k = part.itemsize, part.ndim
    while k and (part.shape[k - 1] == 1 or part.strides[k - 1] == size):
        k -= 1
        size *= part.shape[k]
    starts = np.zeros((), np.int64)
    for n, stride in zip(part.shape[:k], part.strides[:k]):
        starts = np.add.outer(starts, np.arange(n, dtype=np.int64) * stride)
    first = part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return size, (starts.reshape(-1) + first).tolist()


def put_runs(
    domain: Domain, to: int, id_: int, whole: Array, part: Array, given: Array, timeout: float | None
) -> None:
    """Writes what was given into a part of a unit's array, run after run. ``whole`` is the array's
    `shadow`."""
    size, offsets = runs_of(whole, part)
    if size:
        domain._port.put(to, id_, offsets, flat_of(np.ascontiguousarray(given)), timeout)


def get_runs(domain: Domain, from_: int, id_: int, whole: Array, part: Array, timeout: float | None) -> Array:
    """A copy of a part of a unit's array. ``whole`` is the array's `shadow`."""
    size, offsets = runs_of(whole, part)
    found = np.empty(part.shape, part.dtype)
    if size:
        domain._port.get(from_, id_, offsets, flat_of(found), timeout)
    return found
