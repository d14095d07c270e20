"""Arrays as messages: bytes, and two 32-bit words that say what they are.

| words | the bytes are |
|---|---|
| 0, 0 | plain bytes, as of programs that know no arrays |
| bits 0-7 of the first: 1-15, a dtype of the table below | an array's elements; bits 8-11 number of dimensions, bit 12 Fortran order; all but the first dimension share the other 48 bits (the upper 16 of the first word, then the second) in equal parts, the last dimension lowest. The first one follows from the number of bytes |
| bits 0-7 of the first: 255 | an array's elements (bit 12 as above), then JSON, ``[dtype as in .npy files, shape]``, and its length as four bytes, little-endian |

A message of a common dtype with common dimensions is therefore sent from where it lies; others are copied
once to have the text behind them. The native module (``encode.rs``) does the same for what is common, and
asks here for the rest.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import numpy as np

from polyduct._arrays import Array, Bytes
from polyduct._dtypes import DType, from_elem, to_elem
from polyduct.errors import BadPeer, Misuse, WrongType

Words: TypeAlias = "tuple[int, int]"

_BYTES, _TEXT = 0, 255
_FORTRAN = 1 << 12
_ELEMS = (
    "bool",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f16",
    "f32",
    "f64",
    "c64",
    "c128",
    "bf16",
)
_CODES = {elem: code for code, elem in enumerate(_ELEMS, start=1)}
_MAX_TEXT = 1 << 16


def encode(what: object) -> tuple[Words, Bytes]:
    """The words and the bytes of an array, a NumPy number or a bytes-like object. The bytes are its own where
    they can be."""
    if isinstance(what, (bytes, bytearray, memoryview)):
        return (_BYTES, 0), flat_bytes(what)
    if not isinstance(what, (np.ndarray, np.generic)) or isinstance(what, np.ma.MaskedArray):
        kind = f"{type(what).__module__}.{type(what).__qualname__}".removeprefix("builtins.")
        raise WrongType(f"a {kind} cannot be sent; expected a numpy.ndarray, a NumPy number or bytes")
    array = np.asarray(what)
    _check(array.dtype)
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    stored = array.T if fortran else np.asarray(array, order="C")
    order = _FORTRAN if fortran else 0
    words = _compact(stored)
    if words is not None:
        return (words[0] | order, words[1]), stored.reshape(-1).view(np.uint8)
    text = json.dumps((_descr(array.dtype), stored.shape)).encode()
    if len(text) > _MAX_TEXT:
        raise WrongType(
            f"the description of dtype and shape takes {len(text)} bytes; {_MAX_TEXT} are allowed"
        )
    flat = np.empty(stored.nbytes + len(text) + 4, np.uint8)
    if stored.nbytes:
        flat[: stored.nbytes] = stored.reshape(-1).view(np.uint8)
    flat[stored.nbytes :] = np.frombuffer(text + len(text).to_bytes(4, "little"), np.uint8)
    return (_TEXT | order, 0), flat


def decode(words: Words, flat: Bytes, unit: int) -> Any:
    """What a message is: bytes, or an array in its memory. ``unit`` sent it, and is named if it makes no
    sense."""
    first, second = words
    if first == second == _BYTES:
        return flat.tobytes()
    code = first & 0xFF
    try:
        if code == _TEXT:
            length = int.from_bytes(flat[-4:].tobytes(), "little")
            if length > min(_MAX_TEXT, len(flat) - 4):
                raise ValueError("the description is cut off")
            descr, shape = json.loads(flat[len(flat) - 4 - length : -4].tobytes())
            dtype, shape = _dtype(descr), _dims(shape)
            stored = _over(flat[: len(flat) - 4 - length], dtype, shape)
        else:
            if not 0 < code <= len(_ELEMS):
                raise ValueError(f"there is no dtype {code}")
            dtype = from_elem(_ELEMS[code - 1])
            stored = _over(flat, dtype, _shape(first, second, flat.nbytes, dtype.itemsize))
    except (ValueError, TypeError, IndexError, KeyError, MemoryError, RecursionError, OverflowError) as e:
        bad = BadPeer(f"unit {unit} sent a message that is no array: {e}")
        bad.unit = unit
        raise bad from None
    return stored.T if first & _FORTRAN else stored


def code_of(dtype: DType) -> int | None:
    """The number of a dtype, if the native module knows it."""
    try:
        code = _CODES.get(to_elem(dtype)[0])
    except WrongType:
        return None
    return None if code == _CODES["bf16"] else code


def flat_bytes(what: bytes | bytearray | memoryview) -> Bytes:
    """A bytes-like object as an array of its bytes."""
    view = memoryview(what)
    if not view.c_contiguous:
        raise Misuse("a memoryview with gaps cannot be sent; copy it, or send it as an array")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def payload(what: bytes | bytearray | memoryview | Array) -> Bytes:
    """The bytes of a bytes-like object, or of an array in C's order."""
    return flat_bytes(what.tobytes() if isinstance(what, np.ndarray) else what)


