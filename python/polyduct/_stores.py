"""Stores: arrays on several disks, of which some may be lost."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from polyduct import _html, _native
from polyduct._arrays import Array, Bytes, is_text, natural, refused, seconds, taken, unmasked
from polyduct._dtypes import DType, from_elem, same, to_descr, to_elem
from polyduct._slices import Chosen, chosen
from polyduct.errors import BadIndex, BadName, BadOption, Misuse, WrongSize, WrongType

Path: TypeAlias = "str | os.PathLike[str]"

CHUNK_BYTES = 64 << 20
"""What `StoredArray.chunks` makes of a step."""
LISTED = 50
"""Arrays that a store shows in a notebook."""


class StoreStatus(NamedTuple):
    """What a store is made of, and how it is."""

    data: int
    """Units' worth of data."""
    parity: int
    """Units that may be lost."""
    stripe: int
    """Bytes that go to one unit before the next."""
    units: list[list[str]]
    """The directories of each unit."""
    lost: dict[int, str]
    """Units that are not used, and why."""


class Attributes(MutableMapping[str, Any]):
    """Attributes of an array: JSON values by name. Each change is durable when it returns.

    Reading gives what was there when the array was opened, or at the last change through it. Changes by
    several programs to different names are all kept.
    """

    __slots__ = ("_array",)

    def __init__(self, array: _native.StoredArray) -> None:
        self._array = array

    def _all(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._array.attributes())
        return found

    def __getitem__(self, name: str) -> Any:
        return self._all()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self._all():
            raise KeyError(name)
        self._array.change_attributes("{}", [name])

    def update(self, *args: Any, **more: Any) -> None:
        """Sets several at once."""
        new = dict(*args, **more)
        if bad := [name for name in new if not isinstance(name, str)]:
            raise WrongType(f"an attribute's name is {bad[0]!r}; expected text")
        try:
            text = json.dumps(new, default=_plain, allow_nan=False, ensure_ascii=False)
            json.loads(text, parse_int=_check_integer)
            text.encode()
        except UnicodeEncodeError as e:
            raise WrongType(
                f"attributes are kept as JSON, in UTF-8, which has no form for {e.object[e.start]!r}"
            ) from None
        except (TypeError, ValueError, RecursionError) as e:
            raise WrongType(f"attributes are kept as JSON: {e}") from None
        self._array.change_attributes(text, [])

    def clear(self) -> None:
        """Removes all."""
        self._array.change_attributes("{}", list(self._all()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"<polyduct.Attributes {self._all()!r}>"


def _check_integer(digits: str) -> None:
    if not -(2**63) <= int(digits) < 2**64:
        raise ValueError(f"the integer {digits}; 64 bits do not hold it")


def _plain(value: object) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no place there")


class StoredArray:
    """An array in a store; `Store` gives it. Nothing of it is in memory: an index reads what it chooses.

        a = store["density"]
        a[-1, 100:200, ::2]            # reads the blocks of 4 KiB that this lies in
        a[0, 5] = 0                    # durable when it returns
        np.asarray(a)                  # all of it

    Its first dimension is the steps in which it was written, unless there was just one. It is the version
    that was there when it was opened: steps that are appended later are not seen, and it stays readable when
    it is removed or replaced; overwriting it then, or changing its attributes, raises `DatasetMissing`. A
    renamed array stays usable, under its new name, and so do ports that read it or append to it. Everybody
    who has it open sees overwritten values. A pickled array is opened again by `name`.

    Integers, slices, ``...`` and ``None`` read what they choose and nothing else; arrays of integers and
    masks read the box around what they choose. Any number of threads may use it at once, so that Dask can:
    ``dask.array.from_array(a)``.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._array = store._store.array(name)
        self._steps = self._array.steps
        self._stepped = self._array.stepped
        self._shape = (self._steps, *self._array.shape) if self._stepped else self._array.shape
        self._dtype = from_elem(self._array.elem, self._array.descr)
        # Tells Dask whether two arrays are the same: nothing else knows when a stored one has changed.
        self._token = uuid.uuid4().hex

    @property
    def name(self) -> str:
        """The name by which it was opened. It may have been renamed since."""
        return self._name

    @property
    def steps(self) -> int:
        """Steps in which it was written."""
        return self._steps

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; of several steps, or none, they are the first dimension."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self._shape, dtype=object))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self._dtype.itemsize

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Sizes along each dimension in which it is best read, as Dask has them: a step at a time, about 64
        MiB of it."""
        whole = self._shape[1:] if self._stepped else self._shape
        sizes = list(whole)
        for dim, n in enumerate(whole):
            below = int(np.prod(whole[dim + 1 :], dtype=object)) * self._dtype.itemsize
            if n * below <= CHUNK_BYTES:
                break
            sizes[dim] = max(1, CHUNK_BYTES // below)
            if sizes[dim] > 1:
                break
        if self._stepped:
            sizes.insert(0, 1)
        return tuple(_cut(n, size) for n, size in zip(self._shape, sizes))

    @property
    def attrs(self) -> Attributes:
        """Its attributes: ``a.attrs["unit"] = "K"``."""
        return Attributes(self._array)

    def __getitem__(self, key: Any) -> Any:
        part = chosen(key, self._shape)
        return self._read(part)[part.then]

    def __setitem__(self, key: Any, value: ArrayLike) -> None:
        """Overwrites what an index of integers, slices and ``...`` chooses, with NumPy's broadcasting.

        The new values are durable when it returns, and stay readable whichever units are lost later, up to
        the parity. It is for small parts: each block of 4 KiB is written on its own. Others may read and
        overwrite other parts meanwhile; a block has either its old or its new content for them.
        """
        part = chosen(key, self._shape)
        if part.fancy:
            raise BadIndex(
                "arrays and masks are no index for what is to be overwritten; expected integers, slices, ..."
            )
        # What lies between fields is not assigned to.
        array = (
            np.empty(part.shape, self._dtype)
            if self._dtype.names is None
            else np.zeros(part.shape, self._dtype)
        )
        # With `...` it is a view also of a single element.
        view = array[part.then if any(one is Ellipsis for one in part.then) else (*part.then, ...)]
        view[...] = self._given(value, view.shape)
        self._token = uuid.uuid4().hex
        self._array.write(*self._split(part), _flat(array))

    def _read(self, part: Chosen) -> Array:
        array = np.empty(part.shape, self._dtype)
        if array.size:
            self._array.read(*self._split(part), _flat(array))
        return array

    def _split(self, part: Chosen) -> tuple[tuple[int, int, int], list[tuple[int, int, int]]]:
        """The steps and the indices of each dimension of them."""
        return (part.of[0], part.of[1:]) if self._stepped else ((0, 1, 1), part.of)

    def _given(self, value: ArrayLike, shape: tuple[int, ...]) -> Array:
        given = taken(value, self._dtype)
        if not same(given.dtype, self._dtype):
            raise WrongType(f"the values have dtype {given.dtype}; expected {self._dtype}")
        while given.ndim > len(shape) and given.shape[0] == 1:
            given = given[0]
        try:
            return np.broadcast_to(given.view(self._dtype) if given.dtype.kind in "SV" else given, shape)
        except ValueError:
            raise WrongSize(
                f"the values have shape {given.shape}; what is to be overwritten has {shape}"
            ) from None

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        """All of it, in memory: a copy in any case."""
        if copy is False:
            raise Misuse("an array in a store is in memory as a copy only")
        array: Array = self[...]
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of an array without dimensions")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(len(self)))

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__qualname__, self._token

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredArray, (self._store, self._name)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions get it as an array in memory. That it has this tells xarray to leave it where it
        is."""
        return function(*_in_memory(args), **_in_memory(kwargs))

    def _repr_html_(self) -> str:
        rows = [("shape", self.shape), ("dtype", self.dtype), ("bytes", _html.size(self.nbytes))]
        rows += [(name, value) for name, value in self.attrs.items()]
        return _html.table(f"polyduct.StoredArray {self._name} of {self._store.path}", rows)

    def __repr__(self) -> str:
        return (
            f"<polyduct.StoredArray {self._name!r} of {str(self._store.path)!r}: {self._shape} {self._dtype}>"
        )


def _chain(number: int, unit: Path | Sequence[Path]) -> list[str]:
    """The directories of a unit."""
    if isinstance(unit, (str, os.PathLike)):
        unit = [unit]
    elif isinstance(unit, bytes) or not isinstance(unit, Iterable):
        raise refused("units", f"{unit!r} as unit {number}; expected a directory, or several")
    dirs = [_path("a unit", one) for one in unit]
    if not dirs or any(not one or "\0" in one for one in dirs):
        raise refused("units", f"{dirs!r} as unit {number}; expected a directory, or several")
    return dirs


class Store(Mapping[str, StoredArray]):
    """Arrays by name, on several disks (units), of which as many may be lost as there is parity.

        s = polyduct.Store.create("/data/run7", units=5, parity=1)
        s["grid/x"] = np.linspace(0, 1, 1000)          # whole, or not at all
        s["grid/x"][10:20]                             # read from the disks
        s["grid/x"].attrs["unit"] = "m"
        del s["grid/x"]

    Parallel programs write and read its arrays through ports, each unit its own part:
    ``polyduct.open("store:/data/run7/density", "w", shape=..., dtype=..., layout="block,*")``.

    path
        The store's directory.
    timeout
        How long to wait for another process that is changing the store, in seconds. By default as long as it
        lives.

    Raises `FileMissing` where there is no store, `StoreError` where it is damaged. Ctrl-C ends any wait.
    """

    def __init__(self, path: Path, *, timeout: float | None = None) -> None:
        self._path = _path("path", path)
        self._timeout = seconds("timeout", timeout)
        self._store = _native.open_store(self._path, timeout)

    @classmethod
    def create(
        cls,
        path: Path,
        units: int | Sequence[Path | Sequence[Path]],
        *,
        parity: int = 0,
        stripe: int | str = "1MiB",
        timeout: float | None = None,
    ) -> Store:
        """Makes a store in a directory, which is made as well if it is not there.

        units
            The directories of the units, parity included, each best on a disk of its own; relative ones count
            from ``path``. A unit may be several directories, of which each array has one. Or how many there
            are to be: then they are ``unit0``, ``unit1``, … in ``path``.
        parity
            Units that may be lost without loss of data.
        stripe
            Bytes that go to one unit before the next, a multiple of 4 KiB: ``65536`` or ``"64KiB"``.
        """
        where = _path("path", path)
        if isinstance(units, Integral):
            dirs = [[f"unit{n}"] for n in range(natural("units", units, 2**16, BadOption))]
        elif isinstance(units, (str, bytes)) or not isinstance(units, Iterable):
            raise refused("units", f"{units!r}; expected a number or directories")
        else:
            dirs = [_chain(n, unit) for n, unit in enumerate(units)]
        _native.create_store(where, dirs, natural("parity", parity, 2**32, BadOption), _bytes(stripe))
        return cls(where, timeout=timeout)

    @property
    def path(self) -> str:
        """The store's directory."""
        return self._path

    def __getitem__(self, name: str) -> StoredArray:
        """Opens an array. Raises `DatasetMissing` if it is not there, `BadName` for a name that no array can
        have: both are a KeyError."""
        return StoredArray(self, _name(name))

    def __setitem__(self, name: str, array: ArrayLike) -> None:
        """Writes an array, in place of any that has the name: as a whole, or, if that fails, not at all.

        Its dtype is kept, also that of byte strings and structures. Raises `WrongType` for what cannot be
        kept: text (``U``), objects, times, structures whose fields overlap or are not in the order of their
        bytes.
        """
        given = unmasked(array)
        elem, dtype = to_elem(given.dtype)
        stored = np.ascontiguousarray(given, dtype).reshape(given.shape)
        self._store.write(_name(name), given.shape, elem, to_descr(dtype), _flat(stored))

    def __delitem__(self, name: str) -> None:
        """Removes an array. Programs that read it go on reading it."""
        self._store.remove(_name(name))

    def rename(self, old: str, new: str) -> None:
        """Gives an array, or all those whose names begin with ``old/``, another name. Programs that have one
        open go on with it."""
        self._store.rename(_name(old), _name(new))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._store.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.names())

    def __len__(self) -> int:
        return len(self._store.names())

    def _repr_html_(self) -> str:
        status = self.status()
        names = list(self)
        rows = [
            (f"{a.name}", a.shape, a.dtype, _html.size(a.nbytes))
            for a in map(self.__getitem__, names[:LISTED])
        ]
        more = f"<p>and {len(names) - LISTED} more</p>" if len(names) > LISTED else ""
        about = [("units", f"{status.data} + {status.parity} parity"), ("stripe", _html.size(status.stripe))]
        about += [(f"unit {unit} is lost", why) for unit, why in status.lost.items()]
        listing = _html.listing(["array", "shape", "dtype", "bytes"], rows)
        return _html.table(f"polyduct.Store {self._path}", about) + listing + more

    def status(self) -> StoreStatus:
        """What it is made of, and which units are lost."""
        data, parity, stripe, units, lost = self._store.status()
        return StoreStatus(data, parity, stripe, [[str(one) for one in chain] for chain in units], dict(lost))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._timeout)

    def __repr__(self) -> str:
        return f"<polyduct.Store {self._path!r}>"

    # Two that lead to one directory may be told apart, as files are.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def _cut(n: int, size: int) -> tuple[int, ...]:
    """``n`` in pieces of ``size``, the last one shorter."""
    return (size,) * (n // size) + ((n % size,) if n % size else ()) if n else (0,)


def _in_memory(given: Any) -> Any:
    """What a function was given, with arrays in place of those in stores."""
    if isinstance(given, StoredArray):
        return np.asarray(given)
    if isinstance(given, (list, tuple)):
        known = [_in_memory(one) for one in given]
        return known if isinstance(given, list) else tuple(known)
    return {name: _in_memory(one) for name, one in given.items()} if isinstance(given, dict) else given


def _reopen(path: str, timeout: float | None) -> Store:
    return Store(path, timeout=timeout)


def _flat(array: Array) -> Bytes:
    """The bytes of an array in C order."""
    return array.reshape(-1).view(np.uint8)


def _path(what: str, path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise refused(what, f"{path!r}; expected a path")
    found = os.fspath(path)
    if not isinstance(found, str):
        raise refused(what, f"{path!r}; expected a path of text")
    return found


def _name(name: object) -> str:
    if not is_text(name):
        e = BadName(f"the name of an array is {name!r}; expected text that has a form in UTF-8")
        e.option = "name"
        raise e
    assert isinstance(name, str)
    return name


def _bytes(size: object) -> int:
    if isinstance(size, str):
        found = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)?", size.strip())
        if found is None:
            raise refused("stripe", f"{size!r}; expected bytes, as in 65536 or '64KiB'")
        size = int(found[1]) << {None: 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[found[2]]
    return natural("stripe", size, 2**63, BadOption)
