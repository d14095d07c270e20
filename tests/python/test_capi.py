"""The C and Fortran interfaces: programs built by gcc and gfortran, beside Python and each other."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Process, together
from programs import C, CONFIG, CPP, MPIRUN, SOURCES, Program, build, build_fortran, missing, run, running

import polyduct

ROWS, COLUMNS, STEPS = 6, 10, 3
Build = Callable[[str], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Programs of tests/c by their source, each compiled once."""
    assert not missing(), f"apt-get install {' '.join(missing())}"
    where, done = tmp_path_factory.mktemp("built"), dict[str, Path]()

    def of(name: str) -> Path:
        if name not in done:
            source = SOURCES / name
            done[name] = build_fortran(where, source) if source.suffix == ".f90" else build(where, C, source)
        return done[name]

    return of


def whole(step: int) -> np.ndarray[Any, Any]:
    return step * 1000 + np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)


def read_all(url: str, layout: str, unit: int = 0, units: int = 1) -> list[np.ndarray[Any, Any]]:
    port = polyduct.open(url, layout=layout, unit=unit, units=units, program="py", timeout=60)
    return [part.copy() for part in port]


def write_all(url: str, dtype: str, layout: str, unit: int, units: int) -> None:
    shape, place = (ROWS, COLUMNS), {"unit": unit, "units": units, "program": "py"}
    with polyduct.open(url, "w", shape=shape, dtype=dtype, layout=layout, timeout=60, **place) as out:
        for step in range(STEPS):
            [box] = out.layout.boxes(unit)
            out.write(np.array(whole(step)[tuple(slice(*side) for side in box)], dtype, order="C"))


@pytest.mark.parametrize("source", ["ports.c", "ports.f90"])
@pytest.mark.parametrize("units", [1, 3])
def test_steps_to_python(built: Build, pipe: str, source: str, units: int) -> None:
    program = built(source)
    with running(*(Program(program, "write", pipe, u, units) for u in range(units))) as writers:
        halves = together(*(lambda u=u: read_all(pipe, "*,block", u, 2) for u in range(2)))
        for writer in writers:
            writer.end()
    for step in range(STEPS):
        np.testing.assert_array_equal(np.hstack([half[step] for half in halves]), whole(step))


@pytest.mark.parametrize(("source", "dtype"), [("ports.c", "i4"), ("ports.f90", "f8")])
@pytest.mark.parametrize("units", [1, 3])
def test_steps_from_python(built: Build, pipe: str, source: str, dtype: str, units: int) -> None:
    """The readers check each element."""
    program = built(source)
    with running(*(Program(program, "read", pipe, u, units) for u in range(units))) as readers:
        together(*(lambda u=u: write_all(pipe, dtype, "block,*", u, 2) for u in range(2)))
        for reader in readers:
            reader.end()


@pytest.mark.parametrize("source", ["ports.c", "ports.f90"])
def test_steps_among_themselves(built: Build, pipe: str, source: str) -> None:
    program = built(source)
    roles = [("write", u, 2) for u in range(2)] + [("read", u, 3) for u in range(3)]
    with running(*(Program(program, role, pipe, u, n) for role, u, n in roles)) as programs:
        for one in programs:
            one.end()


def test_fortran_and_python_mean_the_same_indices(built: Build, pipe: str) -> None:
    """An array of Fortran is the array of the same indices in Python, in whatever order either has it."""
    with running(Program(built("ports.f90"), "write", pipe, 0, 1)) as [writer]:
        steps = read_all(pipe, "*,*;order=C")
        writer.end()
    assert len(steps) == STEPS and steps[0].flags.c_contiguous
    np.testing.assert_array_equal(steps[2], whole(2))


# -- steps that are looked at where they lie --


def test_a_view_keeps_the_slot(built: Build, pipe: str) -> None:
    """The writer has one slot, and cannot go on as long as a reader looks at it."""
    place = {"unit": 0, "units": 1, "program": "py", "depth": 1, "timeout": 60}
    with running(Program(built("ports.c"), "view", pipe, 0, 1)) as [reader]:
        with polyduct.open(pipe, "w", shape=(ROWS, COLUMNS), dtype="i4", layout="*,*", **place) as out:
            for step in range(2):
                out.write(whole(step).astype("i4"))
            assert reader.hear() == "holds"
            with pytest.raises(polyduct.TimeoutError):
                out.write(whole(2).astype("i4"), timeout=0.1)
            reader.tell()
            out.write(whole(2).astype("i4"))
        reader.end()


