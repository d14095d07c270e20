"""Arrays in memory that other units put into and get from."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from polyduct._arrays import Array, dims
from polyduct._dtypes import DType, same
from polyduct._encode import read_description
from polyduct.errors import BadOption, Misuse, RegionError, WrongSize, WrongType

if TYPE_CHECKING:
    from polyduct._domain import Domain

Index: TypeAlias = "int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]"
"""Where in a region: integers and slices, as in NumPy."""

Notice: TypeAlias = "tuple[str] | tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int] | tuple[str, int, int, int, int]"
"""Whom to tell when a put or get is done: the name of a handler, and up to four integers for it."""


class Region:
    """An array in shared memory that the other units put into and get from, without this unit's doing.

    `Domain.region` makes it. A put is there when the call returns, and a message sent after it arrives after it. What two
    units do to the same element at once is theirs to order, by messages or a barrier.
    """

    __slots__ = ("_domain", "_id", "_views", "array", "name")

    def __init__(self, domain: Domain, name: int | str, array: Array, id_: int) -> None:
        self._domain = domain
        self._id = id_
        self._views: dict[int, Array] = {}
        self.name = name
        """The region's name, or its number."""
        self.array: Array = array
        """This unit's own array. It stays there for as long as somebody has it, also after the domain was left."""

    def at(self, unit: int) -> Array:
        """The array that a unit has under this region's name, where it lies: what is written there, that unit sees.

        Raises `RegionError` where the unit has no such region (it may not have made it yet: a barrier helps), `PeerLost`
        and `PeerLeft` where the unit is gone. An array that was given before stays readable after that.
        """
        [unit] = dims("unit", unit)
        if unit == self._domain.unit:
            self._domain._port.config()  # raises Closed
            return self.array
        found = self._domain._port.region_of(unit, self._id)
        if unit not in self._views:
            self._views[unit] = array_in(found.array(), self.name, unit)
        return self._views[unit]

    def put(self, to: int, values: ArrayLike, index: Index = ..., *, notify: Notice | None = None) -> None:
        """Writes ``values`` into a unit's array: ``array[index] = values`` there, with NumPy's broadcasting.

        ``notify=("handler", 1, 2)`` then posts to a handler of that unit: when it runs, the values are there.

        Raises `RegionError` for an index beyond its end, `WrongType` for values of another dtype (lists and Python's
        numbers take the array's), `WrongSize` for values that do not fit, `UnknownHandler`, in all these cases with
        nothing written; and as `at` and `Domain.post`.
        """
        array = self.at(to)
        part = part_of(array, index)
        given = values_for(array.dtype, part, values)
        tell = telling(self._domain, to, notify)
        part[...] = given
        tell()

    def get(
        self, from_: int, index: Index = ..., *, out: Array | None = None, notify: Notice | None = None
    ) -> Array:
        """A copy of ``array[index]`` of a unit; in ``out``, of the same shape and dtype, if that is given.

        ``notify=("handler", 1, 2)`` then posts to a handler of that unit: when it runs, the values were read.

        Raises as `put`.
        """
        part = part_of(self.at(from_), index)
        tell = telling(self._domain, from_, notify)
        found = part.copy() if out is None else fill(out, part)
        tell()
        return found

    def __repr__(self) -> str:
        return f"<polyduct.Region {self.name!r}: {self.array.shape} {self.array.dtype}>"


def values_for(dtype: DType, part: Array, values: ArrayLike) -> Array:
    """The values as they go into a part of an array, with its shape."""
    given = np.asarray(values)
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


def telling(domain: Domain, unit: int, notify: Notice | None) -> Callable[[], None]:
    """What tells a unit that a put or get is done. Raises now where that cannot be."""
    if notify is None:
        return lambda: None
    if not isinstance(notify, tuple) or not notify or not isinstance(notify[0], str):
        raise WrongType(f"notify is {notify!r}; expected a tuple of a handler's name and up to four integers")
    name, *args = notify
    words = domain._words(args)
    domain._port.look_up(unit, name)
    return lambda: domain._port.post(unit, name, words, np.empty(0, np.uint8))


def check_out(out: object) -> None:
    if out is not None and not isinstance(out, np.ndarray):
        raise WrongType(f"out is a {type(out).__name__}; expected a numpy.ndarray")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise Misuse("out is read-only")


def fill(out: Array, data: object) -> Array:
    check_out(out)
    if not isinstance(data, np.ndarray) or not same(data.dtype, out.dtype):
        found = data.dtype if isinstance(data, np.ndarray) else "bytes"
        raise WrongType(f"out has dtype {out.dtype}; what came has {found}")
    if data.shape != out.shape:
        raise WrongSize(f"out has shape {out.shape}; what came has {data.shape}")
    out[...] = data
    return out


def region_id(name: object) -> int:
    if isinstance(name, str):
        import zlib

        # Names have the upper half of the numbers. Where two meet in one unit, `Domain.region` refuses the second; where
        # they meet across units, the name that stands in the region tells.
        return zlib.crc32(name.encode()) | 1 << 31
    [number] = dims("the name of a region", name)  # type: ignore[arg-type]
    if number >= 2**31:
        raise BadOption(f"the number of a region is {number}; expected less than 2**31")
    return number


def rounded(size: int) -> int:
    return -(-size // 64) * 64


def array_in(flat: Array, name: object, unit: int) -> Array:
    """The array in the memory of a region, by the description at its end."""
    try:
        length = int.from_bytes(flat[-4:].tobytes(), "little")
        if length > min(1 << 16, len(flat) - 4):
            raise ValueError("no description")
        found, dtype, shape = read_description(flat[len(flat) - 4 - length : -4].tobytes())
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size > len(flat) - 4 - length:
            raise ValueError("it is shorter than it says")
        array: Array = flat[:size].view(dtype).reshape(shape) if size else np.empty(shape, dtype)
    except (ValueError, TypeError, IndexError, KeyError, MemoryError, RecursionError, OverflowError) as e:
        raise RegionError(f"region {name!r} of unit {unit} holds no array: {e}") from None
    if found != str(name):
        raise RegionError(f"unit {unit} has a region {found!r}, not {name!r}")
    return array


def part_of(array: Array, index: Index) -> Array:
    """``array[index]`` as a view. NumPy cuts slices off at the end; here that is an error."""
    given: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
    if sum(part is Ellipsis for part in given) > 1 or sum(part is not Ellipsis for part in given) > array.ndim:
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
