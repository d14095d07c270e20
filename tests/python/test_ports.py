"""Life and death of ports: steps, closing, exceptions, misuse."""

from __future__ import annotations

import copy
import errno
import gc
import os
import pickle
import re
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import together

import polyduct


def pair(pipe: str, writer: Any, reader: Any, **options: Any) -> list[Any]:
    """Runs both with a port of each side."""

    def write() -> Any:
        return writer(polyduct.open(pipe, "w", shape=(4, 6), dtype="f4", layout="*,*", **options))

    return together(write, lambda: reader(polyduct.open(pipe, layout="*,*")))


def test_attributes(pipe: str) -> None:
    def writer(out: polyduct.Writer) -> None:
        assert (out.shape, out.dtype, out.unit, out.units) == ((4, 6), np.float32, 0, 1)
        assert (str(out.layout), out.layout.boxes(0), out.local_shape) == ("*,*", [((0, 4), (0, 6))], (4, 6))
        assert not out.closed and "Writer" in repr(out) and "float32" in repr(out)
        with out.step() as a:
            a[...] = 3
        out.close()
        out.close()
        assert out.closed and "closed" in repr(out)
        stats = out.stats()
        assert (stats.steps, stats.dropped, stats.bytes) == (1, 0, 96) and stats.opened > 0
        for call in [lambda: out.write(np.zeros((4, 6), "f4")), out.step().__enter__]:
            with pytest.raises(polyduct.Closed):
                call()

    def reader(port: polyduct.Reader) -> None:
        assert (port.shape, port.dtype, str(port.layout)) == ((4, 6), np.float32, "*,*")
        assert sum(float(b.sum()) for b in port) == 72
        port.close()
        with pytest.raises(polyduct.Closed):
            port.read()

    pair(pipe, writer, reader)


def test_an_array_of_a_step_afterwards(pipe: str) -> None:
    """It is read-only, and it stays memory even when the port is gone."""

    def writer(out: polyduct.Writer) -> np.ndarray:
        step = out.step()
        with step as a:
            a[...] = 7
            part = a[1:]
        assert step.published is True
        with pytest.raises(ValueError, match="read-only"):
            a[0, 0] = 1
        with pytest.raises(polyduct.Misuse), step:
            pass
        out.close()
        return part

    part, _ = pair(pipe, writer, list)
    gc.collect()
    np.testing.assert_array_equal(part, np.full((3, 6), 7))


def test_the_number_of_the_next_step(pipe: str) -> None:
    def writer(out: polyduct.Writer) -> None:
        numbers = [out.next_step]
        with out.step() as a:
            a[...] = 1
            numbers.append(out.next_step)
        with pytest.raises(KeyError), out.step():
            raise KeyError
        numbers.append(out.next_step)
        out.write(np.zeros((4, 6), "f4"))
        numbers.append(out.next_step)
        out.close()
        assert [*numbers, out.next_step] == [0, 0, 1, 2, 2]

    def reader(port: polyduct.Reader) -> list[int | None]:
        return [port.number for _ in port]

    assert pair(pipe, writer, reader)[1] == [0, 1]


def test_a_port_that_is_closed_in_its_own_step(pipe: str) -> None:
    def writer(out: polyduct.Writer) -> None:
        with pytest.raises(polyduct.Closed) as e, out.step():
            out.close()
        assert str(e.value) == f"pipe {pipe.removeprefix('pipe:')}: the port is closed"

    assert pair(pipe, writer, list)[1] == []


def test_an_exception_leaves_a_step_unpublished(pipe: str) -> None:
    def writer(out: polyduct.Writer) -> None:
        step = out.step()
        with pytest.raises(KeyError), step as a:
            a[...] = 1
            raise KeyError
        assert step.published is None
        with out.step() as a:
            with pytest.raises(polyduct.Misuse, match="step open"):
                out.write(np.zeros((4, 6), "f4"))
            with pytest.raises(polyduct.Misuse, match="step open"):
                out.step().__enter__()
            a[...] = 2
        out.close()

    _, got = pair(pipe, writer, lambda port: [float(b[0, 0]) for b in port])
    assert got == [2]


