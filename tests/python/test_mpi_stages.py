"""Stages that MPI starts, with a launcher that only counts. `make test-mpi` has real ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import COMMAND

#: Starts so many processes as -n says, tells each which it is, and ends as the first does that ends badly.
LAUNCHER = """\
#!/bin/bash
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi
while [ "$1" != -n ]; do shift; done
ranks=$2
shift 2
for ((i = 0; i < ranks; i++)); do OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$((ranks + MORE)) "$@" & done
for ((i = 0; i < ranks; i++)); do wait -n || { status=$?; kill $(jobs -p); wait; exit $status; }; done
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    path = tmp_path / "mpirun"
    path.write_text(LAUNCHER)
    path.chmod(0o755)
    return path


def run(text: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, "run", "--timeout", "60s", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_each_rank_is_a_unit(launcher: Path) -> None:
    done = run(f"MORE=0 -n 3 --mpi={launcher} sh -c 'echo $POLYDUCT_UNIT of $POLYDUCT_UNITS of $OMPI_MCA_pml'")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{i} of 3 of cm" for i in range(3)]


def test_the_launcher_that_is_asked_is_the_one_that_is_started(launcher: Path) -> None:
    """It is on the stage's own path, and another MPI's than any that the run finds."""
    mpich = LAUNCHER.replace("mpirun (Open MPI) 4.1.4", "HYDRA Version: 5.0.2").replace("OMPI_COMM_WORLD", "PMI")
    launcher.write_text(mpich)
    stage = f"PATH={launcher.parent}:/usr/bin:/bin MORE=0 -n 2 --mpi sh -c 'echo $MPIR_CVAR_CH4_NETMOD'"
    done = run(stage)
    assert done.returncode == 0 and done.stdout.split() == ["ofi", "ofi"], done.stderr


@pytest.mark.parametrize(
    ("end", "status", "what"),
    [("kill -9 $$", 137, "was killed by SIGKILL"), ("exit 7", 7, "exited with status 7")],
)
def test_the_rank_that_fails_is_named_and_ends_all(launcher: Path, end: str, status: int, what: str) -> None:
    """The others wait for what never comes, as the next stage does."""
    rank = f"if [ $POLYDUCT_UNIT = 1 ]; then {end}; fi; exec tail -f /dev/null"
    done = run(f"MORE=0 -n 3 --mpi={launcher} sh -c '{rank}' | -n 2 tail -f /dev/null")
    assert done.returncode == status, done.stderr
    assert "unit 1 (pid " in done.stderr and f"{what}; ended the other" in done.stderr, done.stderr


def test_a_launcher_that_fails_or_starts_nobody_is_named(launcher: Path) -> None:
    launcher.write_text(LAUNCHER.replace("shift 2", "exit 9"))
    done = run(f"-n 3 --mpi={launcher} true")
    assert done.returncode == 9 and "the launcher of stage 0 (true) (pid " in done.stderr, done.stderr
    launcher.write_text(LAUNCHER.replace("shift 2", "exit 0"))
    done = run(f"-n 3 --mpi={launcher} true")
    assert done.returncode == 1 and "unit 0 was never started: its launcher ended" in done.stderr, done.stderr


def test_a_launcher_that_starts_other_ranks_than_were_asked_for_is_refused(launcher: Path) -> None:
    done = run(f"MORE=1 -n 2 --mpi={launcher} true")
    assert done.returncode == 1 and "expected one of 2 ranks, as -n says" in done.stderr, done.stderr
