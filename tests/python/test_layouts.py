"""Layouts: questions about who owns what."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import oracle
import pytest

import polyduct
from polyduct import Layout

DISTS = [
    ["block", "*"],
    ["*", "block"],
    ["cyclic", "balanced"],
    ["cyclic(2)", "block"],
    ["balanced", "cyclic(3)"],
]
GRIDS = {1: [3], 2: [2, 3]}


def test_the_example() -> None:
    halves = Layout("block,*", shape=(6, 4), units=2)
    assert halves.locate((3, 1)) == [(1, 1)]
    assert halves.local_shape(1) == (3, 4)
    assert halves.boxes(1) == [((3, 6), (0, 4))]
    assert (halves.shape, halves.units, halves.itemsize, halves.replicas) == ((6, 4), 2, 1, 1)


@pytest.mark.parametrize("dists", DISTS, ids=",".join)
@pytest.mark.parametrize("order", ["C", "F"])
def test_locate_agrees_with_the_oracle(dists: list[str], order: str) -> None:
    shape = (7, 11)
    grid = GRIDS[2 - dists.count("*")]
    units = int(np.prod(grid))
    layout = Layout(oracle.text(dists, grid, order=order), shape=shape, units=units)
    numbers = np.arange(77).reshape(shape)
    seen: list[tuple[int, int]] = []
    for unit in range(units):
        mine = oracle.part(numbers, dists, grid, unit)
        assert layout.local_shape(unit) == mine.shape
        for offset, number in enumerate(mine.ravel(order=order)):
            index = tuple(int(i) for i in np.unravel_index(number, shape))
            assert layout.locate(index) == [(unit, offset)]
            seen.append((unit, offset))
        inside = sorted(
            int(n) for box in layout.boxes(unit) for n in numbers[tuple(slice(*r) for r in box)].ravel()
        )
        assert inside == sorted(mine.ravel().tolist())
    assert len(set(seen)) == 77


def test_halo_and_replicas() -> None:
    layout = Layout("block,*;halo=1:2,0", shape=(6, 4), units=3)
    assert layout.boxes(1) == [((2, 4), (0, 4))]
    assert layout.boxes(1, halo=True) == [((1, 6), (0, 4))]
    assert layout.locate((2, 0)) == [(0, 8), (1, 4)]
    assert layout.locate((3, 0)) == [(0, 12), (1, 8), (2, 0)]
    assert layout.locate((2, 0), halo=False) == [(1, 4)]
    copies = Layout("block[1],*@2x3", shape=(6, 4), units=6)
    assert copies.replicas == 2
    assert [unit for unit, _ in copies.locate((0, 0))] == [0, 3]


def test_text_equality_and_repr() -> None:
    a = Layout(" cyclic( 1 ) , block ; order = 1,0", shape=(6, 4), units=4, itemsize=8)
    b = Layout("cyclic,block;order=F", shape=(6, 4), units=4, dtype="f8")
    assert str(a) == "cyclic,block;order=F"
    assert eval(repr(a), {"polyduct": polyduct}) == a
    assert a != Layout(a, shape=(6, 4), units=4, itemsize=4) and a != "cyclic,block;order=F"
    assert str(b) == str(a)
    assert len({a, Layout(a, shape=(6, 4), units=4, itemsize=8)}) == 1


def test_stripes_count_bytes() -> None:
    layout = Layout("stripe(16)", shape=(6,), units=2, itemsize=8)
    assert (layout.local_shape(0), layout.local_nbytes(1)) == ((32,), 16)
    assert layout.locate(2) == [(1, 0)]


@pytest.mark.parametrize(
    ("text", "position"), [("blok,*", 0), ("block,", 6), ("block,*;order=X", 14), ("cyclic(0)", 7), ("", 0)]
)
def test_a_bad_text_says_where(text: str, position: int) -> None:
    with pytest.raises(polyduct.LayoutError) as e:
        Layout(text, shape=(4, 4), units=2)
    assert (e.value.reason, e.value.position) == ("text", position)
    assert isinstance(e.value, ValueError) and isinstance(e.value, polyduct.Error)


def test_what_does_not_fit() -> None:
    for reason, call in [
        ("dims_differ", lambda: Layout("block", shape=(4, 4), units=2)),
        ("grid_size", lambda: Layout("block,block@2x2", shape=(4, 4), units=3)),
        ("unit_count", lambda: Layout("block", shape=(4,), units=0)),
        ("dataset_too_large", lambda: Layout("block", shape=(2**40, 2**40), units=2)),
        ("index_out_of_range", lambda: Layout("block", shape=(4,), units=2).locate(4)),
        ("index_dims", lambda: Layout("block", shape=(4,), units=2).locate((1, 1))),
        ("unit_out_of_range", lambda: Layout("block", shape=(4,), units=2).local_shape(2)),
    ]:
        with pytest.raises(polyduct.LayoutError) as e:
            call()
        assert (e.value.reason, e.value.position) == (reason, None)
    for misuse in [
        lambda: Layout("block", shape=(-1,), units=2),
        lambda: Layout("block", shape=(4,), units=2).locate(-1),
        lambda: Layout("block", shape=4.0, units=2),  # type: ignore[arg-type]
        lambda: Layout("block", shape=(4,), units=2, itemsize=4, dtype="f4"),
        lambda: Layout("block", shape=(4,), units=2, itemsize=0),
        lambda: Layout(None, shape=(4,), units=2),  # type: ignore[arg-type]
        lambda: Layout("block\udc80", shape=(4,), units=2),
        lambda: Layout(b"block", shape=(4,), units=2),  # type: ignore[arg-type]
    ]:
        with pytest.raises(polyduct.Misuse):
            misuse()


def test_no_limit_on_the_size_that_is_asked_about() -> None:
    layout = Layout("block,cyclic(64)@1024x768", shape=(10**8, 10**9), units=1024 * 768, itemsize=8)
    assert layout.locate((10**8 - 1, 10**9 - 1), halo=False)[0][0] < 1024 * 768


def test_layouts_pickle_and_copy() -> None:
    bound = Layout("block,*;halo=1~,0", shape=(6, 4), units=2, dtype="f4")
    stripes = Layout("stripe(16)", shape=(6, 4), units=2, dtype="f8")
    for one in (bound, stripes):
        for again in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert again == one and hash(again) == hash(one)
            assert again.boxes(1) == one.boxes(1) and again.itemsize == one.itemsize


def test_periodic_halo_is_a_wrapped_pad() -> None:
    full = np.arange(30).reshape(5, 6)
    source = Layout("...", shape=full.shape, units=1)
    torus = Layout("block,block@2x2;halo=1~,2:1~", shape=full.shape, units=4)
    parts = polyduct.redistribute([full], source, torus)
    padded = np.pad(full, ((1, 1), (2, 1)), mode="wrap")
    for unit, ((rows, columns),) in enumerate([torus.boxes(unit) for unit in range(4)]):
        np.testing.assert_array_equal(parts[unit], padded[rows[0] : rows[1] + 2, columns[0] : columns[1] + 3])
