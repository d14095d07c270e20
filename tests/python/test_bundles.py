"""Several arrays in each step."""

import asyncio
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polyduct
import pytest
from conftest import COMMAND
from polyduct import Array


def unique(name: str, taken: list[int] = []) -> str:  # noqa: B006: it counts
    import os

    taken.append(0)
    return f"pipe:bundles-{os.getpid()}-{len(taken)}-{name}"


def both(write: Callable[[], None], read: Callable[[], None]) -> None:
    """Runs both sides, and raises what either raised."""
    errors: list[BaseException] = []

    def guarded(side: Callable[[], None]) -> None:
        try:
            side()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(side,)) for side in (write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    # What the others met follows from the first that failed by itself.
    own = [e for e in errors if not isinstance(e, (polyduct.PeerAborted, polyduct.PeerLost))]
    for error in [*own, *errors][:1]:
        raise error


U = np.arange(24, dtype="f4").reshape(4, 6)
MASK = np.arange(5) % 2 == 0
STATE = {"u": Array((4, 6), "f4", "block,*"), "mask": MASK, "deep": {0: {"w": Array(7, "i8")}}}
OPEN: dict[str, Any] = {"unit": 0, "units": 1, "timeout": 30}


def test_steps_are_filled_in_place_or_written() -> None:
    url = unique("ways")

    def write() -> None:
        with polyduct.open(url, "w", arrays=STATE, **OPEN) as out:
            assert list(out.arrays) == ["u", "mask", "deep/0/w"]
            info = out.arrays["u"]
            assert (info.shape, info.dtype, info.local_shape, str(info.layout)) == ((4, 6), "f4", (4, 6), "block,*")
            with out.step() as s:
                s["u"][...] = U
                s["mask"][...] = MASK
                s["deep"]["0"]["w"][...] = 3
                assert list(s["deep"]) == ["0/w"] and len(s["deep"]) == 1 and len(s) == 3
                assert s["u"] is s["u"]
                with pytest.raises(KeyError):
                    s["dee"]
            out.write({"u": U.T.copy().T + 1, "mask": ~MASK, "deep": {"0": {"w": range(7)}}})
            with pytest.raises(ZeroDivisionError), out.step() as s:
                s["u"][...] = 1 / 0
            step = out.try_step()
            assert step is not None
            with step as s:
                s["u"][...] = U + 2
            assert step.published and out.next_step == 3

    def read() -> None:
        port = polyduct.open(url, layouts={"u": "*,block", "deep/*": None}, **OPEN)
        seen = []
        for s in port:
            assert list(s) == ["u", "deep/0/w"]
            seen.append((s.number, s["u"].copy(), s["deep/0/w"].copy()))
        assert port.ended and [n for n, _, _ in seen] == [0, 1, 2]
        np.testing.assert_array_equal(seen[0][1], U)
        np.testing.assert_array_equal(seen[1][1], U + 1)
        np.testing.assert_array_equal(seen[2][1], U + 2)
        np.testing.assert_array_equal(seen[1][2], np.arange(7))
        assert port.stats().steps == 3

    both(write, read)


def test_readers_fill_what_they_have() -> None:
    url = unique("out")

    def write() -> None:
        with polyduct.open(url, "w", arrays=STATE, **OPEN) as out:
            for n in range(3):
                out.write({"u": U + n, "mask": MASK, "deep/0/w": np.full(7, n)})

    def read() -> None:
        layouts = {"*": Array(dtype=None, layout="..."), "u": Array(dtype="f8")}
        with polyduct.open(url, "r", layouts={"u": layouts["u"], "*": "..."}, convert=True, **OPEN) as port:
            assert port.arrays["u"].dtype == "f8"
            mine = {"u": np.zeros((4, 6), "f8", order="F"), "mask": np.zeros(5, "?"), "deep": {"0": {"w": np.zeros(7, "i8")}}}
            with pytest.raises(polyduct.Misuse, match=r"without 'mask', 'deep/0/w' and with 'v'"):
                port.read({"u": mine["u"], "v": mine["u"]})
            with pytest.raises(polyduct.WrongType, match=r"array 'u'.*dtype float32; expected float64"):
                port.read({**mine, "u": np.zeros((4, 6), "f4")})
            step = port.read(mine)
            assert step is not None and step["u"] is mine["u"] and step.number == 0
            np.testing.assert_array_equal(mine["u"], U)
            np.testing.assert_array_equal(mine["mask"], MASK)
            fresh = port.read()
            assert fresh is not None
            np.testing.assert_array_equal(fresh["u"], U + 1)
            kept = fresh["deep/0/w"]

            async def rest() -> list[int]:
                return [int(s["deep/0/w"][0]) async for s in port]

            assert asyncio.run(rest()) == [2]
            assert kept[0] == 1, "new memory is the caller's"
            assert port.read() is None

    both(write, read)


def test_units_have_parts_of_each() -> None:
    url = unique("parts")
    arrays = {"u": Array((4, 6), "f4", "block,*"), "v": Array((6,), "i4", "cyclic")}

    def write() -> None:
        def unit(n: int) -> None:
            with polyduct.open(url, "w", arrays=arrays, unit=n, units=2, timeout=30) as out:
                out.write({"u": U[2 * n : 2 * n + 2], "v": np.arange(6, dtype="i4")[n::2]})

        both(lambda: unit(0), lambda: unit(1))

    def read() -> None:
        def unit(n: int) -> None:
            with polyduct.open(url, layouts={"u": "*,block", "v": "*"}, unit=n, units=2, timeout=30) as port:
                for s in port:
                    np.testing.assert_array_equal(s["u"], U[:, 3 * n : 3 * n + 3])
                    np.testing.assert_array_equal(s["v"], np.arange(6))

        both(lambda: unit(0), lambda: unit(1))

    both(write, read)


def test_what_does_not_fit_is_told() -> None:
    url = unique("told")

    def write() -> None:
        with polyduct.open(url, "w", arrays=STATE, **OPEN) as out:
            with pytest.raises(polyduct.Misuse, match="without 'deep/0/w'"):
                out.write({"u": U, "mask": MASK})
            with pytest.raises(polyduct.WrongSize, match=r"array 'u'.*shape \(4, 5\); expected \(4, 6\)"):
                out.write({"u": U[:, 1:], "mask": MASK, "deep/0/w": range(7)})
            out.write({"u": U, "mask": MASK, "deep/0/w": range(7)})

    def read() -> None:
        with pytest.raises(polyduct.Refused, match=r"""called "mass" \(near: "mask"\); "x/\*\"""") as told:
            polyduct.open(url, layouts={"mass": "*", "x/*": "*", "u": "..."}, **OPEN)
        assert told.value.reason == "arrays"
        with pytest.raises(polyduct.Refused, match="the writer gives 3 arrays"):
            polyduct.open(url, **OPEN)
        with polyduct.open(url, layouts="...", **OPEN) as port:
            with pytest.raises(polyduct.Misuse, match="out comes without 'mask', 'deep/0/w'"):
                port.read({"u": U.copy()})
            step = port.read()
            assert step is not None and list(step) == ["u", "mask", "deep/0/w"]

    both(write, read)
    for arrays, words in [
        ({}, "at least one array"),
        ({"a": {"b": Array(1, "f4")}, "a/b": Array(1, "f4")}, "two arrays are called 'a/b'"),
        ({"../a": Array(1, "f4")}, "'..'"),
        ({("a", "b"): Array(1, "f4")}, r"\('a', 'b'\) is no name; expected text, or a number"),
        ({"a": Array(1)}, "no shape or no dtype"),
        ({"a": Array(4, "f4", "blok")}, 'array "a": layout text'),
        (7, "expected a dictionary"),
    ]:
        with pytest.raises(polyduct.Misuse, match=words):
            polyduct.open(url, "w", arrays=arrays, **OPEN)  # type: ignore[arg-type]
    with pytest.raises(polyduct.Misuse, match="its own shape"):
        polyduct.open(url, "w", arrays=STATE, shape=3, **OPEN)  # type: ignore[call-overload]
    with pytest.raises(polyduct.BadOption, match="arrays here"):
        polyduct.open(url, "w", arrays=STATE, layouts="*", **OPEN)  # type: ignore[call-overload]
    with pytest.raises(polyduct.BadOption, match="say what each has"):
        polyduct.open(url, "w", arrays={"a": Array(4, "f4")}, unit=0, units=2)
    with pytest.raises(polyduct.Misuse, match="through a pipe"):
        polyduct.open("some.raw", "w", arrays=STATE, **OPEN)


def test_shapes_that_change_are_said_by_what_is_written_or_before() -> None:
    url, alone = unique("shapes"), unique("alone")
    mesh = {"m": Array((4, 4), "f4", "block,*", changes=True)}

    def write(unit: int) -> None:
        with polyduct.open(url, "w", arrays=mesh, unit=unit, units=2, timeout=30) as out:
            with pytest.raises(polyduct.WrongSize, match=r"shape \(1, 3\); expected \(0, 0\).*bring\('m', shape\)"):
                out.write({"m": np.zeros((1, 3), "f4")})
            out.bring("m", (2, 3))
            out.write({"m": np.full((1, 3), unit, "f4")})

    def write_alone() -> None:
        with polyduct.open(alone, "w", arrays=mesh, **OPEN) as out:
            for shape in ((2, 3), (4, 1), (0, 2)):
                out.write({"m": np.full(shape, 7, "f4")})

    def read() -> None:
        with polyduct.open(url, layouts="...", **OPEN) as port:
            np.testing.assert_array_equal([step["m"] for step in port], [[[0] * 3, [1] * 3]])
        with polyduct.open(alone, layouts="...", **OPEN) as port:
            assert [step["m"].shape for step in port] == [(2, 3), (4, 1), (0, 2)]

    both(lambda: both(lambda: write(0), lambda: write(1)), lambda: both(write_alone, read))


def test_threads_that_read_have_the_values_of_their_steps() -> None:
    url, steps = unique("threads"), 300

    def write() -> None:
        held = {"a": Array(2000, "i8"), "p": Array((polyduct.Open(50),), "i4")}
        with polyduct.open(url, "w", arrays=held, **OPEN) as out:
            for n in range(steps):
                out.write({"a": np.full(2000, n), "p": np.full(n % 50, n, "i4")}, n=n)

    def read() -> None:
        found: list[int] = []
        with polyduct.open(url, layouts="...", **OPEN) as port:

            def some() -> None:
                while (step := port.read()) is not None:
                    n = step.values["n"]
                    assert n == step.number == step["a"][0] and step["p"].tolist() == [n] * (n % 50)
                    found.append(n)

            both(some, some)
        assert sorted(found) == list(range(steps))

    both(write, read)


def test_what_there_is_no_memory_for_leaves_nothing() -> None:
    url = unique("memory")

    def write() -> None:
        particles = Array((polyduct.Open(1 << 42),), "u1")
        with polyduct.open(url, "w", arrays={"p": particles}, **OPEN) as out:
            with out.step() as s:
                s.bring("p", 5)[...] = 1
            out.bring("p", 1 << 41)
            with pytest.raises(polyduct.NoMemory), out.step():
                pass
            with out.step() as s:
                assert s["p"].shape == (0,)
                s.bring("p", 3)[...] = 2
            with out.step() as s:
                with pytest.raises(polyduct.NoMemory):
                    s.bring("p", 1 << 41)
                assert s["p"].shape == (0,)

    def read() -> None:
        with polyduct.open(url, layouts="*", **OPEN) as port:
            assert [step["p"].tolist() for step in port] == [[1] * 5, [2] * 3, []]

    both(write, read)


def test_they_show_themselves() -> None:
    url = unique("shown")

    def write() -> None:
        with polyduct.open(url, "w", arrays=STATE, **OPEN) as out:
            assert repr(out) == f"<polyduct.BundleWriter {url!r}: unit 0 of 1, 3 arrays>"
            assert "deep/0/w" in out._repr_html_()
            with out.step() as s:
                assert repr(s) == "<polyduct.FilledStep ['u', 'mask', 'deep/0/w']>"

    def read() -> None:
        with polyduct.open(url, layouts="...", **OPEN) as port:
            assert [repr(s) for s in port] == ["<polyduct.ReadStep ['u', 'mask', 'deep/0/w']>"]

    both(write, read)
    assert Array(4, "f4") == Array((4,), "f4") != Array(4, "f8")


def test_sizes_change_and_values_come_along() -> None:
    url = unique("sizes")
    arrays = {
        "p": Array((polyduct.Open(50), 3), "f8"),
        "mesh": Array((6, 6), "i4", "block,*", changes=True),
        "u": Array(4, "f4", "block"),
    }

    def write() -> None:
        def unit(n: int) -> None:
            with polyduct.open(url, "w", arrays=arrays, unit=n, units=2, timeout=30) as out:
                assert out.arrays["p"].local_shape == (0, 3)
                with out.step(time=0.5, kind="first" if n == 0 else 7) as s:
                    s.bring("p", 2 + n)[...] = n
                    s.bring("mesh", (4, 2))[...] = 10 + n
                    s["u"][...] = n
                    s.values["cells"] = [1, {"a": None, "b": b"\x00"}, np.float32(0.5), True, -(2**40)]
                with pytest.raises(polyduct.Misuse, match="at most so many in dimension 0"), out.step() as s:
                    s.bring("p", 51)
                out.bring("mesh", (3, 6))
                mesh = np.full((2 - n, 6), n, "i4")
                out.write({"p": np.full((3 * n, 3), 1.0 * n), "mesh": mesh, "u": np.ones(2, "f4")})

        both(lambda: unit(0), lambda: unit(1))

    def read() -> None:
        with polyduct.open(url, layouts={"p": "block,*", "mesh": "*,*", "u": "*"}, **OPEN) as port:
            ahead = port.peek()
            assert ahead is not None and ahead["p"].shape == (5, 3) and ahead["mesh"].shape == (4, 2)
            s = port.read()
            assert s is not None and s.number == 0
            np.testing.assert_array_equal(s["p"][:, 0], [0, 0, 1, 1, 1])
            np.testing.assert_array_equal(s["mesh"][:, 1], [10, 10, 11, 11])
            assert s.values == {
                "time": 0.5,
                "kind": "first",
                "cells": [1, {"a": None, "b": b"\x00"}, 0.5, True, -(2**40)],
            }
            for later in port:
                assert later.values == {} and later["p"].shape == (3, 3) and s["p"].shape == (5, 3)
                np.testing.assert_array_equal(later["p"], np.ones((3, 3)))

    both(write, read)
    with pytest.raises(polyduct.Misuse, match="one dimension"):
        Array((polyduct.Open(1), polyduct.Open(2)), "f4")
    assert repr(Array((polyduct.Open(5), 2), "f4")) == "polyduct.Array((polyduct.Open(5), 2), 'f4', None)"


def test_readers_take_what_lies_with_their_partners() -> None:
    url = unique("partner")

    def write() -> None:
        def unit(n: int) -> None:
            with polyduct.open(
                url, "w", arrays={"p": Array((polyduct.Open(9),), "i8")}, unit=n, units=2, timeout=30
            ) as out:
                for step in range(3):
                    out.write({"p": np.full(step * 2 + n, 10 * step + n)}, step=step)

        both(lambda: unit(0), lambda: unit(1))

    def read() -> None:
        def unit(n: int) -> None:
            with polyduct.open(url, layouts={"p": "partner"}, unit=n, units=2, timeout=30) as port:
                for s in port:
                    step = s.values["step"]
                    np.testing.assert_array_equal(s["p"], np.full(step * 2 + n, 10 * step + n))

        both(lambda: unit(0), lambda: unit(1))

    async def later() -> list[int]:
        return [len(s["p"]) async for s in polyduct.open(url + "2", layouts={"p": "*"}, **OPEN)]

    both(write, read)

    def once() -> None:
        with polyduct.open(url + "2", "w", arrays={"p": Array((polyduct.Open(9),), "i8")}, **OPEN) as out:
            out.write({"p": range(4)})
            out.write({"p": []})

    both(once, lambda: (lambda lens: None if lens == [4, 0] else pytest.fail(str(lens)))(asyncio.run(later())))


def test_values_that_cannot_be() -> None:
    url = unique("values")

    def write() -> None:
        with polyduct.open(url, "w", arrays={"u": Array(1, "f4")}, **OPEN) as out:
            u = np.zeros(1, "f4")
            deep: object = 0
            for _ in range(70):
                deep = [deep]
            for bad, words in [
                (object(), "a value of a step is of type object"),
                ("\udc80", "expected text that has a form in UTF-8"),
                (np.zeros(3), "type ndarray"),
                (2**64, "does not fit 64 bits"),
                (bytes(2**20), "at most 1048576"),
                (deep, "deeper than 64"),
            ]:
                with pytest.raises(polyduct.Misuse, match=words):
                    out.write({"u": u}, x=bad)
                with pytest.raises(polyduct.Misuse, match=words), out.step(x=bad) as s:
                    s["u"][...] = 0
            assert out.next_step == 0
            out.write({"u": u}, x=2**64 - 1, y=())
            # What was said of a step that was not written is not said of the next.
            with pytest.raises(polyduct.Misuse):
                out.write({}, x=1)
            with out.step() as s:
                s["u"][...] = 0

    def read() -> None:
        said = [s.values for s in polyduct.open(url, layouts="...", **OPEN)]
        assert said == [{"x": 2**64 - 1, "y": []}, {}]

    both(write, read)


def test_arrays_are_put_together_split_and_renamed() -> None:
    url = unique("of")
    q, k, v = (np.full((4, 6), n, "f4") + np.arange(6, dtype="f4") for n in range(3))
    taken = {
        "qkv": Array((12, 6), "f4", "block,*", of=["q", "k", "v"]),
        "wide": Array(layout="*,block", of=["q", "k"], axis=1),
        "planes": Array(layout="*,*,block", of=["k", "v"], stack=0),
        "left": Array(layout="*,*", of=("q", np.s_[:, :3])),
        "row": Array(layout="*", of=("v", np.s_[2, 1:])),
        "mixed": Array((2, 6), layout="*,block", of=[("v", np.s_[3, :], np.s_[0, :]), ("q", np.s_[:1], np.s_[1:, :])]),
        "key": Array(dtype="f8", layout="*,block", of="k"),
        "*": "block,*",
    }
    whole = {
        "qkv": np.concatenate([q, k, v]),
        "wide": np.concatenate([q, k], axis=1),
        "planes": np.stack([k, v]),
        "left": q[:, :3],
        "row": v[2, 1:],
        "mixed": np.stack([v[3], q[0]]),
        "key": k.astype("f8"),
        "rest": v,
    }

    def write() -> None:
        arrays = {name: Array((4, 6), "f4", "block,*") for name in ("q", "k", "v", "rest")}
        with polyduct.open(url, "w", arrays=arrays, **OPEN) as out:
            assert out.write({"q": q, "k": k, "v": v, "rest": v})

    def read() -> None:
        with polyduct.open(url, layouts=taken, convert=True, **OPEN) as port:
            s = port.read()
            assert s is not None and sorted(s) == sorted(whole)
            for name, want in whole.items():
                assert s[name].dtype == want.dtype
                np.testing.assert_array_equal(s[name], want, name)

    both(write, read)


def test_a_function_says_what_is_taken() -> None:
    url = unique("function")
    asked: dict[str, Array] = {}

    def choose(name: str, array: Array) -> object:
        asked[name] = array
        if name.endswith("bias"):
            return None
        assert array.shape is not None
        return Array(array.shape, "f8", "block" + ",*" * (len(array.shape) - 1))

    def write() -> None:
        arrays = {
            "weight": Array((4, 6), "f4", "*,block"),
            "bias": Array(4, "f4", "block"),
            "mesh": Array((9, 2), "i4", "block,*", changes=True),
            "points": Array((polyduct.Open(8), 3), "f4"),
        }
        with polyduct.open(url, "w", arrays=arrays, **OPEN) as out:
            # A reader that only asked has no place.
            out.bring("mesh", (3, 2))
            out.write({"weight": U, "bias": U[:, 0], "mesh": np.ones((3, 2), "i4"), "points": np.ones((2, 3), "f4")})

    def read() -> None:
        port = polyduct.open(url, layouts=lambda name, array: choose(name, array) if name[0] != "m" else None,
                             convert=True, **OPEN)
        with port:
            s = port.read()
            assert s is not None and list(s) == ["weight", "points"]
            assert s["weight"].dtype == "f8" and s["points"].shape == (2, 3)
            np.testing.assert_array_equal(s["weight"], U)
        assert asked == {
            "weight": Array((4, 6), "f4", "*,block"),
            "bias": Array((4,), "f4", "block"),
            "points": Array((polyduct.Open(8), 3), "f4"),
        }

    both(write, read)


@pytest.mark.parametrize("in_place", [True, False])
def test_constants_are_given_once(in_place: bool) -> None:
    url = unique("constant")
    arrays = {"u": Array((4, 6), "f4", "block,*"), "mesh": Array(9, "i4", "block", constant=True)}
    mesh = np.arange(9, dtype="i4")

    def write() -> None:
        with polyduct.open(url, "w", arrays=arrays, **OPEN) as out:
            if in_place:
                with out.step() as s:
                    s["u"][...] = 0
                    s["mesh"][...] = mesh
            else:
                with pytest.raises(polyduct.Misuse, match="without 'mesh'"):
                    out.write({"u": U})
                out.write({"u": U * 0, "mesh": mesh})
            for step in range(1, 4):
                out.write({"u": U * step})
            with pytest.raises(polyduct.Misuse, match="'mesh': constant, and given with the first step"):
                out.write({"u": U, "mesh": mesh})
            with out.step() as s:
                s["u"][...] = U * 4
                np.testing.assert_array_equal(s["mesh"], mesh)
                with pytest.raises(ValueError, match="read-only"):
                    s["mesh"][...] = 0
            asyncio.run(out.write_async({"u": U * 5}))

    def read() -> None:
        asked: list[Array] = []

        def choose(name: str, array: Array) -> str:
            asked.append(array)
            return "*,block" if name == "u" else "block"

        number = -1
        for number, s in enumerate(polyduct.open(url, layouts=choose, **OPEN)):
            np.testing.assert_array_equal(s["mesh"], mesh)
            np.testing.assert_array_equal(s["u"], U * number)
        assert number == 5 and asked == list(arrays.values())

    both(write, read)
    with pytest.raises(polyduct.Misuse, match="not both"):
        Array(polyduct.Open(4), "f4", constant=True)


def test_pieces_that_cannot_be_are_refused() -> None:
    for of, why in [
        ([], "of is []"),
        (3, "expected a name, or"),
        (("q", np.s_[::2]), "have no step"),
        (("q", np.s_[-1:]), "the start of a slice"),
        (("q", "x"), "'x' as an index"),
        (("q", 0, 0, 0), "expected a name, or"),
    ]:
        with pytest.raises(polyduct.Misuse, match=re.escape(why)):
            Array(4, of=of)  # type: ignore[arg-type]
    with pytest.raises(polyduct.Misuse, match="one of these ways"):
        Array(of=["a", "b"], axis=0, stack=1)
    with pytest.raises(polyduct.Misuse, match="expected of="):
        Array(4, axis=0)
    with pytest.raises(polyduct.Misuse, match="that is for readers"):
        polyduct.open(unique("of"), "w", arrays={"a": Array(4, "f4", of="b")}, **OPEN)
    url = unique("of")

    def write() -> None:
        with polyduct.open(url, "w", arrays={"q": U, "k": U > 3}, **OPEN) as out:
            out.write({"q": U, "k": U > 3})

    def read() -> None:
        for layouts, why in [
            ({"w": Array(of=["q", "v"])}, 'none of the writer\'s 2 arrays is called "v"'),
            ({"w": Array(of=["q", "k"])}, 'the dtype of "k"'),
            ({"w": Array(of=("q", np.s_[:9]))}, "a box is [0:9"),
            ({"w": Array((9, 6), of=("q", np.s_[:, :], np.s_[5:, :]))}, "elements; expected its 54"),
            (lambda name, array: None, "took none"),
        ]:
            with pytest.raises(polyduct.Error, match=re.escape(why)):
                polyduct.open(url, layouts=layouts, **OPEN)
        with polyduct.open(url, layouts={"w": Array(of=("q", np.s_[1, 2:]))}, **OPEN) as port:
            s = port.read()
            assert s is not None
            np.testing.assert_array_equal(s["w"], U[1, 2:])

    both(write, read)


def test_a_plain_stage_gets_what_an_array_that_grows_has_in_each_step(tmp_path: Path) -> None:
    (tmp_path / "grow.py").write_text(
        textwrap.dedent(
            """
            import os, numpy as np, polyduct
            from polyduct import Array, Open
            k = int(os.environ["POLYDUCT_UNIT"])
            with polyduct.open("-", "w", arrays={"x": Array((Open(10), 3), "i4")}) as out:
                for t in (2, 0, 5, 1):
                    out.write({"x": np.full((t * k, 3), 100 * t + k, "i4")})
            """
        )
    )
    done = subprocess.run(
        [COMMAND, "run", f"-n 3 {sys.executable} {tmp_path}/grow.py | cat"], capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    want = [np.full((t * k, 3), 100 * t + k, "i4") for t in (2, 0, 5, 1) for k in range(3)]
    assert done.stdout == b"".join(part.tobytes() for part in want)
