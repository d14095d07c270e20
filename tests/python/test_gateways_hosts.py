"""Gateways on other hosts than the units of a program, which may be on several, too."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import COMMAND, together
from hosts import Hosts
from sites import FIELD, KEY, check, read, write
from test_gateway import Gateway
from test_gateways import json_objects
from test_streams import Receiver

import polyduct


class Listening(Gateway):
    """A gateway that programs of other hosts reach."""

    def __init__(self, name: str, port: int) -> None:
        self.place = f"127.0.0.1:{port}"
        super().__init__(name, "--listen", self.place)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch, port: int) -> Iterator[Listening]:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", KEY)
    one = Listening(f"far-{os.getpid()}", port)
    yield one
    if one._process.poll() is None:
        assert one.end() == 0


PROGRAM = """
import sys, numpy as np, polyduct
url, unit, units, steps = sys.argv[1], *map(int, sys.argv[2:5])
field = np.arange(1 << 18, dtype="u4").reshape(512, 512)
mine = np.ascontiguousarray(np.array_split(field, units, axis=1)[unit])
with polyduct.open(
    url, "w", shape=field.shape, dtype="u4", layout="*,balanced", unit=unit, units=units, program="w", timeout=60
) as out:
    for t in range(steps):
        out.write(mine + np.uint32(t))
"""
READER = """
import sys, numpy as np, polyduct
url, unit, units = sys.argv[1], *map(int, sys.argv[2:4])
field = np.arange(1 << 18, dtype="u4").reshape(512, 512)
want = np.array_split(field, units)[unit]
t = 0
for a in polyduct.open(url, layout="balanced,*", unit=unit, units=units, program="r", timeout=60):
    assert (a == want + np.uint32(t)).all(), t
    t += 1
print(t)
"""


@pytest.mark.parametrize("reshuffle", ["yes", "no"])
def test_units_of_three_hosts_write_and_read_through_gateways_of_two(reshuffle: str) -> None:
    """Three units on three hosts, a gateway on two of them, a site with three units behind the third: what they know of
    each other is where one gateway listens."""
    env = {**os.environ, "POLYDUCT_JOB_KEY": KEY}
    with Hosts(3) as hosts:
        ports = (4200, 4201)
        gateways = [
            hosts.start(k, str(COMMAND), "gateway", f"g{k}", "--listen", f":{ports[k]}", env=env, stderr=subprocess.PIPE)
            for k in range(2)
        ]
        for one in gateways:
            assert one.stderr is not None and "carries" in one.stderr.readline()
        both = ",".join(f"{hosts.address(k)}:{ports[k]}" for k in range(2))
        there = f"stream://{hosts.address(2)}:4300/field?lanes=4&gateway={both}&reshuffle={reshuffle}"
        # A program of units on three hosts reads what it gets there through a gateway of the third.
        third = hosts.start(2, str(COMMAND), "gateway", "g2", "--listen", ":4202", env=env, stderr=subprocess.PIPE)
        assert third.stderr is not None and "carries" in third.stderr.readline()
        here = f"stream://:4300/field?gateway={hosts.address(2)}:4202"

        def unit(host: int, code: str, *words: object) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", code, *map(str, words)]
            return hosts.start(host, *command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        readers = [unit(k, READER, here, k, 3) for k in range(3)]
        writers = [unit(k, PROGRAM, there, k, 3, 20) for k in range(3)]
        for one in [*readers, *writers]:
            out, err = one.communicate(timeout=100)
            assert one.returncode == 0, err
            assert out.strip() in ("20", "")
        for one in [*gateways, third]:
            one.send_signal(signal.SIGTERM)
            assert one.wait(30) == 0
            assert one.stderr is not None
            one.stderr.close()


@pytest.mark.parametrize("near", ["1", "0"])
def test_columns_of_three_units_arrive_as_rows(far: Listening, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: the second opening is another pipe, and the first of one unit may still be open while others come anew."""
    monkeypatch.setenv("POLYDUCT_MESSAGE_NEAR", near)
    for _ in range(2):
        receiver = Receiver(1)
        together(*write(f"{receiver.place}?gateway={far.place}", 3, 4))
        assert receiver.all() == [b"".join((FIELD + np.uint32(t)).tobytes() for t in range(4))]
    far.until(lambda s: not s)


