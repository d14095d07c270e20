"""Stages of a pipeline that MPI starts: `polyduct run "-n 4 --mpi ./solver | ..."`."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import COMMAND, HERE, LIBRARIES, Programs, environment, segments, tool

COLUMNS = f"{sys.executable} {HERE / 'columns.py'}"


def start(text: str, folder: Path, *options: str, **more: str) -> subprocess.Popen[str]:
    """A pipeline in a folder, where MPI keeps its files, too."""
    return subprocess.Popen(
        [COMMAND, "run", *options, "--timeout", "100s", text],
        cwd=folder,
        env=environment(TMPDIR=str(folder), **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stage(library: str, ranks: int, *command: object) -> str:
    return f"-n {ranks} --mpi={tool(library, 'mpirun')} {' '.join(map(str, command))}"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_are_the_units_of_their_stage(
    library: str, ranks: int, program: Programs, tmp_path: Path
) -> None:
    rows = stage(library, ranks, program[library, "rows"])
    job = start(f"{rows} | -n 2 {COLUMNS} > out.npy", tmp_path, "--stats")
    _, said = job.communicate(timeout=120)
    assert job.returncode == 0, said
    array = np.load(tmp_path / "out.npy")
    owner = np.concatenate([np.full(len(part), i) for i, part in enumerate(np.array_split(range(12), ranks))])
    for t, step in enumerate(array):
        expected = 1000 * owner + 10 * ((owner - 1) % ranks) + t
        assert (step == expected[:, None]).all(), (t, step)
    assert array.shape == (4, 12, 5)
    assert re.search(rf"stage 0 → stage 1 +4 +0 .* {ranks} ", said), said
    assert os.listdir(tmp_path) == ["out.npy"], "nothing else remains"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_run_within_a_rank_of_another_job_has_its_own(
    library: str, program: Programs, tmp_path: Path
) -> None:
    outer = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "7", "PMI_RANK": "1", "PMI_SIZE": "5"}
    job = start(f"{stage(library, 2, program[library, 'rows'])} > out.npy", tmp_path, **outer)
    _, said = job.communicate(timeout=120)
    assert job.returncode == 0 and np.load(tmp_path / "out.npy").shape == (4, 12, 5), said


def test_the_launcher_of_the_path_is_taken_where_none_is_named(program: Programs, tmp_path: Path) -> None:
    path = f"{Path(tool('mpich', 'mpirun')).parent}{os.pathsep}{os.environ['PATH']}"
    text = f"-n 2 --mpi {program['mpich', 'rows']} > out.npy"
    done = subprocess.run([COMMAND, "run", text], cwd=tmp_path, env=environment(PATH=path), timeout=100)
    assert done.returncode == 0 and np.load(tmp_path / "out.npy").shape == (4, 12, 5)


def waiting(library: str, program: Programs, folder: Path) -> tuple[subprocess.Popen[str], dict[int, int]]:
    """A pipeline whose first stage waits, and the processes of that by their ranks."""
    rows = stage(library, 3, program[library, "rows"], "wait")
    job = start(f"{rows} | -n 2 {COLUMNS} > out.npy", folder)
    assert job.stdout is not None
    ranks: dict[int, int] = {}
    while len(ranks) < 3:
        line = job.stdout.readline()
        assert line, job.communicate(timeout=60)[1]
        if found := re.search(r"rank (\d) is (\d+)", line):
            ranks[int(found[1])] = int(found[2])
    return job, ranks


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_ends_the_pipeline(
    library: str, victim: int, program: Programs, tmp_path: Path
) -> None:
    before = segments()
    job, ranks = waiting(library, program, tmp_path)
    watched = [os.pidfd_open(rank) for rank in ranks.values()]
    begin = time.monotonic()
    os.kill(ranks[victim], signal.SIGKILL)
    _, said = job.communicate(timeout=60)
    took = time.monotonic() - begin
    # The units of its own stage and of the next, and the launcher.
    who = rf"stage 0 \(.*rows.* wait\) unit {victim} \(pid {ranks[victim]}\) was killed by SIGKILL; "
    assert job.returncode == 137 and re.search(who + "ended the other 5 processes", said), said
    assert took < 3, took
    for rank in watched:
        assert select.select([rank], [], [], 0)[0], "a rank outlives the run"
        os.close(rank)
    assert segments() <= before
    assert os.listdir(tmp_path) == [], "neither MPI nor the run leaves a file"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_a_run_is_that_of_its_ranks(
    library: str, end: signal.Signals, program: Programs, tmp_path: Path
) -> None:
    job, ranks = waiting(library, program, tmp_path)
    watched = [os.pidfd_open(rank) for rank in ranks.values()]
    job.send_signal(end)
    for rank in watched:
        assert select.select([rank], [], [], 10)[0], "a rank outlives the run"
        os.close(rank)
    _, said = job.communicate(timeout=60)
    if end == signal.SIGINT:
        assert job.returncode == 130 and "interrupted (SIGINT)" in said, said
        assert os.listdir(tmp_path) == [], "neither MPI nor the run leaves a file"
    else:
        assert job.returncode == -9


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_rank_that_fails_is_named_and_not_those_that_mpi_then_kills(
    library: str, program: Programs, tmp_path: Path
) -> None:
    rows = stage(library, 3, program[library, "rows"], "fail")
    job = start(f"{rows} | -n 2 {COLUMNS} > out.npy", tmp_path)
    _, said = job.communicate(timeout=60)
    who = r"rows.* fail\) unit 2 \(pid \d+\) exited with status 7"
    assert job.returncode == 7 and re.search(who, said), said


def test_what_cannot_start_says_so(tmp_path: Path) -> None:
    for text, expected, status in [
        ("-n 2 --mpi=mpirun.mpich true", "its device is ch4:ucx", 1),
        ("-n 2 --mpi=true true", "is no launcher of MPICH or Open MPI", 1),
        ("-n 2 --mpi=no-such-mpirun true", "command not found: no-such-mpirun", 127),
        ("--mpi true", "--mpi needs a number of ranks", 2),
        (f"-n 2 --mpi='{tool('mpich', 'mpirun')} --so' true", "the launcher of stage 0 (true) (pid", 255),
    ]:
        job = start(text, tmp_path)
        _, said = job.communicate(timeout=60)
        assert job.returncode == status and expected in said, (text, job.returncode, said)
