"""Calls that wait no longer than they are told, or not at all."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import together
from domains import alone, fresh, units

import polyduct
from polyduct import Domain


def late(call: Callable[[], object], least: float = 0.0) -> None:
    """The call ends by its own limit, not by the port's of 30 s."""
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        call()
    assert least <= time.monotonic() - start < 10


def test_each_call_of_a_domain_may_have_its_own_limit() -> None:
    def run(d: Domain) -> None:
        d.synchronise(timeout=30)
        if d.unit == 0:
            for seconds in (0, 0.05):
                late(lambda: d.recv(timeout=seconds), seconds)
                late(lambda: d.recv_from(1, 7, timeout=seconds), seconds)
                late(lambda: d.sendrecv(1, b"here", tag=3, timeout=seconds), seconds)
                late(lambda: d.barrier(timeout=seconds), seconds)
            d.send(1, b"go", timeout=0)
            d.barrier()
            assert d.recv(1, timeout=0) == b"come" and d.try_recv() is None
        else:
            assert d.recv(0, 0) == b"go" and d.recv(0, 3) == d.recv(0, 3) == b"here"
            d.send(0, b"come")
            d.barrier()
        d.barrier()

    units(2, run)


def test_who_sends_to_a_full_unit_waits_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_MESSAGE_INBOX", "1MiB")
    late_enough = threading.Event()

    def run(d: Domain) -> None:
        if d.unit == 0:
            late(lambda: [d.send(1, np.zeros(3 << 20, "u1"), timeout=0.1) for _ in range(30)], 0.1)
            late_enough.set()
            d.send(1, b"through", 1)
        else:
            d.poll()
            late_enough.wait()
            while d.recv_from(0).tag == 0:
                pass
        d.barrier()

    units(2, run)


def test_limits_are_times() -> None:
    d = alone()
    d.handler("h", lambda *_: None)
    d.synchronise()
    for wrong in (True, "1", 1j):
        for call in (d.recv, partial(d.send, 0, b""), partial(d.post, 0, "h"), d.barrier, d.synchronise):
            with pytest.raises(polyduct.BadOption, match="expected seconds"):
                call(timeout=wrong)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(polyduct.BadOption):
            d.recv(timeout=wrong)
    d.leave()


URLS = ["pipe:{}", "pipe://127.0.0.1:{}/py"]


def url_of(form: str) -> str:
    if "//" not in form:
        return form.format(fresh())
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return form.format(free.getsockname()[1])


@pytest.mark.parametrize("form", URLS)
@pytest.mark.parametrize("layout,dtype", [("*,*", "f4"), ("*,*;order=F", "i8"), ("*,*", "V3")])
def test_steps_that_are_tried(form: str, layout: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", os.urandom(32).hex())
    url = url_of(form)
    opened, tried, filled = threading.Event(), threading.Event(), threading.Event()
    steps: list[int] = []
    value = np.frombuffer(os.urandom(6 * np.dtype(dtype).itemsize), dtype).reshape(2, 3)

    def write() -> None:
        with polyduct.open(
            url, "w", shape=(2, 3), dtype=dtype, layout=layout, timeout=30, depth=2, unit=0, units=1
        ) as out:
            opened.set()
            assert tried.wait(30)
            published = 0
            while step := out.try_step():
                with pytest.raises(polyduct.Misuse, match="step open"):
                    out.try_step()
                with step as a:
                    a[...] = value
                assert step.published and not a.flags.writeable
                published += 1
            assert 2 <= published <= 8
            late(lambda: out.step(timeout=0.05).__enter__(), 0.05)
            late(lambda: out.write(value, timeout=0.05), 0.05)
            late(lambda: out.write(value.astype(dtype)[::1], timeout=0), 0)
            steps.append(published)
            filled.set()
            with out.step(timeout=30) as a:
                a[...] = value
            assert out.write(value, timeout=30)

    def read() -> None:
        with polyduct.open(url, layout=layout, timeout=30, unit=0, units=1) as port:
            assert opened.wait(30)
            for out in (None, np.empty((2, 3), dtype), np.empty((4, 3), dtype)[::2]):
                assert port.try_read(out) is None and not port.ended
                late(lambda: port.read(out, timeout=0.02), 0.02)
            tried.set()
            assert filled.wait(30)
            outs = [None, np.empty((2, 3), dtype), np.empty((4, 3), dtype)[::2]]
            found = 0
            while not port.ended:
                got = port.try_read(outs[found % 3])
                if got is not None:
                    assert got.tobytes() == value.tobytes() and port.number == found
                    found += 1
            assert found == steps[-1] + 2 and port.try_read() is None and port.read(timeout=0) is None

    together(write, read)


def test_a_file_has_room_and_its_step_is_there(tmp_path: Any) -> None:
    url = str(tmp_path / "a.npy")
    with polyduct.open(url, "w", shape=4, dtype="f8") as out:
        step = out.try_step()
        assert step is not None
        with step as a:
            a[...] = [1, 2, 3, 4]
    with polyduct.open(url) as port:
        got = port.try_read()
        assert got is not None and got.tolist() == [1, 2, 3, 4]
        assert port.try_read() is None and port.ended


def test_arrays_of_other_units_may_have_their_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regions of who is not near are asked for by messages.
    monkeypatch.setenv("POLYDUCT_MESSAGE_NEAR", "0")
    monkeypatch.setenv("POLYDUCT_JOB_KEY", os.urandom(32).hex())
    away, heard = threading.Event(), threading.Event()

    def run(d: Domain) -> None:
        region, lent = d.region("r", np.zeros((3, 4))), d.lend("l", np.zeros(4))
        d.barrier()
        if d.unit == 0:
            # The other may come out of the barrier later, and answers until then.
            assert away.wait(30)
            for array in (region, lent):
                for call in (partial(array.put, 1, 1.0), partial(array.get, 1)):
                    late(partial(call, timeout=0.05), 0.05)
                    with pytest.raises(polyduct.BadOption, match="timeout"):
                        call(timeout="1")  # type: ignore[arg-type]
            heard.set()
            region.put(1, 5.0, (slice(None), 2), timeout=20)
            assert region.get(1, (slice(None), slice(1, 3)), timeout=20).tolist() == [[0, 5]] * 3
            lent.put(1, [1.0, 2.0], slice(1, 3), timeout=20)
            assert lent.get(1, timeout=20).tolist() == [0, 1, 2, 0]
        else:
            # Not in any call of the domain.
            away.set()
            assert heard.wait(30)
        d.barrier()
        lent.withdraw(timeout=1)

    units(2, run, url_of("tcp://127.0.0.1:{}"))
    d = alone()
    with pytest.raises(polyduct.BadOption, match="timeout"):
        d.leave(timeout="1")  # type: ignore[arg-type]
    d.leave(timeout=1)
