"""Messages between units in threads of one process: what arrives, and what is refused."""

from __future__ import annotations

import _thread
import gc
import os
import re
import signal
import threading
import weakref
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import together
from domains import alone, fresh, units

import polyduct
from polyduct import Domain
from polyduct._encode import decode, encode

DTYPES = [
    *"? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split(),
    ml_dtypes.bfloat16,
    *">i4 >f8 S5 U3 V7 M8[ns] m8[s] g S0".split(),
    [("a", "i4"), ("b", ">f8", (2,))],
    np.dtype({"names": ["x"], "formats": ["u2"], "offsets": [4], "itemsize": 8}),
]
SHAPES = [
    (),
    (0,),
    (1,),
    (7,),
    (0, 5),
    (5, 0),
    (3, 4),
    (2, 3, 4),
    (2, 1, 2, 1, 2),
    (1,) * 15,
    (2,) + (1,) * 20,
]


def some(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of any dtype whose bytes are all different."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind in "?Ub":
        return np.resize(np.array([0, 1, 1], dtype), shape)
    if dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    return (np.arange(count) % 63).astype("u1").view(dtype).reshape(shape)


def same(a: Any, b: Any) -> bool:
    return (
        isinstance(a, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    )


def test_every_dtype_and_shape() -> None:
    arrays = [some(shape, dtype) for dtype in DTYPES for shape in SHAPES]

    def run(d: Domain) -> None:
        if d.unit == 0:
            for a in arrays:
                d.send(1, a)
        else:
            for a in arrays:
                got = d.recv(0)
                assert same(got, a), (a.dtype, a.shape, got)
                assert got.flags.writeable

    units(2, run)


def test_views_in_any_order() -> None:
    a = np.arange(3 * 4 * 5, dtype="f4").reshape(3, 4, 5)
    fortran = np.asfortranarray(a)
    read_only = a.copy()
    read_only.flags.writeable = False
    views = [
        a[:, ::2],
        a[::-1],
        a.T,
        fortran,
        fortran[1:],
        a[1, :, 3],
        a[..., None],
        np.broadcast_to(a[0], (6, 4, 5)),
        read_only,
    ]

    def run(d: Domain) -> None:
        for view in views:
            got = d.sendrecv(1 - d.unit, view)
            assert same(got, view)
            assert got.flags.f_contiguous or not view.flags.f_contiguous

    units(2, run)


@pytest.mark.parametrize("length", [4095, 4096, 100_000, 3 << 20, 40 << 20])
def test_long_ones_in_both_directions_at_once(length: int) -> None:
    def run(d: Domain) -> None:
        a = np.arange(length, dtype="u1") + np.uint8(d.unit)
        for _ in range(3):
            got = d.sendrecv((d.unit + 1) % 3, a, (d.unit + 2) % 3)
            assert got[0] == (d.unit + 2) % 3 and np.array_equal(got - got[0], a - np.uint8(d.unit))

    units(3, run)


def test_bytes_numbers_and_nothing_else() -> None:
    d = alone()
    for what in (b"", b"abc", b"x" * 100_000):
        for given in (what, bytearray(what), memoryview(what)):
            d.send(0, given)
            assert d.recv() == what
    d.send(0, np.float32(2.5))
    got = d.recv()
    assert same(got, np.array(2.5, "f4"))
    for wrong, named in [
        ([1], "list"),
        ("text", "str"),
        (None, "NoneType"),
        (3, "int"),
        (np.ma.zeros(3), "numpy.ma.MaskedArray"),
        (np.array([None]), "Python objects"),
        (np.zeros(2, ml_dtypes.float8_e5m2), "float8_e5m2"),
    ]:
        with pytest.raises(TypeError, match=named):
            d.send(0, wrong)  # type: ignore[arg-type]
    with pytest.raises(polyduct.Misuse, match="gaps"):
        d.send(0, memoryview(b"abcd")[::2])
    with pytest.raises(polyduct.NoUnit) as e:
        d.send(1, b"")
    assert (e.value.unit, e.value.units) == (1, 1)
    for wrong_tag in (-1, 2**32, "x"):
        with pytest.raises(polyduct.Misuse, match=f"tag is {wrong_tag!r};"):
            d.send(0, b"", wrong_tag)  # type: ignore[arg-type]
    d.leave()


def test_what_is_received_is_taken_by_unit_and_tag() -> None:
    def run(d: Domain) -> None:
        if d.unit == 2:
            assert d.try_recv() is None
            for unit in (0, 1):
                d.send(unit, b"go")
            assert d.recv(1, 7) == b"1:7"
            assert d.recv_from(tag=8) == (0, 8, b"0:8")
            found = d.recv_from(0)
            assert (found.unit, found.tag, found.data) == (0, 7, b"0:7")
            d.recv(1)
        else:
            d.recv(2)
            for tag in (7, 8) if d.unit == 0 else (5, 7):
                d.send(2, f"{d.unit}:{tag}".encode(), tag)
        d.barrier()

    units(3, run)


def test_out_is_filled() -> None:
    d = alone()
    a = np.arange(2000.0).reshape(50, 40)
    out = np.zeros((50, 80))[:, ::2]
    d.send(0, a)
    assert d.recv(out=out) is out and np.array_equal(out, a)
    for wrong, error in [
        (np.zeros((40, 50)), polyduct.WrongSize),
        (np.zeros((50, 40), "f4"), polyduct.WrongType),
    ]:
        d.send(0, a)
        with pytest.raises(error) as e:
            d.recv(out=wrong)
        assert np.array_equal(e.value.data, a)
    d.send(0, b"x")
    with pytest.raises(polyduct.WrongType, match="bytes"):
        d.recv(out=out)
    d.send(0, a)
    out.flags.writeable = False
    with pytest.raises(polyduct.Misuse, match="read-only"):
        d.recv(out=out)
    with pytest.raises(polyduct.WrongType, match="list"):
        d.recv(out=[1])  # type: ignore[call-overload]
    # Refused before it was taken.
    assert np.array_equal(d.recv(), a)
    d.leave()


def test_memory_that_was_given_back_is_used_again() -> None:
    def run(d: Domain) -> None:
        if d.unit == 0:
            for k in range(8):
                d.send(1, np.full(100_000, k))
            return
        kept, places = [], set()
        for k in range(8):
            got = d.recv(0)
            places.add(got.ctypes.data)
            if k % 2:
                kept.append((k, got))
        del got
        assert len(places) < 8
        assert all((a == k).all() for k, a in kept)

    units(2, run)


def test_a_received_array_outlives_its_domain() -> None:
    d = alone()
    d.send(0, np.arange(100_000))
    got = d.recv()
    d.leave()
    del d
    assert np.array_equal(got, np.arange(100_000))


def test_no_bytes_make_trouble() -> None:
    """What comes from another unit is input: it is an array, or an error that names the unit."""
    random = np.random.default_rng(5)
    good = [encode(some(shape, dtype)) for dtype in DTYPES for shape in SHAPES]
    for n in range(4000):
        (first, second), flat = good[n % len(good)]
        flat = flat.copy()
        for _ in range(random.integers(1, 4)):
            kind = random.integers(4)
            if kind == 0:
                first ^= 1 << int(random.integers(32))
            elif kind == 1:
                second ^= 1 << int(random.integers(32))
            elif kind == 2 and len(flat):
                flat[-int(random.integers(1, min(len(flat), 40) + 1))] ^= random.integers(256, dtype="u1")
            else:
                flat = flat[: random.integers(len(flat) + 1)]
        try:
            got = decode((first, second), flat, 9)
        except polyduct.BadPeer as e:
            assert e.unit == 9
        else:
            assert isinstance(got, (bytes, np.ndarray)) and (
                isinstance(got, bytes) or not got.dtype.hasobject
            )
    texts = [
        b'["O", [1]]',
        b"[[",
        b"[" * 9999,
        b'["f8", [-1]]',
        b'["f8", [1e3]]',
        b"{}",
        b'["f8", [true]]',
        b'[[["a"]], [1]]',
    ]
    for text in [*texts, f'["f8", [{2**70}]]'.encode(), b'[[["a", "O"]], [1]]', b'["f8", "1"]', b"\xff"]:
        flat = np.frombuffer(text + len(text).to_bytes(4, "little"), "u1")
        with pytest.raises(polyduct.BadPeer, match="unit 3"):
            decode((255, 0), flat, 3)


def test_different_collectives_do_not_wait_for_each_other() -> None:
    def run(d: Domain) -> None:
        with pytest.raises(polyduct.AtOdds) as e:
            d.barrier() if d.unit else d.synchronise()
        assert e.value.unit == 1 - d.unit

    units(2, run)


def test_an_exchange_is_no_circle() -> None:
    def run(d: Domain) -> None:
        d.send(1 - d.unit, b"later", 9)
        d.barrier()
        # More than the inbox, which holds something, and more than the ring.
        got = d.sendrecv(1 - d.unit, np.full(270 << 20, d.unit, "u1"), tag=1)
        assert len(got) == 270 << 20 and (got[::4096] == 1 - d.unit).all()
        assert d.recv(1 - d.unit, 9) == b"later"

    units(2, run)


def test_regions() -> None:
    def run(d: Domain) -> None:
        mine = d.region("field", (3 + d.unit, 4), "f4")
        ints = d.region(5, np.arange(6, dtype="i2"))
        empty = d.region("empty", (0, 3))
        point = d.region("point", np.float64(d.unit))
        assert (mine.array == 0).all() and ints.array.tolist() == list(range(6)) and empty.array.dtype == "f8"
        with pytest.raises(polyduct.RegionError, match="region 'field': .*already"):
            d.region("field", (1,))
        for beyond in ((2**62,), (2**62, 2**62), (2**45,)):
            with pytest.raises(polyduct.NoMemory, match=f"'r': shape {re.escape(str(beyond))}"):
                d.region("r", beyond)
        d.barrier()
        right, left = (d.unit + 1) % 3, (d.unit + 2) % 3
        assert mine.at(right).shape == (3 + right, 4) and mine.at(d.unit) is mine.array
        assert empty.get(right).shape == (0, 3) and point.get(right) == right and point.at(left).shape == ()
        mine.put(right, np.full((2, 2), d.unit + 1, "f4"), (slice(1, 3), slice(0, None, 2)))
        mine.put(right, [9, 8, 7, 6], -1)
        ints.put(right, 40, (..., 2))
        d.barrier()
        assert mine.array[1:3, ::2].tolist() == [[left + 1] * 2] * 2 or d.unit == 0
        assert mine.array[-1].tolist() == [9, 8, 7, 6] and ints.array[2] == 40
        out = np.zeros(4, "f4")
        assert mine.get(right, -1, out=out) is out and out.tolist() == [9, 8, 7, 6]
        copy = mine.get(right, (slice(None), 0))
        assert copy.shape == (3 + right,) and copy.base is None
        d.barrier()
        for index in (99, -99, slice(0, 99), (slice(None), slice(-9, 2)), (0, 0, 0), (..., ...), (0, 4)):
            with pytest.raises(polyduct.RegionError):
                mine.put(right, np.float32(1), index)
            with pytest.raises(IndexError):
                mine.get(right, index)
        for index in ("x", None, [0, 1], 1.5):
            with pytest.raises(polyduct.Misuse):
                mine.get(right, index)  # type: ignore[call-overload]
        with pytest.raises(polyduct.WrongSize):
            mine.put(right, np.zeros(3, "f4"), 0)
        with pytest.raises(polyduct.WrongType):
            mine.put(right, np.zeros(4), 0)
        with pytest.raises(polyduct.WrongType):
            mine.put(right, [1j] * 4, 0)
        with pytest.raises(polyduct.WrongType):
            mine.get(right, 0, out=np.zeros(4))
        with pytest.raises(polyduct.NoUnit):
            mine.at(3)
        if d.unit == 0:
            more = d.region("only here", (1,))
            with pytest.raises(polyduct.RegionError, match="region 'only here': .*unit 1"):
                more.at(1)
        with pytest.raises(polyduct.WrongType):
            d.region("objects", np.array([None]))
        kept.append((d, mine, mine.at(right), mine.array))
        d.barrier()

    kept: list[Any] = []
    units(3, run)
    for d, region, theirs, array in kept:
        assert array[-1].tolist() == [9, 8, 7, 6] == theirs[-1].tolist()
        for use in (
            lambda: region.at(d.unit),
            lambda: region.at((d.unit + 1) % 3),
            d.barrier,
            d.recv,
            d.status,
        ):
            with pytest.raises(polyduct.Closed):
                use()


def test_a_barrier_holds_all() -> None:
    came: list[int] = []

    def run(d: Domain) -> None:
        for round_ in range(20):
            came.append(round_)
            d.barrier()
            assert came.count(round_) == 4
            d.barrier()

    units(4, run)


def test_who_leaves_is_not_waited_for() -> None:
    def run(d: Domain) -> None:
        if d.unit == 2:
            d.send(0, np.arange(300_000))
            return
        if d.unit == 0:
            assert len(d.recv(2)) == 300_000
        with pytest.raises(polyduct.PeerLeft) as e:
            d.recv(2)
        assert e.value.unit == 2
        with pytest.raises(polyduct.PeerLeft):
            d.barrier()
        assert d.sendrecv(1 - d.unit, b"still here") == b"still here"

    units(3, run)


def test_an_exception_gives_up_and_the_others_learn_who() -> None:
    name = fresh()
    joined = threading.Barrier(3)

    def run(unit: int) -> object:
        try:
            with polyduct.domain(name, unit=unit, units=3, timeout=30) as d:
                joined.wait(30)
                if unit == 1:
                    raise KeyError("mine")
                d.recv()
        except (KeyError, polyduct.PeerLost) as e:
            return e
        return None

    first, mine, last = together(*[partial(run, unit) for unit in range(3)])
    assert isinstance(mine, KeyError)
    for e in (first, last):
        assert isinstance(e, polyduct.PeerLost)
        assert (e.unit, e.pid) == (1, os.getpid()) and "gave up" in str(e)


def test_on_loss_continue() -> None:
    name = fresh()

    def run(unit: int) -> None:
        d = polyduct.domain(name, unit=unit, units=3, timeout=30, on_loss="continue")
        if unit == 2:
            d.abort()
            return
        with pytest.raises(polyduct.PeerLost) as e:
            d.recv(2)
        assert e.value.unit == 2
        assert d.sendrecv(1 - unit, b"x") == b"x"
        d.leave()

    together(*[partial(run, unit) for unit in range(3)])


def test_joining_is_refused_by_name() -> None:
    name = fresh()
    with pytest.raises(polyduct.Refused) as missing:
        polyduct.domain(name, unit=0, units=3, open_timeout=0.05)
    assert missing.value.reason == "missing" and "unit 1" in str(missing.value)
    assert isinstance(missing.value, polyduct.TimeoutError)
    with pytest.raises(polyduct.TimeoutError):
        polyduct.domain(name, unit=1, units=2, open_timeout=0.05)
    for wrong in (
        {"name": "a/b", "unit": 0, "units": 1},
        {"name": "", "unit": 0, "units": 1},
        {"name": name, "unit": 0, "units": 1, "on_loss": "wait"},
        {"name": name, "unit": 0, "units": 1, "timeout": -1},
        {"name": name, "unit": 0, "units": 1, "open_timeout": float("inf")},
        {"name": name, "unit": 2**32, "units": 1},
    ):
        with pytest.raises(polyduct.BadOption):
            polyduct.domain(**wrong)  # type: ignore[arg-type]
    with pytest.raises(polyduct.NoUnit):
        polyduct.domain(name, unit=1, units=1)
    with pytest.raises(polyduct.LimitReached) as limit:
        polyduct.domain(name, unit=0, units=5000)
    assert (limit.value.limit, limit.value.found) == (4096, 5000)
    with pytest.raises(polyduct.Misuse, match="name of their domain"):
        polyduct.domain(unit=0, units=2)
    with polyduct.domain(name, unit=0, units=1) as d:
        assert repr(d) == f"<polyduct.Domain {name!r}: unit 0 of 1>"
        with pytest.raises(polyduct.NameTaken) as taken:
            polyduct.domain(name, unit=0, units=1)
        assert taken.value.unit == 0
    assert d.closed and "left" in repr(d)
    d.leave()
    with polyduct.domain() as d:
        assert (d.unit, d.units) == (0, 1)


def test_sizes_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_MESSAGE_INBOX", "1MiB")
    d = alone()
    assert d.config()["inbox"] == 1 << 20
    d.send(0, bytes(1 << 20))
    with pytest.raises(polyduct.LimitReached, match="1048576 allowed"):
        d.send(0, b"one more")
    d.leave()
    monkeypatch.setenv("POLYDUCT_MESSAGE_RING", "many")
    with pytest.raises(polyduct.ConfigError) as e:
        alone()
    assert (e.value.reason, e.value.place) == ("bad_value", "POLYDUCT_MESSAGE_RING")


def test_another_thread_leaves() -> None:
    name = fresh()
    d = [None, None]

    def join(unit: int) -> None:
        d[unit] = polyduct.domain(name, unit=unit, units=2)  # type: ignore[call-overload]

    together(partial(join, 0), partial(join, 1))
    one, other = d
    assert isinstance(one, Domain) and isinstance(other, Domain)
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        with pytest.raises(polyduct.Closed):
            one.recv()

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    one.leave()
    thread.join()
    other.leave()
    with pytest.raises(polyduct.Closed, match="left"):
        one.send(1, b"")


def test_who_is_forgotten_leaves() -> None:
    """Also where its handlers know it."""
    name = fresh()
    d = polyduct.domain(name, unit=0, units=1)
    d.handler("me", lambda *_: d)
    d.synchronise()
    gone = weakref.ref(d)
    del d
    gc.collect()
    assert gone() is None
    polyduct.domain(name, unit=0, units=1).leave()


def test_who_leaves_waits_until_all_is_taken_or_says_so() -> None:
    """A handler's answers wait for room that the other does not make; the domain's timeout ends that on both
    sides."""
    name, left = fresh(), threading.Event()

    def run(unit: int) -> None:
        d = polyduct.domain(name, unit=unit, units=2, timeout=30 if unit == 0 else 0.3)
        d.handler(
            "many", lambda from_, args, payload: [d.send(0, bytes(1 << 20)) for _ in range(50)] and None
        )
        d.synchronise()
        if unit == 1:
            d.post(1, "many")
            with pytest.raises(polyduct.TimeoutError, match="others to take what was sent"):
                d.leave()
            d.leave()
            left.set()
            return
        left.wait(30)
        with pytest.raises(polyduct.PeerLost, match="unit 1 .*gave up") as lost:
            for _ in range(50):
                d.recv(1)
        assert lost.value.unit == 1

    together(lambda: run(0), lambda: run(1))


def test_ctrl_c_ends_a_leave_that_waits() -> None:
    name, leaving, left = fresh(), threading.Event(), threading.Event()
    told: list[BaseException] = []
    # Whatever started the tests may have had it ignored, as shells do of what runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def other() -> None:
        d = polyduct.domain(name, unit=0, units=2, timeout=30)
        d.synchronise()
        leaving.wait(30)
        _thread.interrupt_main()
        # It takes nothing meanwhile.
        left.wait(30)
        try:
            d.barrier()
        except polyduct.PeerLost as e:
            told.append(e)
        d.leave()

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(KeyboardInterrupt), polyduct.domain(name, unit=1, units=2, timeout=30) as d:
        d.handler(
            "many", lambda from_, args, payload: [d.send(0, bytes(1 << 20)) for _ in range(50)] and None
        )
        d.synchronise()
        d.post(1, "many")
        leaving.set()
    left.set()
    thread.join(30)
    assert [str(e) for e in told] and "unit 1" in str(told[0]) and "gave up" in str(told[0])


def test_a_handler_cannot_leave() -> None:
    def run(d: Domain) -> None:
        seen: list[str] = []

        def leave(from_: int, args: object, payload: bytes) -> None:
            try:
                d.leave()
            except polyduct.InHandler:
                seen.append("refused")

        d.handler("leave", leave)
        d.synchronise()
        d.post(d.unit, "leave")
        assert seen == ["refused"]
        d.barrier()

    units(2, run)


def test_common_messages_need_nothing_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an array of a common dtype costs is one native call on each side, and it is what the others get by
    `_encode`."""

    def refuse(*_: object) -> None:
        raise AssertionError("this took the long way")

    common = [np.dtype(code) for code in "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 q Q".split()]
    arrays = [
        some(shape, dtype) for dtype in common for shape in [(), (0,), (3,), (3, 4), (2, 3, 4), (1,) * 15]
    ]
    arrays += [np.asfortranarray(some((3, 4, 5), "f4")), np.arange(100_000.0), b"", b"abc", b"x" * 100_000]
    expected = [a if isinstance(a, bytes) else decode(*encode(a), 0) for a in arrays]

    def run(d: Domain) -> None:
        d.function("same")(lambda x: x)
        d.synchronise()
        d.barrier()
        if d.unit == 0:
            monkeypatch.setattr("polyduct._encode.encode", refuse)
            monkeypatch.setattr("polyduct._encode.decode", refuse)
        d.barrier()
        for a, wanted in zip(arrays, expected):
            got = d.sendrecv(1 - d.unit, a)
            assert got == wanted if isinstance(a, bytes) else same(got, wanted)
            d.send(1 - d.unit, a)
            if isinstance(a, np.ndarray):
                assert got.flags.f_contiguous == wanted.flags.f_contiguous
                out = np.empty_like(a)
                assert d.recv(out=out) is out and same(out, a)
            else:
                d.recv()
        if d.unit == 0:
            for a in arrays:
                got = d.call(1, "same", a).result()
                assert got == a if isinstance(a, bytes) else same(got, a)
            d.send(1, b"done")
        else:
            d.serve(lambda: d.status().mails)
        d.barrier()

    units(2, run)


def test_numbers_that_are_none_are_named() -> None:
    d = alone()
    d.handler("h", lambda *_: None)
    d.synchronise()
    for wrong in (-1, 2**32, "x", 1.0, None):
        for call in (
            lambda: d.send(wrong, b""),  # type: ignore[arg-type]
            lambda: d.post(wrong, "h"),  # type: ignore[arg-type]
            lambda: d.post(0, "h", wrong),  # type: ignore[arg-type]
            lambda: d.call(wrong, "h"),  # type: ignore[arg-type]
        ):
            with pytest.raises(polyduct.BadOption, match=re.escape(f"{wrong!r}; expected an integer from 0")):
                call()
    with pytest.raises(polyduct.Misuse, match="5 arguments"):
        d.post(0, "h", 1, 2, 3, 4, 5)
    d.send(np.uint8(0), b"a", np.int64(3))  # type: ignore[arg-type]
    assert d.recv_from(True and 0, 3) == (0, 3, b"a")
    d.leave()
