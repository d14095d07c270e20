"""NumPy dtypes and the element types of polyduct.

| NumPy | polyduct |
|---|---|
| ``bool``, ``int8`` … ``uint64``, ``float16``, ``float32``, ``float64``, ``complex64``, ``complex128`` | the same |
| ``S12``, ``V12``, a structured dtype of 12 bytes | ``bytes(12)``: only carried. Stores and ``.npy`` files keep what it is for NumPy |
| ``ml_dtypes.bfloat16``; without that package ``uint16``, asked for as ``"bf16"`` | ``bf16`` |

Data are little-endian. ``object``, ``str`` (``U``), ``datetime64``, ``timedelta64``, ``longdouble`` and
big-endian dtypes are refused.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from polyduct.errors import WrongType

DType: TypeAlias = "np.dtype[Any]"

_NAMES = {
    "bool": "?",
    "i8": "i1",
    "i16": "<i2",
    "i32": "<i4",
    "i64": "<i8",
    "u8": "u1",
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "f16": "<f2",
    "f32": "<f4",
    "f64": "<f8",
    "c64": "<c8",
    "c128": "<c16",
}
_ELEMS = {np.dtype(code): name for name, code in _NAMES.items()}


@functools.cache
def _bfloat16() -> DType:
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    bfloat16: DType = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def to_elem(dtype: DTypeLike) -> tuple[str, DType]:
    """The element type's name, and the dtype of the arrays that hold such elements here."""
    if isinstance(dtype, str) and dtype in ("bf16", "bfloat16"):
        return "bf16", _bfloat16()
    try:
        found = np.dtype(dtype)
    except TypeError as e:
        raise WrongType(f"dtype {dtype!r} is not understood: {e}") from None
    if found.name == "bfloat16":
        return "bf16", found
    elem = _ELEMS.get(found)
    if elem is not None:
        return elem, found
    if is_carried(found) and found.subdtype is None:
        return f"bytes({found.itemsize})", found
    if found.newbyteorder("<") != found and found.newbyteorder("<") in _ELEMS:
        raise WrongType(f"dtype {found.str!r} is big-endian; polyduct moves little-endian data only")
    expected = "bool, an integer, a float, a complex number, bytes or a structure"
    raise WrongType(f"elements of dtype {found} cannot be moved; expected {expected}")


def to_descr(dtype: DType) -> str | None:
    """What NumPy takes elements for that are only carried, as the header of a ``.npy`` file has it: None for
    plain bytes."""
    if dtype.kind == "S":
        return repr(f"|S{dtype.itemsize}")
    if dtype.names is None or dtype.kind != "V":
        return None
    try:
        found = ascii(dtype.descr)
        if from_elem(f"bytes({dtype.itemsize})", found) == dtype:
            return found
    except ValueError:
        pass
    raise WrongType(
        f"a store keeps structures as .npy files do, which have no form for {dtype}: its fields overlap, are not in the order of "
        f"their bytes, or are of a type of their own; store array.view('V{dtype.itemsize}')"
    )


def kept(url: str, dtype: DType) -> str | None:
    """The same, where the other end keeps that."""
    if url.startswith("store:") or url.endswith((".npy", ".npz")):
        return to_descr(dtype)
    if url != "-":
        return None
    try:
        return to_descr(dtype)
    except WrongType:
        # It may be a pipe, which carries bytes and nothing else.
        return None


def from_elem(elem: str, descr: str | None = None) -> DType:
    """The dtype of arrays that hold elements of this type, which NumPy takes for what a header describes."""
    plain = _plain(elem)
    if descr is None:
        return plain
    try:
        found: DType = np.lib.format.descr_to_dtype(ast.literal_eval(descr))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        # Somebody else's, and nothing for NumPy: then it is as many bytes.
        return plain
    return found if same(found, plain) else plain


def _plain(elem: str) -> DType:
    if elem == "bf16":
        return _bfloat16()
    if elem in _NAMES:
        return np.dtype(_NAMES[elem])
    return np.dtype(f"V{elem.removeprefix('bytes(').removesuffix(')')}")


def same(found: DType, expected: DType) -> bool:
    """Whether the bytes of one may stand for those of the other: equal, or both only carried and of one
    size."""
    return found == expected or (
        is_carried(found) and is_carried(expected) and found.itemsize == expected.itemsize
    )


def is_carried(dtype: DType) -> bool:
    """Whether the elements are bytes to polyduct, whatever NumPy takes them for."""
    return dtype.kind in "SV" and dtype.itemsize > 0 and dtype.name != "bfloat16" and not dtype.hasobject