def test_an_exception_in_a_with_block_aborts(pipe: str) -> None:
    def writer(out: polyduct.Writer) -> None:
        with pytest.raises(ZeroDivisionError), out:
            out.write(np.zeros((4, 6), "f4"))
            raise ZeroDivisionError

    def reader(port: polyduct.Reader) -> None:
        with pytest.raises(polyduct.PeerAborted) as e:
            for _ in port:
                pass
        assert (e.value.unit, e.value.side) == (0, "writer")
        assert isinstance(e.value, ConnectionError)

    pair(pipe, writer, reader)


def test_readers_gone(pipe: str) -> None:
    def writer(out: polyduct.Writer) -> None:
        with pytest.raises(polyduct.ReadersGone) as e:
            while True:
                out.write(np.zeros((4, 6), "f4"))
        assert isinstance(e.value, BrokenPipeError) and e.value.step >= 0

    pair(pipe, writer, lambda port: port.close())


def test_any_readers(pipe: str) -> None:
    out = polyduct.open(pipe, "w", shape=(4, 6), dtype="f4", readers="any", depth=3, timeout=20)
    for value in range(5):
        out.write(np.full((4, 6), value, "f4"))
    for _ in range(2):  # it leaves, and comes again
        with polyduct.open(pipe, layout="*,*", program="one", timeout=20) as one:
            assert one.read()[0, 0] == 4
            with polyduct.open(pipe, layout="*,*;order=F", program="two", timeout=20) as two:
                assert two.read()[0, 0] == 4
    for _ in range(5):
        assert out.write(np.zeros((4, 6), "f4"))
    for options in [{"policy": "block"}, {"on_loss": "wait"}, {"readers": "some"}]:
        with pytest.raises(polyduct.BadOption):
            polyduct.open(pipe, "w", shape=4, dtype="f4", **{"readers": "any", **options})
    with pytest.raises(polyduct.BadOption, match="any"):
        out.domain()
    out.close()


def test_uneven_steps(pipe: str) -> None:
    closed = threading.Event()

    def long() -> None:
        out = polyduct.open(pipe, "w", shape=4, dtype="f4", layout="block", unit=0, units=2, program="w")
        out.write(np.zeros(2, "f4"))
        closed.wait()
        with pytest.raises(polyduct.UnevenSteps) as e:
            out.write(np.zeros(2, "f4"))
        assert (e.value.unit, e.value.side, e.value.closed_after, e.value.step) == (1, "writer", 1, 1)
        with pytest.raises(polyduct.UnevenSteps):
            out.close()

    def short() -> None:
        out = polyduct.open(pipe, "w", shape=4, dtype="f4", layout="block", unit=1, units=2, program="w")
        out.write(np.zeros(2, "f4"))
        out.close()
        closed.set()

    def reader() -> None:
        with polyduct.open(pipe, layout="*") as port:
            assert port.read() is not None

    together(long, short, reader)


def test_a_dropped_port_is_closed(pipe: str) -> None:
    def writer(out: polyduct.Writer) -> Any:
        out.write(np.ones((4, 6), "f4"))
        return weakref.ref(out)

    ref, got = pair(pipe, writer, lambda port: len(list(port)))
    assert got == 1 and ref() is None


def test_a_timeout_leaves_the_port_usable(pipe: str) -> None:
    with pytest.raises(polyduct.TimeoutError) as e:
        polyduct.open(pipe, layout="*", timeout=0.01)
    assert isinstance(e.value, TimeoutError) and e.value.waited >= 0.01

    full = threading.Event()
    done = threading.Event()

    def writer() -> None:
        out = polyduct.open(pipe, "w", shape=1, dtype="i4", layout="*", depth=1, timeout=0.2)
        out.write([1])
        with pytest.raises(polyduct.TimeoutError):
            out.write([2])
        full.set()
        done.wait()
        out.write([3])
        out.close()

    def reader() -> list[int]:
        port = polyduct.open(pipe, layout="*")
        full.wait()
        got = [int(next(port)[0])]
        done.set()
        return got + [int(b[0]) for b in port]

    assert together(writer, reader)[1] == [1, 3]


def test_closing_ends_a_read_in_another_thread(pipe: str) -> None:
    opened = threading.Event()
    ports: list[polyduct.Reader] = []

    def read() -> None:
        ports.append(polyduct.open(pipe, layout="*"))
        opened.set()
        for _ in range(2):  # The first may be told while it waits, or come too late: the words are the same.
            with pytest.raises(polyduct.Closed) as e:
                ports[0].read()
            assert str(e.value) == f"pipe {pipe.removeprefix('pipe:')}: the port is closed"
            assert e.value.url == pipe

    def write() -> None:
        out = polyduct.open(pipe, "w", shape=1, dtype="i4", layout="*")
        opened.wait()
        ports[0].close()
        out.close()

    together(read, write)


