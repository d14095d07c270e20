"""Gateways that are processes of their own: what they carry, what they are asked, and what becomes of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import COMMAND, Process, together

import polyduct

Start = Callable[..., Process]


class Gateway:
    def __init__(self, name: str, *words: str) -> None:
        self.name = name
        self._process = subprocess.Popen([COMMAND, "gateway", name, *words], stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        assert name in self._process.stderr.readline()
        while self.ask("status", name).returncode != 0:
            assert self._process.poll() is None

    @staticmethod
    def ask(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([COMMAND, "gateway", *map(str, words)], capture_output=True, text=True, timeout=30)

    def streams(self) -> list[dict[str, Any]]:
        asked = self.ask("status", self.name, "--json")
        assert asked.returncode == 0, asked.stderr
        return json.loads(asked.stdout)["streams"]  # type: ignore[no-any-return]

    def until(self, found: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        while True:
            streams = self.streams()
            if found(streams):
                return streams

    def end(self, how: int = signal.SIGINT) -> int:
        self._process.send_signal(how)
        status = self._process.wait(30)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return status


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    one = Gateway(f"test-{os.getpid()}")
    yield one
    if one._process.poll() is None:
        assert one.end() == 0


class Receiver(threading.Thread):
    def __init__(self) -> None:
        super().__init__()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.place = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        self.got = b""
        self.error: OSError | None = None
        self.start()

    def run(self) -> None:
        with self.server, self.server.accept()[0] as one:
            try:
                while some := one.recv(1 << 16):
                    self.got += some
            except OSError as e:
                self.error = e


def test_it_carries_streams_of_several_programs(gateway: Gateway) -> None:
    receivers = [Receiver() for _ in range(3)]
    outs = [
        polyduct.open(
            f"{r.place}?gateway={gateway.name}", "w", shape=(3, 4), dtype="i4", layout="block,*", program=f"p{k}"
        )
        for k, r in enumerate(receivers)
    ]
    assert [s["name"] for s in gateway.until(lambda s: len(s) == 3)] == [r.place for r in receivers]
    for t in range(5):
        for k, out in enumerate(outs):
            out.write(np.full((3, 4), 10 * k + t, "i4"))
    for out in outs:
        out.close()
    for k, r in enumerate(receivers):
        r.join(30)
        assert np.frombuffer(r.got, "i4").reshape(5, 12)[:, 0].tolist() == [10 * k + t for t in range(5)]
    gateway.until(lambda s: not s)


def test_streams_are_paused_changed_and_closed_from_outside(gateway: Gateway) -> None:
    receiver = Receiver()
    url = f"{receiver.place}?gateway={gateway.name}"
    out = polyduct.open(url, "w", shape=4, dtype="u1", layout="*", policy="latest")
    (stream,) = gateway.until(lambda s: len(s) == 1)
    number = stream["stream"]
    assert gateway.ask("pause", gateway.name, number).returncode == 0
    for t in range(20):
        out.write([t] * 4)
    (stream,) = gateway.until(lambda s: s[0].get("waits_for") == "resume")
    assert stream["steps"] <= 1
    assert gateway.ask("set", gateway.name, number, "--quantum", 3, "--priority", -2).returncode == 0
    (stream,) = gateway.streams()
    assert (stream["quantum"], stream["priority"]) == (3, -2)
    assert "paused" in gateway.ask("status", gateway.name).stdout
    assert gateway.ask("resume", gateway.name, number).returncode == 0
    gateway.until(lambda s: s[0]["steps"] >= 1)
    assert gateway.ask("close", gateway.name, number).returncode == 0
    with pytest.raises(polyduct.StreamBroken, match="closed by the gateway's control"):
        while True:
            out.write([7] * 4)
    receiver.join(30)
    refused = gateway.ask("pause", gateway.name, number)
    assert refused.returncode == 1 and f"no stream {number}" in refused.stderr


def test_a_wait_for_a_paused_stream_says_so(gateway: Gateway) -> None:
    receiver = Receiver()
    with polyduct.open(
        f"{receiver.place}?gateway={gateway.name}", "w", shape=4, dtype="u1", layout="*", timeout=0.5
    ) as out:
        (stream,) = gateway.until(lambda s: len(s) == 1)
        assert gateway.ask("pause", gateway.name, stream["stream"]).returncode == 0
        with pytest.raises(TimeoutError, match=f"^{receiver.place}: .*paused") as e:
            while True:
                out.write([1] * 4)
        assert isinstance(e.value, polyduct.Error) and e.value.place == receiver.place
        assert gateway.ask("resume", gateway.name, stream["stream"]).returncode == 0
        asked = gateway.ask("set", gateway.name, stream["stream"])
        assert asked.returncode == 2 and "--quantum <QUANTUM>|--priority <PRIORITY>" in asked.stderr, asked.stderr
    receiver.join(30)


def test_a_gateway_that_dies_is_told_to_its_programs(gateway: Gateway) -> None:
    receiver = Receiver()
    out = polyduct.open(f"{receiver.place}?gateway={gateway.name}", "w", shape=4, dtype="u1", layout="*")
    out.write([1] * 4)
    gateway.until(lambda s: len(s) == 1 and s[0]["steps"] == 1)
    gateway.end(signal.SIGKILL)
    with pytest.raises(polyduct.StreamBroken, match=f"gateway .*{gateway.name}.* died") as e:
        while True:
            out.write([1] * 4)
    assert e.value.place == receiver.place
    receiver.join(30)


def test_there_is_no_such_gateway() -> None:
    with pytest.raises(polyduct.Unreachable, match="polyduct gateway nobody"):
        polyduct.open("tcp://127.0.0.1:1?gateway=nobody", "w", shape=3, dtype="u1", layout="*")
    asked = Gateway.ask("status", "nobody")
    assert asked.returncode == 1 and "polyduct gateway nobody" in asked.stderr
    with pytest.raises(polyduct.BadUrl, match="gateway"):
        polyduct.open("tcp://127.0.0.1:1?gateway=a/b", "w", shape=3, dtype="u1", layout="*")


def test_what_the_gateway_meets_the_program_is_told(gateway: Gateway) -> None:
    with pytest.raises(polyduct.Unreachable, match="refused"):
        polyduct.open(
            f"tcp://127.0.0.1:1?gateway={gateway.name}", "w", shape=3, dtype="u1", layout="*", timeout=0.3
        )


def test_programs_share_the_display_of_a_gateway(
    gateway: Gateway, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    monkeypatch.setenv("POLYDUCT_GATEWAY", gateway.name)
    code = """
        out = polyduct.open(sys.argv[1], "w", shape=(30, 20), dtype="f4", layout="block,*", timeout=60)
        out.write(np.full((30, 20), float(sys.argv[2]), "f4"))
        out.close()
        say("closed")
        """
    programs = [start(code, f"display://:{port}/{name}", k) for k, name in enumerate("ab")]
    assert [p.hear() for p in programs] == ["closed"] * 2
    # What they showed last is there when they are gone.
    for k, name in enumerate("ab"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}.json", timeout=30) as answer:
            assert json.load(answer)["views"][0]["mean"] == k


def test_a_stream_that_is_stuck_in_a_step_can_be_closed(gateway: Gateway) -> None:
    """Its receiver takes nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    url = f"tcp://127.0.0.1:{server.getsockname()[1]}?gateway={gateway.name}"
    out = polyduct.open(url, "w", shape=1 << 26, dtype="u1", layout="*", policy="latest")
    with server, server.accept()[0]:
        (stream,) = gateway.until(lambda s: len(s) == 1)
        out.write(np.zeros(1 << 26, "u1"))
        gateway.until(lambda s: s[0]["state"] == "active")
        assert gateway.ask("close", gateway.name, stream["stream"]).returncode == 0
        with pytest.raises(polyduct.StreamBroken, match="closed by the gateway's control"):
            while True:
                out.write(np.zeros(1 << 26, "u1"))


