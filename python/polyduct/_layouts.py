"""Layouts bound to an array and a number of units, and regrouping within one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from polyduct import _html, _native
from polyduct._apart import check_apart
from polyduct._arrays import Array, Form, dims, is_text, natural, refused, unmasked
from polyduct._dtypes import from_elem, to_elem
from polyduct.errors import Misuse, WrongType

Box: TypeAlias = "tuple[tuple[int, int], ...]"
"""A half-open range ``(lo, hi)`` for each dimension."""


class Layout:
    """Says which unit owns what: a layout's text, bound to the shape of an array and a number of units.

    >>> halves = Layout("block,*", shape=(6, 4), units=2)
    >>> halves.locate((3, 1))
    [(1, 1)]
    >>> halves.boxes(1)
    [((3, 6), (0, 4))]

    The size of an element matters only to layouts that count bytes (``stripe``).
    """

    __slots__ = ("_bound",)
    _bound: _native.Layout

    def __init__(
        self,
        text: str | Layout,
        *,
        shape: int | Sequence[int],
        units: int,
        itemsize: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        if itemsize is not None and dtype is not None:
            raise Misuse("give itemsize or dtype, not both")
        size = 1 if itemsize is None else natural("itemsize", itemsize)
        if size == 0:
            raise Misuse("itemsize is 0; an element has one byte at least")
        elem = to_elem(dtype)[0] if dtype is not None else f"bytes({size})"
        count = natural("units", units)
        self._bound = _native.Layout(text_of(text), dims("shape", shape), count, elem)

    @classmethod
    def _of(cls, native: _native.Layout) -> Layout:
        layout = cls.__new__(cls)
        layout._bound = native
        return layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self._bound.shape

    @property
    def units(self) -> int:
        """Number of units."""
        return self._bound.units

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._bound.itemsize

    @property
    def replicas(self) -> int:
        """How many units hold each part."""
        return self._bound.replicas

    def locate(self, index: int | Sequence[int], *, halo: bool = True) -> list[tuple[int, int]]:
        """Every place ``(unit, offset)`` where an element lies, the offset in elements of the unit's memory.

        Without ``halo`` only the units that own it, not those that have a copy of it in their halo.
        """
        return self._bound.locate(dims("index", index), halo)

    def local_shape(self, unit: int) -> tuple[int, ...]:
        """Shape of a unit's part, its halo included; one-dimensional where a part is not a box."""
        return self._bound.local_shape(natural("unit", unit))

    def local_nbytes(self, unit: int) -> int:
        """Bytes of a unit's part, its halo included."""
        return self._bound.local_len_bytes(natural("unit", unit))

    def boxes(self, unit: int, *, halo: bool = False) -> list[Box]:
        """The boxes of the array that a unit owns, or with ``halo`` those that it holds."""
        return self._bound.boxes(natural("unit", unit), halo)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebound, (self._bound.text, self._bound.shape, self._bound.units, self._bound.elem)

    def __str__(self) -> str:
        return self._bound.text

    def _repr_html_(self) -> str:
        rows = [("shape", self.shape), ("units", self.units), ("bytes of an element", self.itemsize)]
        parts = {self.local_shape(unit) for unit in range(min(self.units, 64))}
        rows.append(
            (
                "parts",
                ", ".join(map(str, sorted(parts)[:4])) + (", …" if len(parts) > 4 or self.units > 64 else ""),
            )
        )
        if self.replicas > 1:
            rows.append(("replicas", self.replicas))
        return _html.table(str(self), rows, _html.drawing(self))

    def __repr__(self) -> str:
        return f"polyduct.Layout({str(self)!r}, shape={self.shape}, units={self.units}, itemsize={self.itemsize})"

    def __eq__(self, other: object) -> bool:
        return self._bound == other._bound if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bound)


def _rebound(text: str, shape: tuple[int, ...], units: int, elem: str) -> Layout:
    return Layout._of(_native.Layout(text, shape, units, elem))


def text_of(layout: object) -> str:
    """The text of a layout, given as such or bound."""
    if not is_text(layout) and not isinstance(layout, Layout):
        raise refused("layout", f"{layout!r}; expected its text or a polyduct.Layout")
    return str(layout)


def redistribute(
    parts: Sequence[ArrayLike],
    src: Layout,
    dst: Layout,
    out: Sequence[Array] | None = None,
) -> list[Array]:
    """Regroups an array within one process: from its parts in layout ``src`` to its parts in layout ``dst``.

    ``parts`` has an array for each unit of ``src``. The result has one for each unit of ``dst``; given as
    ``out`` it is filled, which saves the time to get new memory; then its arrays may share memory neither
    with each other nor with the parts. Elements that ``src`` does not cover are refused, those that ``dst``
    leaves out are left out. Threads do the work, without the interpreter.
    """
    for side, layout in (("src", src), ("dst", dst)):
        if not isinstance(layout, Layout):
            raise Misuse(f"{side} is {layout!r}; expected a polyduct.Layout")
    arrays = [unmasked(part) for part in _several("parts", parts)]
    if len(arrays) != src.units:
        raise Misuse(f"{len(arrays)} parts for {src.units} units of the source")
    dtype = arrays[0].dtype
    if src._bound.kind == "stripe":
        dtype = from_elem(src._bound.elem)
    elem = to_elem(dtype)[0]
    for side, layout in (("source", src), ("destination", dst)):
        if layout.itemsize not in (1, dtype.itemsize):
            raise WrongType(
                f"the {side} layout is for elements of {layout.itemsize} bytes, the parts have {dtype}"
            )
    source = _native.Layout(str(src), list(src.shape), src.units, elem)
    target = _native.Layout(str(dst), list(dst.shape), dst.units, elem)

    given: list[Any] = []
    for unit, array in enumerate(arrays):
        form = Form(source, unit, dtype, side="source")
        form.check(array)
        given.append(form.to_flat(array))
    forms = [Form(target, unit, dtype, side="destination") for unit in range(target.units)]
    if out is None:
        result = [form.empty() for form in forms]
    else:
        result = _several("out", out)
        if len(result) != len(forms):
            raise Misuse(f"{len(result)} arrays in out for {len(forms)} units of the destination")
        for form, array in zip(forms, result):
            form.check_out(array)
        check_apart(result, arrays)
    # What a layout leaves out stays as it is, so an array that is filled through another is copied there
    # first.
    through = [
        array if form.flat(array) is not None else _copy(form, array) for form, array in zip(forms, result)
    ]
    flats = [form.to_flat(array) for form, array in zip(forms, through)]
    _native.redistribute(source, given, target, flats)
    for array, via in zip(result, through):
        if via is not array:
            array[...] = via
    return result


def _several(what: str, arrays: Any) -> list[Any]:
    try:
        return list(arrays)
    except TypeError:
        raise Misuse(f"{what} is {arrays!r}; expected a sequence of arrays, one for each unit") from None


def _copy(form: Form, array: Array) -> Array:
    copy = form.empty()
    copy[...] = array
    return copy
