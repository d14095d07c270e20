"""Stores: arrays on several disks, by ports and by index."""

from __future__ import annotations

import fcntl
import inspect
import os
import pickle
import re
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Process, together

import polyduct

Start = Callable[..., Process]
RANDOM = np.random.default_rng(7)
FULL = RANDOM.random((6, 50, 40)).astype("f4")


@pytest.fixture(params=[(1, 0), (3, 1), (6, 2)], ids=lambda p: f"{p[0] - p[1]}+{p[1]}")
def store(tmp_path: Path, request: pytest.FixtureRequest) -> polyduct.Store:
    units, parity = request.param
    return polyduct.Store.create(tmp_path / "s", units, parity=parity, stripe="8KiB")


@pytest.fixture
def small(tmp_path: Path) -> polyduct.Store:
    return polyduct.Store.create(tmp_path / "s", 3, parity=1, stripe=4096)


def write_steps(store: polyduct.Store, name: str, steps: Any, **more: Any) -> None:
    with polyduct.open(
        f"store:{store.path}/{name}", "w", shape=steps[0].shape, dtype=steps[0].dtype,
        layout=",".join("*" * steps[0].ndim), unit=0, units=1, **more,
    ) as out:  # fmt: skip
        for step in steps:
            out.write(step)


def lose(store: polyduct.Store, unit: int) -> None:
    os.rename(Path(store.path) / f"unit{unit}", Path(store.path) / f"away{unit}")


@pytest.mark.parametrize("lost", [False, True])
def test_parallel_programs_write_and_read_through_ports(
    small: polyduct.Store, start: Start, lost: bool
) -> None:
    if lost:
        lose(small, 1)
    url = f"store:{small.path}/run/field"
    writer = """
        url, unit = sys.argv[1], int(sys.argv[2])
        full = np.arange(4 * 30 * 20, dtype="f8").reshape(4, 30, 20)
        with polyduct.open(url, "w", shape=(30, 20), dtype="f8", layout="block,*", unit=unit, units=3, timeout=60) as out:
            assert not out.closed and out.next_step == 0
            for n, step in enumerate(full):
                if n % 2:
                    out.write(step[unit * 10 : unit * 10 + 10])
                else:
                    with out.step() as a:
                        a[...] = step[unit * 10 : unit * 10 + 10]
    """
    reader = """
        url, unit = sys.argv[1], int(sys.argv[2])
        full = np.arange(4 * 30 * 20, dtype="f8").reshape(4, 30, 20)
        port = polyduct.open(url, layout="*,block;halo=0,1", unit=unit, units=2, timeout=60)
        assert (port.shape, port.dtype) == ((30, 20), "f8")
        steps = [a.copy() for a in port]
        assert np.array_equal(steps, full[:, :, :11] if unit == 0 else full[:, :, 9:])
    """
    for code, units in ((writer, 3), (reader, 2)):
        programs = [start(code, url, unit) for unit in range(units)]
        assert [program.end() for program in programs] == [(0, "", "")] * units
    a = small["run/field"]
    np.testing.assert_array_equal(a, np.arange(2400.0).reshape(4, 30, 20))
    assert (a.steps, a.shape, a.dtype, list(small)) == (4, (4, 30, 20), np.float64, ["run/field"])
    assert list(small.status().lost) == ([1] if lost else [])


