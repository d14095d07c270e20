"""Several gateways of one name: a stream goes over the lanes of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import COMMAND, together
from sites import KEY
from test_gateway import Gateway
from test_streams import Receiver, hang_up

import polyduct

FIELD = np.arange(1 << 18, dtype="u4").reshape(512, 512)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Gateway]]:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", KEY)
    name = f"several-{os.getpid()}"
    all_three = [Gateway(name) for _ in range(3)]
    yield all_three
    for one in all_three:
        if one._process.poll() is None:
            assert one.end() == 0


def write(place: str, steps: int, field: np.ndarray = FIELD) -> None:
    parts = [np.ascontiguousarray(part) for part in np.array_split(field, 2)]

    def unit(k: int) -> None:
        with polyduct.open(
            place, "w", shape=field.shape, dtype=field.dtype, layout="block,*", unit=k, units=2, timeout=60
        ) as out:
            for t in range(steps):
                out.write(parts[k] + t)

    together(lambda: unit(0), lambda: unit(1))


def each(one: Gateway) -> list[dict[str, object]]:
    """What each gateway of the name says of itself."""
    return [json.loads(text) for text in json_objects(one.ask("status", one.name, "--json").stdout)]


def json_objects(text: str) -> Iterator[str]:
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        _, end = decoder.raw_decode(text, at)
        yield text[at:end]
        at = end


@pytest.mark.parametrize(("lanes", "form"), [(6, "raw"), (3, "length"), (4, "raw"), (1, "raw")])
def test_a_receiver_has_the_lanes_of_all(three: list[Gateway], lanes: int, form: str) -> None:
    """In their order: of six each gateway has two, of four two gateways have two."""
    receiver = Receiver(lanes)
    su = 4096
    write(f"{receiver.place}?gateway={three[0].name}&lanes={lanes}&su={su}&form={form}", 3)
    got = receiver.all()
    for t in range(3):
        data = (FIELD + t).tobytes()
        sent = [b"".join(data[at : at + su] for at in range(n * su, len(data), lanes * su)) for n in range(lanes)]
        if form == "length":
            sent[0] = len(data).to_bytes(8, "little") + sent[0]
        for lane in range(lanes):
            assert got[lane][: len(sent[lane])] == sent[lane]
            got[lane] = got[lane][len(sent[lane]) :]
    assert got == [b""] * lanes


@pytest.mark.parametrize(("rows", "lanes"), [(4096, 6), (1, 3), (700, 3)])
def test_another_site_puts_the_blocks_together(
    three: list[Gateway], port: int, rows: int, lanes: int
) -> None:
    """Of steps of some MiB, of ones in which not all gateways have something, and of some that end within a block."""
    field = np.arange(rows * 512, dtype="u4").reshape(rows, 512)
    found: list[np.ndarray] = []

    def read() -> None:
        with polyduct.open(f"stream://:{port}/field", layout="*,block", timeout=60) as steps:
            found.extend(a.copy() for a in steps)

    place = f"stream://127.0.0.1:{port}/field?gateway={three[0].name}&lanes={lanes}"
    together(read, lambda: write(place, 3, field))
    assert len(found) == 3 and all((a == field + t).all() for t, a in enumerate(found))


def test_the_death_of_one_is_told(three: list[Gateway]) -> None:
    receiver = Receiver(3)
    place = f"{receiver.place}?gateway={three[0].name}&lanes=3"
    carried: list[object] = []

    def gone() -> None:
        while not all(one["streams"] for one in each(three[0])):
            pass
        carried.extend(one["gateway"] for one in each(three[0]))
        three[1].end(signal.SIGKILL)

    with pytest.raises(polyduct.StreamBroken, match="has died|gave up|was lost|has ended"):
        together(gone, lambda: write(place, 1_000_000))
    assert carried == [three[0].name, f"{three[0].name}/1", f"{three[0].name}/2"]
    assert receiver.error() is not None, "what came does not look like a whole"


@pytest.mark.parametrize("lanes", [1, 3])
def test_all_units_hear_the_same_of_a_receiver_that_hangs_up(three: list[Gateway], lanes: int) -> None:
    broken = hang_up(f"?gateway={three[0].name}&lanes={lanes}&su=1024", lanes)
    assert "the receiver closed the connection" in str(broken[0])
    assert {str(e) for e in broken} == {str(broken[0])}


def test_one_of_them_is_asked_by_its_own_name(three: list[Gateway]) -> None:
    name = three[0].name
    table = three[0].ask("status", name).stdout
    assert [line.split()[1] for line in table.splitlines() if line.startswith("gateway")] == [
        f"{name}:",
        f"{name}/1:",
        f"{name}/2:",
    ]
    assert three[0].ask("status", f"{name}/2").stdout.startswith(f"gateway {name}/2:")
    assert three[1].end() == 0
    assert [one["gateway"] for one in each(three[0])] == [name, f"{name}/2"]
    again = Gateway(name)
    assert [one["gateway"] for one in each(three[0])] == [name, f"{name}/1", f"{name}/2"]
    assert again.end() == 0


SOLVE = """
import os, sys, numpy as np, polyduct
field = np.arange(1 << 18, dtype="u4").reshape(512, 512)
mine = np.array_split(field, 3)[int(os.environ["POLYDUCT_UNIT"])]
with polyduct.open(sys.argv[1], "w", shape=field.shape, dtype="u4", layout="balanced,*", timeout=60) as out:
    for t in range(int(sys.argv[2])):
        out.write(mine + np.uint32(t))
