"""Every dtype arrives as itself; what cannot be moved is refused by name."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import together

import polyduct
from polyduct import _dtypes

POINT = np.dtype([("x", "<f4"), ("id", "<i2"), ("tag", "S2")])
MOVED = [
    "?",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    "S5",
    "V7",
    POINT,
]


@pytest.mark.parametrize("code", [*MOVED, ml_dtypes.bfloat16], ids=str)
def test_a_dtype_arrives(pipe: str, code: object) -> None:
    dtype = np.dtype(code)
    raw = np.random.default_rng(1).integers(0, 2, 6 * dtype.itemsize, dtype="u1")
    full = raw.view(dtype)

    def writer() -> None:
        with polyduct.open(pipe, "w", shape=6, dtype=code, layout="*") as out:
            assert out.dtype == dtype
            with out.step() as a:
                assert a.dtype == dtype
                a[...] = full
            out.write(full)

    def reader() -> None:
        port = polyduct.open(pipe, layout="*", dtype=code)
        assert port.dtype == dtype
        for b in port:
            assert b.dtype == dtype and b.tobytes() == full.tobytes()

    together(writer, reader)


def test_what_a_reader_gets_that_says_nothing() -> None:
    for code in MOVED:
        elem, local = _dtypes.to_elem(code)
        expected = local if local.kind not in "SV" else np.dtype(f"V{local.itemsize}")
        assert _dtypes.from_elem(elem) == expected


def test_bf16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    _dtypes._bfloat16.cache_clear()
    try:
        assert _dtypes.to_elem("bf16") == ("bf16", np.dtype("u2"))
        assert _dtypes.from_elem("bf16") == np.dtype("u2")
    finally:
        _dtypes._bfloat16.cache_clear()


@pytest.mark.parametrize(
    "code", [object, "U3", "M8[s]", "m8[s]", "g", "V0", "nonsense", ">f4", [("x", object)]], ids=str
)
def test_what_is_refused(pipe: str, code: object) -> None:
    with pytest.raises(polyduct.WrongType) as e:
        polyduct.open(pipe, "w", shape=6, dtype=code, layout="*")  # type: ignore[call-overload]
    assert isinstance(e.value, TypeError) and isinstance(e.value, ValueError)


def test_a_dtype_that_does_not_match(pipe: str) -> None:
    def writer() -> None:
        with polyduct.open(pipe, "w", shape=6, dtype="f4", layout="*") as out:
            for wrong in [np.zeros(6), np.zeros(6, ">f4"), np.zeros(6, "i4"), np.zeros(6, "V4"), ["a"] * 6]:
                with pytest.raises(polyduct.WrongType, match=f"^{pipe}, unit 0: ") as kind:
                    out.write(wrong)
                assert (kind.value.url, kind.value.unit, kind.value.expected) == (pipe, 0, "float32")
            for size in [np.zeros(5, "f4"), np.zeros((6, 1), "f4"), 1.0]:
                with pytest.raises(polyduct.WrongSize, match=f"^{pipe}, unit 0: ") as e:
                    out.write(size)
                assert (e.value.url, e.value.unit, e.value.expected) == (pipe, 0, 24)
            assert e.value.found == 4
            out.write([1, 2, 3, 4, 5, 6.5])

    def reader() -> None:
        with polyduct.open(pipe, layout="*") as port:
            for out in [np.zeros(6), [0.0] * 6]:
                with pytest.raises(polyduct.WrongType):
                    port.read(out)  # type: ignore[call-overload]
            with pytest.raises(polyduct.WrongSize, match=f"^{pipe}, unit 0: "):
                port.read(np.zeros(7, "f4"))
            frozen = np.zeros(6, "f4")
            frozen.flags.writeable = False
            with pytest.raises(polyduct.Misuse, match="read-only"):
                port.read(frozen)
            np.testing.assert_array_equal(port.read(), [1, 2, 3, 4, 5, 6.5])

    together(writer, reader)


def test_a_list_of_fractions_is_not_cut_to_integers(pipe: str) -> None:
    def writer() -> None:
        with polyduct.open(pipe, "w", shape=2, dtype="i4", layout="*") as out:
            with pytest.raises(polyduct.WrongType):
                out.write([1.5, 2.5])
            out.write([1, 2])

    together(writer, lambda: list(polyduct.open(pipe, layout="*")))


@pytest.mark.parametrize(
    ("dtype", "fits", "does_not"),
    [
        ("i1", [127, -128], [[300, 1], [1, -129], [2**70, 1], [np.int64(300), 1], [np.array(300), 1]]),
        ("u1", [1, 255], [[1, 256], [1, -1], [1.0, 2.0]]),
        ("u8", [2**64 - 1, 0], [[1, -1], [2**64, 1]]),
        ("f4", [float("inf"), 0.5], [[1e300, float("inf")], [0.5, -1e39]]),
    ],
)
def test_a_list_of_numbers_fits_or_is_refused(
    pipe: str, dtype: str, fits: list[float], does_not: list[list[Any]]
) -> None:
    def writer() -> None:
        with polyduct.open(pipe, "w", shape=2, dtype=dtype, layout="*") as out:
            for values in does_not:
                with pytest.raises(polyduct.WrongType):
                    out.write(values)
            if dtype == "i1":
                with pytest.raises(
                    polyduct.WrongType, match="300 does not fit into int8; expected -128 to 127"
                ):
                    out.write([1, 300])
            out.write(fits)

    _, steps = together(writer, lambda: [a.tolist() for a in polyduct.open(pipe, layout="*")])
    assert steps == [fits]
