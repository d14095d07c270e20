"""What the tests of this folder share."""

from __future__ import annotations

import subprocess

import pytest
from jobs import COMMAND, HERE, LIBRARIES, Programs, tool


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
