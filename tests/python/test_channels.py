"""Channels: an order and a priority of their own."""

from __future__ import annotations

import os
import socket
import threading

import numpy as np
import pytest
from conftest import together
from domains import alone, units

import polyduct
from polyduct import Domain


def exchange(d: Domain) -> None:
    posted: list[tuple[int, bytes]] = []
    d.handler("note", lambda from_, args, payload: posted.append((args[0], payload)))
    d.synchronise()
    a = np.arange(50_000.0).reshape(100, 500)
    if d.unit == 0:
        for priority in ("low", "high"):
            for ordered in (True, False):
                channel = d.channel(1, priority=priority, ordered=ordered)  # type: ignore[arg-type]
                assert channel.to == 1
                for n in range(20):
                    channel.send(a + n, n)
                    channel.post("note", n, payload=b"x" * n)
                channel.flush(timeout=20)
        d.send(1, b"all")
    else:
        for _ in range(4):
            for n in range(20):
                assert np.array_equal(d.recv(0, n), a + n)
        assert d.recv(0) == b"all" and sorted(posted) == sorted([(n, b"x" * n) for n in range(20)] * 4)
    d.barrier()


def test_each_kind_of_channel_brings_everything() -> None:
    units(2, exchange)


def test_the_same_across_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", os.urandom(32).hex())
    monkeypatch.setenv("POLYDUCT_MESSAGE_NEAR", "0")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def one(unit: int) -> None:
        with polyduct.domain(url, unit=unit, units=2, timeout=30) as d:
            exchange(d)

    together(lambda: one(0), lambda: one(1))


def test_high_priority_does_not_wait_behind_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_MESSAGE_INBOX", "1MiB")
    through = threading.Event()

    def run(d: Domain) -> None:
        d.handler("now", lambda *_: through.set())
        d.synchronise()
        if d.unit == 0:
            flood = [d.isend(1, np.zeros(3 << 20, "u1")) for _ in range(4)]
            d.channel(1, priority="high").post("now", timeout=20)
            for request in flood:
                request.wait(timeout=20)
        else:
            assert d.serve(through.is_set, timeout=20)
            for _ in range(4):
                d.recv(0)
        d.barrier()

    units(2, run)


def test_what_is_no_channel_is_named() -> None:
    d = alone()
    for wrong in ({"priority": "urgent"}, {"priority": 1}, {"ordered": 1}):
        with pytest.raises(polyduct.BadOption):
            d.channel(0, **wrong)  # type: ignore[arg-type]
    with pytest.raises(polyduct.NoUnit):
        d.channel(1)
    with pytest.raises(polyduct.Misuse):
        d.channel(0)
    d.leave()
