"""Writes each surface that comes as a mesh, which other programs open: PREFIX-0.ply, PREFIX-1.ply, …

POLYDUCT_JOB=brain python examples/brain/mesh.py pipe:mesh PREFIX
"""

import sys
from pathlib import Path

import numpy as np

import polyduct

HEAD = """ply
format binary_little_endian 1.0
element vertex {}
property float x
property float y
property float z
element face {}
property list uchar int vertex_indices
end_header
"""

for step in polyduct.open(sys.argv[1], layouts="..."):
    # What neighbours have in common is there once.
    points, faces = np.unique(step["triangles"].reshape(-1, 3), axis=0, return_inverse=True)
    rows = np.zeros(len(faces) // 3, [("corners", "u1"), ("points", "<i4", 3)])
    rows["corners"], rows["points"] = 3, faces.reshape(-1, 3)
    path = Path(f"{sys.argv[2]}-{step.number}.ply")
    head = HEAD.format(len(points), len(rows)).encode()
    path.write_bytes(head + points.astype("<f4").tobytes() + rows.tobytes())
    print(f"{path}: {len(rows)} triangles at level {step.values['level']}", flush=True)
