"""Arrays as the flat bytes that cross into the native module, and back."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyduct import _foreign, _native
from polyduct._dtypes import DType, same
from polyduct.errors import BadOption, Misuse, WrongSize, WrongType

Array: TypeAlias = "NDArray[Any]"
Bytes: TypeAlias = "NDArray[np.uint8]"
Seconds = TypeVar("Seconds", float, None, "float | None")

LINE = 64
"""Bytes of a cache line."""

_LARGE = 64 << 10
"""From how many bytes on an array should begin at a line."""


class Shaped:
    """Arrays of one shape and dtype, as callers give them. What they are for, a port's ``url`` or else a
    ``side``, and the ``unit`` are there for errors to name."""

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, unit: int, *, url: str | None = None, side: str = ""
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.unit = unit
        self.url = url
        self.side = side

    def given(self, what: Any) -> Array:
        """An array-like as an array of this shape and dtype; an error if it is none."""
        try:
            array = taken(what, self.dtype)
        except WrongType as e:
            raise self._wrong_type(str(e)) from None
        self.check(array)
        return array

    def check(self, array: Array) -> None:
        """Raises an error for an array of another shape or dtype."""
        if not same(array.dtype, self.dtype):
            raise self._wrong_type(
                f"the array has dtype {array.dtype}; expected {self.dtype}", str(array.dtype)
            )
        if array.shape != self.shape:
            e = WrongSize(self._words(f"the array has shape {array.shape}; expected {self.shape}"))
            e.url, e.unit = self.url, self.unit
            e.found, e.expected = array.nbytes, int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
            raise e

    def check_out(self, out: object) -> Array:
        """``out``, if it is an array that can be filled."""
        if not isinstance(out, np.ndarray):
            try:
                tensor = _foreign.as_numpy(out)
            except WrongType as e:
                raise self._wrong_type(str(e)) from None
            if tensor is None:
                kind = type(out).__name__
                raise self._wrong_type(f"out is a {kind}; expected a numpy.ndarray or a tensor", kind)
            out = tensor
        self.check(out)
        if not out.flags.writeable:
            raise Misuse(self._words("out is read-only"))
        if out.size and any(n > 1 and stride == 0 for n, stride in zip(out.shape, out.strides)):
            raise Misuse(self._words("elements of out lie in one place (a stride is 0)"))
        return out

    def _words(self, what: str) -> str:
        return f"{self.url or self.side}, unit {self.unit}: {what}"

    def _wrong_type(self, what: str, found: str | None = None) -> WrongType:
        e = WrongType(self._words(what))
        e.url, e.unit, e.found, e.expected = self.url, self.unit, found, str(self.dtype)
        return e


class Form(Shaped):
    """What the array of one unit's part looks like: shape, dtype and storage order."""

    def __init__(
        self, layout: _native.Layout, unit: int, dtype: DType, *, url: str | None = None, side: str = ""
    ) -> None:
        held = np.dtype(np.uint8) if layout.kind == "stripe" else dtype
        super().__init__(layout.local_shape(unit), held, unit, url=url, side=side)
        strides = layout.local_strides(unit) or (1,)
        # Slowest dimension first. Where two strides are equal one of the dimensions has size 1 and does not
        # matter.
        self.axes = tuple(sorted(range(len(self.shape)), key=lambda k: -strides[k]))
        self._inverse = tuple(int(k) for k in np.argsort(self.axes)) if self.shape else ()
        self._stored = tuple(self.shape[k] for k in self.axes)
        self._is_c = self.axes == tuple(range(len(self.shape)))
        self._size = int(np.prod(self._stored, dtype=object)) * self.dtype.itemsize

    def empty(self) -> Array:
        """A new array, its content undefined. A large one begins at a cache line, as kernels like it: short
        runs fill whole lines then, which need not be read first."""
        size = self._size
        if size < _LARGE:
            array: Array = np.empty(self._stored, self.dtype)
            return array if self._is_c else array.transpose(self._inverse)
        room = np.empty(size + LINE, np.uint8)
        start = -room.ctypes.data % LINE
        return self.over(room[start : start + size])

    @property
    def is_fortran(self) -> bool | None:
        """Whether the order is Fortran's and not C's; None where it is neither."""
        return False if self._is_c else True if self.axes == tuple(reversed(range(len(self.shape)))) else None

    def over(self, flat: Bytes) -> Array:
        """The array that lies in these bytes."""
        array: Array = flat.view(self.dtype).reshape(self._stored)
        return array if self._is_c else array.transpose(self._inverse)

    def flat(self, array: Array) -> Bytes | None:
        """The bytes of an array that is stored in this form's order without gaps; None if it is not."""
        stored = array if self._is_c else array.transpose(self.axes)
        if not stored.flags.c_contiguous:
            return None
        return stored.reshape(-1).view(np.uint8)

    def to_flat(self, array: Array) -> Bytes:
        """The bytes of an array in this form's order: its own, or a copy's."""
        flat = self.flat(array)
        if flat is None:
            flat = np.ascontiguousarray(array.transpose(self.axes)).reshape(-1).view(np.uint8)
        return flat