def test_who_may_join(pipe: str) -> None:
    """A reader that expects something else is refused; the writer goes on waiting for one that fits."""

    def writer() -> None:
        with polyduct.open(pipe, "w", shape=(4, 6), dtype="f4", layout="*,*") as out:
            out.write(np.zeros((4, 6), "f4"))

    def readers() -> int:
        for wrong in [{"shape": (4, 7)}, {"dtype": "f8"}]:
            with pytest.raises(polyduct.Refused) as e:
                polyduct.open(pipe, layout="*,*", **wrong)  # type: ignore[call-overload]
            assert e.value.reason == "dataset" and isinstance(e.value, ConnectionRefusedError)
        return len(list(polyduct.open(pipe, layout="*,*", shape=(4, 6), dtype="f4")))

    assert together(writer, readers)[1] == 1


def test_who_is_missing(pipe: str) -> None:
    with pytest.raises(polyduct.Refused) as e:
        polyduct.open(
            pipe, "w", shape=4, dtype="f4", layout="block", unit=0, units=2, program="w", timeout=0.05
        )
    assert e.value.reason == "missing" and "reader" in str(e.value)
    assert isinstance(e.value, polyduct.TimeoutError) and e.value.waited >= 0.05


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "a"}, polyduct.BadOption),
        ({"mode": "w"}, polyduct.Misuse),
        ({"mode": "w", "shape": 4, "dtype": "f4", "policy": "newest"}, polyduct.BadOption),
        ({"mode": "w", "shape": 4, "dtype": "f4", "depth": 0}, polyduct.BadOption),
        ({"mode": "w", "shape": 4, "dtype": "f4", "depth": -1}, polyduct.Misuse),
        ({"mode": "w", "shape": 4, "dtype": "f4", "depth": 2**40}, polyduct.BadOption),
        ({"mode": "w", "shape": 4, "dtype": "f4", "readers": 99}, polyduct.BadOption),
        ({"mode": "w", "shape": 4, "dtype": "f4", "convert": True}, polyduct.BadOption),
        ({"mode": "w", "shape": 4, "dtype": "f4", "layout": "block,*"}, polyduct.LayoutError),
        ({"mode": "w", "shape": 4, "dtype": "f4", "layout": "boxes(0:3)"}, polyduct.LayoutError),
        ({"mode": "w", "shape": [4] * 9, "dtype": "f4"}, polyduct.LayoutError),
        ({"unit": -1, "units": 2}, polyduct.BadOption),
        ({"unit": (0,), "units": 2}, polyduct.BadOption),
        ({"timeout": "a"}, polyduct.BadOption),
        ({"program": 7}, polyduct.BadOption),
        ({"url": b"a.npy"}, polyduct.BadUrl),
        ({"depth": 2}, polyduct.BadOption),
        ({"policy": "block"}, polyduct.BadOption),
        ({"convert": True}, polyduct.BadOption),
        ({"on_loss": "weep"}, polyduct.BadOption),
        ({"timeout": -1}, polyduct.BadOption),
        ({"timeout": float("nan")}, polyduct.BadOption),
        ({"timeout": float("inf")}, polyduct.BadOption),
        ({"unit": 1}, polyduct.Misuse),
        ({"unit": 2, "units": 2}, polyduct.BadOption),
        ({"url": "-"}, polyduct.BadUrl),
        ({"url": "http://x"}, polyduct.BadUrl),
        ({"url": "pipe:"}, polyduct.BadOption),
        ({"layout": "block,"}, polyduct.LayoutError),
    ],
    ids=str,
)
def test_misuse_is_found_before_anything_is_done(
    pipe: str, options: dict[str, Any], error: type[Exception]
) -> None:
    given = {"url": pipe, "mode": "r", "layout": "*", **options}
    with pytest.raises(error) as e:
        polyduct.open(**given)
    assert isinstance(e.value, polyduct.Error) and isinstance(e.value, ValueError) and str(e.value)


