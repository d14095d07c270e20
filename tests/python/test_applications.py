"""Applications of iWarp's paper on streams: what leaves parallel programs is what one process would have computed."""

from __future__ import annotations

import cmath
import functools
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image
from pipelines import pipeline


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
    size, steps = 270, 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    analyse = [sys.executable, "examples/quadrants/analyse.py", port, size, tmp_path / "julia.png"]
    analyst = subprocess.Popen([str(word) for word in analyse], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        place = f"tcp://127.0.0.1:{port}?lanes=4&su=16384"
        solve = f"-n {units} python examples/quadrants/solve.py {size} {steps}"
        pipeline(f"{solve} | -n 4 python examples/quadrants/forward.py '{place}'")
        said, _ = analyst.communicate(timeout=60)
    finally:
        analyst.kill()
        analyst.wait()
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
