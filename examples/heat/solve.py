"""Heat in a plate: each unit has some rows, and its neighbours' outermost ones beside them.

polyduct run "-n 4 python examples/heat/solve.py | -n 2 python examples/heat/show.py"
"""

import sys

import numpy as np

import polyduct

SIZE, STEPS = 480, int(sys.argv[1]) if len(sys.argv) > 1 else 20000

with (
    polyduct.domain() as d,
    polyduct.open("-", "w", shape=(SIZE, SIZE), dtype="f4", layout="block,*", policy="latest") as out,
):
    rows = -(-SIZE // d.units)
    first = min(SIZE, d.unit * rows)
    u = np.zeros((min(SIZE, first + rows) - first + 2, SIZE), "f4")
    y, x = np.mgrid[first - 1 : first - 1 + len(u), 0:SIZE]
    # Three sources that stay hot, and edges that stay cold.
    sources = [(0.3, 0.3, 0.08), (0.7, 0.6, 0.12), (0.25, 0.75, 0.04)]
    hot = np.any([np.hypot(y - SIZE * a, x - SIZE * b) < SIZE * r for a, b, r in sources], axis=0)
    inside = (y[1:-1] > 0) & (y[1:-1] < SIZE - 1) & (x[1:-1] > 0) & (x[1:-1] < SIZE - 1)
    for step in range(STEPS):
        u[hot] = 1
        if d.unit > 0:
            d.send(d.unit - 1, u[1])
        if d.unit < d.units - 1:
            d.send(d.unit + 1, u[-2])
            d.recv(d.unit + 1, out=u[-1])
        if d.unit > 0:
            d.recv(d.unit - 1, out=u[0])
        around = u[:-2] + u[2:] + np.roll(u[1:-1], 1, 1) + np.roll(u[1:-1], -1, 1)
        u[1:-1] = np.where(inside, around / 4, 0)
        if step % 10 == 0:
            out.write(u[1:-1])