"""


def run(*words: str) -> list[str]:
    return [str(COMMAND), "run", *words]


def left_of(name: str) -> list[str]:
    """Processes that have a word of this name."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found += [pid] if name in words else []
    return found


def test_a_run_has_gateways_of_its_own(tmp_path: Path) -> None:
    """Its stages need not name them, and nothing of them is left when it has ended."""
    (tmp_path / "solve.py").write_text(SOLVE)
    receiver, name, su = Receiver(4), f"run-{os.getpid()}", 65536
    pipeline = f"-n 3 {sys.executable} {tmp_path}/solve.py '{receiver.place}?lanes=4&su={su}' 2"
    done = subprocess.run(run("--gateway", f"{name}=2", pipeline), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    data = [(FIELD + np.uint32(t)).tobytes() for t in range(2)]
    for lane, got in enumerate(receiver.all()):
        assert got == b"".join(d[at : at + su] for d in data for at in range(lane * su, len(d), 4 * su))
    assert left_of(name) == []


def test_gateways_of_a_run_end_with_it_however_it_ends(tmp_path: Path) -> None:
    (tmp_path / "solve.py").write_text(SOLVE)
    for how in (signal.SIGTERM, signal.SIGKILL):
        receiver, name = Receiver(1), f"run-{os.getpid()}-{how}"
        pipeline = f"-n 3 {sys.executable} {tmp_path}/solve.py {receiver.place} 1000000"
        env = {**os.environ, "POLYDUCT_JOB": name}
        process = subprocess.Popen(run("--gateway", name, pipeline), stderr=subprocess.DEVNULL, env=env)
        words = [str(COMMAND), "gateway", "status", name, "--json"]
        while True:
            asked = subprocess.run(words, capture_output=True, text=True, env=env, timeout=30)
            if asked.returncode == 0 and any(s["steps"] for s in json.loads(asked.stdout)["streams"]):
                break
            assert process.poll() is None
        process.send_signal(how)
        assert process.wait(30) == (143 if how == signal.SIGTERM else -how)
        assert receiver.error() is not None, "what came does not look like a whole"
        while left_of(name):
            pass


def test_gateways_that_cannot_be_are_refused() -> None:
    for word in ("a/b", "a=0", "a=17", "a=x", ""):
        done = subprocess.run(run("--gateway", word, "true"), capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and "--gateway" in done.stderr, word
