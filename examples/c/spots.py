"""Looks at what stencil.cpp does while it does it, in pieces of its own, and draws the last plate.

mpirun -n 4 ./stencil pipe:spots 400 10000 & python examples/c/spots.py pipe:spots spots.png
"""

import sys

import numpy as np
from PIL import Image

import polyduct

url, picture = sys.argv[1:]
plate = np.zeros((1, 1), "f4")
for step, plate in enumerate(polyduct.open(url, layout="*,*", timeout=60)):
    much = (plate > 0.15).mean()
    print(f"{step}: {much:.1%} of the plate has much of it, most {plate.max():.3f}", flush=True)

shade = np.clip(plate / 0.35, 0, 1)[..., None]
colours = (1 - shade) * np.array([18, 22, 58]) + shade * np.array([255, 214, 92])
Image.fromarray(colours.astype("u1")).save(picture)
