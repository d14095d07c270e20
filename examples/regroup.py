"""One process: who owns what, and regrouping a list of arrays.

python examples/regroup.py
"""

import numpy as np

import polyduct

full = np.arange(48.0).reshape(6, 8)
rows = polyduct.Layout("block,*", shape=full.shape, units=3)
tiles = polyduct.Layout("cyclic(2),block@2x2;order=F", shape=full.shape, units=4)

print(
    f"element (3, 5) is at (unit, offset) {rows.locate((3, 5))} of {rows}, {tiles.locate((3, 5))} of {tiles}"
)
for unit, part in enumerate(polyduct.redistribute(np.split(full, 3), rows, tiles)):
    boxes = " and ".join(f"rows {lo}..{hi - 1}" for (lo, hi), _ in tiles.boxes(unit))
    print(f"unit {unit} has {boxes}, in all {part.shape}: sum {part.sum():.0f}")