def test_what_has_to_be_copied_cannot_be_viewed(built: Build, pipe: str, tmp_path: Path) -> None:
    """Of two writers, and of a file: the step is read all the same."""
    for place in (pipe, str(tmp_path / "x.npy")):
        writers = [Program(built("ports.c"), "write", place, u, 2) for u in range(2)]
        with running(*writers):
            if place != pipe:
                assert [writer.end() for writer in writers] == ["", ""]
            run(built("ports.c"), "view_columns", place, 0, 1)
            if place == pipe:
                assert [writer.end() for writer in writers] == ["", ""]


def test_a_bundle_is_viewed_and_closed(built: Build, pipe: str) -> None:
    with running(Program(built("ports.c"), "view_bundle", pipe, 0, 1)) as [reader]:
        arrays = {"u": polyduct.Array((4, 3), "f8", "*,*")}
        with polyduct.open(pipe, "w", arrays=arrays, unit=0, units=1, program="py", timeout=60) as out:
            out.write({"u": np.arange(12.0).reshape(4, 3)}, step=0)
        reader.end()


def test_a_view_of_fortran(built: Build, pipe: str) -> None:
    with running(Program(built("ports.f90"), "view", pipe, 0, 1)) as [reader]:
        write_all(pipe, "f8", "*,*;order=F", 0, 1)
        reader.end()


def test_threads_share_views(built: Build, pipe: str) -> None:
    with running(Program(built("misuse.c"), "views", pipe)) as [reader]:
        with polyduct.open(pipe, "w", shape=64, dtype="u1", layout="*", unit=0, units=1, timeout=60) as out:
            for step in range(50):
                out.write(np.full(64, step, "u1"))
        assert reader.end() == ""


@pytest.mark.parametrize(("role", "side"), [("hold", "writer"), ("view", "reader")])
def test_who_is_killed_in_a_step_is_lost(built: Build, pipe: str, role: str, side: str) -> None:
    place = {"unit": 0, "units": 1, "program": "py", "timeout": 60}
    with running(Program(built("ports.c"), role, pipe, 0, 1)) as [other]:
        if role == "hold":
            port: Any = polyduct.open(pipe, layout="*,*", **place)
        else:
            port = polyduct.open(pipe, "w", shape=(ROWS, COLUMNS), dtype="i4", layout="*,*", **place)
            for step in range(2):
                port.write(whole(step).astype("i4"))
        assert other.hear() == "holds"
        other.process.kill()
        with pytest.raises(polyduct.PeerLost) as lost:
            while True:
                port.read() if role == "hold" else port.write(whole(0).astype("i4"))
        assert lost.value.side == side
        port.abort()


def test_a_view_outlives_its_writer(built: Build, pipe: str, start: Callable[..., Process]) -> None:
    """The bytes stay where they are, and the next step is the loss."""
    writer = start(
        f"""
        shape = ({ROWS}, {COLUMNS})
        out = polyduct.open({pipe!r}, "w", shape=shape, dtype="i4", layout="*,*", unit=0, units=1)
        for step in range(2):
            out.write((step * 1000 + np.arange({ROWS * COLUMNS}).reshape(shape)).astype("i4"))
        wait()
        """
    )
    with running(Program(built("ports.c"), "view", pipe, 0, 1)) as [reader]:
        assert reader.hear() == "holds"
        writer.signal(signal.SIGKILL)
        reader.tell()
        assert "polyduct_view(port, &memory, &len, &step): PeerLost" in reader.end(status=1)


# -- bundles --


