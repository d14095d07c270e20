#!/usr/bin/env python3
"""Two Python programs started apart, 64 MiB steps of float32 from one to the other, as one array or with
`--variables N` as N arrays and as many values: prints the median time of a step.

The writer writes an ordinary array, as the peers' do; the reader checks all of the first step, stamps of
every other, and all values.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import polyduct

SHAPE = (4096, 4096)
WARM, STEPS = 5, 40
STAMPS = np.linspace(0, SHAPE[0] * SHAPE[1] - 1, 64, dtype=np.int64)


def values(step: int, variables: int) -> dict[str, object]:
    return {f"a{n}": f"step {step}" if n % 2 else step * 0.5 + n for n in range(variables)}


def write(pipe: str, variables: int) -> None:
    a = np.arange(SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)
    flat = a.reshape(-1)
    if variables:
        parts = {f"v{n}": part for n, part in enumerate(np.array_split(a, variables))}
        arrays = {name: polyduct.Array(part.shape, "f4", "block,*") for name, part in parts.items()}
        with polyduct.open(pipe, "w", arrays=arrays, timeout=60) as bundle:
            for step in range(WARM + STEPS):
                flat[STAMPS] = step
                bundle.write(parts, **values(step, variables))
        return
    with polyduct.open(pipe, "w", shape=SHAPE, dtype="f4", layout="block,*", timeout=60) as out:
        for step in range(WARM + STEPS):
            flat[STAMPS] = step
            out.write(a)


def steps(pipe: str, variables: int) -> Iterator[np.ndarray]:
    if not variables:
        with polyduct.open(pipe, "r", layout="block,*", timeout=60) as port:
            yield from port
        return
    a = np.zeros(SHAPE, np.float32)
    parts = {f"v{n}": part for n, part in enumerate(np.array_split(a, variables))}
    with polyduct.open(pipe, "r", layouts="block,*", timeout=60) as bundle:
        while (step := bundle.read(parts)) is not None:
            if step.values != values(step.number, variables):
                raise SystemExit(f"step {step.number} says {step.values}")
            yield a


def read(pipe: str, variables: int) -> None:
    expected = np.arange(SHAPE[0] * SHAPE[1], dtype=np.float32)
    times, verified = [], True
    last = time.perf_counter()
    for step, a in enumerate(steps(pipe, variables)):
        now = time.perf_counter()
        if step >= WARM:
            times.append(now - last)
        flat = a.reshape(-1)
        verified &= bool((flat[STAMPS] == step).all())
        if step == 0:
            expected[STAMPS] = 0
            verified &= bool((flat == expected).all())
        last = time.perf_counter() if step < WARM else now
    verified &= len(times) == STEPS
    print(
        json.dumps(
            {"median_s": statistics.median(times), "mean_s": statistics.fmean(times), "verified": verified}
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", choices=["write", "read"], help=argparse.SUPPRESS)
    parser.add_argument("pipe", nargs="?", default=f"pipe:bench-python-{os.getpid()}", help=argparse.SUPPRESS)
    parser.add_argument("--variables", type=int, default=0)
    args = parser.parse_args()
    if args.role:
        {"write": write, "read": read}[args.role](args.pipe, args.variables)
        return 0
    command = [sys.executable, __file__, f"--variables={args.variables}"]
    programs = [subprocess.Popen([*command, role, args.pipe]) for role in ("write", "read")]
    return max(p.wait() for p in programs)


if __name__ == "__main__":
    sys.exit(main())
