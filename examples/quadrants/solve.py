"""Julia sets whose parameter goes round: each unit computes a block, of as many as there are units.

polyduct run "-n 8 python examples/quadrants/solve.py SIZE STEPS | …"
"""

import cmath
import sys

import numpy as np

import polyduct

SIZE, STEPS = (int(word) for word in sys.argv[1:3])

with polyduct.open("-", "w", shape=(SIZE, SIZE), dtype="u1", layout="block,block") as out:
    (top, bottom), (left, right) = out.layout.boxes(out.unit)[0]
    row, column = np.mgrid[top:bottom, left:right].reshape(2, -1)
    for step in range(STEPS):
        # Just outside of the Mandelbrot set's cardioid, where the edges are rough.
        turn = cmath.exp(1j * cmath.pi * (step + 0.5) / STEPS)
        c = 1.03 * (turn / 2 - turn**2 / 4)
        # Not as complex numbers: how NumPy rounds a product of those may depend on where in the array it is,
        # and so the field on the blocks.
        x, y = (2 * column + 1 - SIZE) * (1.6 / SIZE), (2 * row + 1 - SIZE) * (1.6 / SIZE)
        count, inside = np.zeros(x.size, "u1"), np.arange(x.size)
        for _ in range(255):
            x, y = x * x - y * y + c.real, 2 * x * y + c.imag
            stays = x * x + y * y < 4
            inside, x, y = inside[stays], x[stays], y[stays]
            count[inside] += 1
        out.write(count.reshape(out.local_shape))
