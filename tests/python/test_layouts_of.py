"""Layouts and values of what other libraries hold, each compared with what the library itself gathers. The
libraries may be absent: ``make test-torch`` installs them aside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polyduct
import pytest
from polyduct._grids import merged, text_of_boxes
from polyduct._held import Held

HERE = Path(__file__).parent
ABSENT = "{} is not installed; `make test-torch` runs this test with it"


def needs(module: str) -> None:
    pytest.importorskip(module, reason=ABSENT.format(module))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Processes:
    """Processes of one program, started by hand."""

    def __init__(
        self,
        *commands: list[object],
        program: Sequence[str] = (sys.executable,),
        env: dict[str, str] | None = None,
    ) -> None:
        pipe = subprocess.PIPE
        self.all = [
            subprocess.Popen([*program, *map(str, words)], stdout=pipe, stderr=pipe, text=True, env=env)
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


@pytest.fixture
def jax_program() -> Iterator[Callable[..., Processes]]:
    """Starts programs of JAX; none is left at the end."""
    needs("jax")
    started = []

    def start(units: int, role: str, *words: object) -> Processes:
        port = free_port()
        started.append(
            Processes(*[[HERE / "jax_units.py", role, n, units, port, *words] for n in range(units)])
        )
        return started[-1]

    yield start
    for program in started:
        program.kill()


def mpiexec(units: int, *words: object) -> Processes:
    """A program of MPI."""
    needs("mpi4py")
    launcher = Path(sys.executable).with_name("mpiexec")
    if not launcher.exists():
        pytest.skip(ABSENT.format("an MPI"))
    # Open MPI asks for these of who runs as root, and where there are fewer cores.
    env = {f"OMPI_ALLOW_RUN_AS_ROOT{end}": "1" for end in ("", "_CONFIRM")} | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    command = [launcher, "-n", units, sys.executable, HERE / "mpi_units.py", *words]
    return Processes(command, program=(), env={**os.environ, **env})


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


def test_arrays_of_jax_are_held_as_jax_gathers_them(jax_program: Callable[..., Processes]) -> None:
    said = jax_program(4, "layouts").end()
    assert "one device, columns: *,block[1,0]@2x2" in said
    assert "one device, replicas: block[1]@2x2" in said
    assert "one device, backwards: boxes(6:8,0:6|4:6,0:6|2:4,0:6|0:2,0:6)" in said
    assert "all devices, both: block[0],*@4" in said
    assert "all devices, dealt: boxes(0:2,0:2+8:10,0:2|" in said
    assert "some processes: boxes(0:2|2:4|-|-)" in said


def test_arrays_of_jax_go_from_program_to_program(jax_program: Callable[..., Processes], pipe: str) -> None:
    writers = jax_program(4, "write", pipe)
    readers = jax_program(2, "read", pipe)
    readers.end()
    writers.end()


def test_values_of_jax_are_written_where_they_lie(jax_program: Callable[..., Processes], pipe: str) -> None:
    writers = jax_program(2, "write", pipe)
    with polyduct.open(pipe, layouts="...", timeout=60) as port:
        step = port.read()
        assert step is not None
        for name, array in step.items():
            expected = np.arange(array.size).reshape(array.shape)
            np.testing.assert_array_equal(array.astype("i8"), expected, name)
    assert port.arrays["one device, rows"].dtype.name == "bfloat16"
    writers.end()


def test_datatypes_and_grids_of_mpi_are_held_as_mpi_takes_them() -> None:
    assert "darrays 176" in mpiexec(6, "darrays").end()
    said = mpiexec(6, "subarrays").end()
    assert "rows C: block[0],*@6\n" in said and "rows F: block[0],*@6;order=F\n" in said
    mpiexec(6, "grids").end()


def test_what_mpi_does_not_say_is_asked_for() -> None:
    mpiexec(6, "misuse").end()


def test_a_program_of_mpi_writes_what_its_grid_holds(pipe: str) -> None:
    writers = mpiexec(6, "write", pipe)
    with polyduct.open(pipe, layouts="...", unit=0, units=1, timeout=60) as port:
        step = port.read()
        assert step is not None
        for name, shape in [("u", (7, 5)), ("dealt", (9, 7))]:
            np.testing.assert_array_equal(step[name], np.arange(np.prod(shape)).reshape(shape), name)
    writers.end()
