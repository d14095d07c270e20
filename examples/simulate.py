"""Waves on a membrane. The simulation never waits for whoever watches: a full queue drops all but the newest
step.

polyduct run "-n 2 python examples/simulate.py | -n 1 python examples/watch.py"
"""

import numpy as np

import polyduct

N, STEPS = 256, 300

with polyduct.open("-", "w", shape=(N, N), dtype="f8", layout="*,block", policy="latest") as out:
    [(_, columns)] = out.layout.boxes(out.unit)
    x = np.pi * np.arange(N)[:, None] / N
    y = np.pi * np.arange(*columns)[None, :] / N
    for step in range(STEPS):
        t = 0.02 * step
        with out.step() as a:
            a[...] = np.sin(3 * x) * np.sin(2 * y) * np.cos(np.sqrt(13) * t) + 0.5 * np.sin(x) * np.sin(
                5 * y
            ) * np.cos(np.sqrt(26) * t)