def test_all_units_hear_why_a_stream_was_closed(gateway: Gateway) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    url = f"tcp://127.0.0.1:{server.getsockname()[1]}?gateway={gateway.name}"

    def unit(k: int) -> str:
        out = polyduct.open(url, "w", shape=3 << 20, dtype="u1", layout="block", unit=k, units=3, timeout=60)
        with pytest.raises(polyduct.StreamBroken) as e:
            while True:
                out.write(np.zeros(1 << 20, "u1"))
        return str(e.value)

    def close() -> None:
        (stream,) = gateway.until(lambda s: len(s) == 1 and s[0]["state"] == "active")
        assert gateway.ask("close", gateway.name, stream["stream"]).returncode == 0

    with server:
        *said, _ = together(*(lambda k=k: unit(k) for k in range(3)), close)  # type: ignore[misc]
    where = url.split("?")[0]
    assert said == [f"{where}: the stream was stopped: closed by the gateway's control"] * 3


def test_one_that_is_told_to_end_says_so_to_all(gateway: Gateway, start: Start) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    where = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    program = """
    out = polyduct.open(sys.argv[1], "w", shape=2 << 20, dtype="u1", layout="block", unit=int(sys.argv[2]), units=2, program="w", timeout=60)
    try:
        while True:
            out.write(np.zeros(1 << 20, "u1"))
    except polyduct.StreamBroken as e:
        say(e)
    """
    with server:
        units = [start(program, f"{where}?gateway={gateway.name}", k) for k in range(2)]
        gateway.until(lambda s: len(s) == 1 and s[0]["state"] == "active")
        assert gateway.end() == 0
        for unit in units:
            assert unit.end()[1].strip() == f"{where}: the stream was stopped: gateway {gateway.name} was told to end"


