"""Displays under attack: crowds of connections, and viewers that stop, beside a program that writes steps."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Process, together
from display_viewer import Viewer

Start = Callable[..., Process]
LIMIT, TOLD = 384, 16
CROWD = 2200


class Program:
    """A process that shows float32 steps and writes one after the other until it is asked how that goes."""

    def __init__(self, start: Start, port: int, shape: tuple[int, int]) -> None:
        self._process = start(
            """
            import os, select, time
            has = lambda: (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
            before = has()
            shape = int(sys.argv[2]), int(sys.argv[3])
            out = polyduct.open(sys.argv[1], "w", shape=shape, dtype="f4", layout="*,*", timeout=60)
            step, asked = np.zeros(shape, "f4"), "go on"
            say("open")
            while asked == "go on":
                count, longest = 0, 0.0
                while not count or not select.select([sys.stdin], [], [], 0)[0]:
                    began = time.perf_counter()
                    out.write(step)
                    longest = max(longest, time.perf_counter() - began)
                    step += 1
                    count += 1
                asked = wait().strip()
                say(count, longest)
            out.close()
            while has() != before:
                os.sched_yield()
            say("nothing is left")
            """,
            f"display://:{port}/crowd",
            *shape,
        )
        assert self._process.hear() == "open"
        self._port = port
        # A name is there a little later than its address.
        until_served(port, 1)

    def _tell(self, word: str) -> str:
        assert self._process.process.stdin is not None
        self._process.process.stdin.write(f"{word}\n")
        self._process.process.stdin.flush()
        return self._process.hear()

    def steps(self) -> tuple[int, float]:
        """How many it wrote since it was asked last, and how long one took at most."""
        count, most = self._tell("go on").split()
        return int(count), float(most)

    def memory(self, which: str = "VmRSS") -> int:
        """Bytes that are resident, shared ones included, now or (VmHWM) at most."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(which))

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def end(self) -> None:
        assert self._tell("end").split()[0].isdigit()
        assert self._process.hear() == "nothing is left"
        assert self._process.end()[0] == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self._port))


def viewer(port: int, frames: int) -> list[int]:
    """The steps of so many frames, each of which is acknowledged."""
    steps: list[int] = []
    with Viewer(port, "crowd") as one:
        for head, arrays in one.messages():
            for values in arrays.values():
                assert (values == values[0, 0]).all(), "a frame is of one step"
                steps.append(head["step"])
            if len(steps) == frames:
                break
    return steps


def until_served(port: int, frames: int) -> list[int]:
    """What a viewer sees who comes again while it is refused."""
    end = time.monotonic() + 30
    while True:
        try:
            return viewer(port, frames)
        except (OSError, EOFError) as e:
            assert time.monotonic() < end, e


HALF = b"GET /crowd/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websoc"


def test_thousands_of_connections_harm_nobody(port: int, start: Start) -> None:
    """Most say nothing, some begin to say something, some send noise; all at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CROWD)), hard))
    program = Program(start, port, (300, 200))
    program.steps()
    files, memory = program.descriptors(), program.memory("VmHWM")
    noise = np.random.default_rng(1).bytes(3000)
    with contextlib.ExitStack() as stack:
        crowd = []
        for k in range(CROWD):
            crowd.append(stack.enter_context(socket.socket()))
            crowd[-1].setblocking(False)
            crowd[-1].connect_ex(("127.0.0.1", port))
            # It may be closed already, or wait for its turn.
            with contextlib.suppress(OSError):
                crowd[-1].send({0: HALF, 1: noise}.get(k % 10, b""))
        assert program.descriptors() <= files + LIMIT + TOLD
        count, most = program.steps()
        assert count > 0 and most < 2, "steps go on"
        # Whoever comes now is refused until those have had their time, and then served.
        steps = until_served(port, 20)
        assert steps == sorted(set(steps)) and len(steps) == 20
        # Of each connection the largest head, and a bit.
        assert program.memory("VmHWM") - memory < LIMIT * (16 << 10) + (8 << 20)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=30) as answer:
        assert json.load(answer)["refused"] > LIMIT
    assert program.steps()[0] > 0
    program.end()


def test_one_of_fifty_viewers_takes_nothing(port: int, start: Start) -> None:
    """It costs the program nothing but memory for two frames, and the others none of theirs."""
    shape = (512, 512)
    program = Program(start, port, shape)
    until_served(port, 30)
    program.steps()
    memory, frame = program.memory(), 4 * shape[0] * shape[1]
    with Viewer(port, "crowd", room=4096):
        for steps in together(*(lambda: viewer(port, 20) for _ in range(49))):
            assert steps == sorted(set(steps))
        count, most = program.steps()
        assert count > 20 and most < 2, "steps go on"
        # Two for each viewer, the newest, and what waits to be used again.
        assert program.memory() - memory < (2 * 50 + 1 + 8) * frame
    program.end()
