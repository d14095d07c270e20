"""Forwards what comes to the place that is named: four units have a quadrant each, of whatever it is."""

import sys

import polyduct

source = polyduct.open("-", layout="block,block")
with polyduct.open(sys.argv[1], "w", shape=source.shape, dtype=source.dtype, layout="block,block") as out:
    for quadrant in source:
        out.write(quadrant)