@pytest.mark.parametrize("dtype", ["?", "i1", "<u2", "<i4", "<i8", "<f2", "<f8", "<c16", "S5", "bf16"])
def test_what_is_put_in_comes_out(small: polyduct.Store, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    of = ml_dtypes.bfloat16 if dtype == "bf16" else np.dtype(dtype)
    for shape in ((), (7,), (0, 3), (30, 500)):
        full = (RANDOM.random(shape) * 100).astype(of)
        small["x"] = full
        a = small["x"]
        assert (a.shape, a.ndim, a.size, a.nbytes) == (full.shape, full.ndim, full.size, full.nbytes)
        assert a.dtype == of
        np.testing.assert_array_equal(np.asarray(a).view(of), full)
        np.testing.assert_array_equal(np.asarray(a, dtype=a.dtype, copy=True).view(of), full)
    with pytest.raises(ValueError):
        np.asarray(a, copy=False)
    small["t"] = FULL.T
    small["list"] = [[1, 2], [3, 4]]
    np.testing.assert_array_equal(small["t"], FULL.T)
    np.testing.assert_array_equal(small["list"], [[1, 2], [3, 4]])


POINT = np.dtype([("x", "<f4"), ("name", "S3"), ("é", ">i2", (2,)), ("in", [("t", "<M8[ns]"), ("u", "<U2")])])


def content(array: Any) -> list[bytes]:
    """The bytes of all fields: NumPy copies no padding."""
    return [array[name].tobytes() for name in array.dtype.names] if array.dtype.names else [array.tobytes()]


@pytest.mark.parametrize(
    "dtype", ["S2", POINT, np.dtype("i1,f8", align=True), np.dtype([(("long", "s"), "u1")]), "V3"], ids=str
)
def test_bytes_and_structures_stay_what_they_are(small: polyduct.Store, tmp_path: Path, dtype: Any) -> None:
    full = RANDOM.bytes(6 * np.dtype(dtype).itemsize)
    steps = np.frombuffer(full, dtype).reshape(3, 2)
    small["x"] = steps
    assert small["x"].dtype == steps.dtype and content(small["x"][...]) == content(steps)
    small["x"][1] = steps[0]
    assert content(small["x"][1:]) == content(steps[[0, 2]])
    write_steps(small, "y", steps)
    write_steps(small, "y", steps, append=True)
    assert small["y"].dtype == steps.dtype and small["y"].shape == (6, 2)
    with polyduct.open(f"store:{small.path}/y", layout="*", unit=0, units=1) as port:
        assert port.dtype == steps.dtype and content(next(port)) == content(steps[0])
    if steps.dtype.kind == "S" or steps.dtype.names:
        with pytest.raises(polyduct.Misuse, match='what is appended to "y"'):
            write_steps(small, "y", steps.view([(f"f{n}", "u1") for n in range(steps.itemsize)]), append=True)
    with polyduct.open(tmp_path / "y.npy", "w", shape=2, dtype=dtype, layout="*", unit=0, units=1) as out:
        out.write(steps[0])
    assert np.load(tmp_path / "y.npy").dtype == steps.dtype
    with polyduct.open(tmp_path / "y.npy", layout="*", unit=0, units=1) as port:
        assert port.dtype == steps.dtype


def test_what_a_store_would_not_give_back_as_it_was_is_refused(small: polyduct.Store) -> None:
    overlap = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 2]})
    turned = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i4"], "offsets": [4, 0]})
    for dtype in ("U4", "M8[s]", object, overlap, turned):
        with pytest.raises(polyduct.WrongType):
            small["x"] = np.zeros(3, dtype)
    with pytest.raises(polyduct.WrongType, match=r"store array.view\('V8'\)"):
        small["x"] = np.zeros(3, turned)
    assert "x" not in small


def some_index(n: int, ints: bool = True) -> Any:
    kind = RANDOM.integers(5)
    if kind == 0 and n and ints:
        return int(RANDOM.integers(-n, n))
    if kind == 1:
        return slice(None)
    ends = [None if RANDOM.random() < 0.2 else int(k) for k in RANDOM.integers(-n - 3, n + 3, 2)]
    step = [None, 1, 2, 7, -1, -3][RANDOM.integers(6)]
    return slice(*ends, step)


def some_key(shape: tuple[int, ...]) -> Any:
    key = [some_index(n) for n in shape]
    way = RANDOM.integers(4)
    if way == 1:
        key = key[: RANDOM.integers(len(key) + 1)]
    elif way == 2:
        at = RANDOM.integers(len(key) + 1)
        key[at : at + RANDOM.integers(3)] = [...]
    elif way == 3:
        key.insert(RANDOM.integers(len(key) + 1), None)
    return key[0] if len(key) == 1 and RANDOM.random() < 0.5 else tuple(key)


