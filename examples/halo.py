"""Heat in a plate: each unit has some rows, and sends its outermost ones to its neighbours before each step.

polyduct run "-n 4 python examples/halo.py"

The result is that of one process, to the last bit: unit 0 collects it and prints its checksum.
"""

import sys

import numpy as np

import polyduct

steps, size = int(sys.argv[1]) if len(sys.argv) > 1 else 200, 240

with polyduct.domain() as d:
    rows = size * d.unit // d.units, size * (d.unit + 1) // d.units
    # Our rows, and one more on each side: the neighbour's, or the edge of the plate.
    a = np.zeros((rows[1] - rows[0] + 2, size))
    if d.unit == 0:
        a[0] = 100.0  # the upper edge is hot
    up, down = d.unit - 1, d.unit + 1
    for step in range(steps):
        if up >= 0:
            d.send(up, a[1])
        if down < d.units:
            d.send(down, a[-2])
            d.recv(down, out=a[-1])
        if up >= 0:
            d.recv(up, out=a[0])
        a[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4
    if d.unit > 0:
        d.send(0, a[1:-1])
    else:
        plate = np.concatenate([a[1:-1]] + [d.recv(unit) for unit in range(1, d.units)])
        checksum = int(plate.view("u8").sum(dtype="u8"))
        print(f"{steps} steps: mean {plate.mean():.12g}, checksum {checksum:016x}")
