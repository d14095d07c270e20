"""Four cameras in step: what the example computes from each frame, and what it does when one stops."""

from __future__ import annotations

import importlib
import io
import json
import os
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import COMMAND, ROOT
from scipy import ndimage

import polyduct

HERE = ROOT / "examples/cameras"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def camera() -> Iterator[Any]:
    sys.path.insert(0, str(HERE))
    yield importlib.import_module("camera")
    sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def films(camera: Any) -> np.ndarray:
    """What the four film, decoded here: cameras, frames, rows, columns."""
    films = [subprocess.check_output([*camera.command(k, 8), "-"]) for k in range(4)]
    return np.array([np.frombuffer(film, "u1").reshape(8, camera.ROWS, camera.COLUMNS) for film in films])


@pytest.fixture
def begin() -> Iterator[Start]:
    """Starts programs; none is left at the end."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*command: object, **env: str) -> subprocess.Popen[str]:
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **env}
        words = [str(word) for word in command]
        begun.append(subprocess.Popen(words, cwd=ROOT, env=env, text=True, stderr=subprocess.PIPE))
        return begun[-1]

    yield begin
    for one in begun:
        one.terminate()
        one.communicate(timeout=60)


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports


def compute(begin: Start, units: int, ports: list[int], display: object) -> subprocess.Popen[str]:
    """Starts the parallel program."""
    cameras = " ".join(f"tcp://127.0.0.1:{port}" for port in ports)
    command = (COMMAND, "run", f"-n {units} python examples/cameras/depth.py")
    return begin(*command, CAMERAS=cameras, DISPLAY_AT=str(display))


def film(begin: Start, k: int, port: int, frames: int) -> subprocess.Popen[str]:
    """Starts a camera."""
    return begin(sys.executable, HERE / "camera.py", k, f"tcp://127.0.0.1:{port}?listen", frames)


def expected(films: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """All views of frame `n`, by one process, and one depth after the other."""
    now, x = films[:, n].astype(int), np.arange(films.shape[3])
    costs = []
    for d in range(12):
        moved = [now[k][:, np.maximum(x - k * d, 0)] for k in range(1, 4)]
        cost = np.sum([abs(now[0] - one) for one in moved], axis=0)
        for axis in (0, 1):
            cost = ndimage.convolve1d(cost, np.ones(9, int), axis, mode="constant")
        costs.append(cost)
    views = {f"camera{k}": now[k] for k in range(4)}
    views["motion"] = abs(now - films[:, max(n - 1, 0)]).max(axis=0)
    views["depth"] = np.argmin(costs, axis=0)
    return views


def test_all_views_of_all_frames(begin: Start, camera: Any, films: np.ndarray, tmp_path: Path) -> None:
    """Those of one process; and the last camera has fewer frames, with which all units end."""
    ports = free_ports(4)
    program = compute(begin, 4, ports, tmp_path / "out.zarr")
    cameras = [film(begin, k, port, (8, 100, 8, 5)[k]) for k, port in enumerate(ports)]
    assert program.wait(60) == 0
    for one in cameras:
        one.wait(60)
    steps = 0
    for step in polyduct.open(tmp_path / "out.zarr", layouts="*,*"):
        for name, view in expected(films, steps).items():
            np.testing.assert_array_equal(step[name], view, f"{name} of frame {steps}")
        assert step.values["frame"] == steps
        depth = step["depth"].copy()
        steps += 1
    # Things are as far away as they were put.
    assert steps == 5 and np.median(depth) == int(camera.WALL)
    assert (depth[80:150, 370:450] == int(camera.MAN)).all() and (depth[360:430, 240:440] == 6).all()


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        return bytes(answer.read())


def shown(program: subprocess.Popen[str], port: int, n: int) -> list[str]:
    """Waits until the display shows the frame `n`, and says which views it has."""
    while program.poll() is None:
        try:
            said = json.loads(get(port, "cameras.json"))
            assert said["values"]["frame"] <= n
            if said["values"]["frame"] == n:
                return [view["name"] for view in said["views"]]
        except urllib.error.HTTPError as e:
            with e:
                assert e.code in (404, 503), e.read()
        except urllib.error.URLError as e:
            assert isinstance(e.reason, ConnectionRefusedError)
    raise AssertionError(program.communicate()[1])


@pytest.mark.parametrize("stop", ["after a frame", "within a frame", "reset"])
def test_in_step_with_a_slow_camera_that_stops(begin: Start, films: np.ndarray, stop: str) -> None:
    """The others send more frames than this one, which no view shows. When it stops, all do."""
    *ports, display = free_ports(4)
    with socket.create_server(("127.0.0.1", 0)) as slow:
        slow.settimeout(60)
        place = slow.getsockname()[1]
        program = compute(begin, 2, [*ports, place], f"display://127.0.0.1:{display}/cameras")
        cameras = [film(begin, k, port, 1000) for k, port in enumerate(ports)]
        with slow.accept()[0] as line:
            for n in range(3):
                line.sendall(films[3, n].tobytes())
                names = shown(program, display, n)
                views = expected(films, n)
                assert names == list(views)
                for name in names:
                    found = np.load(io.BytesIO(get(display, f"cameras.npy?view={name}")))
                    np.testing.assert_array_equal(found, views[name], f"{name} of frame {n}")
            if stop == "within a frame":
                line.sendall(bytes(1000))
            if stop == "reset":
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    complaint = program.communicate(timeout=60)[1]
    if stop == "after a frame":
        assert program.returncode == 0, complaint
    else:
        assert program.returncode != 0 and f"StreamBroken: tcp://127.0.0.1:{place}" in complaint
    for one in cameras:
        one.wait(60)
