"""Several arrays in safetensors files and sets of them, in archives and in groups of Zarr."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polyduct
import pytest
from conftest import COMMAND
from polyduct import Array
from safetensors.numpy import load_file, save_file

ALONE: dict[str, Any] = {"unit": 0, "units": 1}
W = np.arange(48, dtype="f4").reshape(6, 8)
B = np.arange(6, dtype="i8")
SCALAR = np.array(2.5)


def arrays() -> dict[str, Array]:
    return {
        "layers.0.w": Array((6, 8), "f4", "block,*"),
        "layers.0.b": Array(6, "i8", "block"),
        "scale": Array((), "f8", "..."),
        "empty": Array((0, 3), "u1", "block,*"),
    }


def parts() -> dict[str, Any]:
    return {"layers.0.w": W, "layers.0.b": B, "scale": SCALAR, "empty": np.zeros((0, 3), "u1")}


@pytest.mark.parametrize("name", ["m.safetensors", "m.safetensors.index.json"])
def test_the_library_reads_what_is_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    options = {"shard_bytes": 100} if name.endswith("json") else {}
    with polyduct.open(path, "w", arrays=arrays(), **ALONE, **options) as out:
        out.write(parts(), step=7, note="größe", nested={"a": [1, None, True]})
    if options:
        index = json.loads(path.read_text())
        assert index["metadata"]["total_size"] == 48 * 4 + 6 * 8 + 8
        assert sorted(index["weight_map"]) == sorted(arrays())
        files = sorted(set(index["weight_map"].values()))
        assert files == ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"]
        loaded = {key: value for file in files for key, value in load_file(tmp_path / file).items()}
        assert set(os.listdir(tmp_path)) == {name, *files}
    else:
        loaded = load_file(path)
        assert os.listdir(tmp_path) == [name]
    assert set(loaded) == set(parts())
    for key, value in parts().items():
        assert loaded[key].dtype == value.dtype
        np.testing.assert_array_equal(loaded[key], value)

    # Two units read columns; a function chooses.
    halves = []
    for unit in range(2):
        port = polyduct.open(path, layouts={"*.w": "*,block", "scale": "..."}, unit=unit, units=2)
        steps = list(port)
        assert len(steps) == 1 and list(steps[0]) == ["layers.0.w", "scale"]
        halves.append(steps[0]["layers.0.w"])
        assert steps[0].values == {"step": 7, "note": "größe", "nested": {"a": [1, None, True]}}
    np.testing.assert_array_equal(np.concatenate(halves, axis=1), W)
    port = polyduct.open(path, layouts=lambda name, array: "..." if array.shape == (6,) else None, **ALONE)
    step = port.read()
    assert step is not None and list(step) == ["layers.0.b"]
    np.testing.assert_array_equal(step["layers.0.b"], B)
    assert port.read() is None and port.ended


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"q": W, "k": W + 100, "b": B}, path, metadata={"made": "by others"})
    fused = Array((12, 8), "f8", "block,*", of=["q", "k"])
    with polyduct.open(path, layouts={"qk": fused, "*": "..."}, convert=True, unit=1, units=2) as port:
        step = port.read()
        assert step is not None and list(step) == ["b", "qk"] and step.values == {}
        np.testing.assert_array_equal(step["qk"], W.astype("f8") + 100)
    with polyduct.open(path, layouts={"qk": fused, "*": "..."}, convert=True, unit=0, units=2) as port:
        out = {"b": np.zeros(6, "i8"), "qk": np.zeros((8, 6)).T}
        assert port.read(out) is not None
        np.testing.assert_array_equal(out["qk"], W)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for bad, why in [
        ({"a": Array(3, "c8", "block")}, "safetensors"),
        ({"a": Array(polyduct.Open(3), "f4")}, "its size changes"),
    ]:
        with pytest.raises(polyduct.Error, match=why):
            polyduct.open(path, "w", arrays=bad, **ALONE)
    with pytest.raises(polyduct.Error, match="not written"), polyduct.open(path, "w", arrays=arrays(), **ALONE):
        pass
    with polyduct.open(path, "w", arrays=arrays(), **ALONE) as out:
        with pytest.raises(polyduct.Error, match='"time" with bytes; expected None'):
            out.write(parts(), time=b"bytes")
        out.write(parts())
        # Whatever is wrong with it besides.
        with pytest.raises(polyduct.Error, match="a second one"):
            out.write({})
    with polyduct.open(tmp_path / "m.zarr", "w", arrays=arrays(), **ALONE) as out:
        with pytest.raises(polyduct.BadOption, match="how many steps there are"):
            out.write(parts(), polyduct_steps=2)
        out.write(parts())
    with pytest.raises(polyduct.Misuse, match="arrays, layouts"):
        polyduct.open(tmp_path / "m.safetensors.index.json", **ALONE)
    with pytest.raises(polyduct.Error, match="called \"w\""):
        polyduct.open(path, layouts={"w": "..."}, **ALONE)
    with pytest.raises(polyduct.Misuse, match="several arrays go through"):
        polyduct.open(tmp_path / "x.raw", "w", arrays=arrays(), **ALONE)
    with pytest.raises(polyduct.Error, match="a .npy file has one array"):
        polyduct.open(tmp_path / "x.npy", "w", arrays=arrays(), **ALONE)
    with pytest.raises(polyduct.Error, match="arrays with names"):
        polyduct.open(tmp_path / "x.npz", "w", shape=3, dtype="f4", **ALONE)


def test_archives_are_those_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    with polyduct.open(path, "w", arrays=arrays(), **ALONE) as out:
        out.write(parts(), step=7)
    assert zipfile.ZipFile(path).testzip() is None
    with np.load(path) as loaded:
        assert set(loaded.files) == {*parts(), "polyduct.json"}
        assert json.loads(loaded["polyduct.json"]) == {"step": 7}
        for key, value in parts().items():
            assert loaded[key].dtype == value.dtype
            np.testing.assert_array_equal(loaded[key], value)
    with polyduct.open(path, layouts="...", **ALONE) as port:
        step = port.read()
        assert step is not None and step.values == {"step": 7}
        np.testing.assert_array_equal(step["layers.0.b"], B)
    # One of them as a file of one array.
    with polyduct.open(f"{path}#layers.0.w", layout="*,block", unit=1, units=2) as one:
        np.testing.assert_array_equal(one.read(), W[:, 4:])
    with pytest.raises(polyduct.Error, match="which of its arrays.* it has empty, layers.0.b"):
        polyduct.open(path, **ALONE)


def test_what_numpy_takes_elements_for_is_kept(tmp_path: Path) -> None:
    dtype = np.dtype([("id", "i4"), ("at", "f4", (2,))])
    values = np.zeros(4, dtype)
    values["id"], values["at"] = range(4), 0.5
    held = {"p": Array(4, dtype, "block"), "name": Array(2, "S3", "..."), "f": Array(2, "f4", "...")}
    said = {"p": values, "name": np.array([b"a", b"bcd"]), "f": np.ones(2, "f4")}
    polyduct.Store.create(tmp_path / "s", units=3, parity=1)
    for url in (f"{tmp_path}/m.npz", f"store:{tmp_path}/s/runs"):
        with polyduct.open(url, "w", arrays=held, **ALONE) as out:
            assert out.arrays["p"].dtype == dtype
            out.write(said)
        layouts = {"p": "block", "q": Array(layout="...", of="p"), "both": Array(of=["p", "p"]), "*": "..."}
        with polyduct.open(url, layouts=layouts, **ALONE) as port:
            step = port.read()
            assert step is not None
            for name, value in {**said, "q": values, "both": np.concatenate([values, values])}.items():
                assert step[name].dtype == value.dtype
                np.testing.assert_array_equal(step[name], value)
    with np.load(tmp_path / "m.npz") as loaded:
        np.testing.assert_array_equal(loaded["p"], values)
        assert loaded["name"].dtype == "S3"
    # Also of one whose size changes, and a copy has it as well.
    with polyduct.open(tmp_path / "p.npy", "w", arrays={"p": Array(polyduct.Open(4), dtype)}, **ALONE) as out:
        out.write({"p": values[:3]})
        out.write({"p": values})
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), np.concatenate([values[:3], values]))
    subprocess.run([COMMAND, "cp", tmp_path / "m.npz", tmp_path / "copy.npz"], check=True, capture_output=True)
    with np.load(tmp_path / "copy.npz") as loaded:
        np.testing.assert_array_equal(loaded["p"], values)
    told = subprocess.run(
        [COMMAND, "cp", tmp_path / "m.npz", tmp_path / "copy.zarr"], check=True, capture_output=True, text=True
    )
    assert "cannot store NumPy's types that" in told.stderr and 'of "name", "p": the bytes are copied' in told.stderr
    # Zarr has no place for it: a reader says what the bytes are.
    with polyduct.open(tmp_path / "m.zarr", "w", arrays=held, **ALONE) as out:
        out.write(said)
    for expected in ({"p": Array(dtype=dtype)}, {"f": "...", "?": Array(dtype=dtype)}):
        with polyduct.open(tmp_path / "m.zarr", layouts=expected, **ALONE) as port:
            step = port.read()
            assert step is not None
            np.testing.assert_array_equal(step["p"], values)
    # The first rule that fits counts.
    layouts = {"p": "...", "f": "...", "n*": "...", "*": Array(dtype=dtype)}
    with polyduct.open(tmp_path / "m.zarr", layouts=layouts, **ALONE) as port:
        assert port.arrays["p"].dtype == "V12"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_numpy_are_read(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "m.npz"
    arrays = {
        "fortran": np.asfortranarray(W),
        "big": B.astype(">i8"),
        "scalar": SCALAR,
        "long": np.arange(300_000, dtype="f8").reshape(100, 3000),
        "text": np.array(["a", "bc"]),
        "objects": np.array([{}], dtype=object),
    }
    save(path, **arrays)
    for unit in range(2):
        layouts = {"fortran": "block,*", "big": "cyclic", "scalar": "...", "long": "*,block"}
        with polyduct.open(path, layouts=layouts, unit=unit, units=2) as port:
            step = port.read()
            assert step is not None
            np.testing.assert_array_equal(step["fortran"], W[3 * unit : 3 * unit + 3])
            np.testing.assert_array_equal(step["big"], B[unit::2])
            np.testing.assert_array_equal(step["scalar"], SCALAR)
            np.testing.assert_array_equal(step["long"], arrays["long"][:, 1500 * unit : 1500 * unit + 1500])
    # One array in several pieces.
    halves = {n: Array(layout="...", of=[("long", np.s_[50 * n : 50 * n + 50])]) for n in range(2)}
    with polyduct.open(path, layouts={f"half{n}": half for n, half in halves.items()}, **ALONE) as port:
        step = port.read()
        assert step is not None
        for n in halves:
            np.testing.assert_array_equal(step[f"half{n}"], arrays["long"][50 * n : 50 * n + 50])
    # What polyduct does not move is no matter where it is not asked for.
    with pytest.raises(polyduct.Error, match=r"objects.npy.*not a .npy file that can be read"):
        polyduct.open(path, layouts={"objects": "..."}, **ALONE)
    listed = subprocess.run([COMMAND, "ls", "--json", path], check=True, capture_output=True)
    rows = {row["name"]: row.get("error", row["dtype"]) for row in json.loads(listed.stdout)}
    assert (rows["big"], rows["scalar"]) == ("i64", "f64") and "objects.npy" in rows["objects"]


@pytest.mark.usefixtures("ends_threads")
def test_groups_are_those_of_zarr(tmp_path: Path) -> None:
    zarr, xarray = pytest.importorskip("zarr"), pytest.importorskip("xarray")
    path = tmp_path / "m.zarr"
    held = {"flow/u": Array((6, 8), "f4", "block,*"), "flow/b": Array(6, "i8", "block"), "mesh": Array(4, "f8", constant=True)}
    with polyduct.open(path, "w", arrays=held, compress="zstd", **ALONE) as out:
        for n in range(3):
            step = {"flow": {"u": W + n, "b": B * n}}
            out.write({**step, "mesh": np.arange(4.0)} if n == 0 else step, time=n / 2, units="K")
    group = zarr.open_group(path, mode="r")
    assert dict(group.attrs) == {"time": [0, 0.5, 1], "units": ["K"] * 3, "polyduct_steps": 3}
    np.testing.assert_array_equal(group["flow/u"][:], np.stack([W, W + 1, W + 2]))
    np.testing.assert_array_equal(group["mesh"][:], np.arange(4.0))
    with xarray.open_zarr(path, group="flow", consolidated=False) as dataset:
        assert dataset["u"].dims == ("step", "flow_u_dim_0", "flow_u_dim_1")
        np.testing.assert_array_equal(dataset["b"][2], 2 * B)
    with polyduct.open(path, layouts={"mesh": "...", "*/u": "*,block"}, unit=1, units=2) as port:
        for n, step in enumerate(port):
            np.testing.assert_array_equal(step["flow/u"], (W + n)[:, 4:])
            np.testing.assert_array_equal(step["mesh"], np.arange(4.0))
            assert step.values == {"time": n / 2, "units": "K"}
        assert n == 2
    with polyduct.open(path / "flow" / "b", layout="block", **ALONE) as one:
        assert len(list(one)) == 3


@pytest.mark.usefixtures("ends_threads")
def test_groups_of_zarr_are_read(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    for version in (2, 3):
        path = tmp_path / f"v{version}.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=version)
        group.attrs["made"] = {"by": ["others", version]}
        group.create_array("w", data=W, chunks=(4, 3))
        group.create_group("inner").create_array("b", data=B)
        with polyduct.open(path, layouts="block,...", **ALONE) as port:
            step = port.read()
            assert step is not None and list(step) == ["inner/b", "w"]
            assert step.values == {"made": {"by": ["others", version]}}
            np.testing.assert_array_equal(step["w"], W)
            np.testing.assert_array_equal(step["inner/b"], B)
            assert port.read() is None


@pytest.mark.usefixtures("ends_threads")
def test_folders_of_stores_are_written_read_and_appended_to(tmp_path: Path) -> None:
    store = polyduct.Store.create(tmp_path / "s", units=3, parity=1)
    url = f"store:{tmp_path}/s/runs/a"
    held = {"flow": {"u": Array((6, 8), "f4", "block,*"), "b": Array(6, "i8", "block")}, "mesh": Array(4, "f8", constant=True)}
    for first in (0, 3):
        with polyduct.open(url, "w", arrays=held, append=True, **ALONE) as out:
            for n in range(first, first + 3):
                step = {"flow": {"u": W + n, "b": B * n}}
                out.write({**step, "mesh": np.arange(4.0)} if n == 0 else step, time=n / 2)
    assert sorted(store) == ["runs/a/flow/b", "runs/a/flow/u", "runs/a/mesh"]
    with polyduct.open(url, layouts={"mesh": "...", "*/u": "*,block"}, unit=1, units=2) as port:
        for n, step in enumerate(port):
            np.testing.assert_array_equal(step["flow/u"], (W + n)[:, 4:])
            np.testing.assert_array_equal(step["mesh"], np.arange(4.0))
            assert step.values == {"time": n / 2}
        assert n == 5
    np.testing.assert_array_equal(store["runs/a/flow/u"][4], W + 4)
    with pytest.raises(polyduct.Misuse, match="store:DIR/FOLDER"):
        polyduct.open(f"store:{tmp_path}/s", "w", arrays=held, **ALONE)


UNIT = """
import sys, numpy as np, polyduct
from polyduct import Array
path, unit = sys.argv[1], int(sys.argv[2])
# Of b the units have pieces so short that they put it together.
arrays = {"a": Array((8, 64), "f4", "block,*"), "b": Array((900, 64), "f4", "*,block")}
x = Array((polyduct.Open(5), 2), "i2")
if path.endswith(".npy"):
    arrays = {"x": x}