def describe(name: str, dtype: DType, shape: tuple[int, ...]) -> bytes:
    """A text that says what array lies in a region."""
    _check(dtype)
    return json.dumps((name, _descr(dtype), shape)).encode()


def read_description(text: bytes) -> tuple[str, DType, tuple[int, ...]]:
    """The same back; a ValueError, TypeError or the like for what is none."""
    name, descr, shape = json.loads(text)
    if not isinstance(name, str):
        raise ValueError("expected a name")
    return name, _dtype(descr), _dims(shape)


def _check(dtype: DType) -> None:
    if dtype.hasobject:
        raise WrongType(f"elements of dtype {dtype} are Python objects, which are not sent")
    if not _is_known(dtype) and dtype.name != "bfloat16":
        raise WrongType(f"elements of dtype {dtype} cannot be sent; send array.view('u{dtype.itemsize}')")


def _is_known(dtype: DType) -> bool:
    """Whether NumPy itself knows the dtype, so that it knows it elsewhere, too."""
    if dtype.fields:
        return all(_is_known(field[0]) for field in dtype.fields.values())
    return dtype.base.isbuiltin != 2


def _descr(dtype: DType) -> Any:
    if dtype.name == "bfloat16":
        return "bf16"
    return np.lib.format.dtype_to_descr(dtype)


def _compact(array: Array) -> Words | None:
    try:
        code = _CODES.get(to_elem(array.dtype)[0])
    except WrongType:
        return None
    rest = array.shape[1:]
    bits = _bits(array.ndim)
    # Nothing would tell the first dimension where another is 0.
    if code is None or array.ndim > 15 or any(not 0 < n < 1 << bits for n in rest):
        return None
    packed = 0
    for n in rest:
        packed = packed << bits | n
    return code | array.ndim << 8 | packed >> 32 << 16, packed & 0xFFFF_FFFF


def _bits(ndim: int) -> int:
    return 48 // max(1, ndim - 1)


def _shape(first: int, second: int, nbytes: int, itemsize: int) -> tuple[int, ...]:
    ndim, packed = first >> 8 & 15, first >> 16 << 32 | second
    if ndim == 0:
        return ()
    bits, rest, size = _bits(ndim), [], itemsize
    for _ in range(ndim - 1):
        rest.append(packed & (1 << bits) - 1)
        packed >>= bits
        size *= rest[-1]
    if size == 0 or nbytes % size:
        raise ValueError(f"{nbytes} bytes are no rows of {size}")
    return (nbytes // size, *reversed(rest))


def _over(flat: Bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = 1
    for n in shape:
        count *= n
    if count * dtype.itemsize != flat.nbytes:
        raise ValueError(f"{flat.nbytes} bytes for shape {shape} of {dtype}")
    if flat.nbytes == 0:
        return np.empty(shape, dtype)
    array: Array = flat.view(dtype).reshape(shape)
    return array


def _dtype(descr: Any) -> DType:
    if descr == "bf16":
        return from_elem("bf16")
    dtype: DType = np.lib.format.descr_to_dtype(_tuples(descr))
    if dtype.hasobject:
        raise ValueError("elements are Python objects")
    return dtype


def _tuples(descr: Any) -> Any:
    """A structure's fields as NumPy has them: JSON has lists for tuples."""
    if not isinstance(descr, list):
        return descr
    fields = []
    for name, of, *shape in descr:
        fields.append((tuple(name) if isinstance(name, list) else name, _tuples(of), *map(_dims, shape)))
    return fields


def _dims(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{shape!r} is no shape")
    return tuple(shape)
