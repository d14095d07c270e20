"""Arrays that a unit lends where they lie, in ordinary memory.

Under the region of the name's number lies a description: the number of the region of the elements, 4 bytes,
and the length of a text, 4 bytes, both little-endian; the text (see `polyduct._encode.describe`); zeros up to
1024 bytes. The elements have a number of their own each time they are lent, so that a unit that knows an
older description does not take other elements for them.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from polyduct import _native
from polyduct._arrays import Array, seconds
from polyduct._encode import describe, read_description
from polyduct._regions import Named, Remote, flat_of, region_id, shadow
from polyduct.errors import Misuse, RegionError, WrongType

if TYPE_CHECKING:
    from polyduct._domain import Domain

_FIRST = 1024
"""Bytes of a description that are fetched at once."""
_LONGEST = 1 << 16
_TRIES = 64
"""Numbers that are tried for the elements, at most; names have few of them."""


class Lent(Remote):
    """An array of this unit, in ordinary memory, that the other units put into and get from. `Domain.lend`
    makes it."""

    __slots__ = ("_known", "_lent", "array")

    _kind = "lent"

    def __init__(
        self, domain: Domain, name: int | str, id_: int, array: Array | None, lent: list[_native.Lent]
    ) -> None:
        super().__init__(domain, name, id_)
        self._lent = lent
        self._known: dict[int, tuple[bytes, int, Array]] = {}
        self.array = array
        """This unit's own array, if it lends one."""

    def withdraw(self, timeout: float | None = None) -> None:
        """Takes the array back: no unit writes to it or reads from it any more once this returns. Waits for
        copies that are under way, ``timeout`` seconds at most (the domain's by default). A second call does
        nothing.

        Raises `TimeoutError` while another process is stopped in the midst of a copy: call it again.
        """
        seconds("timeout", timeout)
        while self._lent:
            self._lent[-1].withdraw(timeout)
            self._lent.pop()

    def _find(self, unit: int, timeout: float | None) -> tuple[int, Array]:
        """The number of a unit's elements, and an array with their shape and strides that must not be looked
        into."""
        port = self._domain._port
        first = np.empty(_FIRST, np.uint8)
        with self._named():
            port.get(unit, self._id, [0], first, timeout)
        raw = first.tobytes()
        known = self._known.get(unit)
        if known is not None and known[0] == raw:
            return known[1], known[2]
        id_, length = int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:8], "little")
        text = first
        if _FIRST < length + 8 <= _LONGEST + 8:
            text = np.empty(length + 8, np.uint8)
            with self._named():
                port.get(unit, self._id, [0], text, timeout)
        try:
            if not 0 < length <= _LONGEST:
                raise ValueError("no description")
            found, dtype, shape = read_description(text[8 : length + 8].tobytes())
            whole = shadow(dtype, shape)
        except (ValueError, TypeError, IndexError, KeyError, MemoryError, RecursionError, OverflowError) as e:
            raise RegionError(f"what unit {unit} lends as {self.name!r} is no array: {e}") from None
        if found != str(self.name):
            raise RegionError(f"unit {unit} lends {found!r}, not {self.name!r}")
        self._known[unit] = raw, id_, whole
        return id_, whole

    def __repr__(self) -> str:
        what = "nothing of its own" if self.array is None else f"{self.array.shape} {self.array.dtype}"
        return f"<polyduct.Lent {self.name!r}: {what}>"


def lend(domain: Domain, name: str | int, given: object) -> Lent:
    """See `Domain.lend`."""
    region_id(name)  # raises for what cannot be one
    id_ = zlib.crc32(f"lent {name!r}".encode()) | 1 << 31
    if domain._regions.setdefault(id_, f"lent {name!r}") != f"lent {name!r}":
        raise RegionError(
            f"region {domain._regions[id_]!r} and lent {name!r} have one number; rename one of them"
        )
    if given is None:
        domain._port.config()  # raises Closed
        return Lent(domain, name, id_, None, [])
    if isinstance(given, np.ndarray):
        array: Array = given
    else:
        try:
            array = np.frombuffer(given, np.uint8)  # type: ignore[call-overload]
        except TypeError:
            raise WrongType(
                f"a {type(given).__name__} cannot be lent; expected a numpy.ndarray or a buffer"
            ) from None
    if not array.flags.writeable or not array.flags.c_contiguous:
        raise Misuse("an array that is lent must be writable and C-contiguous")
    text = describe(str(name), array.dtype, array.shape)
    if len(text) > _LONGEST:
        raise WrongType(f"the description of dtype and shape takes {len(text)} bytes; {_LONGEST} are allowed")
    elements, number = _lend_elements(domain, flat_of(array) if array.nbytes else np.empty(0, np.uint8))
    header = number.to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
    told = np.zeros(max(len(header), _FIRST), np.uint8)
    told[: len(header)] = np.frombuffer(header, np.uint8)
    try:
        with Named(f"lent {name!r}"):
            description = domain._port.lend(id_, told)
    except BaseException:
        elements.withdraw(None)
        raise
    return Lent(domain, name, id_, array, [elements, description])


def _lend_elements(domain: Domain, flat: Array) -> tuple[_native.Lent, int]:
    for _ in range(_TRIES):
        number = domain._next_lent = (domain._next_lent + 1) % (1 << 31)
        try:
            return domain._port.lend(number | 1 << 31, flat), number | 1 << 31
        except RegionError:
            continue
    raise RegionError("no number is free for what is to be lent")