def bundle_steps(port: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [({name: array.copy() for name, array in step.items()}, dict(step.values)) for step in port]


def test_a_bundle_to_python(built: Build, pipe: str) -> None:
    with running(*(Program(built("ports.c"), "write_bundle", pipe, u, 2) for u in range(2))) as writers:
        steps = bundle_steps(polyduct.open(pipe, layouts="...", unit=0, units=1, timeout=60))
        for writer in writers:
            writer.end()
    assert len(steps) == 2
    for n, (arrays, values) in enumerate(steps):
        np.testing.assert_array_equal(arrays["u"], n * 100 + np.arange(12).reshape(4, 3))
        np.testing.assert_array_equal(arrays["cells"], [*range(n + 1), *(10 + k for k in range(n + 2))])
        assert values == {"step": n, "time": n * 0.5, "units": "mü", "raw": b"\0\1"}


def test_a_bundle_among_themselves(built: Build, pipe: str) -> None:
    """The reader puts an array together from two pieces, and looks at sizes before it reads."""
    roles = [("write_bundle", u, 2) for u in range(2)] + [("read_bundle", u, 2) for u in range(2)]
    with running(*(Program(built("ports.c"), role, pipe, u, n) for role, u, n in roles)) as programs:
        for one in programs:
            one.end()


def test_pieces_and_open_dimensions_of_fortran(built: Build, pipe: str) -> None:
    """Written by Fortran and read by C and Fortran, and the other way round."""
    for writer, reader in (("ports.f90", "ports.c"), ("ports.c", "ports.f90"), ("ports.f90", "ports.f90")):
        suffix = {"ports.f90": "_open", "ports.c": "_bundle"}
        roles = [(writer, "write", u, 2) for u in range(2)] + [(reader, "read", u, 2) for u in range(2)]
        programs = (Program(built(s), role + suffix[s], pipe, u, n) for s, role, u, n in roles)
        with running(*programs) as all_:
            for one in all_:
                one.end()


def test_a_bundle_of_fortran(built: Build, pipe: str) -> None:
    with running(*(Program(built("ports.f90"), "write_bundle", pipe, u, 2) for u in range(2))) as writers:
        steps = bundle_steps(polyduct.open(pipe, layouts="...", unit=0, units=1, timeout=60))
        for writer in writers:
            writer.end()
    for n, (arrays, values) in enumerate(steps):
        np.testing.assert_array_equal(arrays["u"], n * 100 + np.repeat([1, 1, 3, 3], 3).reshape(4, 3))
        assert arrays["n"].tolist() == [n] * 5 and arrays["n"].dtype == "i8"
        assert values == {"step": n, "time": n * 0.5, "units": "m/s"}
    roles = [("write_bundle", 0, 2), ("write_bundle", 1, 2), ("read_bundle", 0, 1)]
    with running(*(Program(built("ports.f90"), role, pipe, u, n) for role, u, n in roles)) as programs:
        for one in programs:
            one.end()


# -- files and stores --


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_files(built: Build, tmp_path: Path, name: str) -> None:
    """Two units write, others read; the file is standard."""
    path = tmp_path / name
    with running(*(Program(built("ports.c"), "write", path, u, 2) for u in range(2))) as writers:
        for writer in writers:
            writer.end()
    for n, found in enumerate(read_all(str(path), "*,*")):
        np.testing.assert_array_equal(found, whole(n))
    if name == "x.npy":
        found = np.load(path)
        assert found.shape == (STEPS, ROWS, COLUMNS) and found.dtype == "i4"
        np.testing.assert_array_equal(found, np.stack([whole(n) for n in range(STEPS)]))
    with running(*(Program(built("ports.c"), "read", path, u, 3) for u in range(3))) as readers:
        for reader in readers:
            reader.end()


def test_what_there_is_is_said(built: Build, tmp_path: Path, pipe: str) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros((3, 4), "f4"), b=np.zeros(5, "i8"))
    assert run(built("ports.c"), "describe", tmp_path / "x.npz").splitlines() == ["a 11 2 3", "b 5 1 5"]


@pytest.mark.parametrize("source", ["ports.c", "ports.f90"])
def test_stores(built: Build, tmp_path: Path, source: str) -> None:
    place = tmp_path / "s"
    run(built(source), "store", place, 0, 1)
    store = polyduct.Store(place)
    expected = np.arange(600).reshape(20, 30)
    expected[5:7, 6:9] = -np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(store["table"][...], expected)
    status = store.status()
    assert (status.data, status.parity, status.stripe) == (2, 1, 4096)


def test_attributes_and_names_of_dimensions(built: Build, tmp_path: Path) -> None:
    run(built("ports.c"), "notes", tmp_path)
    run(built("ports.f90"), "notes", tmp_path / "f.zarr", 0, 1)
    one = json.loads((tmp_path / "one.zarr/zarr.json").read_text())
    assert one["attributes"] == {"units": "K", "level": [1, 2.5]}
    assert one["dimension_names"] == ["time", "y", None]
    group = json.loads((tmp_path / "all.zarr/zarr.json").read_text())
    array = json.loads((tmp_path / "all.zarr/a/b/zarr.json").read_text())
    assert group["attributes"]["title"] == "run 7"
    assert array["attributes"]["long_name"] == "depth"
    assert array["dimension_names"][-2:] == ["y", "x"]


