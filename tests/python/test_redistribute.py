"""Regrouping within one process, compared with NumPy slices."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest

import polyduct
from polyduct import Layout, redistribute

SHAPE = (17, 23)
SIDES = [(["block", "*"], [3]), (["*", "cyclic"], [4]), (["balanced", "block"], [2, 3]), (["cyclic(4)", "cyclic(5)"], [2, 2])]


def parts(full: np.ndarray, side: tuple[list[str], list[int]]) -> list[np.ndarray]:
    return [oracle.part(full, *side, unit) for unit in range(int(np.prod(side[1])))]


def layout(side: tuple[list[str], list[int]], order: str = "C") -> Layout:
    return Layout(oracle.text(*side, order=order), shape=SHAPE, units=int(np.prod(side[1])))


@pytest.mark.parametrize(("src", "dst"), list(itertools.product(SIDES, SIDES)), ids=str)
@pytest.mark.parametrize("dtype", ["u1", "f4", "c16", "V3"])
def test_against_slices(src: tuple[list[str], list[int]], dst: tuple[list[str], list[int]], dtype: str) -> None:
    raw = np.random.default_rng(2).integers(0, 256, 17 * 23 * np.dtype(dtype).itemsize, dtype="u1")
    full = raw.view(dtype).reshape(SHAPE)
    for orders in ("CC", "CF", "FC"):
        got = redistribute(parts(full, src), layout(src, orders[0]), layout(dst, orders[1]))
        assert [g.tobytes() for g in got] == [p.tobytes() for p in parts(full, dst)]
        assert all(g.dtype == full.dtype for g in got)


def test_out_is_filled_and_what_is_left_out_stays() -> None:
    full = np.arange(24.0).reshape(4, 6)
    src = Layout("*,*", shape=(4, 6), units=1)
    some = Layout("boxes(0:2,1:3|3:4,0:6)", shape=(4, 6), units=2)
    out = [np.zeros((2, 2)), np.zeros((6, 1)).T]
    got = redistribute([full], src, some, out)
    assert got[0] is out[0] and got[1] is out[1]
    np.testing.assert_array_equal(out[0], full[:2, 1:3])
    np.testing.assert_array_equal(out[1], full[3:])
    wide = np.full((4, 12), -1.0)
    [same] = redistribute([full], src, src, [wide[:, ::2]])
    np.testing.assert_array_equal(wide[:, ::2], full)
    assert (wide[:, 1::2] == -1).all() and np.shares_memory(same, wide)


def test_large_parts_in_threads() -> None:
    full = np.arange(1024 * 2048, dtype="i8").reshape(1024, 2048)
    src, dst = Layout("block,*", shape=full.shape, units=4), Layout("*,block;halo=0,3", shape=full.shape, units=3)
    got = redistribute(np.split(full, 4), src, dst)
    for unit in range(3):
        np.testing.assert_array_equal(got[unit], oracle.part(full, ["*", "block"], [3], unit, [(0, 0), (3, 3)]))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["u1", "f4", "V3"])
def test_large_new_arrays_begin_at_a_line(dtype: str, order: str) -> None:
    full = np.random.default_rng(3).integers(0, 256, 600 * 900 * np.dtype(dtype).itemsize, "u1").view(dtype).reshape(600, 900)
    src = Layout("block,*", shape=full.shape, units=2)
    dst = Layout(f"*,block;order={order}", shape=full.shape, units=3)
    for unit, got in enumerate(redistribute([full[:300], full[300:]], src, dst)):
        assert got.ctypes.data % 64 == 0
        assert got.dtype == full.dtype and (got.flags.c_contiguous if order == "C" else got.flags.f_contiguous)
        np.testing.assert_array_equal(got, full[:, 300 * unit : 300 * (unit + 1)])


def test_misuse() -> None:
    a, b = Layout("block", shape=4, units=2), Layout("block", shape=4, units=1)
    two = [np.zeros(2), np.zeros(2)]
    with pytest.raises(polyduct.Misuse, match="1 parts for 2 units"):
        redistribute([np.zeros(4)], a, b)
    with pytest.raises(polyduct.WrongSize):
        redistribute([np.zeros(2), np.zeros(3)], a, b)
    with pytest.raises(polyduct.WrongType):
        redistribute([np.zeros(2), np.zeros(2, "f4")], a, b)
    with pytest.raises(polyduct.WrongType, match="4 bytes"):
        redistribute(two, Layout("block", shape=4, units=2, itemsize=4), b)
    with pytest.raises(polyduct.LayoutError):
        redistribute(two, a, Layout("block", shape=5, units=1))
    with pytest.raises(polyduct.Misuse):
        redistribute(two, a, b, [])
    with pytest.raises(polyduct.Misuse, match="src is '\\*'; expected a polyduct.Layout"):
        redistribute(two, "*", b)  # type: ignore[arg-type]
    hole = Layout("boxes(0:1|2:4)", shape=4, units=2)
    with pytest.raises(polyduct.LayoutError, match="element"):
        redistribute([np.zeros(1), np.zeros(2)], hole, b)
    x = np.zeros(4)
    with pytest.raises(polyduct.Misuse, match="overlap"):
        redistribute([x], b, b, [x])