@pytest.mark.parametrize("lost", [False, True])
def test_any_slice_is_what_numpy_says(store: polyduct.Store, lost: bool) -> None:
    write_steps(store, "steps", FULL)
    store["one"] = FULL[0]
    store["vector"] = FULL.reshape(-1)
    if lost and store.status().parity:
        lose(store, 0)
    for name, full in (("steps", FULL), ("one", FULL[0]), ("vector", FULL.reshape(-1))):
        a = store[name]
        for _ in range(40 if lost else 150):
            key = some_key(full.shape)
            got, expected = a[key], full[key]
            assert (type(got), got.dtype) == (type(expected), expected.dtype), key
            np.testing.assert_array_equal(got, expected, err_msg=str(key))
        assert len(a) == len(full)
        np.testing.assert_array_equal(list(a)[:6], full[:6])


def test_arrays_and_masks_as_indices(small: polyduct.Store) -> None:
    small["x"] = FULL
    a = small["x"]
    mask = RANDOM.random(50) < 0.3
    for key in (
        [1, 4],
        ([1, 4], slice(None), 3),
        (slice(None, None, -1), mask),
        (..., [-1, 0, 0]),
        ([[0], [5]], [3, 4, 7]),
        (2, None, [1, 2], slice(3, 9)),
        ([1, 2], slice(None), [5, 6]),
        (0, [], slice(4)),
        (np.int64(3), np.uint8(2)),
        slice(None, None, 2**70),
        (1, slice(7, None, -(2**70))),
        slice(-(2**70), 2**70, 2),
        (slice(2**70, -(2**70), -3), slice(2**70, None)),
    ):
        got, expected = a[key], FULL[key]
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got, expected, err_msg=str(key))


@pytest.mark.parametrize(
    "key",
    [
        9,
        (0, 50),
        (0, 0, 0, 0),
        (..., ...),
        True,
        1.5,
        "x",
        (0, [60]),
        [[True] * 50] * 6,
        slice(0.5),
        slice(0, 5, 0),
        2**70,
    ],
)
def test_what_is_no_index(small: polyduct.Store, key: Any) -> None:
    small["x"] = FULL
    with pytest.raises(polyduct.BadIndex) as e:
        small["x"][key]
    assert isinstance(e.value, IndexError)


def test_boxes_are_overwritten(store: polyduct.Store) -> None:
    full = FULL.copy()
    write_steps(store, "x", full)
    a, other = store["x"], store["x"]
    for turn in range(12):
        key = some_key(full.shape)
        if turn == 6 and store.status().parity:
            lose(store, 1)
        shape = full[key].shape
        # NumPy's broadcasting, and a scalar.
        values = RANDOM.random(shape[1:] if turn % 3 == 1 else shape).astype("f4")
        given: Any = 5 if turn % 3 == 2 else values
        full[key] = given
        a[key] = given
        np.testing.assert_array_equal(other[key], full[key])
    for one in (a, store["x"]):
        np.testing.assert_array_equal(one, full)


def test_a_port_reads_and_overwrites_any_box(small: polyduct.Store, tmp_path: Path) -> None:
    steps = np.arange(2 * 30 * 20, dtype="i4").reshape(2, 30, 20)
    write_steps(small, "x", steps)
    url = f"store:{small.path}/x"
    with polyduct.open(url, layout="block,*", unit=0, units=1) as port:
        box = port.at(((5, 9), (3, 20)))
        assert (box.shape, box.box) == ((4, 17), ((5, 9), (3, 20)))
        assert (box.read() == steps[0, 5:9, 3:20]).all()
        next(port)
        next(port)
        assert (box.read() == steps[1, 5:9, 3:20]).all(), "of the last step that was read"
        out = np.zeros((17, 4), "i4").T
        assert box.read(0, out=out) is out
        assert (out == steps[0, 5:9, 3:20]).all()
        box.write(-out, 0)
        assert (box.read(0) == -steps[0, 5:9, 3:20]).all()
        assert (box.read(1) == steps[1, 5:9, 3:20]).all()
        # What another unit has of a layout is such a box.
        other = polyduct.Layout("*,block", shape=port.shape, units=4).boxes(3)[0]
        assert (port.at(other).read(1) == steps[1][:, 15:]).all()
        assert port.at(((7, 7), (0, 20))).read().shape == (0, 20)
        for bad in [((0, 31), (0, 20)), ((5, 4), (0, 20)), ((0, 1),), 7, ((0, 1), (0.5, 1))]:
            with pytest.raises(polyduct.BadIndex, match="box"):
                port.at(bad)  # type: ignore[arg-type]
        with pytest.raises(polyduct.WrongSize):
            box.write(np.zeros((4, 16), "i4"))
        with pytest.raises(polyduct.WrongType):
            box.write(np.zeros((4, 17), "f8"))
        with pytest.raises(polyduct.Misuse, match="step"):
            box.read(2)
    with pytest.raises(polyduct.Closed):
        box.read()
    expected = steps.copy()
    expected[0, 5:9, 3:20] *= -1
    assert (small["x"][...] == expected).all()
    path = tmp_path / "x.npy"
    np.save(path, steps[0])
    with (
        polyduct.open(path, layout="*,*", unit=0, units=1) as port,
        pytest.raises(polyduct.Misuse, match="store"),
    ):
        port.at(((0, 1), (0, 1)))


