"""Ports that are polled and awaited."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Process, together
from domains import alone, fresh, units
from test_waiting import URLS, late, url_of

import polyduct
from polyduct import Domain

Opened = tuple[polyduct.Writer, polyduct.Reader]


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "ab" * 32)
    return url_of(request.param)


def opened(url: str, *, layout: str = "*", dtype: str = "f8", **options: Any) -> Opened:
    """Both ends of a pipe, in this thread."""
    writer, reader = together(
        lambda: polyduct.open(url, "w", shape=3, dtype=dtype, layout=layout, timeout=30, **options),
        lambda: polyduct.open(url, layout=layout, timeout=30),
    )
    return writer, reader


def ended(out: polyduct.Writer, port: polyduct.Reader) -> None:
    """Closes both. A writer across hosts waits for its readers."""
    together(out.close, port.close)


def is_ready(port: Any, seconds: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(port, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def becomes_ready(port: Any) -> bool:
    return is_ready(port, 20)


def watching(expected: int) -> bool:
    """Whether so many threads of this process watch ports, once those that have just ended are gone."""

    def found() -> int:
        names = []
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                names.append((task / "comm").read_text().strip())
        return names.count("polyduct-ready")

    start = time.monotonic()
    while found() != expected and time.monotonic() - start < 10:
        os.sched_yield()
    return found() == expected


def test_a_port_is_readable_as_long_as_its_call_would_not_wait(url: str) -> None:
    out, port = opened(url, depth=2)
    assert not is_ready(port) and becomes_ready(out) and is_ready(out)
    with pytest.raises(RuntimeError):
        with out.step():
            assert not is_ready(out)
            raise RuntimeError
    assert becomes_ready(out)
    assert out.write([0.0, 0.0, 0.0])
    for step in range(1, 20):
        # The second of two slots, then none.
        assert becomes_ready(out)
        taken = out.try_step()
        assert taken is not None
        with taken as a:
            a[...] = step
        assert not is_ready(out)
        assert becomes_ready(port) and is_ready(port)
        got = port.try_read() if step % 2 else port.read()
        assert got is not None and got.tolist() == [step - 1] * 3
    assert becomes_ready(port)
    assert next(port)[0] == 19 and not is_ready(port, 0.02)
    late(lambda: port.read(timeout=0.01))
    assert not is_ready(port)
    closing = threading.Thread(target=out.close)
    closing.start()
    assert becomes_ready(port) and port.try_read() is None and port.ended and is_ready(port)
    port.close()
    closing.join()
    assert is_ready(port) and is_ready(out)
    with pytest.raises(polyduct.Closed):
        out.try_step()


@pytest.mark.parametrize("policy", ["latest", "drop_oldest", "drop_newest"])
def test_queues_that_drop_steps_have_room_and_tell_what_is_there(url: str, policy: Any) -> None:
    out, port = opened(url, depth=3, policy=policy)
    for round in range(20):
        assert not is_ready(port)
        published = []
        for value in range(round % 6 + 1):
            step = None
            while step is None:
                # Across hosts a slot that was given up may still be on its way to a reader.
                assert becomes_ready(out)
                step = out.try_step()
                assert step is not None or "//" in url
            with step as a:
                a[...] = 10 * round + value
            published += [10 * round + value] * bool(step.published)
        found = []
        assert becomes_ready(port)
        # Across hosts the last release may be on its way while the next step is there.
        while published[-1] not in found:
            assert becomes_ready(port)
            got = port.try_read()
            found += [] if got is None else [int(got[0])]
        assert found == sorted(found) and set(found) <= set(published)
    ended(out, port)


@pytest.mark.parametrize("layout,dtype", [("*;order=F", "i8"), ("*", "V3")])
def test_arrays_of_any_form_are_awaited(url: str, layout: str, dtype: str) -> None:
    value = np.frombuffer(os.urandom(3 * np.dtype(dtype).itemsize), dtype)

    async def run() -> None:
        out, port = await asyncio.to_thread(opened, url, layout=layout, dtype=dtype)
        for given in (None, np.empty(3, dtype), np.empty(6, dtype)[::2]):
            reads = asyncio.ensure_future(port.read_async(given))
            await asyncio.sleep(0)
            assert await out.write_async(value)
            got = await reads
            assert got is not None and got.tobytes() == value.tobytes() and (given is None or got is given)
        await asyncio.to_thread(ended, out, port)

    asyncio.run(run())


DYING = """
url, mode = sys.argv[1:]
if mode == "w":
    port = polyduct.open(url, "w", shape=3, dtype="f8", layout="*", depth=1)
    port.write(np.zeros(3))
