"""Files as ports: the same program pipes or files by its argument."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Process, together

import polyduct

FULL = np.arange(60, dtype="<f4").reshape(6, 10)


def write(url: object, steps: list[np.ndarray], units: int = 2, layout: str = "block,*") -> None:
    """Writes with units in threads: one step in place, the next from an array."""

    def unit(k: int) -> None:
        with polyduct.open(
            str(url),
            "w",
            shape=(6, 10),
            dtype="f4",
            layout=layout,
            unit=k,
            units=units,
            program="w",
            timeout=30,
        ) as out:
            [box] = out.layout.boxes(k)
            for n, full in enumerate(steps):
                mine = full[tuple(slice(*r) for r in box)]
                assert out.next_step == n
                if n % 2:
                    out.write(mine)
                else:
                    with out.step() as a:
                        a[...] = mine
                    assert not a.flags.writeable

    together(*(lambda k=k: unit(k) for k in range(units)))


@pytest.mark.parametrize("layout", ["block,*", "*,block", "block,block@1x2;order=F"])
def test_npy_there_and_back(tmp_path: Path, layout: str) -> None:
    steps = [FULL, FULL + 100, -FULL]
    write(tmp_path / "x.npy", steps, layout=layout)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), steps)
    port = polyduct.open(str(tmp_path / "x.npy"), layout="*,block;halo=0,1", unit=1, units=3, program="r")
    assert (port.shape, port.dtype) == ((6, 10), np.float32)
    got = [b.copy() for b in port]
    assert len(got) == 3
    for part, full in zip(got, steps):
        np.testing.assert_array_equal(part, full[:, 3:9])


def test_a_file_has_one_step_open_at_a_time(tmp_path: Path) -> None:
    """As a pipe has; else the inner one would overwrite the outer one's array."""
    path = tmp_path / "a.npy"
    with polyduct.open(path, "w", shape=3, dtype="i4", layout="*") as out:
        with out.step() as a:
            a[...] = 2
            with pytest.raises(polyduct.Misuse, match="has a step open"):
                out.step().__enter__()
            with pytest.raises(polyduct.Misuse, match="has a step open"):
                out.write([1, 1, 1])
        with pytest.raises(KeyError), out.step() as a:
            a[...] = 9
            raise KeyError
        out.write([3, 3, 3])
    with pytest.raises(polyduct.Closed, match="closed") as e:
        out.step().__enter__()
    assert e.value.url == str(path)
    assert np.load(path).tolist() == [[2, 2, 2], [3, 3, 3]]


def test_a_file_that_is_closed_in_its_own_step(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    out = polyduct.open(str(path), "w", shape=3, dtype="i4", layout="*")
    out.write([1, 2, 3])
    with pytest.raises(polyduct.Closed) as e, out.step():
        out.close()
    assert str(e.value) == f"{path}: the port is closed"
    np.testing.assert_array_equal(np.load(path), [1, 2, 3])


def test_what_numpy_wrote(tmp_path: Path) -> None:
    for order in ("C", "F"):
        np.save(tmp_path / "x.npy", np.asarray(FULL, order=order))
        with polyduct.open(tmp_path / "x.npy", layout="cyclic,*", unit=1, units=2) as port:
            np.testing.assert_array_equal(port.read(), FULL[1::2])
            assert port.read() is None


def test_raw_is_the_bytes_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "x.raw", [FULL])
    assert (tmp_path / "x.raw").read_bytes() == FULL.tobytes()
    with polyduct.open(str(tmp_path / "x.raw"), layout="*,*", shape=(6, 10), dtype="f4") as port:
        np.testing.assert_array_equal(port.read(), FULL)


def test_an_exception_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(3))
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError):
        with polyduct.open(str(path), "w", shape=4, dtype="f4", layout="*") as out:
            out.write([1, 2, 3, 4])
            raise ZeroDivisionError
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_open_ports_complete_their_files_at_exit(tmp_path: Path, start: Callable[..., Process]) -> None:
    """Two units in one process, never closed: each waits for the other."""
    code = """
        import threading
        ports = [None, None]
        def unit(k):
            ports[k] = polyduct.open(sys.argv[1], "w", shape=4, dtype="i4", layout="block", unit=k, units=2, timeout=30)
            ports[k].write([k, k])
        threads = [threading.Thread(target=unit, args=(k,)) for k in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    """
    status, _, complaints = start(code, tmp_path / "x.npy").end()
    assert (status, complaints) == (0, "")
    assert np.load(tmp_path / "x.npy").ravel().tolist() == [0, 0, 1, 1]