def test_a_wrong_option_is_shown_as_it_was_given(pipe: str) -> None:
    with pytest.raises(polyduct.BadOption, match=r"unit is -1; expected an integer from 0 to \d+$"):
        polyduct.open(pipe, layout="*", unit=-1, units=2)
    with pytest.raises(polyduct.BadOption, match="timeout is 'a'; expected seconds"):
        polyduct.open(pipe, layout="*", timeout="a")  # type: ignore[call-overload]
    for shape, shown in [(-1, "-1"), ((3, -1), "(3, -1)")]:
        with pytest.raises(polyduct.Misuse, match=f"shape is {re.escape(shown)};"):
            polyduct.open(pipe, "w", shape=shape, dtype="u1", layout="*")


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("mode", {"mode": "a"}),
        ("append", {"append": 1}),
        ("append", {"append": True}),
        ("unit", {"unit": -1, "units": 2}),
        ("program", {"program": 7}),
        ("timeout", {"timeout": "a"}),
        ("timeout", {"timeout": True}),
        ("timeout", {"timeout": -1}),
        ("convert", {"convert": True}),
        ("depth", {"depth": 2}),
        ("depth", {"mode": "w", "shape": 2**62, "dtype": "u1", "depth": 3}),
        ("on_loss", {"on_loss": "weep"}),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(pipe: str, option: str, given: dict[str, Any]) -> None:
    with pytest.raises(polyduct.BadOption) as e:
        polyduct.open(**{"url": pipe, "layout": "*", **given})
    assert e.value.option == option and option in str(e.value)


def test_a_bool_is_no_time(pipe: str, tmp_path: Path) -> None:
    with polyduct.domain(timeout=20) as joined:
        joined.function("same")(lambda x: x)
        joined.synchronise()
        call = joined.call(0, "same", b"")
        for wrong in [
            lambda: polyduct.domain(timeout=True),
            lambda: polyduct.domain(open_timeout=True),
            lambda: joined.serve(lambda: True, timeout=True),
            lambda: joined.call(0, "same", b"", timeout=True),
            lambda: call.result(timeout=True),
            lambda: polyduct.Store(tmp_path, timeout=True),
        ]:
            with pytest.raises(polyduct.BadOption, match="timeout is True; expected seconds") as e:
                wrong()
            assert e.value.option in ("timeout", "open_timeout")


def test_a_layout_that_does_not_fit_is_told_with_the_pipe(pipe: str) -> None:
    name = re.escape(pipe.removeprefix("pipe:"))
    with pytest.raises(polyduct.LayoutError, match=rf"^pipe {name}: no unit holds element \[2, 0\]") as e:
        polyduct.open(pipe, "w", shape=(4, 4), dtype="u1", layout="boxes(0:2,0:4)")
    assert (e.value.reason, e.value.index, e.value.url) == ("hole", (2, 0), pipe)
    with pytest.raises(polyduct.LayoutError, match=f"^pipe {name}: layout text") as e:
        polyduct.open(pipe, layout="block,blok")
    assert (e.value.reason, e.value.position, e.value.url) == ("text", 6, pipe)


def test_a_timeout_names_the_unit_that_waited(pipe: str) -> None:
    with pytest.raises(polyduct.TimeoutError, match=": reader unit 1: timed out after ") as e:
        polyduct.open(pipe, layout="block", unit=1, units=2, program="r", timeout=0.01)
    assert (e.value.url, e.value.unit, e.value.side) == (pipe, 1, "reader")


def test_a_launcher_says_which_unit(pipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(
        polyduct.BadEnvironment, match="PMI_SIZE: expected a number, found nothing, although PMI_RANK is set"
    ):
        polyduct.open(pipe, layout="*")
    monkeypatch.setenv("PMI_RANK", "x")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(polyduct.BadEnvironment) as e:
        polyduct.open(pipe, layout="*")
    assert e.value.variable == "PMI_RANK"
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "1")
    monkeypatch.setenv("POLYDUCT_IN", pipe)
    monkeypatch.setenv("POLYDUCT_OUT", pipe)

    def writer() -> None:
        with polyduct.open("-", "w", shape=1, dtype="i4", layout="*") as out:
            out.write([5])

    assert together(writer, lambda: [int(b[0]) for b in polyduct.open("-", layout="*")])[1] == [5]


def test_every_exception_is_one_of_polyduct() -> None:
    found = [getattr(polyduct, name) for name in dir(polyduct)]
    classes = [c for c in found if isinstance(c, type) and issubclass(c, BaseException)]
    assert len(classes) >= 20
    for one in classes:
        assert issubclass(one, polyduct.Error)
        assert str(one("words")) == "words"


