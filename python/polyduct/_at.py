"""Boxes of arrays in stores, by way of a port."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from polyduct._arrays import Array, Shaped, natural, seconds
from polyduct._layouts import Box
from polyduct.errors import BadIndex

if TYPE_CHECKING:
    from polyduct._reader import Reader


class At:
    """A box of an array in a store, read and overwritten by this unit alone; `Reader.at` gives it."""

    __slots__ = ("_form", "_hi", "_lo", "_port")

    def __init__(self, port: Reader, box: Box) -> None:
        self._port = port
        self._lo, self._hi = _sides(box, port.shape)
        port._port.box_len_bytes(self._lo, self._hi)
        shape = tuple(hi - lo for lo, hi in zip(self._lo, self._hi, strict=True))
        self._form = Shaped(shape, port.dtype, port.unit, url=port._url)

    @property
    def box(self) -> Box:
        """The range in each dimension."""
        return tuple(zip(self._lo, self._hi, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the box."""
        return self._form.shape

    def read(
        self, step: int | None = None, *, out: Array | None = None, timeout: float | None = None
    ) -> Array:
        """Reads the box of a step, by default of the last that the port has read, or the first: in ``out``,
        or in a new array.

        Only the blocks in which the box lies are read. While another process owns the store, it waits
        ``timeout`` seconds at most (the port's by default).
        """
        seconds("timeout", timeout)
        array = np.empty(self.shape, self._form.dtype) if out is None else self._form.check_out(out)
        flat = array if array.flags.c_contiguous else np.empty(self.shape, self._form.dtype)
        if array.size:
            self._port._port.read_box(
                self._step(step), self._lo, self._hi, flat.reshape(-1).view(np.uint8), timeout
            )
        if flat is not array:
            array[...] = flat
        return array

    def write(self, array: ArrayLike, step: int | None = None, *, timeout: float | None = None) -> None:
        """Overwrites the box of a step with an array of its shape.

        The new values are durable when it returns, and stay readable whichever units are lost later, up to
        the parity. Each block of 4 KiB is written on its own: others find it as it was before or as it is
        after. ``timeout`` as for `read`.
        """
        seconds("timeout", timeout)
        given = np.ascontiguousarray(self._form.given(array)).reshape(-1).view(np.uint8)
        if given.size:
            self._port._port.write_box(self._step(step), self._lo, self._hi, given, timeout)

    def _step(self, step: int | None) -> int:
        return (self._port.number or 0) if step is None else natural("step", step)

    def __repr__(self) -> str:
        return f"<polyduct.At {self.box} of {self._port!r}>"


def _sides(box: object, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    try:
        pairs = [(operator.index(lo), operator.index(hi)) for lo, hi in box]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise BadIndex(f"the box is {box!r}; expected a pair (lo, hi) for each dimension") from None
    if len(pairs) != len(shape):
        raise BadIndex(f"the box has {len(pairs)} dimensions; expected {len(shape)}")
    for (lo, hi), extent in zip(pairs, shape, strict=True):
        if not 0 <= lo <= hi <= extent:
            raise BadIndex(f"the box has {(lo, hi)} for a dimension; expected 0 <= lo <= hi <= {extent}")
    return [lo for lo, _ in pairs], [hi for _, hi in pairs]