def test_a_wait_says_for_what_and_nothing_is_set_without_a_word(gateway: Gateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        out = polyduct.open(f"{where}?group=g&members=3", "w", shape=4, dtype="u1", layout="*", timeout=0.5)
        with pytest.raises(TimeoutError, match=f"{where}.*waits for 2 more of its group"):
            while True:
                out.write(np.zeros(4, "u1"))
        out.abort()
        # Whoever calls, and says nothing.
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        def caller() -> None:
            while True:
                with socket.socket() as one:
                    if one.connect_ex(("127.0.0.1", port)) == 0:
                        assert one.recv(1) == b""
                        return

        def reads() -> None:
            with pytest.raises(TimeoutError, match=f"tcp://:{port}.*the other end to send something") as e:
                polyduct.open(f"tcp://:{port}", shape=4, dtype="u1", timeout=1)
            assert e.value.waited < 2

        together(caller, reads)
    asked = gateway.ask("set", gateway.name, 1)
    assert asked.returncode == 2 and "--quantum" in asked.stderr


def test_a_program_that_takes_nothing_of_it_is_told_at_once_and_so_is_the_far_end(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "5" * 64)
    gateway = Gateway(f"refuses-{os.getpid()}")
    why = r"the reader expects shape \[4, 4\]; the writer gives \[8, 8\]"

    def writer() -> None:
        place = f"stream://127.0.0.1:{port}/f"
        with pytest.raises(polyduct.StreamBroken, match=rf"the other end gave up: stream://.*: {why}"):
            with polyduct.open(place, "w", shape=(8, 8), dtype="f4", layout="*,*", timeout=60) as out:
                while True:
                    out.write(np.ones((8, 8), "f4"))

    def reader() -> None:
        start = time.monotonic()
        with pytest.raises(polyduct.Refused, match=rf"^stream://:\d+/f: {why}") as e:
            polyduct.open(f"stream://:{port}/f?gateway={gateway.name}", layout="*,*", shape=(4, 4), timeout=60)
        assert e.value.place == f"stream://:{port}/f"
        assert time.monotonic() - start < 1.5, "neither waits for another reader"

    together(writer, reader)
    assert gateway.end() == 0
