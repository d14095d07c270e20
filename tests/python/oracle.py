"""Layouts the naive way: the indices that each unit holds, dimension by dimension."""

from __future__ import annotations

import numpy as np


def held(dist: str, n: int, parts: int, part: int, halo: tuple[int, int] = (0, 0)) -> list[int]:
    """Indices of one dimension that a part holds, in the order of its memory."""
    if dist == "*":
        own = list(range(n))
    elif dist == "block":
        size = -(-n // parts)
        own = list(range(n))[part * size : (part + 1) * size]
    elif dist == "balanced":
        own = [int(i) for i in np.array_split(np.arange(n), parts)[part]]
    else:
        size = int(dist.removeprefix("cyclic").strip("()") or 1)
        own = [i for i in range(n) if i // size % parts == part]
    if own and halo != (0, 0):
        own = list(range(max(0, own[0] - halo[0]), min(n, own[-1] + 1 + halo[1])))
    return own


def part(
    full: np.ndarray, dists: list[str], grid: list[int], unit: int, halo: list[tuple[int, int]] | None = None
) -> np.ndarray:
    """A unit's part; the grid has an axis for each distributed dimension, row-major."""
    at = list(np.unravel_index(unit, grid)) if grid else []
    sizes = list(grid)
    indices = []
    for k, dist in enumerate(dists):
        parts, me = (1, 0) if dist == "*" else (sizes.pop(0), int(at.pop(0)))
        indices.append(held(dist, full.shape[k], parts, me, halo[k] if halo else (0, 0)))
    return full[np.ix_(*indices)]


def text(
    dists: list[str], grid: list[int], halo: list[tuple[int, int]] | None = None, order: str = ""
) -> str:
    """The layout's text."""
    words = ",".join(dists) + ("@" + "x".join(map(str, grid)) if grid else "")
    if order:
        words += f";order={order}"
    if halo:
        words += ";halo=" + ",".join(f"{a}:{b}" for a, b in halo)
    return words