def taken(what: Any, dtype: DType) -> Array:
    """An array-like as an array, of this dtype if it has none of its own and nothing is cut off."""
    array = unmasked(what)
    if hasattr(what, "dtype"):
        return array
    if dtype.kind in "iu":
        return _integers(what, array, dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        return array
    with np.errstate(over="ignore"):
        found = array.astype(dtype, copy=False)
    if dtype.kind in "fc" and np.count_nonzero(np.isinf(found)) > np.count_nonzero(np.isinf(array)):
        raise WrongType(f"a value does not fit into {dtype}: it would be infinite")
    return found


def unmasked(what: Any) -> Array:
    """An array-like as an array. Masked elements have no value that could go anywhere."""
    if isinstance(what, np.ma.MaskedArray) and np.ma.is_masked(what):
        raise WrongType("the array has masked elements; give them a value first: array.filled(value)")
    tensor = _foreign.as_numpy(what)
    array: Array = np.asarray(what) if tensor is None else tensor
    return array


def _integers(what: Any, array: Array, dtype: DType) -> Array:
    """The values of a list in this dtype if all are integers; else ``array``, which is what NumPy takes them
    for."""
    if array.dtype.kind not in "biu":
        # NumPy takes integers of which some are too large for int64 for fractions, or for objects.
        objects: Array = np.asarray(what, object)
        if not all(isinstance(value, Integral) for value in objects.flat):
            return array
        array = objects
    limits = np.iinfo(dtype)
    for value in (int(array.min()), int(array.max())) if array.size else ():
        if not limits.min <= value <= limits.max:
            expected = f"{limits.min} to {limits.max}"
            raise WrongType(f"the value {value} does not fit into {dtype}; expected {expected}")
    return array.astype(dtype, copy=False)


def is_text(what: object) -> bool:
    """Whether it is text that has a form in UTF-8. The name of a file whose bytes are none has not."""
    try:
        return isinstance(what, str) and what.encode() is not None
    except UnicodeEncodeError:
        return False


def natural(what: str, n: object, below: int = 2**63, error: type[Misuse] = Misuse) -> int:
    """One integer that is not negative: the number of a unit, a count, an option."""
    try:
        found = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        found = -1
    if not 0 <= found < below:
        raise refused(what, f"{n!r}; expected an integer from 0 to {below - 1}", error)
    return found


def refused(what: str, why: str, error: type[Misuse] = BadOption) -> Misuse:
    """The error for an option or argument that is something that it cannot be."""
    e = error(f"{what} is {why}")
    if isinstance(e, BadOption):
        e.option = what
    return e


def seconds(what: str, n: Seconds) -> Seconds:
    """A time, or None. A bool is a number for Python, but nobody means one second by ``True``."""
    if n is not None and (isinstance(n, bool) or not isinstance(n, Real)):
        raise refused(what, f"{n!r}; expected seconds")
    return n


def dims(what: str, numbers: int | Sequence[int]) -> list[int]:
    """A shape or an index as a list of integers that are not negative."""
    try:
        found = (
            [int(numbers.__index__())]
            if hasattr(numbers, "__index__")
            else [int(n.__index__()) for n in numbers]
        )
    except (AttributeError, TypeError):
        raise Misuse(f"{what} is {numbers!r}; expected integers") from None
    if any(n < 0 or n >= 2**63 for n in found):
        given = found[0] if hasattr(numbers, "__index__") else tuple(found)
        raise Misuse(f"{what} is {given}; expected integers from 0 to 2**63-1")
    return found
