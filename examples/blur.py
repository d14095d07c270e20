"""A filter that needs its neighbours' cells: polyduct fills the halo, nobody sends anything to anybody.

polyduct run "< in.npy -n 4 python examples/blur.py > out.npy"

It reads and writes whatever it is given: files here, other programs in a longer pipeline.
"""

import numpy as np

import polyduct

with polyduct.open("-", "r", layout="block,block;halo=1,1") as source:
    with polyduct.open("-", "w", shape=source.shape, dtype=source.dtype, layout="block,block") as out:
        held = source.layout.boxes(source.unit, halo=True)
        mine = out.layout.boxes(out.unit)
        for a in source:
            with out.step() as b:
                if not held:  # more units than cells
                    continue
                # At the edge of the array the halo is cut off: repeat the last cells there.
                missing = [
                    (1 - (own[0] - has[0]), 1 - (has[1] - own[1])) for own, has in zip(mine[0], held[0])
                ]
                p = np.pad(a, missing, mode="edge")
                b[...] = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + 4 * p[1:-1, 1:-1]) / 8
