"""What the tests of this folder share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import COMMAND, HERE, LIBRARIES, Programs, tool


@pytest.fixture(scope="session", autouse=True)
def swept() -> Iterator[None]:
    """Takes away the memory that MPICH leaves of the ranks that tests have killed, unless another job maps it."""
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    yield
    left = set(Path("/dev/shm").glob("mpich_shm_*")) - before
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped = maps.read_text()
        except OSError:
            continue
        left = {path for path in left if str(path) not in mapped}
    for path in left:
        path.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The programs of this folder, compiled for each library."""
    made, folder = {}, tmp_path_factory.mktemp("programs")
    ask = [COMMAND, "config", "--cflags", "--libs"]
    flags = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
    for library in LIBRARIES:
        for source in HERE.glob("*.c"):
            out = made[library, source.stem] = folder / f"{source.stem}.{library}"
            compiler = tool(library, "mpicc")
            own = flags if "polyduct.h" in source.read_text() else []
            subprocess.run([compiler, "-O2", "-Wall", "-Werror", source, *own, "-o", out], check=True)
    return made