@pytest.mark.parametrize("source", ["ports.c", "ports.f90"])
def test_a_program_says_its_key(built: Build, source: str) -> None:
    """A pipe across hosts, and no key in the environment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"pipe://127.0.0.1:{server.getsockname()[1]}/keyed"
    environ = {"POLYDUCT_JOB_KEY": "", "POLYDUCT_TRUSTED_NETWORK": ""}
    programs = (Program(built(source), "keyed", place, u, 2, env=environ) for u in range(2))
    with running(*programs) as both:
        for one in both:
            one.end()


def test_every_type_and_rank_of_fortran(built: Build, tmp_path: Path) -> None:
    run(built("ports.f90"), "ranks", tmp_path, 0, 1)

    def counted(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return np.arange(1, np.prod(shape) + 1).reshape(shape, order="F").astype(dtype)

    expected = {
        "i1": counted((3,), "i4"),
        "i2": counted((2, 3), "i8") * 10**12,
        "r3": counted((2, 3, 4), "f4"),
        "r4": counted((2, 1, 3, 2), "f8"),
        "c2": counted((3, 2), "c8") * (1 - 1j),
        "c1": counted((4,), "c16") + 0.5j,
    }
    for name, array in expected.items():
        found = np.load(tmp_path / f"{name}.npy").reshape(array.shape)
        assert found.dtype == array.dtype or name == "c2"
        np.testing.assert_array_equal(found, array)


# -- errors --


@pytest.mark.parametrize("role", ["handles", "arguments", "sizes", "forked", "words"])
def test_misuse_is_an_error(built: Build, tmp_path: Path, role: str) -> None:
    assert run(built("misuse.c"), role, "x.npy", cwd=tmp_path) == ""


def test_misuse_in_fortran(built: Build, tmp_path: Path) -> None:
    assert run(built("ports.f90"), "misuse", tmp_path, 0, 1) == ""
    # A port that goes out of scope is closed, one that was given up leaves no file.
    assert [path.name for path in tmp_path.iterdir()] == ["c.npy"]
    assert np.load(tmp_path / "c.npy").size == 0


def test_an_error_without_stat_stops_with_its_text(built: Build, tmp_path: Path) -> None:
    with running(Program(built("ports.f90"), "stop", tmp_path, 0, 1)) as [program]:
        said = program.end(status=1)
    assert f"polyduct: FileMissing: {tmp_path}/missing.npy" in said and "ERROR STOP" in said


def test_several_threads(built: Build, tmp_path: Path) -> None:
    run(built("misuse.c"), "threads", "x.npy", cwd=tmp_path)
    found = np.load(tmp_path / "x.npy").ravel()
    assert np.bincount(found).tolist() == [50] * 4


def test_closing_ends_what_others_wait_for(built: Build, pipe: str) -> None:
    with polyduct.open(pipe, "w", shape=1, dtype="u1", layout="*", unit=0, units=1, readers="any") as out:
        with running(Program(built("misuse.c"), "closing", pipe)) as [program]:
            assert program.hear() == "reads"
            program.tell()
            assert program.end() == "Closed\n"
        out.write([1])


def test_a_signal_ends_a_call_by_the_question_alone(built: Build, pipe: str) -> None:
    """And a timeout ends it as well."""
    with running(Program(built("misuse.c"), "waiting", pipe)) as [program]:
        assert program.hear() == "waits"
        program.process.send_signal(signal.SIGUSR1)
        program.end()


def test_a_killed_partner_is_a_code(built: Build, pipe: str, start: Callable[..., Process]) -> None:
    writer = start(
        f"""
        shape = ({ROWS}, {COLUMNS})
        out = polyduct.open({pipe!r}, "w", shape=shape, dtype="i4", layout="*,*", unit=0, units=1)
        wait()
        """
    )
    with running(Program(built("ports.c"), "wait", pipe)) as [reader]:
        assert reader.hear() == "open"
        writer.signal(signal.SIGKILL)
        assert reader.end() == f"PeerLost writer {writer.pid} -\n"


def test_a_killed_partner_in_fortran(built: Build, pipe: str, start: Callable[..., Process]) -> None:
    writer = start(
        f"""
        shape = ({ROWS}, {COLUMNS})
        out = polyduct.open({pipe!r}, "w", shape=shape, dtype="f8", layout="*,*", unit=0, units=1)
        wait()
        """
    )
    with running(Program(built("ports.f90"), "wait", pipe, 0, 1)) as [reader]:
        assert reader.hear() == "open"
        writer.signal(signal.SIGKILL)
        assert reader.end().startswith("-23 ")


def test_a_killed_program_in_c_is_an_exception(built: Build, pipe: str) -> None:
    def write() -> None:
        with pytest.raises(polyduct.PeerLost) as lost:
            with polyduct.open(
                pipe, "w", shape=(ROWS, COLUMNS), dtype="i4", layout="*,*", unit=0, units=1, timeout=60
            ) as out:
                assert reader.hear() == "open"
                reader.process.kill()
                while True:
                    out.write(whole(0).astype("i4"))
        assert lost.value.side == "reader"

    with running(Program(built("ports.c"), "wait", pipe)) as [reader]:
        write()


def test_a_socket_whose_other_end_is_gone_is_a_code(built: Build) -> None:
    """And no SIGPIPE, which would end the program."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with running(Program(built("ports.c"), "until_error", place)) as [program]:
            end, _ = server.accept()
            assert len(end.recv(10)) == 10
            # What it has not read is refused, and so is all that comes after.
            end.close()
            assert program.end() == "StreamBroken\n"


