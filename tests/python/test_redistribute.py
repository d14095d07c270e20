"""Regrouping within one process, compared with NumPy slices."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest

import polyduct
from polyduct import Layout, _apart, redistribute

SHAPE = (17, 23)
SIDES = [
    (["block", "*"], [3]),
    (["*", "cyclic"], [4]),
    (["balanced", "block"], [2, 3]),
    (["cyclic(4)", "cyclic(5)"], [2, 2]),
]


def parts(full: np.ndarray, side: tuple[list[str], list[int]]) -> list[np.ndarray]:
    return [oracle.part(full, *side, unit) for unit in range(int(np.prod(side[1])))]


def layout(side: tuple[list[str], list[int]], order: str = "C") -> Layout:
    return Layout(oracle.text(*side, order=order), shape=SHAPE, units=int(np.prod(side[1])))


@pytest.mark.parametrize(("src", "dst"), list(itertools.product(SIDES, SIDES)), ids=str)
@pytest.mark.parametrize("dtype", ["u1", "f4", "c16", "V3"])
def test_against_slices(
    src: tuple[list[str], list[int]], dst: tuple[list[str], list[int]], dtype: str
) -> None:
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


def test_outputs_that_share_memory_are_refused_and_interleaved_ones_are_not() -> None:
    whole, two = Layout("block", shape=8, units=1), Layout("block", shape=8, units=2)
    y = np.full(8, -1.0)
    for out, words in [
        ([y[::2], y[2:6]], r"out\[0\] overlaps out\[1\]"),
        ([y[2:6], y[::2]], r"out\[0\] overlaps out\[1\]"),
        ([y[:4], y[3:7]], r"out\[0\] overlaps out\[1\]"),
        ([y[::-2], y[1::2]], r"out\[0\] overlaps out\[1\]"),
    ]:
        with pytest.raises(polyduct.Misuse, match=words):
            redistribute([np.arange(8.0)], whole, two, out)
        assert (y == -1).all(), "nothing was written"
    z = np.arange(16.0)
    with pytest.raises(polyduct.Misuse, match=r"out\[1\] overlaps parts\[0\]"):
        redistribute([z[4:12]], whole, two, [np.zeros(4), z[1::4]])
    with pytest.raises(polyduct.Misuse, match=r"out\[0\] overlaps parts\[1\]"):
        redistribute([np.zeros(4), z[4:8]], two, whole, [z[::2]])
    assert (z == np.arange(16)).all()

    for out in ([y[::2], y[1::2]], [y[::-2], y[::2]]):
        y[:] = -1
        redistribute([np.arange(8.0)], whole, two, out)
        assert [part.tolist() for part in out] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    # A part may be given twice, and lie between what is filled.
    redistribute([z[1:9:2], z[1:9:2]], two, whole, [z[::2]])
    assert z[::2].tolist() == [1, 3, 5, 7] * 2
    wide = np.zeros((4, 6))
    halves = Layout("*,block", shape=(4, 6), units=2)
    full = np.arange(24.0).reshape(4, 6)
    redistribute([full], Layout("*,*", shape=(4, 6), units=1), halves, [wide[:, :3], wide[:, 3:]])
    np.testing.assert_array_equal(wide, full)


def test_what_is_no_array_to_take_or_to_fill() -> None:
    whole = Layout("block", shape=4, units=1)
    full = np.arange(4.0)
    folded = np.lib.stride_tricks.as_strided(np.zeros(1), (4,), (0,))
    for parts_, out, words in [
        (None, None, "parts is None; expected a sequence"),
        ([full], 5, "out is 5; expected a sequence"),
        ([full], [folded], "lie in one place"),
        ([np.ma.array(full, mask=[0, 1, 0, 0])], None, "masked"),
    ]:
        with pytest.raises(polyduct.Misuse, match=words):
            redistribute(parts_, whole, whole, out)  # type: ignore[arg-type]
    [got] = redistribute([np.ma.array(full)], whole, whole)
    assert got.tolist() == [0, 1, 2, 3]


def test_outputs_of_which_it_is_too_hard_to_tell_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((60, 61, 62, 63), "u1")
    a, b = x[::7, ::6, ::5, ::4], x[1::6, 1::5, 1::4, 1::7]
    monkeypatch.setattr(_apart, "_WORK", 1)
    with pytest.raises(RuntimeError):
        np.shares_memory(a, b, max_work=1)
    with pytest.raises(polyduct.Misuse, match=r"out\[0\] overlaps out\[1\]"):
        _apart.check_apart([a, b], [])
    _apart.check_apart([a], [b.copy()])
    _apart.check_apart([x[:0], x], [x[:, :0]])


def test_large_parts_in_threads() -> None:
    full = np.arange(1024 * 2048, dtype="i8").reshape(1024, 2048)
    src, dst = (
        Layout("block,*", shape=full.shape, units=4),
        Layout("*,block;halo=0,3", shape=full.shape, units=3),
    )
    got = redistribute(np.split(full, 4), src, dst)
    for unit in range(3):
        np.testing.assert_array_equal(
            got[unit], oracle.part(full, ["*", "block"], [3], unit, [(0, 0), (3, 3)])
        )


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["u1", "f4", "V3"])
def test_large_new_arrays_begin_at_a_line(dtype: str, order: str) -> None:
    full = (
        np.random.default_rng(3)
        .integers(0, 256, 600 * 900 * np.dtype(dtype).itemsize, "u1")
        .view(dtype)
        .reshape(600, 900)
    )
    src = Layout("block,*", shape=full.shape, units=2)
    dst = Layout(f"*,block;order={order}", shape=full.shape, units=3)
    for unit, got in enumerate(redistribute([full[:300], full[300:]], src, dst)):
        assert got.ctypes.data % 64 == 0
        assert got.dtype == full.dtype and (
            got.flags.c_contiguous if order == "C" else got.flags.f_contiguous
        )
        np.testing.assert_array_equal(got, full[:, 300 * unit : 300 * (unit + 1)])


def test_misuse() -> None:
    a, b = Layout("block", shape=4, units=2), Layout("block", shape=4, units=1)
    two = [np.zeros(2), np.zeros(2)]
    with pytest.raises(polyduct.Misuse, match="1 parts for 2 units"):
        redistribute([np.zeros(4)], a, b)
    with pytest.raises(
        polyduct.WrongSize, match=r"^source, unit 1: the array has shape \(3,\); expected \(2,\)$"
    ) as size:
        redistribute([np.zeros(2), np.zeros(3)], a, b)
    assert (size.value.unit, size.value.expected, size.value.found, size.value.url) == (1, 16, 24, None)
    with pytest.raises(polyduct.WrongType, match="^source, unit 1: the array has dtype float32") as kind:
        redistribute([np.zeros(2), np.zeros(2, "f4")], a, b)
    assert (kind.value.unit, kind.value.expected, kind.value.found) == (1, "float64", "float32")
    with pytest.raises(polyduct.WrongSize, match="^destination, unit 0: "):
        redistribute(two, a, b, [np.zeros(3)])
    with pytest.raises(polyduct.WrongType, match="4 bytes"):
        redistribute(two, Layout("block", shape=4, units=2, itemsize=4), b)
    with pytest.raises(polyduct.LayoutError):
        redistribute(two, a, Layout("block", shape=5, units=1))
    with pytest.raises(polyduct.Misuse):
        redistribute(two, a, b, [])
    with pytest.raises(polyduct.Misuse, match="src is '\\*'; expected a polyduct.Layout"):
        redistribute(two, "*", b)  # type: ignore[arg-type]
    hole = Layout("boxes(0:1|2:4)", shape=4, units=2)
    with pytest.raises(polyduct.LayoutError, match="element") as e:
        redistribute([np.zeros(1), np.zeros(2)], hole, b)
    assert (e.value.reason, e.value.index, e.value.units, e.value.url) == ("hole", (1,), None, None)
    twice = Layout("boxes(0:3|2:4)", shape=4, units=2)
    with pytest.raises(polyduct.LayoutError) as e:
        redistribute([np.zeros(3), np.zeros(2)], twice, b)
    assert (e.value.reason, e.value.index, e.value.units) == ("overlap", (2,), (0, 1))
    x = np.zeros(4)
    with pytest.raises(polyduct.Misuse, match="overlap"):
        redistribute([x], b, b, [x])
