"""A block of a field in each process of MPI, as a grid of processes has them.

mpiexec -n 6 python examples/libraries/mpi_grid.py pipe:field
"""

import sys

import numpy as np
from mpi4py import MPI

import polyduct

SHAPE = 300, 200

grid = MPI.COMM_WORLD.Create_cart(MPI.Compute_dims(MPI.COMM_WORLD.size, 2))
held = polyduct.layout_of(grid, shape=SHAPE, dtype="f8")
with polyduct.open(sys.argv[1], "w", arrays={"field": held}, timeout=60) as out:
    # Which part of the whole this process has.
    [block] = out.arrays["field"].layout.boxes(out.unit)
    y, x = (np.arange(*side, dtype="f8") for side in block)
    for time in range(3):
        out.write({"field": np.add.outer(y, x) + time}, time=time)
    print(f"process {grid.rank} of {grid.size} wrote rows {block[0]} and columns {block[1]}", flush=True)