elif not path.endswith((".json", ".npz")):
    arrays["x"] = x
out = polyduct.open(path, "w", arrays=arrays, unit=unit, units=4, shard_bytes=3000)
print("open", flush=True)
sys.stdin.readline()
try:
    with out.step() as s:
        if "x" in s:
            s.bring("x", unit)
        for name in s:
            s[name][...] = unit + 1
    print("written", flush=True)
    sys.stdin.readline()
    out.close()
    print("closed", flush=True)
except polyduct.PeerLost as e:
    print("lost", e.unit, flush=True)
"""


class Units:
    """Four processes, which go on when they are told."""

    def __init__(self, path: object) -> None:
        command = [sys.executable, "-c", UNIT, str(path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.all: dict[int, Any] = {
            n: subprocess.Popen([*command, str(n)], text=True, **pipes) for n in range(4)  # type: ignore[call-overload]
        }

    def kill(self, unit: int) -> None:
        killed = self.all.pop(unit)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()

    def say(self) -> list[str]:
        return [unit.stdout.readline().strip() for unit in self.all.values()]

    def go(self) -> None:
        for unit in self.all.values():
            unit.stdin.write("\n")
            unit.stdin.flush()

    def __enter__(self) -> "Units":
        return self

    def __exit__(self, *_: object) -> None:
        for unit in self.all.values():
            unit.kill()
            unit.communicate()


REPLACED = ("m.safetensors.index.json", "m.npz", "m.zarr")


@pytest.mark.parametrize("name", [*REPLACED, "m.npy", "store"])
@pytest.mark.parametrize("killed", [None, 0, 2])
@pytest.mark.parametrize("early", [False, True])
def test_processes_write_a_set_or_none(tmp_path: Path, killed: int | None, name: str, early: bool) -> None:
    path: Path | str = tmp_path / name
    store = polyduct.Store.create(path, units=3, parity=1) if name == "store" else None
    if store is not None:
        path = f"store:{path}/set"
    # Where one is replaced, of another number of files or of the same, the old one is there until the new one is.
    old = {"a": Array((8, 64), "f4"), "b": Array((900, 64), "f4")} if name in REPLACED else None
    if old is not None:
        with polyduct.open(path, "w", arrays=old, shard_bytes=1 << 20 if killed == 2 else 3000, **ALONE) as out:
            out.write({"a": np.full((8, 64), 9, "f4"), "b": np.full((900, 64), 9, "f4")}, time=1)
    there = sorted(os.listdir(tmp_path))
    with Units(path) as units:
        assert units.say() == ["open"] * 4
        if killed is not None and early:
            units.kill(killed)
        units.go()
        said = units.say()
        if "written" in said:
            if killed is not None and not early:
                assert said == ["written"] * 4
                units.kill(killed)
            # Those to whom the news came before they had written have ended.
            ended = {n: words for n, words in zip(units.all, said) if words != "written"}
            for n in ended:
                units.kill(n)
            units.go()
            said = [*ended.values(), *units.say()]
    if killed is not None:
        assert said == [f"lost {killed}"] * 3
        assert list(store or []) == [] and sorted(os.listdir(tmp_path)) == there
        if old is not None:
            with polyduct.open(path, layouts="...", **ALONE) as port:
                step = port.read()
                assert step is not None and step.values == {"time": 1}
                assert all((step[name] == 9).all() for name in old)
        return
    assert said == ["closed"] * 4
    with polyduct.open(path, layouts="...", **ALONE) as port:
        step = port.read()
        assert step is not None
        if "x" in step or name == "m.npy":
            np.testing.assert_array_equal(step["m" if name == "m.npy" else "x"][:, 1], [2, 3, 3, 4, 4, 4])
        if "a" in step:
            np.testing.assert_array_equal(step["a"][:, 0], np.repeat([1, 2, 3, 4], 2))
            np.testing.assert_array_equal(step["b"], np.tile(np.repeat([1, 2, 3, 4], 16), (900, 1)))


OPENS = """
import resource, sys, polyduct
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
arrays = {f"a{n}": polyduct.Array((2, 500), "f4", "block,*") for n in range(200)}
polyduct.open(sys.argv[1], "w", arrays=arrays, shard_bytes=3000, unit=1, units=2, program="p", timeout=60)
"""


def test_who_ends_while_a_set_is_opened_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors.index.json"
    arrays = {f"a{n}": Array((2, 500), "f4", "block,*") for n in range(200)}
    with subprocess.Popen([sys.executable, "-c", OPENS, str(path)], stderr=subprocess.PIPE, text=True) as other:
        begin = time.monotonic()
        with pytest.raises((polyduct.PeerAborted, polyduct.PeerLost)):
            polyduct.open(path, "w", arrays=arrays, shard_bytes=3000, unit=0, units=2, program="p", timeout=60)
        assert time.monotonic() - begin < 50
        _, errors = other.communicate(timeout=60)
        assert "ulimit -n" in errors
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", REPLACED)
def test_who_reads_what_is_replaced_gets_one_version_or_an_error(tmp_path: Path, name: str) -> None:
    path, names = tmp_path / name, [f"l{n}/w" for n in range(8)]

    def write(version: int) -> None:
        held = {name: Array((100, 100), "f4") for name in names}
        options = {"shard_bytes": 40_000} if name.endswith("json") else {}
        with polyduct.open(path, "w", arrays=held, **ALONE, **options) as out:
            out.write({name: np.full((100, 100), version, "f4") for name in names}, version=version)

    write(1)
    writing = threading.Thread(target=lambda: [write(version) for version in range(2, 60)])
    writing.start()
    whole = 0
    while writing.is_alive():
        try:
            with polyduct.open(path, layouts="...", **ALONE) as port:
                step = port.read()
        except polyduct.Error:
            continue
        assert step is not None and sorted(step) == names
        assert {float(step[name].max()) for name in names} == {step.values["version"]}
        whole += 1
    writing.join()
    assert whole > 0
    assert sorted(os.listdir(tmp_path))[-1] == name


@pytest.mark.parametrize("name", ["m.safetensors.index.json", "m.npz", "m.zarr", "m.npy"])
def test_a_unit_that_gives_up_keeps_nobody_waiting(tmp_path: Path, name: str) -> None:
    arrays = {"x": Array((polyduct.Open(5), 2), "i2")} if name == "m.npy" else {"b": Array((900, 64), "f4", "*,block")}
    path, opened, told = tmp_path / name, threading.Barrier(2), []

    def unit(n: int) -> None:
        out = polyduct.open(path, "w", arrays=arrays, unit=n, units=2, program="two")
        opened.wait()
        if n == 1:
            out.abort()
            told.append(out)  # It is not collected yet.
            return
        part = np.zeros((3, 2), "i2") if name == "m.npy" else np.zeros((900, 32), "f4")
        try:
            out.write({next(iter(arrays)): part})
            out.close()
        except polyduct.Error as e:
            told.append(e)

    units = [threading.Thread(target=unit, args=(n,)) for n in range(2)]
    for one in units:
        one.start()
    for one in units:
        one.join(60)
        assert not one.is_alive()
    assert [type(e) for e in told if isinstance(e, Exception)] == [polyduct.PeerAborted], told
    assert os.listdir(tmp_path) == []


def write_particles(path: Path | str, only: str | None = None) -> list[dict[str, Any]]:
    """Three steps of particles and a mesh, whose sizes change, by one unit."""
    arrays: dict[str, Any] = {"p": {"x": Array((polyduct.Open(50), 3), "f4")}}
    if only is None:
        arrays |= {"mesh": Array((9, 4), "f8", "block,*", changes=True), "u": Array(2, "i2", "*")}
    steps = []
    with polyduct.open(path, "w", arrays=arrays, **ALONE) as out:
        for n, (many, shape) in enumerate([(5, (2, 4)), (0, (9, 1)), (50, (0, 3))]):
            step = {
                "p/x": np.arange(many * 3, dtype="f4").reshape(many, 3) + n,
                "mesh": np.arange(np.prod(shape), dtype="f8").reshape(shape) * n,
                "u": np.full(2, n, "i2"),
            }
            steps.append(step)
            if only is None:
                out.bring("mesh", shape)
                out.write(step, time=n / 2)
            else:
                out.write({"p/x": step["p/x"]})
    return steps


@pytest.mark.usefixtures("ends_threads")
def test_steps_whose_size_changes_are_one_array_that_says_where_each_begins(tmp_path: Path) -> None:
    polyduct.Store.create(tmp_path / "s", units=2)
    for path in (tmp_path / "m.zarr", f"store:{tmp_path}/s/run"):
        steps = write_particles(path)
        with polyduct.open(path, layouts={"p/x": "block,*", "mesh": "*,block", "u": "*"}, unit=0, units=2) as port:
            for n, step in enumerate(port):
                many = len(steps[n]["p/x"])
                np.testing.assert_array_equal(step["p/x"], steps[n]["p/x"][: -(-many // 2)])
                columns = steps[n]["mesh"].shape[1]
                np.testing.assert_array_equal(step["mesh"], steps[n]["mesh"][:, : -(-columns // 2)])
                assert step["u"].tolist() == [n, n] and step.values == {"time": n / 2}
            assert n == 2
        with polyduct.open(path, layouts={"p/*": "..."}, **ALONE) as port:
            sizes = []
            while (arrays := port.peek()) is not None:
                sizes.append(arrays["p/x"].shape)
                out = {"p/x": np.empty(arrays["p/x"].shape, "f4")}
                assert port.read(out) is not None
                np.testing.assert_array_equal(out["p/x"], steps[len(sizes) - 1]["p/x"])
            assert sizes == [(5, 3), (0, 3), (50, 3)]
    # Programs that know nothing of steps.
    path = tmp_path / "x.npy"
    steps = write_particles(path, "x")
    with path.open("rb") as file:
        x, begins = np.load(file), np.load(file)
    assert begins.tolist() == [0, 5, 5, 55]
    np.testing.assert_array_equal(np.load(path, mmap_mode="r"), x)
    for n, step in enumerate(np.split(x, begins[1:-1])):
        np.testing.assert_array_equal(step, steps[n]["p/x"])
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "m.zarr", mode="r")
    assert group["p/x"].attrs["polyduct_begins"] == [0, 5, 5, 55]
    np.testing.assert_array_equal(group["p/x"][5:55], steps[2]["p/x"])
    assert group["mesh"].attrs["polyduct_shapes"] == [[2, 4], [9, 1], [0, 3]]
    np.testing.assert_array_equal(group["mesh"][8:17], steps[1]["mesh"].ravel())


def test_two_arrays_of_numpy_in_a_file_are_one_where_the_second_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "two.npy"
    for second in (np.array([0, 2, 7]), np.array([0, 2, 6], "i4"), np.array([[0, 6]]), np.array(b"text")):
        with path.open("wb") as file:
            np.save(file, W[:6])
            np.save(file, second)
        assert len(list(polyduct.open(path, layouts="...", **ALONE))) == 1
    with path.open("wb") as file:
        np.save(file, W[:6])
        np.save(file, np.array([0, 2, 6]))
    with polyduct.open(path, layouts="...", **ALONE) as port:
        assert [step["two"].shape for step in port] == [(2, 8), (4, 8)]


def test_steps_whose_size_changes_are_copied_out_of_a_pipe_and_into_one(tmp_path: Path) -> None:
    """Each unit of the copy has another part of them than a unit of the writers."""
    command = [Path(sys.executable).parent / "polyduct", "cp", "--units", "2"]
    pipes, path = [f"pipe:cp-{n}-{os.getpid()}" for n in range(2)], tmp_path / "out.zarr"
    arrays = {"x": Array((polyduct.Open(12), 3), "f4"), "m": Array((6, 4), "i2", "block,*", changes=True)}

    def unit(n: int) -> None:
        with polyduct.open(pipes[0], "w", arrays=arrays, unit=n, units=3, program="writers", timeout=60) as out:
            for number in range(4):
                with out.step(time=number) as s:
                    s.bring("x", 3 * number + n if number != 2 else 0)[...] = 10 * number + n
                    s.bring("m", (number + 1, 4))[...] = number

    units = [threading.Thread(target=unit, args=(n,)) for n in range(3)]
    for one in units:
        one.start()
    subprocess.run([*command, pipes[0], path], check=True, timeout=60)
    for one in units:
        one.join()
    copy = subprocess.Popen([*command, path, pipes[1]])
    with polyduct.open(pipes[1], layouts={"x": "...", "m": "..."}, timeout=60, **ALONE) as port:
        for number, step in enumerate(port):
            many = [0 if number == 2 else 3 * number + n for n in range(3)]
            expected = np.repeat([10 * number + n for n in range(3)], many)
            np.testing.assert_array_equal(step["x"], np.tile(expected[:, None], (1, 3)).astype("f4"))
            assert step["m"].shape == (number + 1, 4) and step.values == {"time": number}
        assert number == 3
    assert copy.wait(60) == 0