def test_who_gives_up_says_why(built: Build, pipe: str) -> None:
    programs = (Program(built("ports.c"), "wait", pipe), Program(built("ports.c"), "give_up", pipe))
    with running(*programs) as [reader, writer]:
        assert reader.end() == "open\nPeerAborted writer 0 no fuel\n"
        writer.end()


# -- messages and layouts --


def ring(domain: polyduct.Domain) -> None:
    """A unit of the ring of tests/c/messages.c."""
    right, left = (domain.unit + 1) % domain.units, (domain.unit - 1) % domain.units
    domain.send(right, f"unit {domain.unit}".encode(), tag=7)
    assert domain.recv(left, 7) == f"unit {left}".encode()
    for order in ("C", "F"):
        mine = np.array(domain.unit * 100 + np.arange(6).reshape((2, 3), order=order), "f4", order=order)
        domain.send(right, mine, tag=8)
        found = domain.recv(left)
        assert found.shape == (2, 3) and found.dtype == "f4" and found.flags[f"{order}_CONTIGUOUS"]
        np.testing.assert_array_equal(found, mine - domain.unit * 100 + left * 100)
    domain.send(right, np.zeros((2, 0), "f4"), tag=9)
    assert domain.recv(left, 9).shape == (2, 0)
    assert domain.sendrecv(right, b"python", left, tag=10) in (b"python", f"unit {left}".encode())
    seen: list[tuple[int, tuple[int, int, int, int], bytes]] = []
    domain.handler("note", lambda *what: seen.append(what), version=1)

    @domain.function("twice")
    def twice(x: Any) -> Any:
        if isinstance(x, bytes):
            raise TypeError("no array of doubles")
        return 2 * x

    domain.synchronise()
    domain.post(right, "note", 1, 2, 3, domain.unit, payload=b"bulk")
    assert domain.serve(lambda: len(seen) == 1, 60)
    assert seen[0] == (left, (1, 2, 3, left), b"bulk")
    domain.barrier()
    with domain.serving():
        domain.channel(right, priority="high").post("note")
        assert domain.serve(lambda: len(seen) == 2, 60)
        assert domain.call(right, "twice", np.array([1, 2.5, -3])).result(60).tolist() == [2, 5, -6]
        with pytest.raises(polyduct.CallFailed, match="no array of doubles"):
            domain.call(right, "twice", b"abc").result(60)
        region = domain._port.region(1, 64).array()
        lent = np.frombuffer(b"lent...\0", "u1").copy()
        held = domain._port.lend(2, lent)
        domain.barrier()
        words = np.frombuffer(f"unit {domain.unit}".encode(), "u1").copy()
        domain._port.put(right, 1, [8], words, None)
        domain._port.put(right, 1, [16], words, None)
        domain.post(right, "note", 1, 2, 3, domain.unit)
        assert domain.serve(lambda: len(seen) == 3, 60)
        assert chr(region[13]) == chr(region[21]) == str(left)
        back = np.zeros(8, "u1")
        domain._port.get(right, 2, [0], back, None)
        assert back.tobytes() == b"lent...\0"
        domain.barrier()
        held.withdraw(60)
        domain.barrier()


