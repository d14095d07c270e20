"""Depth and motion from four cameras in step: each unit has some rows of all, and those beside them.

polyduct run "-n 4 python examples/cameras/depth.py"
"""

import os

import numpy as np
from camera import COLUMNS, RATE, ROWS

import polyduct

DEPTHS = 12  # from camera to camera a thing is 0 to 11 pixels further left
NEAR = 4  # rows and columns on each side of a pixel by which it is found in the other cameras' frames


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By how much bytes differ, as bytes."""
    return np.maximum(a, b) - np.minimum(a, b)


def around(a: np.ndarray) -> np.ndarray:
    """Sums over what is near each pixel: of 81 differences of three frames, which two bytes can hold."""
    for _ in range(2):
        wide = np.pad(a, ((NEAR, NEAR), (0, 0)))
        a = sum(wide[i : i + len(a)] for i in range(2 * NEAR + 1)).T
    return a


def depths(frames: np.ndarray) -> np.ndarray:
    """By how much to move the second frame, the third twice and so on, to agree best with the first."""
    reach = (len(frames) - 1) * DEPTHS
    wide = np.pad(frames, ((0, 0), (0, 0), (reach, 0)), mode="edge")
    differences = []
    for d in range(DEPTHS):
        moved = [wide[k, :, reach - d * k :][:, :COLUMNS] for k in range(1, len(frames))]
        differences.append(around(sum(apart(frames[0], frame).astype("u2") for frame in moved)))
    return np.argmin(differences, axis=0)


places = os.environ.get("CAMERAS", " ".join(f"tcp://127.0.0.1:{9100 + k}" for k in range(4))).split()
size = {"shape": (ROWS, COLUMNS), "dtype": "u1"}
cameras = [polyduct.open(place, layout=f"balanced,*;halo={NEAR},0", **size) for place in places]
names = [f"camera{k}" for k in range(len(cameras))]
arrays = {name: polyduct.Array(**size, layout="balanced,*") for name in [*names, "motion", "depth"]}
[[rows, _]], [[held, _]] = (cameras[0].layout.boxes(cameras[0].unit, halo=halo) for halo in (False, True))
own = slice(rows[0] - held[0], rows[1] - held[0])

with polyduct.open(os.environ.get("DISPLAY_AT", "display://:8080/cameras"), "w", arrays=arrays) as out:
    before = None
    # One step of each camera, and then the next: depth is that of one moment.
    for number, step in enumerate(zip(*cameras)):
        frames = np.array(step)
        with out.step(frame=number, time=number / RATE) as views:
            for name, frame in zip(names, frames):
                views[name][...] = frame[own]
            views["motion"][...] = 0 if before is None else apart(frames, before).max(axis=0)[own]
            views["depth"][...] = depths(frames)[own]
        before = frames
