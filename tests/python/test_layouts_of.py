"""Layouts and values of what other libraries hold, each compared with what the library itself gathers. The
libraries may be absent: ``make test-torch`` installs them aside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polyduct
import pytest
from polyduct import _dataset
from polyduct._grids import merged, text_of_boxes
from polyduct._held import Held

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples" / "libraries"
ABSENT = "{} is not installed; `make test-torch` runs this test with it"


def needs(module: str) -> None:
    pytest.importorskip(module, reason=ABSENT.format(module))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Program:
    """Processes of one program."""

    def __init__(self, *commands: Sequence[object], env: dict[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        environment = {**os.environ, **(env or {})}
        self.all = [
            subprocess.Popen([str(word) for word in words], stdout=pipe, stderr=pipe, text=True, env=environment)
            for words in commands
        ]

    def end(self) -> str:
        """What all have printed, once they have ended well."""
        said = ""
        for process in self.all:
            out, errors = process.communicate(timeout=100)
            assert process.returncode == 0, out + errors
            said += out
        return said

    def kill(self) -> None:
        for process in self.all:
            process.kill()
            process.communicate()


class Programs:
    """Those that a test has started."""

    def __init__(self) -> None:
        self.all: list[Program] = []

    def start(self, *commands: Sequence[object], env: dict[str, str] | None = None) -> Program:
        self.all.append(Program(*[[sys.executable, *words] for words in commands], env=env))
        return self.all[-1]

    def jax(self, units: int, role: str, *words: object) -> Program:
        needs("jax")
        port = free_port()
        return self.start(*[[HERE / "jax_units.py", role, n, units, port, *words] for n in range(units)])

    def mpi(self, units: int, *words: object, program: Path = HERE / "mpi_units.py") -> Program:
        needs("mpi4py")
        launcher = Path(sys.executable).with_name("mpiexec")
        if not launcher.exists():
            pytest.skip(ABSENT.format("an MPI"))
        # Open MPI asks for these of who runs as root, and where there are fewer cores.
        env = {f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")}
        env["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        self.all.append(Program([launcher, "-n", units, sys.executable, program, *words], env=env))
        return self.all[-1]

    def whole(self, url: str) -> Program:
        """The example that reads all of what another writes."""
        return self.start([EXAMPLES / "whole.py", url])


@pytest.fixture
def programs() -> Iterator[Programs]:
    """Starts programs; none is left at the end."""
    started = Programs()
    yield started
    for program in started.all:
        program.kill()


@pytest.mark.parametrize(
    ("text", "shape", "units"),
    [
        ("block[1],block[0]@2x3", (7, 6), 6),
        ("block[1],*@2x3", (7, 6), 6),
        ("balanced[0],cut(0,1,5)[1]@4x3", (10, 6), 12),
        ("block[1,0],*@2x2", (8, 6), 4),
        ("block[0,2],block[1]@2x2x2", (8, 6), 8),
        ("block[0],*@3", (5, 2), 3),
        ("boxes(0:1|-|1:2+3:4|2:3)", (4,), 4),
        ("boxes(0:1,0:2|1:2,0:1|1:2,1:2)", (2, 2), 3),
        ("...", (3,), 3),
    ],
)
def test_boxes_of_a_layout_give_it_again(text: str, shape: tuple[int, ...], units: int) -> None:
    layout = polyduct.Layout(text, shape=shape, units=units)
    boxes = [merged(layout.boxes(unit)) for unit in range(units)]
    assert text_of_boxes(shape, boxes) == text
    if units > 1 and text != "...":
        swapped = [boxes[1], boxes[0], *boxes[2:]]
        other = text_of_boxes(shape, swapped)
        again = polyduct.Layout(other, shape=shape, units=units)
        assert [merged(again.boxes(unit)) for unit in range(units)] == swapped


def test_layouts_are_what_objects_list() -> None:
    right = Held("the sharding", (4,), "f4", "block@2", 1, 2, [((2, 4),)])
    right.check()
    for wrong, why in [
        (
            right._replace(unit=0),
            r"'block@2' of the sharding gives unit 0 of 2 \[\(\(0, 2\),\)\], .*\(2, 4\),\)\]; say",
        ),
        (right._replace(text="block@3"), "the sharding would be the layout 'block@3': .*; say the layout"),
    ]:
        with pytest.raises(polyduct.Misuse, match=why):
            wrong.check()


def test_arrays_of_jax_are_held_as_jax_gathers_them(programs: Programs) -> None:
    said = programs.jax(4, "layouts").end()
    assert "one device, columns: *,block[1,0]@2x2" in said
    assert "one device, replicas: block[1]@2x2" in said
    assert "one device, backwards: boxes(6:8,0:6|4:6,0:6|2:4,0:6|0:2,0:6)" in said
    assert "all devices, both: block[0],*@4" in said
    assert "all devices, dealt: boxes(0:2,0:2+8:10,0:2|" in said
    assert "some processes: boxes(0:2|2:4|-|-)" in said


def test_arrays_of_jax_go_from_program_to_program(programs: Programs, pipe: str) -> None:
    writers = programs.jax(4, "write", pipe)
    readers = programs.jax(2, "read", pipe)
    readers.end()
    writers.end()


def test_values_of_jax_are_written_where_they_lie(programs: Programs, pipe: str) -> None:
    writers = programs.jax(2, "write", pipe)
    with polyduct.open(pipe, layouts="...", timeout=60) as port:
        step = port.read()
        assert step is not None
        for name, array in step.items():
            expected = np.arange(array.size).reshape(array.shape)
            np.testing.assert_array_equal(array.astype("i8"), expected, name)
    assert port.arrays["one device, rows"].dtype.name == "bfloat16"
    writers.end()


def test_datatypes_and_grids_of_mpi_are_held_as_mpi_takes_them(programs: Programs) -> None:
    assert "darrays 176" in programs.mpi(6, "darrays").end()
    said = programs.mpi(6, "subarrays").end()
    assert "rows C: block[0],*@6\n" in said and "rows F: block[0],*@6;order=F\n" in said
    programs.mpi(6, "grids").end()


def test_what_mpi_does_not_say_is_asked_for(programs: Programs) -> None:
    programs.mpi(6, "misuse").end()


def test_a_program_of_mpi_writes_what_its_grid_holds(programs: Programs, pipe: str) -> None:
    writers = programs.mpi(6, "write", pipe)
    with polyduct.open(pipe, layouts="...", unit=0, units=1, timeout=60) as port:
        step = port.read()
        assert step is not None
        for name, shape in [("u", (7, 5)), ("dealt", (9, 7))]:
            np.testing.assert_array_equal(step[name], np.arange(np.prod(shape)).reshape(shape), name)
    writers.end()


SUMS = [sum(i + j for i in range(300) for j in range(200)) + 300 * 200 * time for time in range(3)]


def check_whole(reader: Program, sums: Sequence[int]) -> None:
    said = reader.end().splitlines()
    assert [int(line.rpartition(" ")[2]) for line in said] == list(sums), said


@pytest.mark.parametrize(("module", "example"), [("distributed", "dask_actors.py"), ("ray", "ray_actors.py")])
def test_actors_are_units(module: str, example: str, programs: Programs, pipe: str) -> None:
    needs(module)
    reader = programs.whole(pipe)
    said = programs.start([EXAMPLES / example, pipe]).end()
    assert said.count("wrote") == 3, said
    check_whole(reader, SUMS)


def test_a_grid_of_mpi_is_an_example(programs: Programs, pipe: str) -> None:
    writers = programs.mpi(6, pipe, program=EXAMPLES / "mpi_grid.py")
    reader = programs.whole(pipe)
    said = writers.end()
    assert said.count("wrote rows") == 6, said
    check_whole(reader, SUMS)


def test_processes_of_jax_are_an_example(programs: Programs, pipe: str) -> None:
    needs("jax")
    reader, coordinator = programs.whole(pipe), f"localhost:{free_port()}"
    said = programs.start(*[[EXAMPLES / "jax_processes.py", pipe, n, 4, coordinator] for n in range(4)]).end()
    assert said.count("wrote block[0],*@4") == 4, said
    check_whole(reader, [sum(i + j for i in range(400) for j in range(100)) + 40_000 * time for time in range(3)])


@pytest.mark.usefixtures("ends_threads")
def test_chunks_of_dask_are_what_units_have(pipe: str) -> None:
    needs("dask.array")
    import dask.array as da

    whole = np.arange(77).reshape(7, 11)
    for chunks, text in [
        ((4, 11), "block[0],*@2"),
        (((2, 5), (3, 8)), "cut(0,2)[0],cut(0,3)[1]@2x2"),
        ((7, (4, 4, 3)), "*,block[0]@3"),
        (7, "*,cut(0,7)[0]@2"),
    ]:
        x = da.from_array(whole, chunks=chunks)
        held = polyduct.layout_of(x)
        layout = polyduct.Layout(held.layout or "", shape=whole.shape, units=x.npartitions)
        assert held.layout == text
        for unit, block in enumerate(x.blocks.ravel()):
            [box] = layout.boxes(unit)
            np.testing.assert_array_equal(whole[tuple(slice(*side) for side in box)], block.compute())
    unknown = x[x > 3]
    with pytest.raises(polyduct.Misuse, match="sizes that are not known"):
        polyduct.layout_of(unknown)
    # A process alone has all of it.
    def write() -> None:
        with polyduct.open(pipe, "w", arrays={"x": x}, unit=0, units=1) as out:
            out.write({"x": x})

    with ThreadPoolExecutor() as pool:
        written = pool.submit(write)
        with polyduct.open(pipe, layouts={"x": x}, unit=0, units=1, program="reader") as port:
            step = port.read()
            assert step is not None
            np.testing.assert_array_equal(step["x"], whole)
        written.result()


@pytest.mark.usefixtures("ends_threads")
def test_datasets_of_xarray_come_back(pipe: str, tmp_path: Path) -> None:
    needs("xarray")
    import xarray as xr

    days = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "M8[ns]")
    dataset = xr.Dataset(
        {"u": (("y", "x"), np.arange(12.0).reshape(3, 4), {"units": "K", "range": np.float32(1)}), "n": ((), 5)},
        {"x": np.arange(4) * 10.0, "y": days, "label": ("x", [1, 2, 3, 4])},
        {"title": "größe", "levels": np.array([1, 2])},
    )
    expected = dataset.assign_attrs(levels=[1, 2])
    expected["u"].attrs["range"] = 1.0

    def write() -> None:
        with polyduct.open(pipe, "w", arrays=dataset, unit=0, units=1) as out:
            out.write(dataset, time=0.5)
            with out.step(time=1.5) as filled:
                for name, array in _dataset.variables(dataset + 1).items():
                    filled[name][...] = array

    with ThreadPoolExecutor() as pool:
        written = pool.submit(write)
        with polyduct.open(pipe, layouts="...", unit=0, units=1, program="reader") as port:
            first, second = port.read(), port.read()
        assert first is not None and second is not None and first.values["time"] == 0.5
        xr.testing.assert_identical(first.dataset(), expected)
        np.testing.assert_array_equal(second.dataset()["u"], dataset["u"] + 1)
        written.result()
    for name in ("x.zarr", "x.npz", "x.safetensors.index.json"):
        with polyduct.open(tmp_path / name, "w", arrays=dataset, unit=0, units=1) as out:
            out.write(dataset)
        with polyduct.open(tmp_path / name, layouts="...", unit=0, units=1) as port:
            step = port.read()
            assert step is not None
            xr.testing.assert_identical(step.dataset(), expected)
    # xarray itself finds the Dataset in a group.
    with xr.open_zarr(tmp_path / "x.zarr", consolidated=False) as opened:
        del opened.attrs[_dataset.VALUE]
        xr.testing.assert_identical(opened.load(), expected)
    # A Dataset as what is wanted: all of it, coordinates too.
    with polyduct.open(tmp_path / "x.zarr", layouts=dataset, unit=0, units=1) as port:
        step = port.read()
        assert step is not None
        xr.testing.assert_identical(step.dataset(), expected)
    with pytest.raises(polyduct.Misuse, match="a Dataset is no array"):
        polyduct.layout_of(dataset)
    # Parts of a Dataset have parts of its coordinates; other arrays have dimensions of their own.
    layouts = {"u": "*,block", "x": "block", "label": "block", "*": "..."}
    with polyduct.open(tmp_path / "x.zarr", layouts=layouts, unit=1, units=2) as port:
        step = port.read()
        assert step is not None
        xr.testing.assert_identical(step.dataset(), expected.isel(x=slice(2, 4)))
    with polyduct.open(tmp_path / "y.npz", "w", arrays={"a/b": np.zeros((2, 3))}, unit=0, units=1) as out:
        out.write({"a/b": np.ones((2, 3))})
    with polyduct.open(tmp_path / "y.npz", layouts="...", unit=0, units=1) as port:
        step = port.read()
        assert step is not None and step.dataset()["a/b"].dims == ("a_b_dim_0", "a_b_dim_1")
    text = dataset.assign(names=("x", ["a", "b", "c", "d"]))
    with pytest.raises(polyduct.Misuse, match=r"'names' is text or objects .*drop_vars\('names'\)"):
        polyduct.open(pipe, "w", arrays=text, unit=0, units=1)


def test_parts_are_given_as_tensors(tmp_path: Path) -> None:
    needs("torch")
    import torch

    path = tmp_path / "x.npz"
    held = {"w": polyduct.Array((4, 3), "bfloat16"), "b": polyduct.Array(3, "f4")}
    with polyduct.open(path, "w", arrays=held, unit=0, units=1) as out, out.step() as step:
        step.torch("w").copy_(torch.arange(12, dtype=torch.bfloat16).reshape(4, 3))
        step.torch("b").fill_(2.5)
    with polyduct.open(path, layouts={"w": polyduct.Array(dtype="bfloat16"), "b": None}, unit=0, units=1) as port:
        found = port.read()
        assert found is not None
        w, b = found.torch("w"), found.torch("b")
        assert w.dtype == torch.bfloat16 and torch.equal(w, torch.arange(12, dtype=torch.bfloat16).reshape(4, 3))
        assert torch.equal(b, torch.full((3,), 2.5))
        # In the same memory.
        found["b"][...] = 7
        assert torch.equal(b, torch.full((3,), 7.0))