else:
    port = polyduct.open(url)
say("open")
wait()
"""


@pytest.mark.parametrize("mode", ["w", "r"])
@pytest.mark.parametrize("form", URLS)
def test_the_loss_of_the_other_side_wakes_who_polls(
    form: str, mode: str, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "ab" * 32)
    url = url_of(form)
    other = start(DYING, url, mode)
    port: Any
    if mode == "w":
        port = polyduct.open(url, timeout=30)
        assert becomes_ready(port) and port.read() is not None
        call = port.read
    else:
        port = polyduct.open(url, "w", shape=3, dtype="f8", layout="*", depth=1, timeout=30)
        assert becomes_ready(port)
        port.write(np.zeros(3))
        call = lambda: port.step().__enter__()  # noqa: E731
    assert other.hear() == "open" and not is_ready(port)
    other.signal(signal.SIGKILL)
    assert becomes_ready(port)
    with pytest.raises(polyduct.PeerLost):
        call()
    assert is_ready(port)
    port.abort()


def test_closing_wakes_who_polls(url: str) -> None:
    out, port = opened(url)
    fd = port.fileno()
    polls = threading.Thread(target=lambda: woken.append(becomes_ready(fd)))
    woken: list[bool] = []
    polls.start()
    together(out.close, port.close) if "//" in url else port.close()
    polls.join()
    assert woken == [True] and port.fileno() == fd and is_ready(port)
    with pytest.raises(polyduct.Closed):
        port.try_read()
    out.abort()


def test_who_does_not_poll_has_no_thread_for_it(url: str, tmp_path: Path) -> None:
    out, port = opened(url)
    for step in range(3):
        out.write(np.full(3, float(step)))
        assert port.read(timeout=20) is not None and port.try_read() is None
    assert watching(0)
    assert port.fileno() == port.fileno() != out.fileno() and watching(2)
    ended(out, port)
    assert watching(0)
    with polyduct.open(tmp_path / "a.npy", "w", shape=3, dtype="f8") as file:
        assert is_ready(file) and file.write(np.zeros(3)) and is_ready(file) and watching(0)
    with polyduct.open(tmp_path / "a.npy") as read:
        assert is_ready(read) and read.try_read() is not None and is_ready(read) and watching(0)


def test_a_port_that_was_closed_or_forked_has_its_descriptor_still(url: str) -> None:
    out, port = opened(url)
    assert not is_ready(port)
    child = os.fork()
    if child == 0:
        try:
            out.fileno()
        except polyduct.Misuse:
            # Neither the parent's descriptor nor its thread is this process's.
            del out, port
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert not is_ready(port) and out.write(np.zeros(3)) and becomes_ready(port)
    assert port.read() is not None
    ended(out, port)
    assert is_ready(out)


def test_two_ports_at_once_in_one_loop(url: str, pipe: str) -> None:
    async def run() -> None:
        (left, left_port), (right, right_port) = await asyncio.gather(
            asyncio.to_thread(opened, url, depth=1), asyncio.to_thread(opened, pipe, depth=1)
        )
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        async def write(out: polyduct.Writer, sign: int) -> None:
            for step in range(30):
                if step % 2:
                    async with out.step() as a:
                        a[...] = sign * step
                    assert not a.flags.writeable
                else:
                    assert await out.write_async(np.full(3, float(sign * step)))
            await asyncio.to_thread(out.close)

        async def read(port: polyduct.Reader, sign: int) -> int:
            first = await port.read_async()
            assert first is not None and first.tolist() == [0, 0, 0]
            count = 1
            async for a in port:
                assert a.tolist() == [sign * count] * 3 and port.number == count
                count += 1
            assert port.ended and await port.read_async() is None
            port.close()
            return count

        beside = asyncio.create_task(tick())
        counts: Any = await asyncio.gather(
            read(left_port, 1), read(right_port, -1), write(left, 1), write(right, -1)
        )
        beside.cancel()
        assert list(counts[:2]) == [30, 30] and ticks > 30

    asyncio.run(run())


def test_who_is_cancelled_has_taken_nothing(url: str) -> None:
    async def run() -> None:
        out, port = await asyncio.to_thread(opened, url, depth=1)
        others = [asyncio.ensure_future(port.read_async()) for _ in range(3)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(port.read_async(), 0.02)
        for other in others[1:]:
            other.cancel()
        assert await out.write_async([1.0, 2, 3])
        got = await others[0]
        assert got is not None and got.tolist() == [1, 2, 3]
        await asyncio.gather(*others, return_exceptions=True)

        assert await out.write_async([4.0, 5, 6])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(out.write_async([0.0, 0, 0]), 0.02)
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio_timeout(0.02), out.step():
                raise AssertionError("there is no room")
        got = await port.read_async()
        assert got is not None and got.tolist() == [4, 5, 6] and port.number == 1
        async with out.step() as a:
            a[...] = 7
        assert (await port.read_async()) is not None and port.number == 2
        await asyncio.to_thread(ended, out, port)

    asyncio.run(run())


class asyncio_timeout:
    """``asyncio.timeout``, which Python 3.10 has not: cancels the block after a time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.over = seconds, False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None

        def end() -> None:
            self.over = True
            task.cancel()

        self.timer = asyncio.get_running_loop().call_later(self.seconds, end)

    async def __aexit__(self, kind: Any, *_: object) -> None:
        self.timer.cancel()
        if self.over and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError


