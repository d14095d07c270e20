"""Each example runs, and does what it says; so does the demo."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from pipelines import pipeline, run
from scipy import ndimage


def test_rows_to_columns() -> None:
    # With prefixes lines arrive whole.
    lines = pipeline(
        "-n 4 python examples/rows.py | -n 3 python examples/columns.py", "--prefix"
    ).splitlines()
    i, j = np.mgrid[:1200, :900]
    full = np.hypot(i - 600, j - 450)
    seen = []
    for line in lines:
        found = re.search(r"columns (\d): step (\d), 1200 x 300, mean ([\d.]+)$", line)
        assert found, line
        unit, step = int(found[1]), int(found[2])
        assert float(found[3]) == pytest.approx(
            full[:, unit * 300 : unit * 300 + 300].mean() + step, rel=1e-5
        )
        seen.append((unit, step))
    assert sorted(seen) == [(unit, step) for unit in range(3) for step in range(5)]


@pytest.mark.parametrize("units", [1, 4, 6])
def test_blur_of_a_file(tmp_path: Path, units: int) -> None:
    full = np.random.default_rng(3).random((33, 47))
    np.save(tmp_path / "in.npy", full)
    pipeline(f"< {tmp_path}/in.npy -n {units} python examples/blur.py > {tmp_path}/out.npy")
    got = np.load(tmp_path / "out.npy").reshape(full.shape)
    kernel = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8
    np.testing.assert_allclose(got, ndimage.convolve(full, kernel, mode="nearest"), rtol=1e-12)


def test_blur_twice_in_a_pipe(tmp_path: Path) -> None:
    full = np.random.default_rng(4).random((20, 20)).astype("f4")
    np.save(tmp_path / "in.npy", full)
    pipeline(
        f"< {tmp_path}/in.npy -n 2 python examples/blur.py | -n 3 python examples/blur.py > {tmp_path}/out.npy"
    )
    kernel = np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8
    twice = ndimage.convolve(ndimage.convolve(full, kernel, mode="nearest"), kernel, mode="nearest")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy").reshape(full.shape), twice, rtol=1e-5)


def test_trainer_to_server() -> None:
    lines = pipeline("-n 4 python examples/train.py | -n 2 python examples/serve.py", "--prefix").splitlines()
    assert len(lines) == 8
    weights = [np.zeros((128, 2048), "f4") for _ in range(4)]
    for unit, part in enumerate(weights):
        random = np.random.default_rng(unit)
        for _ in range(40):
            part += 0.01 * random.standard_normal(part.shape, dtype="f4")
    last = np.linalg.norm(np.concatenate(weights)[:, :1024])
    [line] = [line for line in lines if "server 0: weights of version 3" in line]
    assert float(line.split()[-1]) == pytest.approx(last, rel=1e-3) and "1024 KiB" in line


def test_simulation_with_latest() -> None:
    line = pipeline("-n 2 python examples/simulate.py | -n 1 python examples/watch.py")
    found = re.fullmatch(r"saw (\d+) steps, the last was (\d+); its strongest wave is \d+, \d+\n", line)
    assert found and 1 <= int(found[1]) <= 300 and int(found[2]) == 299


def serial_heat(steps: int, size: int = 240) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    a = np.zeros((size + 2, size))
    a[0] = 100.0
    for _ in range(steps):
        a[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4
    return a[1:-1]


@pytest.mark.parametrize("units", [1, 2, 4, 7])
def test_halo_exchange(units: int) -> None:
    plate = serial_heat(60)
    checksum = int(np.ascontiguousarray(plate).view("u8").sum(dtype="u8"))
    line = pipeline(f"-n {units} python examples/halo.py 60")
    assert line == f"60 steps: mean {plate.mean():.12g}, checksum {checksum:016x}\n"


def test_regroup() -> None:
    lines = run(sys.executable, "examples/regroup.py").splitlines()
    assert lines[0].startswith("element (3, 5) is at (unit, offset) [(1, 13)]")
    assert sum(int(line.split()[-1]) for line in lines[1:]) == sum(range(48))


def test_every_example_is_run() -> None:
    tests = Path(__file__).read_text()
    assert [
        path.name for path in (ROOT / "examples").glob("*.py") if f"examples/{path.name}" not in tests
    ] == []


def test_the_demo(tmp_path: Path) -> None:
    """Its stars are those that one process finds in the image as a whole."""
    from PIL import Image

    printed = run(sys.executable, "demo/run.py", "--out", tmp_path)
    sys.path.insert(0, str(ROOT / "demo"))
    try:
        import stars
    finally:
        sys.path.pop(0)
    image = np.load(tmp_path / "hubble.npy")
    found = np.load(tmp_path / "stars.npy").reshape(image.shape[:2])
    assert 300 < np.count_nonzero(found) < 3000 and f"{np.count_nonzero(found)} objects found" in printed
    # Without the first half: the same image through one process and through five.
    for units in (1, 5):
        pipeline(f"< {tmp_path}/hubble.npy -n {units} python demo/stars.py > {tmp_path}/{units}.npy")
    alone, shared = (np.load(tmp_path / f"{units}.npy").reshape(found.shape) for units in (1, 5))
    np.testing.assert_array_equal(alone, stars.peaks(image))
    np.testing.assert_allclose(shared, alone, atol=1e-5)
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert [p["bytes"] for p in stats["pipes"] if p["url"].startswith("pipe:")] == [image.nbytes]
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.size[0] > 1000


def test_heat_in_a_plate(tmp_path: Path) -> None:
    pipeline(f"-n 3 python examples/heat/solve.py 50 > {tmp_path}/heat.npy")
    found = np.load(tmp_path / "heat.npy")[-1]
    size = 480
    y, x = np.mgrid[0:size, 0:size]
    sources = [(0.3, 0.3, 0.08), (0.7, 0.6, 0.12), (0.25, 0.75, 0.04)]
    hot = np.any([np.hypot(y - size * a, x - size * b) < size * r for a, b, r in sources], axis=0)
    u = np.zeros((size, size), "f4")
    for _ in range(41):
        u[hot] = 1
        new = np.zeros_like(u)
        new[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        u = new
    assert np.allclose(found, u, atol=1e-5)


def test_heat_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same programs, wherever it goes."""
    monkeypatch.setenv("DISPLAY_AT", f"window:{tmp_path}/heat")
    pipeline("-n 2 python examples/heat/solve.py 30 | -n 3 python examples/heat/show.py")
    head = (tmp_path / "heat").read_bytes()[:24]
    assert head[:8] == b"PDWINDOW" and head[12] == 2 and 1 <= int.from_bytes(head[16:], "little") <= 3
