#!/usr/bin/env python3
"""Two Python programs started apart, 64 MiB steps of float32 from one to the other: prints the median time of
a step.

The writer writes an ordinary array, as the peers' do; the reader checks all of the first step and stamps of
every other.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import polyduct

SHAPE = (4096, 4096)
WARM, STEPS = 5, 40
STAMPS = np.linspace(0, SHAPE[0] * SHAPE[1] - 1, 64, dtype=np.int64)


def write(pipe: str) -> None:
    a = np.arange(SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)
    flat = a.reshape(-1)
    with polyduct.open(pipe, "w", shape=SHAPE, dtype="f4", layout="block,*", timeout=60) as out:
        for step in range(WARM + STEPS):
            flat[STAMPS] = step
            out.write(a)


def read(pipe: str) -> None:
    expected = np.arange(SHAPE[0] * SHAPE[1], dtype=np.float32)
    times, verified = [], True
    with polyduct.open(pipe, "r", layout="block,*", timeout=60) as port:
        last = time.perf_counter()
        for step, a in enumerate(port):
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
    if len(sys.argv) == 3:
        {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
        return 0
    pipe = f"pipe:bench-python-{os.getpid()}"
    programs = [subprocess.Popen([sys.executable, __file__, role, pipe]) for role in ("write", "read")]
    return max(p.wait() for p in programs)


if __name__ == "__main__":
    sys.exit(main())
