"""Arrays lent where they lie, and words to a handler after put and get."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from conftest import Process
from test_domain import fresh, units
from test_domain_processes import JOIN, Start

import polyduct
from polyduct import Domain

INDICES: list[Any] = [
    ...,
    0,
    -1,
    (slice(None), 1),
    (slice(1, 4), slice(0, None, 2)),
    (slice(None, None, -1), ..., 2),
    (slice(2, 2),),
    (1, 2, 3, ...),
    (..., slice(1, 3)),
    (slice(None), slice(None), slice(None, None, -2)),
]


@pytest.mark.parametrize("dtype", ["f8", ">i4", "u1", "S5", [("a", "i4"), ("b", ">f8", (2,))]])
def test_every_part_of_a_lent_array_against_numpy(dtype: Any) -> None:
    def run(d: Domain) -> None:
        other = 1 - d.unit
        size = 5 * 4 * 7 * np.dtype(dtype).itemsize
        fill = np.random.default_rng(7).integers(48, 58, size, dtype="u1")
        mine = fill.copy().view(dtype).reshape(5, 4, 7)
        lent = d.lend("a", mine)
        assert lent.array is mine
        d.barrier()
        oracle = mine.copy()
        for index in INDICES:
            assert lent.get(other, index).tobytes() == oracle[index].tobytes(), index
        d.barrier()
        for n, index in enumerate(INDICES):
            part = np.zeros(oracle[index].shape, dtype)
            part.reshape(-1).view("u1")[...] = 48 + n
            oracle[index] = part
            lent.put(other, part, index)
            assert lent.get(other, index).tobytes() == part.tobytes()
        d.barrier()
        # The other did the same to this one.
        assert mine.tobytes() == oracle.tobytes()
        d.barrier()

    units(2, run)


def test_lent_arrays_are_found_by_name_refused_and_taken_back() -> None:
    def run(d: Domain) -> None:
        other = 1 - d.unit
        mine = np.arange(6.0 + d.unit)
        lent, number, empty = (
            d.lend("field", mine),
            d.lend(5, np.zeros((), "f4")),
            d.lend("none", np.empty((0, 3))),
        )
        buffer = bytearray(b"abc")
        raw = d.lend("raw", buffer)
        shared = d.region("field", (2,))
        with pytest.raises(polyduct.RegionError, match="lent 'field': .*already"):
            d.lend("field", np.zeros(1))
        for bad in (np.zeros((3, 3)).T[1:], np.broadcast_to(np.zeros(1), 3), b"read-only"):
            with pytest.raises(polyduct.Misuse):
                d.lend("bad", bad)  # type: ignore[arg-type]
        for bad in (np.array([None]), 3.5):
            with pytest.raises(polyduct.WrongType):
                d.lend("bad", bad)  # type: ignore[arg-type]
        d.barrier()
        assert lent.get(other).tolist() == list(range(6 + other)) and shared.get(other).tolist() == [0, 0]
        assert number.get(other) == 0 and empty.get(other).shape == (0, 3)
        raw.put(other, np.array([ord("x")], "u1"), slice(1, 2))
        lent.put(other, 40, 2)
        out = np.zeros(2)
        assert lent.get(other, slice(1, 3), out=out) is out and out.tolist() == [1, 40]
        for index in (99, slice(0, 99), (0, 0)):
            with pytest.raises(polyduct.RegionError):
                lent.put(other, 1.0, index)
        with pytest.raises(polyduct.WrongSize):
            lent.put(other, np.zeros(3), slice(0, 2))
        with pytest.raises(polyduct.WrongType):
            lent.put(other, np.zeros(2, "f4"), slice(0, 2))
        with pytest.raises(polyduct.NoUnit):
            lent.get(2)
        nothing = d.lend("elsewhere") if d.unit == 0 else d.lend("elsewhere", np.array([7]))
        d.barrier()
        assert mine[2] == 40 and buffer == b"axc"
        with pytest.raises(polyduct.RegionError):
            nothing.get(0)
        assert nothing.get(1).tolist() == [7]
        d.barrier()
        lent.withdraw()
        lent.withdraw()
        d.barrier()
        with pytest.raises(polyduct.RegionError, match="lent 'field': .*no such region"):
            lent.get(other)
        d.barrier()
        again = d.lend("field", np.array([[1, 2]], "i2"))
        d.barrier()
        assert lent.get(other).tolist() == again.get(other).tolist() == [[1, 2]]
        d.barrier()

    units(2, run)


def test_a_lent_array_is_kept_and_let_go() -> None:
    def run(d: Domain) -> None:
        array = np.zeros(100_000)
        gone = weakref.ref(array)
        lent: Any = d.lend("a", array)
        del array
        gc.collect()
        assert gone() is not None
        lent.withdraw()
        del lent
        gc.collect()
        assert gone() is None
        buffer = bytearray(10)
        held = d.lend("b", buffer)
        with pytest.raises(BufferError):
            buffer.extend(b"x")
        held.withdraw()
        d.leave()
        with pytest.raises(polyduct.Closed):
            held.get(0)
        with pytest.raises(polyduct.Closed):
            d.lend("c", buffer)

    units(1, run)


def test_a_notice_comes_when_the_values_are_there() -> None:
    def run(d: Domain) -> None:
        other, heard = 1 - d.unit, []
        mine, shared = np.zeros((300, 500)), d.region("s", (300, 500))
        lent = d.lend("l", mine)

        @d.handler("put")
        def put(from_: int, args: tuple[int, int, int, int], payload: bytes) -> None:
            array = mine if args[1] == 0 else shared.array
            heard.append((from_, args[0], bool((array == args[0]).all()), payload))

        d.handler("got", lambda from_, args, payload: heard.append((from_, args)))
        d.synchronise()
        for turn in range(1, 11):
            which: Any = [lent, shared][turn % 2]
            which.put(other, float(turn), notify=("put", turn, turn % 2))
            d.sendrecv(other, b"")
            assert heard[-1] == (other, turn, True, b"")
            d.barrier()
        for which in (lent, shared):
            values = which.get(other, 0, notify=("got", 1, 2, 3, 4))
            assert (values == values[0]).all()
        assert d.serve(lambda: len(heard) == 12, 30)
        assert heard[10:] == [(other, (1, 2, 3, 4))] * 2
        d.barrier()
        for bad in ("put", ("put", 1, 2, 3, 4, 5), (), (1,)):
            with pytest.raises(polyduct.Misuse):
                lent.put(other, 99.0, notify=bad)  # type: ignore[arg-type]
        with pytest.raises(polyduct.UnknownHandler):
            lent.put(other, 99.0, notify=("nobody",))
        with pytest.raises(polyduct.UnknownHandler):
            shared.put(other, 99.0, notify=("nobody",))
        d.barrier()
        assert mine[0, 0] == 10 and shared.array[0, 0] == 9 and len(heard) == 12
        d.barrier()

    units(2, run)


LENDS = (
    JOIN
    + """
lent = d.lend("a", np.full((1000, 1000), 7.0))
d.barrier()
say("ready")
wait()
"""
)


def test_the_death_of_who_lends_is_told_and_gives_no_wrong_values(start: Start) -> None:
    name = fresh()
    owner: Process = start(LENDS, name, 1, 2)
    d = polyduct.domain(name, unit=0, units=2, timeout=30)
    lent = d.lend("a")
    d.barrier()
    assert owner.hear() == "ready"
    with pytest.raises(polyduct.PeerLost) as e:
        for n in range(1_000_000):
            assert (lent.get(1) == 7).all()
            lent.put(1, np.full(1000, 7.0), n % 1000)
            if n == 20:
                owner.process.kill()
    assert e.value.unit == 1
    d.abort()