def test_what_does_not_fit_is_not_written(small: polyduct.Store) -> None:
    small["x"] = np.arange(20, dtype="i2").reshape(4, 5)
    a = small["x"]
    for key, value, error in [
        (0, [1, 2, 3], polyduct.WrongSize),
        (0, [[1] * 5] * 2, polyduct.WrongSize),
        (0, 1.5, polyduct.WrongType),
        (0, 70000, polyduct.WrongType),
        (0, np.zeros(5, "i4"), polyduct.WrongType),
        ([0, 1], 0, polyduct.BadIndex),
        (4, 0, polyduct.BadIndex),
    ]:
        with pytest.raises(error):
            a[key] = value
    np.testing.assert_array_equal(a, np.arange(20).reshape(4, 5))


def test_programs_overwrite_different_boxes_at_once(small: polyduct.Store, start: Start) -> None:
    full = np.zeros((8, 600), "i4")
    small["x"] = full
    code = """
        store, unit = polyduct.Store(sys.argv[1]), int(sys.argv[2])
        a = store["x"]
        say("ready")
        wait()
        for row in range(unit, 8, 2):
            a[row, ::2] = 10 * row + 1 + unit
    """
    programs = [start(code, small.path, unit) for unit in range(2)]
    assert [program.hear() for program in programs] == ["ready"] * 2
    for program in programs:
        program.tell()
    a = small["x"]
    expected = 10 * np.arange(8)[:, None] + 1 + np.arange(8)[:, None] % 2
    while any(program.process.poll() is None for program in programs):
        got = a[...]
        assert ((got == 0) | (got == expected)).all()
    assert [program.end() for program in programs] == [(0, "", "")] * 2
    full[:, ::2] = expected
    np.testing.assert_array_equal(a, full)


def test_steps_are_appended(small: polyduct.Store) -> None:
    write_steps(small, "x", FULL[:1], append=True)
    first = small["x"]
    assert first.shape == FULL.shape[1:]
    write_steps(small, "x", FULL[1:], append=True)
    np.testing.assert_array_equal(small["x"], FULL)
    np.testing.assert_array_equal(first, FULL[0])
    with pytest.raises(polyduct.StoreError) as e:
        write_steps(small, "x", FULL[:1, :4], append=True)
    assert e.value.reason == "shape_differs"
    with pytest.raises(polyduct.Misuse, match="appended"):
        polyduct.open("x.npy", "w", shape=1, dtype="f4", layout="*", append=True)
    with pytest.raises(polyduct.BadOption):
        polyduct.open(f"store:{small.path}/x", layout="*,*", append=True)  # type: ignore[call-overload]


def test_what_is_open_goes_on_when_it_is_renamed(small: polyduct.Store) -> None:
    write_steps(small, "a/x", FULL[:2])
    old = small["a/x"]
    port = polyduct.open(f"store:{small.path}/a/x", layout="*,*", unit=0, units=1)
    out = polyduct.open(
        f"store:{small.path}/a/x",
        "w",
        shape=FULL[0].shape,
        dtype="f4",
        layout="*,*",
        unit=0,
        units=1,
        append=True,
    )
    out.write(FULL[2])
    small.rename("a", "b")
    small["a/x"] = FULL[5]
    old[0, 0] = 7
    old.attrs["unit"] = "K"
    out.close()
    assert old.name == "a/x" and (old[0, 0] == 7).all() and (next(port)[0] == 7).all()
    new = small["b/x"]
    assert new.shape == (3, 50, 40) and (new[0, 0] == 7).all() and dict(new.attrs) == {"unit": "K"}
    np.testing.assert_array_equal(new[2], FULL[2])
    np.testing.assert_array_equal(small["a/x"], FULL[5])
    assert pickle.loads(pickle.dumps(old)).shape == (50, 40)
    out = polyduct.open(
        f"store:{small.path}/b/x",
        "w",
        shape=FULL[0].shape,
        dtype="f4",
        layout="*,*",
        unit=0,
        units=1,
        append=True,
    )
    out.write(FULL[3])
    del small["b/x"]
    with pytest.raises(
        polyduct.DatasetMissing, match=r'no dataset "b/x" any more: it was removed or written anew'
    ):
        out.close()
    with pytest.raises(polyduct.DatasetMissing, match=r'no dataset "a/x" any more'):
        old[0, 0] = 8
    assert (old[0, 0] == 7).all() and list(small) == ["a/x"]


