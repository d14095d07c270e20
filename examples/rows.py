"""The writer of a pair: each process has a block of rows.

polyduct run "-n 4 python examples/rows.py | -n 3 python examples/columns.py"
"""

import numpy as np

import polyduct

with polyduct.open("-", "w", shape=(1200, 900), dtype="f4", layout="block,*") as out:
    [(rows, columns)] = out.layout.boxes(out.unit)
    i, j = np.mgrid[slice(*rows), slice(*columns)]
    for t in range(5):
        with out.step() as a:  # this unit's rows, in the memory that the readers copy from
            a[...] = np.hypot(i - 600, j - 450) + t
