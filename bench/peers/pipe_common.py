"""What the two pipe peers share: the data, its checks, and the driver that starts a writer and a reader.

Both programs are started separately, from the same file with the role as an argument. A step is one 2-D array
of f32. Its content is every element's linear index, with the step's number stamped over STAMPS elements
spread over it. The reader checks the stamps of every step within the time, and the whole array of the first
and the last outside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

STAMPS = 16
WARM = 5  # steps whose intervals are not counted

# glibc gives every large message new pages and hands them back afterwards, and their first touch costs more
# than the transfer. These settings of glibc make it keep them.
REUSE_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_ARENA_MAX": "1"}


def arguments(doc: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("role", choices=["drive", "write", "read"])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20, help="steps timed")
    parser.add_argument("--variables", type=int, default=0, help="the rows as so many variables, with as many attributes")
    parser.add_argument("--where", help="folder for the rendezvous; drive makes one")
    parser.add_argument(
        "--reuse-memory", action="store_true", help="with drive: let the allocator keep large blocks"
    )
    parser.add_argument("--timeout", type=float, default=60, help="seconds for the whole run")
    args = parser.parse_args()
    if args.rows * args.cols > 1 << 24:
        parser.error("above 2^24 elements an f32 does not hold every index")
    if args.rows * args.cols < STAMPS or args.steps < 1:
        parser.error(f"a step has at least {STAMPS} elements, and there is at least one")
    args.total = args.steps + WARM + 1  # one more, checked whole, whose interval is not counted either
    return args


def stamp_places(elements: int) -> np.ndarray:
    return np.linspace(0, elements - 1, STAMPS).astype(np.int64)


def content(rows: int, cols: int) -> np.ndarray:
    return np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)


def parts(array: np.ndarray, variables: int) -> dict[str, np.ndarray]:
    """The variables of a step: its rows, in as many pieces."""
    return {f"v{n}": part for n, part in enumerate(np.array_split(array, variables))}


def attributes(step: int, variables: int) -> dict[str, object]:
    """What is said of a step: a number or a text for each variable."""
    return {f"a{n}": f"step {step}" if n % 2 else step * 0.5 + n for n in range(variables)}


class Reader:
    """Takes the arrays as they come; measures the time from one to the next."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.places = stamp_places(args.rows * args.cols)
        self.expected = content(args.rows, args.cols)
        self.arrived: list[float] = []
        self.intervals: list[float] = []

    def take(self, array: np.ndarray) -> None:
        step = len(self.arrived)
        flat = array.reshape(-1)
        if not (flat[self.places] == step).all():
            raise SystemExit(f"step {step} carries the wrong stamps: {flat[self.places]}")
        self.arrived.append(time.monotonic())
        if WARM <= step < WARM + self.args.steps:
            self.intervals.append(self.arrived[-1] - self.arrived[-2])
        if step in (0, self.args.total - 1):
            self.expected.reshape(-1)[self.places] = step
            if not np.array_equal(array.reshape(self.expected.shape), self.expected):
                raise SystemExit(f"step {step} differs")

    def report(self, **more: object) -> None:
        if len(self.arrived) != self.args.total:
            raise SystemExit(f"{len(self.arrived)} of {self.args.total} steps came")
        size = self.expected.nbytes
        median = statistics.median(self.intervals)
        line = {
            "case": "bundle" if self.args.variables else "pipe",
            "n": 2,
            "bytes": size,
            "median_s": median,
            "min_s": min(self.intervals),
            "mean_s": statistics.fmean(self.intervals),
            "bytes_per_s": size / median,
            "verified": True,
            "runs": len(self.intervals),
            **more,
        }
        print(json.dumps(line), flush=True)


def _terminated(*_: object) -> None:
    raise SystemExit(143)  # runs the finally blocks


def drive(args: argparse.Namespace, script: str) -> int:
    """Starts a writer and a reader, lets the reader print its line, and ends both whatever happens."""
    signal.signal(signal.SIGTERM, _terminated)
    deadline = time.monotonic() + args.timeout
    environment = {**os.environ, **(REUSE_MEMORY if args.reuse_memory else {})}
    common = [
        f"--rows={args.rows}",
        f"--cols={args.cols}",
        f"--steps={args.steps}",
        f"--variables={args.variables}",
        f"--timeout={args.timeout}",
    ]
    with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as where:
        started: list[subprocess.Popen] = []
        try:
            for role in ("write", "read"):
                command = [sys.executable, script, role, f"--where={where}", *common]
                out = None if role == "read" else subprocess.DEVNULL
                started.append(subprocess.Popen(command, stdout=out, cwd=where, env=environment))
            for process in reversed(
                started
            ):  # the reader first: without it the writer would wait for nothing
                if status := process.wait(timeout=max(0.1, deadline - time.monotonic())):
                    return abs(status)
            return 0
        except subprocess.TimeoutExpired:
            print(f"{os.path.basename(script)}: nothing after {args.timeout} s", file=sys.stderr)
            return 124
        finally:
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