def test_attributes(small: polyduct.Store) -> None:
    small["x"] = FULL
    a, b = small["x"], small["x"]
    a.attrs["unit"] = "K"
    b.attrs.update(limits=np.array([1.5, 2]), n=np.int64(3), nested={"a": [None, True]})
    expected = {"unit": "K", "limits": [1.5, 2.0], "n": 3, "nested": {"a": [None, True]}}
    assert dict(small["x"].attrs) == dict(b.attrs) == expected and dict(a.attrs) == {"unit": "K"}
    del b.attrs["n"]
    assert "n" not in b.attrs and "n" not in small["x"].attrs and len(b.attrs) == 3
    with pytest.raises(KeyError):
        del b.attrs["n"]
    for bad in (float("nan"), object(), {1, 2}, [2**64], -(2**63) - 1, "\ud800", {"a\udc80": 1}):
        with pytest.raises(polyduct.WrongType):
            a.attrs["bad"] = bad
    with pytest.raises(polyduct.WrongType, match=r"no form for '\\ud800'"):
        a.attrs["\ud800"] = 1
    with pytest.raises(KeyError):
        del a.attrs["\ud800"]
    a.attrs["ä"] = "\U0001f600"
    assert small["x"].attrs["ä"] == "\U0001f600"
    with pytest.raises(polyduct.Misuse):
        a.attrs["long"] = "x" * (1 << 20)
    write_steps(small, "x", FULL[0][None], append=False)
    with pytest.raises(polyduct.DatasetMissing):
        a.attrs["unit"] = "m"
    assert dict(small["x"].attrs) == {}


def test_a_mapping_of_names(small: polyduct.Store) -> None:
    assert (len(small), list(small)) == (0, [])
    small["b"] = small["a/y"] = small["a/x"] = [1, 2]
    assert list(small) == ["a/x", "a/y", "b"] and "a/x" in small and "a" not in small and 5 not in small
    assert small.get("c") is None and len(small) == 3
    old = small["b"]
    small.rename("a", "c/d")
    assert list(small) == ["b", "c/d/x", "c/d/y"]
    del small["b"]
    assert "b" not in small and old[1] == 2
    for missing in (lambda: small["b"], lambda: small.__delitem__("b"), lambda: small.rename("b", "e")):
        with pytest.raises(KeyError) as e:
            missing()
        error = e.value
        assert isinstance(error, polyduct.DatasetMissing) and isinstance(error, polyduct.StoreError)
        assert isinstance(error, polyduct.FileMissing) and error.reason == "not_there"
        assert str(error).startswith(f"{small.path}: there is no dataset 'b'".replace("'", '"'))
    with pytest.raises(polyduct.DatasetMissing):
        polyduct.open(f"store:{small.path}/b", layout="*")
    with pytest.raises(polyduct.DatasetMissing):
        old[0] = 1
    for impossible in ("..", "../x", "/", "", "bad\0name", "\ud800", "x" * 2000, 5, None):
        assert impossible not in small and small.get(impossible, 7) == 7  # type: ignore[call-overload]
        for call in (
            lambda name: small[name],
            lambda name: small.__setitem__(name, 1),
            lambda name: small.__delitem__(name),
            lambda name: small.rename(name, "e"),
            lambda name: small.rename("c", name),
        ):
            with pytest.raises(KeyError, match="name of a|cannot name a") as bad:
                call(impossible)
            assert isinstance(bad.value, polyduct.BadName) and isinstance(bad.value, ValueError)
            assert bad.value.option == "name" and not str(bad.value).startswith(("'", '"'))
    assert "c/d/x" in small and np.array(["c/d/x"]) not in small
    again = pickle.loads(pickle.dumps(small["c/d/x"]))
    assert again[0] == 1 and repr(again) == f"<polyduct.StoredArray 'c/d/x' of {small.path!r}: (2,) int64>"