@pytest.mark.parametrize("units", [2, 3])
def test_messages_between_c_and_python(built: Build, units: int) -> None:
    name = f"capi-{os.getpid()}-{units}"
    with running(*(Program(built("messages.c"), name, u, units) for u in range(1, units))) as programs:
        with polyduct.domain(name, unit=0, units=units, timeout=60) as domain:
            ring(domain)
        for program in programs:
            program.end()


@pytest.mark.parametrize("units", [2, 4])
def test_messages_in_c(built: Build, units: int) -> None:
    name = f"capi-c-{os.getpid()}-{units}"
    with running(*(Program(built("messages.c"), name, u, units) for u in range(units))) as programs:
        for program in programs:
            program.end()


def test_messages_of_fortran(built: Build) -> None:
    name = f"capi-f-{os.getpid()}"
    with running(Program(built("ports.f90"), "messages", name, 1, 2)) as [program]:
        with polyduct.domain(name, unit=0, units=2, timeout=60) as domain:
            mine = np.array([[1, 3, 5], [2, 4, 6]], "f8")
            np.testing.assert_array_equal(domain.recv(1, 5), 100 + mine)
            domain.send(1, np.asfortranarray(mine), tag=5)
            domain.send(1, np.array([[1, 1, 1], [3, 3, 3]], "f8"), tag=6)
            assert domain.recv(1, 7).dtype == "i4"
            domain.send(1, np.zeros((2, 3), "i4"), tag=7)
            domain.barrier()
        program.end()


@pytest.mark.parametrize("units", [1, 3])
def test_calls_and_regions_of_fortran(built: Build, units: int) -> None:
    name = f"capi-calls-{os.getpid()}-{units}"
    with running(*(Program(built("ports.f90"), "calls", name, u, units) for u in range(units))) as programs:
        for program in programs:
            program.end()


def test_cpp_with_exceptions(tmp_path: Path) -> None:
    """Handles in objects: what is unwound in the midst of a step leaves no file, and nothing half open."""
    assert run(build(tmp_path, CPP, SOURCES / "raii.cpp"), cwd=tmp_path) == ""
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == ["moved.npy", "whole.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "whole.npy").ravel(), [0, 1, 2, 3])


def test_layouts(built: Build) -> None:
    assert run(built("layouts.c")) == ""


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert not missing(), f"apt-get install {' '.join(missing())}"
    return build(tmp_path_factory.mktemp("mpi"), ["mpicc", *C[1:]], SOURCES / "cart.c")


@pytest.mark.parametrize("ranks", range(1, 9))
def test_layouts_of_mpi(cart: Path, ranks: int) -> None:
    """Grids of communicators, and datatypes, against what MPI itself packs."""
    assert f"{ranks} of {ranks}" in run(*MPIRUN, "-n", ranks, cart)


# -- what is installed --


def test_the_places_are_the_commands() -> None:
    command = Path(sys.executable).with_name("polyduct")
    words = " ".join([*CONFIG.cflags, *CONFIG.libs])
    assert run(command, "config", "--cflags", "--libs") == f"{words}\n"
    assert run(command, "config", "--fortran") == f"{CONFIG.fortran}\n"
    assert f"\nVersion: {polyduct.__version__}\n" in Path(CONFIG.pkg_config, "polyduct.pc").read_text()
    path = f"PKG_CONFIG_PATH={CONFIG.pkg_config}"
    words = run("env", path, "pkg-config", "--cflags", "--libs", "polyduct").split()
    places = [os.path.normpath(word[2:]) for word in words if word[:2] in ("-I", "-L")]
    assert places == [CONFIG.include, CONFIG.lib] and "-lpolyduct" in words


def test_the_library_needs_no_python() -> None:
    said = run("readelf", "-d", f"{CONFIG.lib}/libpolyduct.so")
    assert "soname: [libpolyduct.so]" in said
    assert "python" not in said
