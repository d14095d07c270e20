"""The surface of a brain: each unit finds the triangles in its rows, as many as there are.

polyduct run "< brain.npy -n 4 python examples/brain/surface.py | -n 2 python examples/brain/show.py"

The levels at which the surface lies are named on the command line, a step for each; without any it moves to
and fro.
"""

import os
import sys

import numpy as np
from skimage.measure import marching_cubes

import polyduct
from polyduct import Array, Open

# Between the values that there are, so that no triangle shrinks to a point.
levels = [float(word) for word in sys.argv[1:]] or 127.5 + np.rint(100 * np.sin(np.arange(1000) / 20))
# One row more than this unit's own, which is the next unit's first: there the two surfaces meet.
volume = polyduct.open("-", layout="block,*,*;halo=0:1,0,0")
rows = volume.read()
first = volume.layout.boxes(volume.unit)[0][0][0] if len(rows) else 0
arrays = {"triangles": Array((Open(4_000_000), 3, 3), "f4")}
# The routes that the triangles take; they go to the next program of the pipeline if nothing else is said.
routes = [polyduct.open(place, "w", arrays=arrays) for place in os.environ.get("ROUTES", "-").split()]
for level in levels:
    triangles = np.zeros((0, 3, 3), "f4")
    if len(rows) > 1 and rows.min() < level < rows.max():
        points, faces, _, _ = marching_cubes(rows, level, gradient_direction="ascent")
        triangles = points[faces] + np.array([first, 0, 0], "f4")
    for route in routes:
        with route.step(level=float(level)) as step:
            step.bring("triangles", (len(triangles), 3, 3))[...] = triangles