def test_stores_that_are_not_there_or_cannot_be(tmp_path: Path, small: polyduct.Store) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for error, reason, call in [
        (polyduct.FileMissing, "no_store", lambda: polyduct.Store(tmp_path / "none")),
        (polyduct.FileMissing, "no_store", lambda: polyduct.open(f"store:{tmp_path}/x", layout="*")),
        (polyduct.StoreError, "exists", lambda: polyduct.Store.create(small.path, 2)),
        (
            polyduct.StoreError,
            "exists",
            lambda: polyduct.Store.create(tmp_path / "t", ["a", tmp_path / "full"]),
        ),
        (polyduct.StoreError, "exists", lambda: small.__setitem__("a", 1) or small.__setitem__("a/b", 1)),
    ]:
        with pytest.raises(error) as e:
            call()
        assert type(e.value) is error and e.value.reason == reason and isinstance(e.value, OSError)
        assert isinstance(e.value, FileNotFoundError) == (error is polyduct.FileMissing)
    for call in [
        lambda: polyduct.Store.create(tmp_path / "t", 0),
        lambda: polyduct.Store.create(tmp_path / "t", 2, parity=2),
        lambda: polyduct.Store.create(tmp_path / "t", 2, stripe=1000),
        lambda: polyduct.Store.create(tmp_path / "t", 2, stripe="1 parsec"),
        lambda: polyduct.Store.create(tmp_path / "t", "unit0"),
        *[
            partial(polyduct.Store.create, tmp_path / "t", units)
            for units in ([[]], [""], ["a\0b"], [3], [b"a"], ["a", ["b", ""]], [f"u{n}" for n in range(200)])
        ],
        lambda: polyduct.Store(small.path, timeout=-1),
        lambda: polyduct.Store(5),  # type: ignore[arg-type]
        lambda: small.__setitem__("../x", 1),
        lambda: small.__setitem__("x", np.array([object()])),
        lambda: small[3],  # type: ignore[index]
    ]:
        with pytest.raises((polyduct.Misuse, polyduct.StoreError)):
            call()
    assert not (tmp_path / "t").exists()
    (Path(small.path) / "store.toml").write_text("nonsense")
    for unit in range(3):
        (Path(small.path) / f"unit{unit}" / "store.toml").write_text("nonsense")
    with pytest.raises(polyduct.StoreError) as e:
        polyduct.Store(small.path)
    assert e.value.reason == "manifest"


def test_units_that_are_chains_of_directories(tmp_path: Path) -> None:
    s = polyduct.Store.create(tmp_path / "s", [["a", tmp_path / "b"], "c"], stripe="1 MiB")
    s["x"] = FULL
    np.testing.assert_array_equal(polyduct.Store(s.path)["x"], FULL)
    status = s.status()
    assert status[:3] == (2, 0, 1 << 20) and status.lost == {}
    assert status.units == [[f"{s.path}/a", str(tmp_path / "b")], [f"{s.path}/c"]]


def test_lost_units_are_named_and_one_too_many_is_an_error(small: polyduct.Store) -> None:
    small["x"] = FULL
    a = small["x"]
    lose(small, 2)
    [(unit, why)] = small.status().lost.items()
    assert unit == 2 and "unit2" in why
    np.testing.assert_array_equal(small["x"][::2, 3], FULL[::2, 3])
    lose(small, 0)
    for call in (lambda: small["x"], lambda: small.status(), lambda: a.__setitem__(0, 0)):
        with pytest.raises(polyduct.StoreError) as e:
            call()
        assert e.value.reason == "too_many_lost"


@pytest.fixture
def held(small: polyduct.Store) -> Iterator[polyduct.Store]:
    """A store that somebody is changing, and does not come to an end."""
    with open(Path(small.path) / "lock", "r+b") as lock:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        yield small


