"""Streams whose other end stops for a while, whose datagrams get lost, and whose processes are killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from conftest import COMMAND, Process, together
from sites import KEY

import polyduct

Start = Callable[..., Process]
BYTES = 1 << 20


@pytest.mark.parametrize("policy", ["block", "latest"])
def test_a_receiver_that_takes_nothing_for_a_while(policy: Literal["block", "latest"]) -> None:
    """It is waited for and gets everything; or nobody waits, and it gets whole steps in their order."""
    server = socket.create_server(("127.0.0.1", 0))
    url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    stuck, steps = threading.Barrier(3), 60

    def unit(k: int) -> float:
        out = polyduct.open(
            url,
            "w",
            shape=(BYTES // 64, 64),
            dtype="u1",
            layout="*,block",
            unit=k,
            units=2,
            program="w",
            policy=policy,
            timeout=30,
        )
        part, longest, waited = np.empty((BYTES // 64, 32), "u1"), 0.0, False
        for t in range(steps):
            part[:] = t
            began = time.monotonic()
            try:
                out.write(part, timeout=None if waited else 2)
            except polyduct.TimeoutError:
                waited = True
                stuck.wait(30)
                out.write(part, timeout=30)
            longest = max(longest, time.monotonic() - began)
        assert waited == (policy == "block")
        if not waited:
            stuck.wait(30)
        out.close()
        return longest

    def receive() -> np.ndarray:
        with server, server.accept()[0] as one:
            stuck.wait(30)
            return np.frombuffer(one.makefile("rb").read(), "u1").reshape(-1, BYTES)

    *longest, got = together(lambda: unit(0), lambda: unit(1), receive)
    assert (got == got[:, :1]).all(), "steps are whole"
    numbers = got[:, 0].tolist()
    if policy == "block":
        assert numbers == list(range(steps))
    else:
        assert max(longest) < 2 and numbers == sorted(set(numbers)) and numbers[-1] == steps - 1


def whole(way: list[bytes]) -> list[int]:
    """What a reader makes of these datagrams: steps all of whose bytes come before any of a later step."""
    steps: list[int] = []
    at_hand, starts = -1, {0}
    for one in way:
        step, at, length = (int.from_bytes(one[k : k + 8], "little") for k in (8, 16, 24))
        if step < at_hand or step in steps:
            continue
        if step > at_hand:
            at_hand, starts, got = step, set(), 0
        if at not in starts:
            starts.add(at)
            got += len(one) - 40
        if got == length:
            steps.append(step)
    return steps


@pytest.mark.parametrize("seed", range(4))
def test_datagrams_that_are_lost_doubled_and_late(port: int, seed: int) -> None:
    chance, field = random.Random(seed), np.arange(12_000, dtype="u2")
    got: list[np.ndarray] = []
    came = threading.Condition()

    def read() -> None:
        for a in polyduct.open(f"udp://:{port}", layout="block", shape=field.shape, dtype="u2", timeout=30):
            with came:
                got.append(a.copy())
                came.notify()

    with socket.socket(type=socket.SOCK_DGRAM) as between, socket.socket(type=socket.SOCK_DGRAM) as to:
        between.bind(("127.0.0.1", 0))
        between.settimeout(30)
        to.connect(("127.0.0.1", port))
        reader = threading.Thread(target=read)
        reader.start()
        # Until the reader listens. A datagram of nothing is none.
        end = time.monotonic() + 30
        while True:
            try:
                to.send(b"")
                to.send(b"")
                break
            except ConnectionRefusedError:
                assert time.monotonic() < end
        place = f"udp://127.0.0.1:{between.getsockname()[1]}?packet=1000"
        out = polyduct.open(place, "w", shape=field.shape, dtype="u2", layout="*", timeout=30)
        way: list[bytes] = []
        late: list[bytes] = []
        for t in range(100):
            out.write(field + np.uint16(t))
            for _ in range(24):
                one = between.recv(1 << 16)
                fate = chance.random()
                now = [] if fate < 0.02 else [one, one] if fate < 0.1 else [one]
                if 0.1 <= fate < 0.13:
                    late, now = [*late, one], []
                elif chance.random() < 0.3:
                    late, now = [], [*now, *late]
                way += now
                for datagram in now:
                    to.send(datagram)
            # Chance is all that loses anything: no buffer of the system overflows.
            with came:
                assert came.wait_for(lambda: len(got) >= len(whole(way)), 30)
        out.close()
        to.send(between.recv(1 << 16))
        reader.join(30)
    assert not reader.is_alive()
    numbers = [int(a[0]) for a in got]
    assert all(np.array_equal(a, field + a[0]) for a in got)
    assert numbers == whole(way) and 10 < len(numbers) < 100


WRITER = """
    url, unit, at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        out = polyduct.open(
            url, "w", shape=(512, 512), dtype="u4", layout="block,*", unit=unit, units=2, program="w",
            timeout=60)
        for t in range(1 << 30):
            out.write(np.full((256, 512), t, "u4"), timeout=30)
            if t == at:
                say("under way")
    except (polyduct.StreamBroken, polyduct.PeerLost) as e:
        say(type(e).__name__, e)
    """
READER = """
    url, unit, at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        port = polyduct.open(url, layout="*,block", unit=unit, units=2, program="r", timeout=60)
        for t, a in enumerate(port):
            assert (a == t).all(), "whole steps, one after the other"
            if t == at:
                say("under way")
        say("ended")
    except (polyduct.StreamBroken, polyduct.PeerLost) as e:
        say(type(e).__name__, e)
    """


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", KEY)
    monkeypatch.setenv("POLYDUCT_MESSAGE_SILENCE", "1s")
    name = f"faults-{os.getpid()}"
    process = subprocess.Popen([COMMAND, "gateway", name], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr:
        assert name in process.stderr.readline()
        yield name, process
        process.kill()
        process.wait()


def left(names: list[str]) -> list[str]:
    """Whatever still has one of these names, in files or sockets."""
    files = [str(path) for place in ("/dev/shm", "/tmp") for path in Path(place).iterdir()]
    sockets = Path("/proc/net/unix").read_text().splitlines()
    return [found for found in (*files, *sockets) if any(name in found for name in names)]


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_killed_the_others_are_told(
    port: int, start: Start, gateway: tuple[str, subprocess.Popen[str]], seed: int
) -> None:
    """Units of the writers; the gateway; units of the readers, the one with their site's gateway too."""
    name, carrier = gateway
    chance = random.Random(seed)
    at, victim = chance.randrange(40), seed % 5
    out, into = f"stream://127.0.0.1:{port}/{name}?lanes=2&gateway={name}", f"stream://:{port}/{name}"
    units = [start(WRITER, out, k, at) for k in range(2)] + [start(READER, into, k, at) for k in range(2)]
    assert [unit.hear() for unit in units] == ["under way"] * 4
    if victim < 4:
        units[victim].signal(signal.SIGKILL)
    else:
        carrier.send_signal(signal.SIGKILL)
    began = time.monotonic()
    said = [unit.hear() for k, unit in enumerate(units) if k != victim]
    assert time.monotonic() - began < 10
    assert all(word.startswith(("StreamBroken", "PeerLost")) for word in said), said
    for unit in units:
        unit.end()
    if victim < 4:
        asked = [str(COMMAND), "gateway", "status", name, "--json"]
        while (
            '"stream"' in subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout
        ):
            assert time.monotonic() - began < 10
        carrier.send_signal(signal.SIGINT)
        assert carrier.wait(30) == 0
    carrier.wait(30)
    assert left([name]) == []
