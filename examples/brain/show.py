"""Shows the triangles that come, lit from one side and turning: each unit draws some rows of the picture."""

import os

import numpy as np

import polyduct

SIZE = 720
LIGHT = np.array([-0.5, 0.6, 0.7], "f4")


def eye(angle: float, height: float = 0.3) -> np.ndarray:
    """Right, up and near, in columns, of who looks from there at what has right, forward and up."""
    near = np.array([np.sin(angle) * np.cos(height), -np.cos(angle) * np.cos(height), np.sin(height)])
    right = np.array([np.cos(angle), np.sin(angle), 0])
    return np.stack([right, np.cross(near, right), near], axis=1).astype("f4")


def draw(triangles: np.ndarray, top: int, bottom: int) -> np.ndarray:
    """Rows of a picture, with flat shading and a z-buffer, of corners in (right, up, near) from its middle."""
    corners = np.ascontiguousarray(triangles.T)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0], axis=0)
    # Those in these rows that turn their outside to the eye.
    low, high = corners[1].min(0), corners[1].max(0)
    here = (normal[2] > 1e-3) & (high > SIZE / 2 - bottom) & (low < SIZE / 2 - top)
    (x, y, z), normal = np.compress(here, corners, axis=2), np.compress(here, normal, axis=1)
    light = LIGHT @ normal / np.linalg.norm(normal, axis=0) / np.linalg.norm(LIGHT)
    shade = (30 + 225 * ((1 + light) / 2) ** 2).astype("i8")
    # What part each corner has of a point, which is inside where none is negative: how that changes with a
    # pixel to the right, and with one up, and what it is at the lowest on the left of a box around the triangle.
    to_right = (np.roll(y, -1, axis=0) - np.roll(y, -2, axis=0)) / normal[2]
    to_up = (np.roll(x, -2, axis=0) - np.roll(x, -1, axis=0)) / normal[2]
    left, low = np.floor(x.min(0)), np.floor(y.min(0))
    part = (left + 0.5 - np.roll(x, -1, axis=0)) * to_right + (low + 0.5 - np.roll(y, -1, axis=0)) * to_up
    wide, tall = (int(np.ceil(np.max(most, initial=0))) for most in (x.max(0) - left, y.max(0) - low))
    picture = np.zeros((bottom - top) * SIZE, "i8")
    # All triangles at once, each at one pixel of its box after the other.
    for right, up in np.ndindex(wide, tall):
        parts = part + right * to_right + up * to_up
        hit = np.flatnonzero(parts.min(0) > -1e-4)
        row = SIZE // 2 - 1 - top - low[hit].astype(int) - up
        column = SIZE // 2 + left[hit].astype(int) + right
        seen = (row >= 0) & (row < bottom - top) & (column >= 0) & (column < SIZE)
        near = ((parts[:, hit] * z[:, hit]).sum(0) + SIZE) * 64
        values = near.astype("i8") << 8 | shade[hit]
        np.maximum.at(picture, (row * SIZE + column)[seen], values[seen])
    return (picture & 255).astype("u1").reshape(-1, SIZE)


surface = polyduct.open("-", layouts="...")
place = os.environ.get("DISPLAY_AT", "display://:8080/brain")
with polyduct.open(place, "w", shape=(SIZE, SIZE), dtype="u1", layout="block,*") as page:
    (top, bottom), _ = page.layout.boxes(page.unit)[0]
    middle, scale = np.zeros(3, "f4"), 0.0
    for step in surface:
        triangles = step["triangles"]
        if scale == 0 and len(triangles) > 0:
            low, high = triangles.min((0, 1)), triangles.max((0, 1))
            middle, scale = (low + high) / 2, 0.95 * SIZE / (high - low).max()
        turned = (triangles - middle) * np.float32(scale) @ eye(0.6 + step.number / 30)
        page.write(draw(turned, top, bottom))