def test_waits_have_limits_in_loops_of_both_kinds(url: str) -> None:
    async def run() -> None:
        out, port = await asyncio.to_thread(opened, url, depth=1)
        late(lambda: next(iter(port.steps(timeout=0.02))), 0.02)
        with pytest.raises(polyduct.BadOption):
            port.steps(timeout="1")  # type: ignore[arg-type]
        start = time.monotonic()
        for wait in (port.read_async(timeout=0.02), port.steps(0.02).__anext__()):
            with pytest.raises(polyduct.TimeoutError, match="next step") as e:
                await wait
            assert e.value.waited >= 0.02
        out.write(np.zeros(3))
        with pytest.raises(polyduct.TimeoutError, match="free slot for step 1"):
            async with out.step(timeout=0.02):
                pass
        with pytest.raises(polyduct.TimeoutError):
            await out.write_async(np.zeros(3), timeout=0.02)
        assert time.monotonic() - start < 10
        steps = port.steps(timeout=20)
        assert next(iter(steps)).tolist() == [0, 0, 0]
        assert await out.write_async(np.ones(3), timeout=20)
        closing = asyncio.ensure_future(asyncio.to_thread(out.close))
        assert [a.tolist() async for a in steps] == [[1, 1, 1]] and list(steps) == []
        port.close()
        await closing

    asyncio.run(run())


def test_closing_takes_no_longer_than_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "ab" * 32)
    out, port = opened(url_of(URLS[1]))
    out.write(np.zeros(3))
    # Nobody fetches the step.
    late(lambda: out.close(timeout=0.05), 0.05)
    assert out.closed
    with pytest.raises(polyduct.PeerAborted):
        for _ in port.steps(timeout=20):
            pass
    with pytest.raises(polyduct.BadOption, match="timeout"):
        port.close(timeout="1")  # type: ignore[arg-type]
    assert not port.closed
    port.close(timeout=1)


def test_a_closed_port_ends_what_awaits_it(url: str) -> None:
    async def run() -> None:
        out, port = await asyncio.to_thread(opened, url)
        waits = asyncio.ensure_future(port.read_async())
        await asyncio.sleep(0)
        port.close()
        with pytest.raises(polyduct.Closed):
            await asyncio.wait_for(waits, 20)
        out.abort()

    asyncio.run(run())


