"""The examples in C, C++ and Fortran are built as their pages say, and do what these say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import COMMAND, ROOT
from PIL import Image
from programs import C, MPICXX, MPIRUN, Program, build, build_fortran, missing, run, running

EXAMPLES = ROOT / "examples/c"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all programs, `simulate-c`, `analyse-f90`, ..."""
    assert not missing(), f"apt-get install {' '.join(missing())}"
    where = tmp_path_factory.mktemp("examples")
    for source in [*EXAMPLES.glob("*.c"), *EXAMPLES.glob("*.f90"), *EXAMPLES.glob("*.cpp")]:
        match source.suffix:
            case ".c":
                build(where, C, source)
            case ".f90":
                build_fortran(where, source)
            case _:
                build(where, [*MPICXX, "-O2"], source)
    return where


@pytest.mark.parametrize("writer", ["./simulate-c", "./simulate-f90", "python -c SIMULATE"])
@pytest.mark.parametrize("reader", ["./analyse-c", "./analyse-f90"])
def test_five_lines_a_side(programs: Path, writer: str, reader: str) -> None:
    if writer.startswith("python"):
        code = programs / "simulate.py"
        code.write_text(
            "import polyduct\n"
            "with polyduct.open('-', 'w', shape=(4096, 4096), dtype='f4', layout='block,*') as out:\n"
            "    for t in range(10):\n"
            "        with out.step() as a:\n"
            "            a[...] = t\n"
        )
        writer = f"{sys.executable} {code}"
    said = run(COMMAND, "run", f"-n 2 {writer} | -n 2 {reader}", "--timeout", "60s", "--prefix", cwd=programs)
    lines = [line for line in said.splitlines() if "mean" in line]
    means = sorted(float(line.split()[-1]) for line in lines)
    assert means == sorted([*range(10), *range(10)])
    wide = "4096 x 2050" if reader.endswith("f90") else f"{4096 * 2050} elements"
    assert all(wide in line for line in lines)


def stencil(size: int, steps: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The same by NumPy, all of the plate at once."""
    y, x = np.mgrid[:size, :size] * 8 // size
    hot = (y * 5 + x * 3) % 11 == 4
    u, v = np.where(hot, 0.5, 1).astype("f4"), np.where(hot, 0.25, 0).astype("f4")
    for _ in range(steps):
        spread = [sum(np.roll(w, n, axis) for n in (1, -1) for axis in (0, 1)) - 4 * w for w in (u, v)]
        reacts = u * v * v
        u = u + np.float32(0.16) * spread[0] - reacts + np.float32(0.04) * (1 - u)
        v = v + np.float32(0.08) * spread[1] + reacts - np.float32(0.1) * v
    return v


@pytest.mark.parametrize("ranks", [1, 4, 6])
def test_a_stencil_in_cpp_feeds_python(programs: Path, tmp_path: Path, pipe: str, ranks: int) -> None:
    stencils = Program(*MPIRUN, "-n", ranks, programs / "stencil-cpp", pipe, 50, 40)
    looks = Program(sys.executable, EXAMPLES / "spots.py", pipe, tmp_path / "spots.png")
    with running(stencils, looks):
        said = looks.end()
        stencils.end()
    plate = stencil(50, 40)
    last = said.splitlines()[-1]
    assert len(said.splitlines()) == 20
    assert last.startswith(f"19: {(plate > 0.15).mean():.1%} of the plate")
    assert last.endswith(f"most {plate.max():.3f}")
    shade = np.clip(plate / 0.35, 0, 1)
    red = np.asarray(Image.open(tmp_path / "spots.png"))[..., 0]
    assert red.shape == (50, 50) and np.abs(red - ((1 - shade) * 18 + shade * 255)).max() <= 1.5


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {
        "README.md", "simulate.c", "analyse.c", "simulate.f90", "analyse.f90", "stencil.cpp", "spots.py",
    }  # fmt: skip
    assert os.path.exists(ROOT / "docs/pictures/spots.png")
