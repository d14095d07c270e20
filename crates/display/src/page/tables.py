"""Writes tables.js: 256 colours of matplotlib's maps (CC0) as base64 of RGB. `python tables.py > tables.js`"""

import base64

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

print("// Written by tables.py: 256 colours each, RGB in base64; even steps of lightness, diverging, or cyclic.")
print("const TABLES = {")
for name, source, kind in MAPS:
    rgb = matplotlib.colormaps[source](np.arange(256) / 255, bytes=True)[:, :3]
    text = base64.b64encode(rgb.tobytes()).decode()
    lines = [text[k : k + 100] for k in range(0, len(text), 100)]
    print(f'  {name}: {{ kind: "{kind}", rgb:\n    "' + '" +\n    "'.join(lines) + '" },')
print("};")