@pytest.mark.parametrize("form", ["{}", "tcp://127.0.0.1:{}"])
def test_a_domain_is_readable_while_a_message_waits(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "ab" * 32)
    monkeypatch.setenv("POLYDUCT_MESSAGE_NEAR", "0" if "//" in form else "1")

    def run(d: Domain) -> None:
        handled = []
        d.handler("note", lambda from_, args, payload: handled.append(args[0]))
        d.synchronise()
        if d.unit == 0:
            assert not is_ready(d)
            d.send(1, b"go")
            for _ in range(20):
                assert becomes_ready(d) and is_ready(d)
                first = d.try_recv()
                assert first is not None and first.data == b"first"
                # Whoever polls receives: handlers run, and are no message.
                assert becomes_ready(d) and d.recv(tag=2) == b"second" and not is_ready(d, 0.01)
                d.send(1, b"go")
            assert becomes_ready(d) and d.irecv().wait(timeout=20) == b"end"
            assert not is_ready(d) and handled == list(range(20))
            d.send(1, b"leave")
            # Nobody is left who could send.
            assert becomes_ready(d)
            with pytest.raises(polyduct.PeerLeft):
                d.recv()
        else:
            for n in range(20):
                assert d.recv() == b"go"
                d.post(0, "note", n)
                d.send(0, b"first", 1)
                d.send(0, b"second", 2)
            d.recv()
            d.send(0, b"end")
            assert d.recv() == b"leave"

    units(2, run, url_of(form) if "//" in form else None)


def test_a_fork_leaves_the_descriptor_of_its_parents_domain_alone() -> None:
    with alone() as d:
        fd = d.fileno()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(polyduct.Error):
                d.try_recv()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert select.select([fd], [], [], 0) == ([], [], [])


def test_a_time_that_is_none_closes_nothing() -> None:
    out = polyduct.open("pipe:" + fresh(), "w", shape=4, dtype="u1", readers="any")
    with pytest.raises(polyduct.BadOption):
        out.close(timeout=-1)
    assert not out.closed
    out.write(np.zeros(4, "u1"))
    out.close()
    assert out.closed


def test_leaving_a_domain_wakes_who_polls_it() -> None:
    d = alone()
    fd = d.fileno()
    woken: list[bool] = []
    polls = threading.Thread(target=lambda: woken.append(becomes_ready(fd)))
    polls.start()
    d.leave()
    polls.join()
    assert woken == [True] and d.fileno() == fd and is_ready(d)
    with pytest.raises(polyduct.Closed):
        d.recv()
    left = alone()
    left.leave()
    with pytest.raises(polyduct.Closed):
        left.fileno()


@pytest.mark.parametrize("begin", [Domain.fileno, Domain.serving], ids=["polled", "serving"])
def test_a_domain_that_is_dropped_is_left_whatever_thread_it_has(begin: Callable[[Domain], object]) -> None:
    name = fresh()
    first, second = together(
        *[partial(polyduct.domain, name, unit=unit, units=2, timeout=20) for unit in (0, 1)]
    )
    begin(first)
    dropped = weakref.ref(first)
    del first
    gc.collect()
    assert dropped() is None
    with pytest.raises(polyduct.PeerLeft):
        second.recv(0)
    second.leave()


def test_the_loss_of_a_unit_wakes_who_polls_the_domain(start: Callable[..., Process]) -> None:
    name = fresh()
    other = start("d = polyduct.domain(sys.argv[1], unit=1, units=2)\nsay('here')\nwait()", name)
    with pytest.raises(polyduct.PeerLost):
        with polyduct.domain(name, unit=0, units=2) as d:
            assert other.hear() == "here" and not is_ready(d)
            other.signal(signal.SIGKILL)
            assert becomes_ready(d)
            d.recv()


def test_a_handler_that_would_end_the_program_ends_no_thread_that_receives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: said.append(args.exc_type))
    ready = threading.Event()

    def run(d: polyduct.Domain) -> None:
        @d.handler("quit")
        def quit(*_: object) -> None:
            raise SystemExit("enough")

        d.synchronise()
        if d.unit == 0:
            assert ready.wait(30)
            d.post(1, "quit")
            d.send(1, b"x")
            return
        fd = d.fileno()
        ready.set()
        assert select.select([fd], [], [], 30)[0]
        assert d.recv(timeout=20) == b"x"

    units(2, run)
    assert said == [SystemExit]
