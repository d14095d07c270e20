"""Several arrays between sites: layouts, names and types of each side's own, sizes that change, values, losses."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Process, together
from sites import KEY, Middle
from test_gateway import Gateway
from test_streams import Receiver

import polyduct
from polyduct import Array, Open

Start = Callable[..., Process]
U = np.arange(12 * 10, dtype="f4").reshape(12, 10)
MASK = np.arange(77) % 3 == 0
W = np.arange(24, dtype="i8").reshape(2, 3, 4)
UNITS = 3


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", KEY)


def units(count: int, one: Callable[[int, dict[str, Any]], Any], program: str) -> list[Callable[[], Any]]:
    def unit(k: int) -> Callable[[], Any]:
        return lambda: one(k, {"unit": k, "units": count, "program": program, "timeout": 60})

    return [unit(k) for k in range(count)]


def state(url: str, steps: int) -> list[Callable[[], Any]]:
    """Units that write three arrays, each in a layout of its own."""

    def write(k: int, options: dict[str, Any]) -> None:
        arrays = {"u": Array(U.shape, "f4", "balanced,*"), "deep": {"mask": Array(MASK.shape, "?", "balanced")}}
        with polyduct.open(url, "w", arrays={**arrays, "w": Array(W.shape, "i8", "*,balanced,*")}, **options) as out:
            for t in range(steps):
                parts = {"u": np.array_split(U + t, UNITS)[k], "deep/mask": np.array_split(MASK, UNITS)[k]}
                out.write({**parts, "w": np.array_split(W * t, UNITS, axis=1)[k]}, t=t, who=k, note="x" * t)

    return units(UNITS, write, "w")


@pytest.mark.parametrize("listens", ["reader", "writer"])
def test_each_array_has_a_layout_on_each_side(port: int, listens: str) -> None:
    call, wait = f"stream://127.0.0.1:{port}/a?lanes=3", f"stream://:{port}/a"
    out, into = (call, wait) if listens == "reader" else (wait, call)

    def read(k: int, options: dict[str, Any]) -> int:
        layouts = {"u": "*,balanced", "deep/*": "...", "w": "balanced,*,*"}
        source = polyduct.open(into, layouts=layouts, **options)
        assert {name: info.dtype for name, info in source.arrays.items()} == {"u": "f4", "deep/mask": "?", "w": "i8"}
        for t, s in enumerate(source):
            assert s.number == t and s.values == {"t": t, "who": 0, "note": "x" * t}
            assert np.array_equal(s["u"], np.array_split(U + t, 2, axis=1)[k])
            assert np.array_equal(s["deep"]["mask"], MASK)
            assert np.array_equal(s["w"], np.array_split(W * t, 2)[k])
        return source.stats().steps

    assert together(*state(out, 6), *units(2, read, "r"))[UNITS:] == [6, 6]


def test_gateways_of_their_own_carry_them(port: int) -> None:
    one = Gateway(f"bundles-{os.getpid()}")
    try:
        behind = f"?gateway={one.name}"
        writers = changing(f"stream://127.0.0.1:{port}/p{behind}", 5)
        together(*writers, *follow(f"stream://:{port}/p{behind}", 5, 2))
    finally:
        assert one.end() == 0


def test_a_reader_takes_what_it_names_as_it_wants_it(port: int) -> None:
    def read(k: int, options: dict[str, Any]) -> None:
        layouts: dict[str, Any] = {"u": Array(dtype="f8", layout="*,balanced"), "part": Array(layout="...", of=("w", np.s_[:, 1:]))}
        with polyduct.open(f"stream://:{port}/a", layouts=layouts, convert=True, **options) as source:
            steps = [{name: s[name].copy() for name in s} for s in source]
        assert [sorted(s) for s in steps] == [["part", "u"]] * 4
        for t, s in enumerate(steps):
            assert s["u"].dtype == "f8" and np.array_equal(s["u"], np.array_split(U + t, 2, axis=1)[k])
            assert np.array_equal(s["part"], W[:, 1:] * t)

    together(*state(f"stream://127.0.0.1:{port}/a", 4), *units(2, read, "r"))


def test_one_array_is_converted_too(port: int) -> None:
    def write(_: int, options: dict[str, Any]) -> None:
        with polyduct.open(f"stream://127.0.0.1:{port}/a", "w", shape=U.shape, dtype="f4", **options) as out:
            out.write(U)

    def read(k: int, options: dict[str, Any]) -> None:
        with polyduct.open(f"stream://:{port}/a", layout="balanced,*", dtype="f8", convert=True, **options) as source:
            assert [np.array_equal(a, np.array_split(U, 2)[k]) for a in source] == [True]

    together(*units(1, write, "w"), *units(2, read, "r"))


def pieces(t: int) -> list[int]:
    """How many particles each unit has in a step: in some none, in some nobody any."""
    return [(7 * t * (k + 1)) % 50 if t % 4 else 0 for k in range(UNITS)]


def mesh_shape(t: int) -> tuple[int, int]:
    return (t * 5) % 41, (t * 3) % 31


def changing(url: str, steps: int, filler: int = 1) -> list[Callable[[], Any]]:
    """Units that write particles, a mesh, what is constant, and an array that is as it is."""

    def write(k: int, options: dict[str, Any]) -> None:
        arrays = {
            "x": Array((Open(50), 3), "f8"),
            "mesh": Array((40, 30), "i4", "balanced,*", changes=True),
            "cells": Array(U.shape, "f4", "balanced,*", constant=True),
            "filler": Array((filler * UNITS,), "i8", "balanced"),
        }
        with polyduct.open(url, "w", arrays=arrays, **options) as out:
            for t in range(steps):
                with out.step(t=t) as s:
                    s.bring("x", pieces(t)[k])[...] = t * 1000 + k
                    rows = np.array_split(np.arange(mesh_shape(t)[0]), UNITS)[k]
                    s.bring("mesh", mesh_shape(t))[...] = rows[:, None] + t
                    s["filler"][...] = t
                    if t == 0:
                        s["cells"][...] = np.array_split(U, UNITS)[k]

    return units(UNITS, write, "w")


def follow(url: str, steps: int, count: int) -> list[Callable[[], Any]]:
    def read(k: int, options: dict[str, Any]) -> None:
        layouts = {"x": "balanced,*", "mesh": "*,balanced", "cells": "balanced,*", "*": "balanced"}
        seen = 0
        for t, s in enumerate(polyduct.open(url, layouts=layouts, **options)):
            x = np.concatenate([np.full((n, 3), t * 1000 + unit, "f8") for unit, n in enumerate(pieces(t))])
            mesh = np.broadcast_to(np.arange(mesh_shape(t)[0])[:, None] + t, mesh_shape(t))
            assert s.values == {"t": t}
            assert np.array_equal(s["x"], np.array_split(x, count)[k])
            assert np.array_equal(s["mesh"], np.array_split(mesh, count, axis=1)[k])
            assert np.array_equal(s["cells"], np.array_split(U, count)[k])
            assert (s["filler"] == t).all()
            seen += 1
        assert seen == steps

    return units(count, read, "r")


def test_sizes_change_down_to_nothing(port: int) -> None:
    together(*changing(f"stream://127.0.0.1:{port}/p?lanes=2", 20), *follow(f"stream://:{port}/p", 20, 2))


@pytest.mark.parametrize("seed", range(2))
def test_lanes_that_are_cut_again_and_again(port: int, seed: int) -> None:
    with contextlib.closing(Middle(port, 6_000_000, seed)) as between:
        url = f"stream://127.0.0.1:{between.port}/p?lanes={1 + seed}"
        together(*changing(url, 24, 40_000), *follow(f"stream://:{port}/p", 24, 2))
        assert between.cuts > 0


def test_many_arrays(port: int) -> None:
    arrays = {f"layer/{n}": Array((n % 7, 3), "f4", "...") for n in range(3000)}

    def write() -> None:
        with polyduct.open(f"stream://127.0.0.1:{port}/m", "w", arrays=arrays, unit=0, units=1, timeout=60) as out:
            for t in range(3):
                out.write({f"layer/{n}": np.full((n % 7, 3), n + t, "f4") for n in range(3000)})

    def read() -> int:
        with polyduct.open(f"stream://:{port}/m", layouts={"layer/2*": "..."}, timeout=60) as source:
            for t, s in enumerate(source):
                assert len(s) == 1111 and all((s[name] == int(name[6:]) + t).all() for name in s)
            return source.stats().steps

    assert together(write, read)[1] == 3


def test_a_writer_that_is_killed_within_a_step(port: int, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_MESSAGE_SILENCE", "1s")
    writer = start(
        """
        arrays = {"a": polyduct.Array((300, 300), "i8", "*,*"), "b": polyduct.Array((polyduct.Open(1000),), "i8")}
        with polyduct.open(sys.argv[1], "w", arrays=arrays, timeout=60) as out:
            for t in range(4):
                with out.step(t=t) as s:
                    s["a"][...] = t
                    s.bring("b", t)[...] = t
                    if t == 3:
                        say("within")
                        wait()
        """,
        f"stream://127.0.0.1:{port}/k?lanes=2",
    )
    seen = 0
    with pytest.raises(polyduct.StreamBroken, match=f":{port}/k"):
        for t, s in enumerate(polyduct.open(f"stream://:{port}/k", layouts="...", timeout=60)):
            assert (s["a"] == t).all() and s["b"].tolist() == [t] * t and s.values == {"t": t}
            seen += 1
            if seen == 3:
                assert writer.hear() == "within"
                writer.signal(signal.SIGKILL)
    assert seen == 3


def test_who_names_what_there_is_not_is_told_and_so_is_the_writer(port: int) -> None:
    def write() -> None:
        with pytest.raises(polyduct.StreamBroken, match=f":{port}/a"):
            with polyduct.open(f"stream://127.0.0.1:{port}/a", "w", arrays={"mask": MASK}, timeout=30) as out:
                while True:
                    out.write({"mask": MASK})

    def read() -> None:
        with pytest.raises(polyduct.Error, match=r'called "mass" \(near: "mask"\)'):
            polyduct.open(f"stream://:{port}/a", layouts={"mass": "*"}, timeout=30)

    together(write, read)


@pytest.mark.parametrize("place", ["tcp://127.0.0.1:9", "udp://127.0.0.1:9", "window:/dev/shm/none"])
def test_plain_bytes_are_one_array(place: str) -> None:
    with pytest.raises(polyduct.Misuse, match="carries one array without a name.*stream:// and display:// carry several"):
        polyduct.open(place, "w", arrays={"mask": MASK})


def some(t: int, units: int) -> list[np.ndarray]:
    """What units bring of an array that grows and shrinks: in some steps nothing."""
    sizes = np.random.default_rng(t).integers(0, 400, units) * (t % 4 != 3)
    return [np.full((n, 3), 10 * t + k, "f8") for k, n in enumerate(sizes)]


def growing(place: str, count: int, steps: int) -> list[Callable[[], Any]]:
    def write(k: int, options: dict[str, Any]) -> None:
        with polyduct.open(place, "w", arrays={"x": Array((Open(400), 3), "f8")}, **options) as out:
            for t in range(steps):
                out.write({"x": some(t, count)[k]})

    return units(count, write, "w")


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("form", ["npy", "length"])
def test_an_ordinary_program_gets_an_array_whose_size_changes(count: int, form: str) -> None:
    receiver = Receiver()
    together(*growing(f"{receiver.place}?form={form}", count, 9))
    got = io.BytesIO(receiver.all()[0])
    for t in range(9):
        want = np.concatenate(some(t, count))
        if form == "npy":
            assert np.array_equal(np.lib.format.read_array(got), want)
        else:
            len_bytes = int.from_bytes(got.read(8), "little")
            assert got.read(len_bytes) == want.tobytes()
    assert got.read() == b""


def test_steps_are_read_from_a_socket_as_the_documentation_does(port: int, start: Start) -> None:
    page = (ROOT / "docs" / "streams.md").read_text()
    (code,) = re.findall(r"```python\n# plain\.py\n(.*?)```", page, re.DOTALL)
    receiver = start(code.replace("9000", str(port)).rstrip() + "\n        say(x.tolist())\n")
    together(*growing(f"tcp://127.0.0.1:{port}?form=length", 2, 9))
    status, said, error = receiver.end()
    assert status == 0, error
    assert [json.loads(line) for line in said.splitlines()] == [np.concatenate(some(t, 2)).tolist() for t in range(9)]


def test_an_array_that_changes_as_a_whole_goes_there_too() -> None:
    receiver = Receiver()
    shapes = [(3, 4), (0, 9), (50, 1)]
    largest = Array((60, 10), "i4", "*,*", changes=True)
    with polyduct.open(f"{receiver.place}?form=npy", "w", arrays={"x": largest}, timeout=60) as out:
        for t, shape in enumerate(shapes):
            out.write({"x": np.full(shape, t, "i4")})
    got = io.BytesIO(receiver.all()[0])
    for t, shape in enumerate(shapes):
        assert np.array_equal(np.lib.format.read_array(got), np.full(shape, t))


def test_a_receiver_of_a_changing_array_that_goes_is_told_to_all_units() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}?form=npy"

        def take() -> None:
            with server.accept()[0] as one:
                one.recv(100)

        with pytest.raises(polyduct.StreamBroken):
            together(take, *growing(place, 3, 1_000_000))


@pytest.mark.parametrize(
    ("place", "arrays", "match"),
    [
        ("tcp://127.0.0.1:1", {"x": Array((Open(9),), "u1")}, "form=npy or form=length"),
        ("udp://127.0.0.1:1", {"x": Array((Open(9),), "u1")}, "form=npy or form=length"),
        ("tcp://127.0.0.1:1?form=npy&lanes=2", {"x": Array((Open(9),), "u1")}, "one lane"),
        ("tcp://127.0.0.1:1?form=npy", {"x": Array((9,), "u1"), "y": Array((9,), "u1")}, "stream:// and display:// carry several"),
    ],
)
def test_what_cannot_go_to_an_ordinary_program(place: str, arrays: dict[str, Array], match: str) -> None:
    with pytest.raises(polyduct.Misuse, match=match):
        polyduct.open(place, "w", arrays=arrays)
