"""Messages and calls under way: tested, waited for together, awaited."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import numpy as np
import pytest
from domains import alone, units

import polyduct
from polyduct import Domain

A = np.arange(6.0).reshape(2, 3)


def test_what_is_under_way_can_be_tested_and_waited_for() -> None:
    def run(d: Domain) -> None:
        if d.unit == 0:
            late = d.irecv(1, 9)
            out = np.empty((2, 3))
            first, second = d.irecv(1, 1, out=out), d.irecv()
            assert not late.test() and not first.test() and not second.test()
            with pytest.raises(TimeoutError):
                first.wait(timeout=0.02)
            d.send(1, b"go")
            assert first.wait() is out is first.wait() and np.array_equal(out, A) and first.test()
            assert second.wait(timeout=20) == b"second"
            with pytest.raises(polyduct.BadOption):
                late.wait(timeout="1")  # type: ignore[arg-type]
            d.send(1, b"go")
            while not late.test():
                pass
            assert late.wait() == b"late"
        else:
            assert d.recv() == b"go"
            for request in (d.isend(0, A, 1), d.isend(0, b"second")):
                assert request.wait(timeout=20) is None and request.test()
            d.recv()
            d.isend(0, b"late", 9)
        d.barrier()

    units(2, run)


def test_any_of_several() -> None:
    def run(d: Domain) -> None:
        d.function("slow")(lambda x: x)
        d.synchronise()
        if d.unit == 0:
            requests: list[Any] = [d.irecv(1, tag) for tag in range(4)] + [d.call(2, "slow", b"called")]
            assert polyduct.waitany(requests, timeout=20) == 4 and requests[4].result() == b"called"
            seen = []
            left = dict(enumerate(requests[:4]))
            while left:
                places = list(left)
                with pytest.raises(TimeoutError):
                    polyduct.waitany(left.values(), timeout=0.01)
                d.send(1, b"next")
                place = places[polyduct.waitany(left.values())]
                assert left.pop(place).wait() == bytes([place])
                seen.append(place)
            assert seen == [2, 0, 3, 1]
            d.send(2, b"end")
        elif d.unit == 1:
            for tag in (2, 0, 3, 1):
                d.recv(0)
                d.send(0, bytes([tag]), tag)
        else:
            d.recv(0)
        d.barrier()

    units(3, run)
    d, other = alone(), alone()
    for wrong in ([], [d.irecv(), other.irecv()]):
        with pytest.raises(polyduct.Misuse):
            polyduct.waitany(wrong)
    d.leave(), other.leave()


def test_what_finds_no_room_is_sent_later_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_MESSAGE_INBOX", "1MiB")

    def run(d: Domain) -> None:
        if d.unit == 0:
            arrays = [np.full(1 << 20, n, "u1") for n in range(12)]
            start = time.monotonic()
            requests = [d.isend(1, a) for a in arrays] + [d.isend(1, b"small")]
            assert time.monotonic() - start < 5 and not requests[-1].test()
            with pytest.raises(TimeoutError, match="isend"):
                d.send(1, b"too late", timeout=0.05)
            d.send(2, b"nobody waits for that")
            d.send(2, b"go")
            d.send(1, b"after all")
            assert all(request.test() for request in requests)
        elif d.unit == 1:
            d.recv(2)
            for n in range(12):
                got = d.recv(0)
                assert len(got) == 1 << 20 and (got == n).all()
            assert d.recv(0) == b"small" and d.recv(0) == b"after all"
        else:
            assert d.recv(0) == b"nobody waits for that" and d.recv(0) == b"go"
            d.send(1, b"now")
        d.barrier()

    units(3, run)


def test_who_is_gone_ends_a_request() -> None:
    def run(d: Domain) -> None:
        if d.unit == 0:
            request = d.irecv(1)
            d.send(1, b"leave")
            assert polyduct.waitany([request], timeout=20) == 0 and request.test()
            with pytest.raises(polyduct.PeerLeft):
                request.wait()
            with pytest.raises(polyduct.NoUnit):
                d.irecv(7).wait()
            with pytest.raises(polyduct.WrongType):
                d.isend(0, [1]).wait()  # type: ignore[arg-type]
        else:
            d.recv()

    units(2, run)


def test_asyncio_awaits_messages_and_calls() -> None:
    async def here(d: Domain) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        beside = asyncio.create_task(tick())
        forgotten = asyncio.ensure_future(d.irecv(1, 99))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(d.irecv(1, 98), 0.05)
        assert ticks > 3
        await d.isend(1, b"go")
        got = await asyncio.gather(d.irecv(1, 2), d.irecv(1, 1), d.call(1, "double", A))
        assert got[0] == b"two" and got[1] == b"one" and np.array_equal(got[2], 2 * A)
        with pytest.raises(polyduct.CallFailed):
            await d.call(1, "double", b"text")
        forgotten.cancel()
        beside.cancel()

    def run(d: Domain) -> None:
        @d.function("double")
        def double(x: Any) -> Any:
            return x * 2 if isinstance(x, np.ndarray) else 1 / 0

        d.synchronise()
        if d.unit == 0:
            asyncio.run(here(d))
            d.send(1, b"end")
        else:
            assert d.recv(0) == b"go"
            d.send(0, b"one", 1)
            d.send(0, b"two", 2)
            d.recv(0)
        d.barrier()

    units(2, run)


def test_who_awaits_and_is_cancelled_has_taken_nothing() -> None:
    async def here(d: Domain) -> None:
        waiting = asyncio.ensure_future(d.irecv(1, 5))
        await asyncio.sleep(0)
        watcher = d._watch()
        assert watcher._awaited
        d.send(1, b"go")
        # The loop stands still while the message comes, and one behind it, and until who watches has told of
        # it.
        assert d.recv(1, 6) == b"behind it"
        end = time.monotonic() + 20
        while watcher._awaited:
            assert time.monotonic() < end
            os.sched_yield()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await asyncio.wait_for(d.irecv(1, 5), 10) == b"it"

    def run(d: Domain) -> None:
        if d.unit == 0:
            asyncio.run(here(d))
        else:
            d.recv(0)
            d.send(0, b"it", 5)
            d.send(0, b"behind it", 6)
        d.barrier()

    units(2, run)


def test_asyncio_hears_of_losses() -> None:
    async def here(d: Domain) -> None:
        waits = asyncio.ensure_future(d.irecv(1))
        await d.isend(1, b"leave")
        with pytest.raises(polyduct.PeerLeft):
            await waits

    def run(d: Domain) -> None:
        asyncio.run(here(d)) if d.unit == 0 else d.recv()

    units(2, run)