def test_masked_arrays_are_refused_and_named(pipe: str, tmp_path: Path) -> None:
    masked = np.ma.array([1.0, 2.0], mask=[0, 1])
    reader = threading.Thread(target=lambda: list(polyduct.open(pipe, layout="*")))
    reader.start()
    for url in (pipe, str(tmp_path / "a.npy")):
        with polyduct.open(url, "w", shape=2, dtype="f8", layout="*") as out:
            with pytest.raises(polyduct.WrongType, match="unit 0: the array has masked elements"):
                out.write(masked)
            out.write(np.ma.array([1.0, 2.0]))
    reader.join()
    store = polyduct.Store.create(tmp_path / "s", units=1)
    store["x"] = np.zeros(2)
    for write in (lambda: store.__setitem__("y", masked), lambda: store["x"].__setitem__(..., masked)):
        with pytest.raises(polyduct.WrongType, match="masked"):
            write()
    with polyduct.domain(unit=0, units=1) as domain:
        region = domain.region("r", np.zeros(2))
        for use in (lambda: region.put(0, masked), lambda: domain.region("s", masked)):
            with pytest.raises(polyduct.WrongType, match="masked"):
                use()


def test_names_that_are_no_utf_8_are_bad_urls() -> None:
    for url in ("pipe:\udc80", "/tmp/\udcff.npy"):
        with pytest.raises(polyduct.BadUrl, match="UTF-8"):
            polyduct.open(url, layout="*")


def test_all_writers_hear_that_the_readers_closed(pipe: str) -> None:
    """Whichever finds it first and gives up."""
    first_gave_up = threading.Event()

    def writer(unit: int) -> None:
        out = polyduct.open(pipe, "w", shape=4, dtype="i4", layout="block", unit=unit, units=2)
        out.write([1, 2])
        if unit == 1:
            first_gave_up.wait()
        with pytest.raises(polyduct.ReadersGone):
            for _ in range(10):
                out.write([1, 2])
        out.abort()
        first_gave_up.set()

    def reader() -> None:
        with polyduct.open(pipe, layout="*") as port:
            port.read()

    together(lambda: writer(0), lambda: writer(1), reader)


def test_who_gives_up_says_why(pipe: str) -> None:
    gone, said = threading.Barrier(4), "no disk is left: größte \udcff"

    def writer(unit: int) -> None:
        out = polyduct.open(pipe, "w", shape=4, dtype="i4", layout="block", unit=unit, units=2, program="w", timeout=30)
        gone.wait(30)
        if unit == 1:
            with pytest.raises((AttributeError, TypeError)):
                out.abort(3)  # type: ignore[arg-type]
            out.abort(said)
            out.abort("said too late")
        else:
            hears(lambda: [out.write([1, 2]) for _ in range(10)])

    def reader(unit: int) -> None:
        port = polyduct.open(pipe, layout="block", unit=unit, units=2, program="r", timeout=30)
        gone.wait(30)
        hears(port.read)

    def hears(call: Callable[[], object]) -> None:
        with pytest.raises(polyduct.PeerAborted, match="unit 1 .*gave up: no disk is left: größte [?]$") as e:
            call()
        assert (e.value.side, e.value.unit, e.value.reason) == ("writer", 1, "no disk is left: größte ?")

    together(lambda: writer(0), lambda: writer(1), lambda: reader(0), lambda: reader(1))


def test_a_block_that_an_exception_leaves_gives_up_with_its_words(pipe: str) -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def writer(error: Exception) -> None:
        with pytest.raises(type(error)):
            with polyduct.open(pipe, "w", shape=4, dtype="i4", timeout=30) as out:
                out.write([1, 2, 3, 4])
                raise error

    def reader(reason: str) -> None:
        with polyduct.open(pipe, timeout=30) as port, pytest.raises(polyduct.PeerAborted, match="gave up") as e:
            [port.read() for _ in range(2)]
        assert e.value.reason.startswith(reason) and str(e.value).endswith(e.value.reason)
        assert not reason.startswith("File") or e.value.reason.endswith("SyntaxError: what is this")

    class Noteless(Exception):
        @property
        def __notes__(self) -> list[str]:
            raise RuntimeError("no notes")

    for error, reason in (
        (ValueError("no fuel\nleft"), "ValueError: no fuel\nleft"),
        (Wordless(), f"{__name__}."),
        (Noteless(), "Noteless"),
        (SyntaxError("what is this", ("<s>", 1, 3, "a b c", 1, 4)), 'File "<s>", line 1'),
    ):
        together(partial(writer, error), partial(reader, reason))


