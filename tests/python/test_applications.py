"""Applications of iWarp's paper on streams: what leaves the programs is what one process would compute."""

from __future__ import annotations

import cmath
import contextlib
import functools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trimesh
from conftest import ROOT
from PIL import Image
from pipelines import pipeline, run
from skimage.measure import marching_cubes


@contextlib.contextmanager
def beside(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A program that runs beside a pipeline, and does not stay."""
    words = [sys.executable, *map(str, command)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


@functools.cache
def julia(size: int, c: complex) -> np.ndarray:
    """Point by point, in plain Python: how often it takes before it leaves."""
    field = np.zeros((size, size), "u1")
    for (row, column), _ in np.ndenumerate(field):
        x, y = ((2 * k + 1 - size) * (1.6 / size) for k in (column, row))
        while field[row, column] < 255:
            x, y = x * x - y * y + c.real, 2 * x * y + c.imag
            if x * x + y * y >= 4:
                break
            field[row, column] += 1
    return field


@pytest.mark.parametrize("units", [5, 8])
def test_four_quadrants_reach_an_ordinary_program(tmp_path: Path, units: int) -> None:
    """Over four sockets, of which the first has the last unit of a field, too, a short one."""
    size, steps = 260, 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with beside("examples/quadrants/analyse.py", port, size, tmp_path / "julia.png") as analyst:
        place = f"tcp://127.0.0.1:{port}?lanes=4&su=16384"
        solve = f"-n {units} python examples/quadrants/solve.py {size} {steps}"
        pipeline(f"{solve} | -n 4 python examples/quadrants/forward.py '{place}'")
        said, _ = analyst.communicate(timeout=60)
    assert analyst.returncode == 0
    turns = [cmath.exp(1j * cmath.pi * (step + 0.5) / steps) for step in range(steps)]
    fields = [julia(size, 1.03 * (turn / 2 - turn**2 / 4)) for turn in turns]
    with Image.open(tmp_path / "julia.png") as picture:
        # Its colours have the numbers of the field's values; there is room for four fields in a row.
        np.testing.assert_array_equal(np.asarray(picture), np.hstack([*fields, *[0 * fields[0]] * 2]))
    found = re.findall(r"field (\d): ([\d.]+)% stays, the edge has dimension ([\d.]+)\n", said)
    assert [int(step) for step, *_ in found] == [0, 1]
    for (_, stays, dimension), field in zip(found, fields, strict=True):
        assert float(stays) == pytest.approx(100 * np.mean(field == 255), abs=0.051)
        assert 1 < float(dimension) < 1.5


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("brain") / "brain.npy"
    run(sys.executable, "examples/brain/data.py", path, 2)
    return path


def surface(brain: Path, level: float) -> trimesh.Trimesh:
    """What one process finds in the data as a whole."""
    points, faces, _, _ = marching_cubes(  # type: ignore[no-untyped-call]
        np.load(brain), level, gradient_direction="ascent"
    )
    return trimesh.Trimesh(points, faces, process=False)


@pytest.mark.parametrize("units", [1, 5])
def test_units_find_the_triangles_of_the_whole(brain: Path, tmp_path: Path, units: int) -> None:
    """In its order, as it goes by rows; at the last level there are none."""
    levels = [60.5, 127.5, 255.5]
    named = " ".join(map(str, levels))
    pipeline(f"< {brain} -n {units} python examples/brain/surface.py {named} > {tmp_path}/triangles.npy")
    with open(tmp_path / "triangles.npy", "rb") as file:
        triangles, begins = np.load(file), np.load(file).ravel()
    wholes = [surface(brain, level).triangles for level in levels[:2]]
    assert begins.tolist() == [0, *np.cumsum([len(whole) for whole in wholes]), len(triangles)]
    np.testing.assert_allclose(triangles, np.concatenate(wholes), atol=1e-4)


def looked_at(triangles: np.ndarray, step: int, size: int) -> np.ndarray:
    """Triangles as the picture of a step has them, in pixels: to the right, up, towards the eye."""
    low, high = triangles.min((0, 1)), triangles.max((0, 1))
    turn, nod = 0.6 + step / 30, 0.3
    around = [[np.cos(turn), np.sin(turn), 0], [-np.sin(turn), np.cos(turn), 0], [0, 0, 1]]
    towards = [[1, 0, 0], [0, np.sin(nod), np.cos(nod)], [0, -np.cos(nod), np.sin(nod)]]
    scaled = (triangles - (low + high) / 2) * (0.95 * size / (high - low).max())
    seen: np.ndarray = scaled @ np.array(around).T @ np.array(towards).T + [size / 2, size / 2, 0]
    return seen


def seen(triangles: np.ndarray, right: float, up: float) -> int:
    """How light a picture is at a point: the nearest triangle there, and how it lies to the light."""
    a, b, c = np.moveaxis(triangles, 1, 0)
    normal = np.cross(b - a, c - a)
    parts = []
    for p, q in [(b, c), (c, a), (a, b)]:
        parts.append((q[:, 0] - p[:, 0]) * (up - p[:, 1]) - (q[:, 1] - p[:, 1]) * (right - p[:, 0]))
    weights = np.stack(parts) / normal[:, 2]
    meets = (weights >= 0).all(0) & (normal[:, 2] > 0)
    depth = np.where(meets, (weights * triangles[:, :, 2].T).sum(0), -np.inf)
    nearest = depth.argmax()
    if depth[nearest] == -np.inf:
        return 0
    light = np.array([-0.5, 0.6, 0.7])
    cosine = normal[nearest] @ light / np.linalg.norm(normal[nearest]) / np.linalg.norm(light)
    return int(30 + 225 * ((1 + cosine) / 2) ** 2)


def test_triangles_on_two_routes(brain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To who draws them, and to who writes a mesh of each level."""
    monkeypatch.setenv("POLYDUCT_JOB", f"brain-{os.getpid()}")
    monkeypatch.setenv("ROUTES", "- pipe:mesh")
    monkeypatch.setenv("DISPLAY_AT", f"{tmp_path}/pictures.npy")
    levels = [60.5, 127.5]
    with beside("examples/brain/mesh.py", "pipe:mesh", tmp_path / "brain") as writer:
        stages = "-n 3 python examples/brain/surface.py 60.5 127.5 | -n 2 python examples/brain/show.py"
        pipeline(f"< {brain} {stages}")
        said, _ = writer.communicate(timeout=60)
    assert writer.returncode == 0
    wholes = [surface(brain, level) for level in levels]
    for step, (level, whole) in enumerate(zip(levels, wholes, strict=True)):
        assert f"{tmp_path}/brain-{step}.ply: {len(whole.faces)} triangles at level {level}\n" in said
        got = trimesh.load_mesh(tmp_path / f"brain-{step}.ply", process=False)
        assert got.is_watertight and got.is_winding_consistent and len(got.vertices) == len(whole.vertices)
        assert got.area == pytest.approx(whole.area) and got.volume == pytest.approx(whole.volume)
        np.testing.assert_allclose(got.triangles, whole.triangles, atol=1e-4)
    pictures = np.load(tmp_path / "pictures.npy")
    size = pictures.shape[1]
    there = looked_at(wholes[0].triangles, 0, size)
    points = np.random.default_rng(1).integers(100, size - 100, (150, 2))
    oracle = np.array([seen(there, column + 0.5, size - row - 0.5) for row, column in points])
    # Where triangles meet either of them may be seen.
    wrong = np.abs(pictures[0][tuple(points.T)] - oracle) > 1
    assert wrong.sum() <= 3 and 50 < np.count_nonzero(oracle) < 150 and (pictures[1] != pictures[0]).any()