def test_waiting_for_another_process_has_a_limit(held: polyduct.Store) -> None:
    for call in (
        lambda: polyduct.Store(held.path, timeout=0.05)["x"],
        lambda: list(polyduct.Store(held.path, timeout=0.05)),
        lambda: polyduct.Store(held.path, timeout=0.05).__setitem__("x", 1),
    ):
        with pytest.raises(polyduct.TimeoutError) as e:
            call()
        assert e.value.waited >= 0.05


@pytest.mark.parametrize("call", ["list(s)", "s['x']", "s.__setitem__('x', np.zeros(3))", "s.status()"])
def test_ctrl_c_ends_a_wait(held: polyduct.Store, start: Start, call: str) -> None:
    one = start(
        f"""
        import threading
        s = polyduct.Store(sys.argv[1])
        # Others go on meanwhile: the interpreter is released.
        threading.Timer(0.05, lambda: say("waiting")).start()
        try:
            {call}
        except KeyboardInterrupt:
            say("interrupted")
        """,
        held.path,
    )
    assert one.hear() == "waiting"
    one.signal(signal.SIGINT)
    assert one.hear() == "interrupted"
    assert one.end() == (0, "", "")


def test_threads_and_forks_use_one_array(small: polyduct.Store) -> None:
    small["x"] = FULL
    a = small["x"]
    np.testing.assert_array_equal(together(*(lambda k=k: a[k] for k in range(6))), FULL)
    pid = os.fork()
    if pid == 0:
        same = np.array_equal(a, FULL) and list(small) == ["x"]
        os._exit(0 if same else 1)
    assert os.waitpid(pid, 0)[1] == 0
    np.testing.assert_array_equal(a[3], FULL[3])
    assert threading.active_count() == 1


def test_dask_reads_it_in_chunks(small: polyduct.Store) -> None:
    da = pytest.importorskip("dask.array")
    small["x"] = FULL
    a = small["x"]
    lazy = da.from_array(a, chunks=(2, 20, 15))
    assert (lazy.shape, lazy.dtype) == (a.shape, a.dtype)
    np.testing.assert_allclose(lazy.mean(axis=0).compute(), FULL.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(lazy[::-2, 5, [1, 3, 30]].compute(), FULL[::-2, 5, [1, 3, 30]])
    np.testing.assert_array_equal(da.from_array(a)[1].compute(), FULL[1])
    name = lazy.name
    assert da.from_array(a, chunks=(2, 20, 15)).name == name
    da.store(lazy[:, :10] * 2, a, regions=(slice(None), slice(10), slice(None)), compute=True)
    np.testing.assert_array_equal(a[:, :10], FULL[:, :10] * 2)
    assert da.from_array(a, chunks=(2, 20, 15)).name != name


def test_xarray_labels_it(small: polyduct.Store) -> None:
    xarray = pytest.importorskip("xarray")
    da = pytest.importorskip("dask.array")
    small["x"] = FULL
    small["x"].attrs["units"] = "K"
    a = small["x"]
    for data in (a, da.from_array(a, chunks=(1, 50, 40))):
        labelled = xarray.DataArray(data, dims=("t", "y", "x"), attrs=a.attrs)
        assert labelled.attrs == {"units": "K"}
        np.testing.assert_array_equal(labelled.isel(t=-1, x=slice(None, None, 3)), FULL[-1, :, ::3])
        np.testing.assert_allclose(labelled.mean("y"), FULL.mean(axis=1), rtol=1e-5)


def test_the_examples_of_the_classes_run(tmp_path: Path) -> None:
    def run(of: type, **names: Any) -> dict[str, Any]:
        found = re.search(r"(?:^    .*\n)+", inspect.cleandoc(of.__doc__ or ""), re.MULTILINE)
        assert found
        code = inspect.cleandoc(found[0])
        exec(code.replace("/data", str(tmp_path)), {"polyduct": polyduct, "np": np, **names}, names)
        return names

    made = run(polyduct.Store)
    assert list(made["s"]) == [] and made["s"].status()[:2] == (4, 1)
    made["s"]["density"] = FULL.reshape(3, 500, 8)
    read = run(polyduct.StoredArray, store=made["s"])
    assert read["a"][0, 5].tolist() == [0] * 8