def test_errors_are_file_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    np.save(tmp_path / "good.npy", FULL)
    write(tmp_path / "x.raw", [FULL])
    for cls, reason, call in [
        (polyduct.FileError, "bad_header", lambda: polyduct.open(str(tmp_path / "bad.npy"), layout="*")),
        (polyduct.FileMissing, "system", lambda: polyduct.open(str(tmp_path / "none.npy"), layout="*")),
        (polyduct.FileError, "needs_dataset", lambda: polyduct.open(str(tmp_path / "x.raw"), layout="*,*")),
        (
            polyduct.FileError,
            "bad_length",
            lambda: polyduct.open(str(tmp_path / "x.raw"), layout="*", shape=7, dtype="f4"),
        ),
        (
            polyduct.FileError,
            "shape_differs",
            lambda: polyduct.open(str(tmp_path / "good.npy"), layout="*,*", shape=(6, 11)),
        ),
        (
            polyduct.FileError,
            "elem_differs",
            lambda: polyduct.open(str(tmp_path / "good.npy"), layout="*,*", dtype="i4"),
        ),
        (
            polyduct.FileMissing,
            "system",
            lambda: polyduct.open(str(tmp_path / "no" / "x.npy"), "w", shape=1, dtype="f4", layout="*"),
        ),
    ]:
        with pytest.raises(polyduct.FileError) as e:
            call()
        assert type(e.value) is cls and e.value.reason == reason
        assert isinstance(e.value, OSError) and str(tmp_path) in str(e.value)
        assert isinstance(e.value, FileNotFoundError) == (cls is polyduct.FileMissing)
        assert e.value.errno == (errno.ENOENT if cls is polyduct.FileMissing else None)
    with pytest.raises(polyduct.LayoutError):
        polyduct.open(str(tmp_path / "good.npy"), layout="*,*,*,*")


@pytest.mark.parametrize("end", ["x.npy", "x.raw", "x.safetensors", "x.zarr", "store:s/x"])
def test_options_that_a_pipe_refuses_are_refused(tmp_path: Path, end: str) -> None:
    url = f"store:{tmp_path}/s/x" if end.startswith("store:") else str(tmp_path / end)
    for option, given in [("on_loss", "wait"), ("depth", 0), ("depth", 65), ("readers", 9)]:
        with pytest.raises(polyduct.BadOption, match=f"x(\\.[a-z]+)?: {option} is {given}; expected ") as e:
            polyduct.open(url, "w", shape=4, dtype="u1", layout="*", **{option: given})
        assert e.value.option == option
    with pytest.raises(polyduct.BadOption, match="on_loss is wait; expected raise: "):
        polyduct.open(url, shape=4, dtype="u1", layout="*", on_loss="wait")
    assert not list(tmp_path.iterdir())


def test_units_that_do_not_come(tmp_path: Path) -> None:
    with pytest.raises((polyduct.Refused, polyduct.TimeoutError)):
        polyduct.open(
            str(tmp_path / "x.npy"), "w", shape=4, dtype="i4", layout="block", unit=0, units=2, timeout=0.05
        )
    assert list(tmp_path.iterdir()) == []


def test_a_unit_that_dies_is_named_and_leaves_no_file(tmp_path: Path, start: Callable[..., Process]) -> None:
    code = """
        unit = int(sys.argv[2])
        out = polyduct.open(sys.argv[1], "w", shape=2, dtype="i4", layout="block", unit=unit, units=2, timeout=60)
        out.write([unit])
        say("wrote")
        wait()
        try:
            out.close()
        except polyduct.PeerLost as e:
            say("lost", e.unit, e.pid)
    """
    one, lost = (start(code, tmp_path / "x.npy", unit) for unit in range(2))
    assert (one.hear(), lost.hear()) == ("wrote", "wrote")
    lost.signal(signal.SIGKILL)
    one.tell()
    assert one.hear() == f"lost 1 {lost.pid}"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_a_file_waits_for_another_unit(tmp_path: Path, start: Callable[..., Process]) -> None:
    code = """
        unit = int(sys.argv[2])
        try:
            out = polyduct.open(sys.argv[1], "w", shape=2, dtype="i4", layout="block", unit=unit, units=2)
            out.write([unit])
            say("wrote")
            wait() if unit else out.close()
        except KeyboardInterrupt:
            say("interrupted")
    """
    one, idle = (start(code, tmp_path / "x.npy", unit) for unit in range(2))
    assert (one.hear(), idle.hear()) == ("wrote", "wrote")
    one.signal(signal.SIGINT)
    assert one.hear() == "interrupted"
