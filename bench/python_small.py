#!/usr/bin/env python3
"""Small things between two Python processes of one host: prints the median seconds of one as JSON.

    python_small.py message        an array of 8 bytes one way: half of `send` and `recv` there and back
    python_small.py message-out    the same into an array that is there (``out=``)
    python_small.py step           a step of 8 bytes, filled in place by one, read by the other
    python_small.py call           a call of a function with 8 bytes, and its result
    python_small.py post           a message to a handler, half of there and back
    python_small.py put-get        8 bytes put into the other's region and got back, in which that one has no part
    python_small.py CASE --busy    the same beside a process that computes; nothing is bound to a core then

Each process keeps to a core of its own where there are two. Every value is checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import polyduct

ROUNDS, COUNT = 15, 2000


def timed(run: Callable[[int], None], each: float) -> list[float]:
    """Seconds of one, for each round; the first rounds warm up."""
    times = []
    for _ in range(ROUNDS + 2):
        start = time.perf_counter()
        run(COUNT)
        times.append((time.perf_counter() - start) * each / COUNT)
    return times[2:]


def message(unit: int, name: str, into: bool) -> list[float]:
    with polyduct.domain(name, unit=unit, units=2, timeout=60) as d:
        mine = np.arange(1, dtype="i8")
        out = np.empty(1, "i8") if into else None

        def ping(count: int) -> None:
            for n in range(count):
                mine[0] = n
                d.send(1, mine)
                got = d.recv(1, out=out) if into else d.recv(1)
                if got[0] != n + 1:
                    raise AssertionError(got)

        def pong(count: int) -> None:
            for n in range(count):
                got = d.recv(0, out=out) if into else d.recv(0)
                got[0] += 1
                d.send(0, got)

        d.barrier()
        return timed(ping if unit == 0 else pong, 0.5)


def post(unit: int, name: str) -> list[float]:
    with polyduct.domain(name, unit=unit, units=2, timeout=60) as d:
        seen = [-1]

        @d.handler("note")
        def note(from_: int, args: tuple[int, int, int, int], payload: bytes) -> None:
            seen[0] = args[0]

        d.synchronise()

        def run(count: int) -> None:
            for n in range(count):
                if unit == 0:
                    d.post(1, "note", n)
                while seen[0] != n:
                    d.poll()
                if unit == 1:
                    d.post(0, "note", n)
            seen[0] = -1

        d.barrier()
        return timed(run, 0.5)


def call(unit: int, name: str) -> list[float]:
    with polyduct.domain(name, unit=unit, units=2, timeout=60) as d:
        done = [0]

        @d.function("next")
        def following(x: np.ndarray) -> np.ndarray:
            done[0] += 1
            x[0] += 1
            return x

        d.synchronise()
        mine = np.arange(1, dtype="i8")

        def ask(count: int) -> None:
            for n in range(count):
                mine[0] = n
                if d.call(1, "next", mine).result()[0] != n + 1:
                    raise AssertionError(n)

        def answer(count: int) -> None:
            until = done[0] + count
            d.serve(lambda: done[0] >= until)

        d.barrier()
        return timed(ask if unit == 0 else answer, 1.0)


def put_get(unit: int, name: str) -> list[float]:
    with polyduct.domain(name, unit=unit, units=2, timeout=60) as d:
        region = d.region("there", np.zeros(1, "i8"))
        mine, out = np.arange(1, dtype="i8"), np.empty(1, "i8")
        d.barrier()

        def run(count: int) -> None:
            for n in range(count):
                mine[0] = n
                region.put(1, mine)
                if region.get(1, out=out)[0] != n:
                    raise AssertionError(out)

        times = timed(run, 1.0) if unit == 0 else []
        d.barrier()
        if unit == 1 and region.array[0] != COUNT - 1:
            raise AssertionError(region.array)
        return times


def step(unit: int, name: str) -> list[float]:
    if unit == 0:
        with polyduct.open(f"pipe:{name}", "w", shape=1, dtype="i8", timeout=60) as out:

            def write(count: int) -> None:
                for n in range(count):
                    with out.step() as a:
                        a[0] = n

            return timed(write, 1.0)
    with polyduct.open(f"pipe:{name}", timeout=60) as port:
        steps = iter(port)

        def read(count: int) -> None:
            for n in range(count):
                if next(steps)[0] != n:
                    raise AssertionError(n)

        return timed(read, 1.0)


def play(case: str, unit: int, name: str) -> list[float]:
    if case.startswith("message"):
        return message(unit, name, case == "message-out")
    return {"post": post, "call": call, "put-get": put_get, "step": step}[case](unit, name)


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Beside a process that computes."""
    beside = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        beside.kill()
        beside.wait()


def main() -> int:
    case, *rest = sys.argv[1:]
    if len(rest) == 2 and rest[0] in "01":
        unit, name = int(rest[0]), rest[1]
        cpus = sorted(os.sched_getaffinity(0))
        if "BUSY" not in os.environ and len(cpus) > 1:
            os.sched_setaffinity(0, {cpus[unit]})
        times = play(case, unit, name)
        if times and (unit == 1 or case != "step"):
            print(json.dumps({"median_s": statistics.median(times), "min_s": min(times)}))
        return 0
    name = f"bench-small-{os.getpid()}"
    loaded = "--busy" in rest
    environment = {**os.environ, "BUSY": "1"} if loaded else dict(os.environ)
    with busy() if loaded else contextlib.nullcontext():
        command = [sys.executable, __file__, case]
        programs = [
            subprocess.Popen([*command, str(unit), name], stdout=subprocess.PIPE, env=environment)
            for unit in (0, 1)
        ]
        said = [p.communicate()[0] for p in programs]
    if any(p.returncode for p in programs):
        return 1
    reports = [json.loads(text) for text in said if text]
    print(json.dumps({**reports[0], "verified": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
