"""Writes tables.js: 256 colours of matplotlib's maps (CC0), exactly. `python tables.py > tables.js`"""

import matplotlib
import numpy as np

# The name here, matplotlib's name, what it is for. RdBu has blue for what is negative.
MAPS = [
    ("viridis", "viridis", "even"),
    ("magma", "magma", "even"),
    ("inferno", "inferno", "even"),
    ("cividis", "cividis", "even"),
    ("RdBu", "RdBu_r", "diverging"),
    ("coolwarm", "coolwarm", "diverging"),
    ("twilight", "twilight", "cyclic"),
]

print("// Written by tables.py: 256 colours each, red, green, blue: the first, then differences to the one")
print("// before, a letter each, P for 0. Lightness in even steps, diverging, or cyclic.")
print("const TABLES = {")
for name, source, kind in MAPS:
    rgb = matplotlib.colormaps[source](np.arange(256) / 255, bytes=True)[:, :3]
    steps = np.diff(rgb.astype(int), axis=0)
    assert abs(steps).max() <= 15
    text = "".join(chr(80 + step) for step in steps.ravel())
    print(f'  {name}: {{ kind: "{kind}", first: {rgb[0].tolist()}, rest:', end=" ")
    print("`\n    " + "\n    ".join(text[k : k + 100] for k in range(0, len(text), 100)) + "` },")
print("};")