def test_the_only_unit_has_everything_when_it_says_nothing(pipe: str, tmp_path: Path) -> None:
    def writer() -> None:
        with polyduct.open(pipe, "w", shape=(3, 4), dtype="f4") as out:
            assert str(out.layout) == "..." and out.local_shape == (3, 4)
            out.write(np.ones((3, 4), "f4"))

    def reader() -> list[tuple[int, ...]]:
        return [b.shape for b in polyduct.open(pipe)]

    assert together(writer, reader)[1] == [(3, 4)]
    np.save(tmp_path / "scalar.npy", np.float64(2.5))
    assert float(next(polyduct.open(tmp_path / "scalar.npy"))) == 2.5
    for mode, more in (("r", {}), ("w", {"shape": 4, "dtype": "f4"})):
        with pytest.raises(polyduct.BadOption, match="this is unit 1 of 2; say what each has") as e:
            polyduct.open(pipe, mode, unit=1, units=2, **more)  # type: ignore[call-overload]
        assert e.value.option == "layout"


def exceptions(tmp_path: Path) -> list[polyduct.Error]:
    """One of each kind that keeps something beside its words, raised by what raises it."""
    (tmp_path / "bad.npy").write_bytes(b"nothing like it")
    store = polyduct.Store.create(tmp_path / "s", units=1)
    layout = polyduct.Layout("block", shape=4, units=2)
    found = []
    for call in (
        lambda: polyduct.open(tmp_path / "none.npy"),
        lambda: polyduct.open(tmp_path / "bad.npy"),
        lambda: polyduct.Store(tmp_path / "none"),
        lambda: store["none"],
        lambda: store[""],
        lambda: polyduct.Layout("block;", shape=4, units=2),
        lambda: polyduct.redistribute([np.zeros(3), np.zeros(2)], layout, layout),
        lambda: polyduct.open(
            "pipe:x", "w", shape=4, dtype="f4", layout="block", unit=0, units=2, timeout=0.01
        ),
    ):
        with pytest.raises(polyduct.Error) as e:
            call()
        found.append(e.value)
    return [*found, polyduct.FileError(2, "words", "name"), polyduct.Closed("words")]


def test_exceptions_keep_all_they_say_through_pickling(tmp_path: Path) -> None:
    kept = ("errno", "strerror", "filename")
    for error in exceptions(tmp_path):
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is type(error) and again.args == error.args and str(again) == str(error)
            assert again.__dict__ == error.__dict__
            assert [getattr(again, name, None) for name in kept] == [
                getattr(error, name, None) for name in kept
            ]


def test_errors_of_files_say_which_and_what_the_system_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as e:
        polyduct.open(tmp_path / "none.npy")
    assert (e.value.errno, e.value.strerror) == (errno.ENOENT, os.strerror(errno.ENOENT))
    assert e.value.filename == str(tmp_path / "none.npy")
    assert "none.npy" in str(e.value) and not str(e.value).startswith("[Errno")
    with pytest.raises(polyduct.FileMissing) as e:
        polyduct.Store(tmp_path / "none")
    assert (e.value.errno, e.value.filename) == (errno.ENOENT, str(tmp_path / "none"))
    (tmp_path / "bad.npy").write_bytes(b"nothing like it")
    with pytest.raises(polyduct.FileError) as bad:
        polyduct.open(tmp_path / "bad.npy")
    assert (bad.value.errno, bad.value.filename) == (None, str(tmp_path / "bad.npy"))


def test_names_belong_to_a_job_that_may_be_said(pipe: str) -> None:
    def write(job: str) -> None:
        with polyduct.open(pipe, "w", shape=1, dtype="u1", unit=0, units=1, job=job, timeout=30) as out:
            out.write([ord(job)])

    def read(job: str) -> int:
        port = polyduct.open(pipe, unit=0, units=1, job=job, timeout=30)
        return int([a.copy() for a in port][0][0])

    assert together(*[partial(write, job) for job in "ab"], *[partial(read, job) for job in "ba"])[2:] == [
        98,
        97,
    ]
    with pytest.raises(polyduct.BadOption, match="job"):
        polyduct.open(pipe, job=1)  # type: ignore[call-overload]