@pytest.mark.parametrize("near", ["1", "0"])
@pytest.mark.parametrize("form", ["npy", "length"])
def test_steps_say_how_large_they_are(far: Listening, form: str, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_MESSAGE_NEAR", near)
    receiver = Receiver(1)
    together(*write(f"{receiver.place}?gateway={far.place}&form={form}", 3, 4))
    got = io.BytesIO(receiver.all()[0])
    for t in range(4):
        want = FIELD + np.uint32(t)
        if form == "npy":
            assert np.array_equal(np.lib.format.read_array(got), want)
        else:
            assert got.read(8) == want.nbytes.to_bytes(8, "little") and got.read(want.nbytes) == want.tobytes()
    assert got.read() == b""


def test_units_read_what_the_gateway_gets(far: Listening, port: int) -> None:
    with socket_at() as (server, place):

        def give() -> None:
            with server.accept()[0] as one:
                for t in range(3):
                    one.sendall((FIELD + np.uint32(t)).tobytes())

        def unit(k: int) -> list[np.ndarray]:
            url = f"{place}?gateway={far.place}"
            opened = polyduct.open(
                url, shape=FIELD.shape, dtype="u4", layout="*,balanced", unit=k, units=3, program="r", timeout=60
            )
            return [a.copy() for a in opened]

        *parts, _ = together(*[lambda k=k: unit(k) for k in range(3)], give)  # type: ignore[misc]
    check(parts, 3)


@contextlib.contextmanager
def socket_at() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_units_make_pictures_for_a_display_of_another_host(far: Listening) -> None:
    """An array larger than a page is reduced by its units: the gateway asks them, over two more pipes."""
    with socket_at() as (server, place):
        port = place.rsplit(":", 1)[1]
    url = f"display://:{port}/large?gateway={far.place}"

    def unit(k: int) -> None:
        with polyduct.open(
            url, "w", shape=(3000, 2500), dtype="f4", layout="block,*", unit=k, units=2, timeout=60
        ) as out:
            for _ in range(5):
                out.write(np.full((1500, 2500), k, "f4"))

    together(lambda: unit(0), lambda: unit(1))
    # What was shown last stays there.
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/large.json", timeout=30) as answer:
        (view,) = json.load(answer)["views"]
    assert view["shape"] == [768, 640] and view["mean"] == pytest.approx(0.5, abs=0.01)


def test_it_is_asked_where_it_listens(far: Listening) -> None:
    receiver = Receiver(1)
    out = polyduct.open(f"{receiver.place}?gateway={far.place}", "w", shape=4, dtype="u1", layout="*", policy="latest")
    (said,) = json_objects(far.ask("status", far.place, "--json").stdout)
    asked = json.loads(said)
    assert asked["gateway"] == far.place and [s["name"] for s in asked["streams"]] == [receiver.place]
    number = asked["streams"][0]["stream"]
    for what in ("pause", "resume", "close"):
        assert far.ask(what, far.place, number).returncode == 0
    with pytest.raises(polyduct.StreamBroken, match="closed by the gateway's control"):
        while True:
            out.write([1] * 4)
    assert receiver.error() is not None, "what came does not look like a whole"


def test_all_units_are_told_that_there_is_none(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", KEY)
    for call in write(f"tcp://127.0.0.1:1?gateway=127.0.0.1:{port}", 3, 1):
        with pytest.raises(polyduct.Unreachable, match=f"--listen 127.0.0.1:{port}"):
            call()
    asked = Gateway.ask("status", f"127.0.0.1:{port}")
    assert asked.returncode == 1 and f"127.0.0.1:{port}" in asked.stderr
    monkeypatch.delenv("POLYDUCT_JOB_KEY")
    for call in write(f"tcp://127.0.0.1:1?gateway=127.0.0.1:{port}", 2, 1):
        with pytest.raises(polyduct.BadEnvironment, match="POLYDUCT_JOB_KEY"):
            call()
    started = subprocess.run([COMMAND, "gateway", "x", "--listen", f":{port}"], capture_output=True, text=True, timeout=30)
    assert started.returncode == 1 and "POLYDUCT_JOB_KEY" in started.stderr


def test_who_says_nothing_there_is_waited_for_as_long_as_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", KEY)
    with socket_at() as (_, place):
        silent = place.removeprefix("tcp://")
        for k in range(2):
            with pytest.raises(polyduct.Unreachable, match="within [23][0-9][0-9] ms.*--listen") as e:
                polyduct.open(
                    f"tcp://127.0.0.1:1?gateway={silent}",
                    "w",
                    shape=8,
                    dtype="u1",
                    layout="block",
                    unit=k,
                    units=2,
                    timeout=0.3,
                )
            assert e.value.place == "tcp://127.0.0.1:1"


def test_nobody_without_the_key_is_heard(far: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "77" * 32)
    for call in write(f"tcp://127.0.0.1:1?gateway={far.place}", 2, 1):
        with pytest.raises(polyduct.Unreachable, match="key"):
            call()
    assert far.streams() == []


@pytest.mark.parametrize("who", ["gateway", "unit"])
def test_a_death_is_told_to_all(far: Listening, who: str, start: Callable[..., Any]) -> None:
    receiver = Receiver(1)
    url = f"{receiver.place}?gateway={far.place}"
    units = [start(PROGRAM, url, k, 3, 1_000_000) for k in range(3)]
    far.until(lambda s: bool(s) and s[0]["steps"] >= 2)
    if who == "gateway":
        far.end(signal.SIGKILL)
    else:
        units[1].signal(signal.SIGKILL)
    for k, one in enumerate(units):
        status, _, err = one.end()
        if who == "unit" and k == 1:
            assert status == -signal.SIGKILL
        else:
            assert status == 1 and ("StreamBroken" in err or "PeerLost" in err), err
    assert receiver.error() is not None, "what came does not look like a whole"
    if who == "unit":
        far.until(lambda s: not s)


WAITS = """
import sys, time, polyduct
url, unit, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
since = time.monotonic()
try:
    polyduct.open(url, "w", shape=8, dtype="u1", layout="block", unit=unit, units=2, program="w", timeout=timeout)
finally:
    print(time.monotonic() - since)
"""


def waiting(start: Callable[..., Any], far: Listening, unit: int) -> Any:
    """A unit that opens its port, and is connected to the gateway."""
    one, port = start(WAITS, f"tcp://127.0.0.1:1?gateway={far.place}", unit, 600), int(far.place.split(":")[1])
    while True:
        with open(f"/proc/{one.pid}/net/tcp") as table:
            lines = [line.split() for line in table]
        if any(words[2].endswith(f":{port:04X}") and words[3] == "01" for words in lines[1:]):
            return one


def test_one_that_is_stopped_is_waited_for_as_long_as_was_said(far: Listening, start: Callable[..., Any]) -> None:
    far._process.send_signal(signal.SIGSTOP)
    try:
        for unit in range(2):
            status, out, err = start(WAITS, f"tcp://127.0.0.1:1?gateway={far.place}", unit, 1).end()
            assert status == 1 and f"--listen {far.place}" in err, err
            assert float(out) < 3
        one = waiting(start, far, 0)
        one.signal(signal.SIGINT)
        status, out, err = one.end()
        assert status != 0 and ("KeyboardInterrupt" in err or "Interrupted" in err), err
        asked = far.ask("status", far.place)
        assert asked.returncode == 1 and far.place in asked.stderr
    finally:
        far._process.send_signal(signal.SIGCONT)


def test_units_that_wait_for_unit_0_are_told_when_the_gateway_dies(far: Listening, start: Callable[..., Any]) -> None:
    one = waiting(start, far, 1)
    far.end(signal.SIGKILL)
    status, _, err = one.end()
    assert status == 1 and "Unreachable" in err and f"--listen {far.place}" in err, err


def test_who_waits_for_unit_0_in_vain_hears_what_units_have_in_common(far: Listening) -> None:
    with pytest.raises(TimeoutError, match="one POLYDUCT_PROGRAM"):
        polyduct.open(
            f"tcp://127.0.0.1:1?gateway={far.place}", "w", shape=8, dtype="u1", layout="block", unit=1, units=2, timeout=0.3
        )


TWIN = """
import sys, numpy as np, polyduct
url, unit, fill = sys.argv[1], *map(int, sys.argv[2:4])
with polyduct.open(url, "w", shape=8, dtype="u1", layout="block", unit=unit, units=2, program="w", timeout=60) as out:
    out.write(np.full(4, fill, "u1"))
"""


def test_two_programs_of_one_name_each_have_their_own_pipe(far: Listening, start: Callable[..., Any]) -> None:
    """The second opens while the first waits for its other unit."""
    receiver = Receiver(2)
    url = f"{receiver.place}?gateway={far.place}"
    first = [start(TWIN, url, 0, 1)]
    far.until(lambda s: len(s) == 1)
    second = [start(TWIN, url, 0, 2)]
    far.until(lambda s: len(s) == 2)
    first.append(start(TWIN, url, 1, 1))
    for one in first:
        assert one.end()[0] == 0
    second.append(start(TWIN, url, 1, 2))
    for one in second:
        assert one.end()[0] == 0
    assert receiver.all() == [bytes([1] * 8), bytes([2] * 8)]


def test_gateways_are_called_by_a_name_or_a_place(far: Listening, port: int) -> None:
    with socket_at() as (_, place):
        dead = place.removeprefix("tcp://")
    both = far.ask("status", f"{far.place},{dead}", "--json")
    assert both.returncode == 0 and dead in both.stderr
    assert [json.loads(one)["gateway"] for one in json_objects(both.stdout)] == [far.place]
    for words in (("status", "a b"), ("status", "a,b"), ("pause", f"{far.place},{dead}", 1), ("close", "a:b", 1)):
        asked = far.ask(*words)
        assert asked.returncode == 2 and "HOST:PORT" in asked.stderr, asked.stderr
    one = subprocess.Popen([COMMAND, "gateway", f"any-{os.getpid()}", "--listen", ":0"], stderr=subprocess.PIPE, text=True)
    assert one.stderr is not None
    said = one.stderr.readline()
    found = re.search(r"gateway=HOST:([0-9]+)", said)
    assert found is not None and int(found[1]) > 0, said
    assert far.ask("status", f"127.0.0.1:{found[1]}").returncode == 0
    one.send_signal(signal.SIGTERM)
    assert one.wait(30) == 0
    one.stderr.close()


def test_several_streams_of_a_program_open_at_once(far: Listening) -> None:
    receivers = [Receiver(1) for _ in range(4)]
    done = together(*[lambda r=r: together(*write(f"{r.place}?gateway={far.place}", 1, 5)) for r in receivers])  # type: ignore[misc]
    assert len(done) == 4
    want = b"".join((FIELD + np.uint32(t)).tobytes() for t in range(5))
    assert all(r.all() == [want] for r in receivers)


def test_garbage_at_its_door_does_nothing(far: Listening) -> None:
    host, port = far.place.split(":")
    strangers = [socket.create_connection((host, int(port)), timeout=10) for _ in range(100)]
    for k, one in enumerate(strangers):
        one.send(os.urandom(k * 7 + 1))
    receiver = Receiver(1)
    together(*write(f"{receiver.place}?gateway={far.place}", 2, 2))
    assert len(receiver.all()[0]) == 2 * FIELD.nbytes
    for one in strangers:
        one.close()


def test_sites_join_through_listening_gateways(far: Listening, port: int) -> None:
    with socket_at() as (_, place):
        other = int(place.rsplit(":", 1)[1])
    readers = read(f"stream://:{other}/field?gateway={far.place}", 2)
    writers = write(f"stream://127.0.0.1:{other}/field?lanes=2", 3, 4)
    *parts, _, _, _ = together(*readers, *writers)
    check(parts, 4)
