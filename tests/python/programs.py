"""Programs in C, C++ and Fortran, built as users build theirs, and run beside Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import ROOT

import polyduct

SOURCES = ROOT / "tests/c"
CONFIG = polyduct.config()
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
C = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-pthread"]
CPP = ["g++", "-std=c++14", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"]
# What gfortran says of text that is allocated on assignment is about its own code.
FORTRAN = ["gfortran", "-std=f2008", "-Wall", "-Wextra", "-Werror", "-g", "-Wno-maybe-uninitialized"]
FORTRAN += ["-Wno-compare-reals"]
# Open MPI's C++ interface, which nobody needs, has warnings of its own.
MPICXX = ["mpicxx", *CPP[1:], "-DOMPI_SKIP_MPICXX"]
TOOLS = {"gcc": "gcc", "g++": "g++", "gfortran": "gfortran", "mpicc": "libopenmpi-dev"}
TOOLS |= {"mpirun": "openmpi-bin", "pkg-config": "pkg-config"}


def missing() -> list[str]:
    """Debian's packages of the compilers that are not there."""
    return [package for tool, package in TOOLS.items() if shutil.which(tool) is None]


def build(where: Path, compiler: list[str], *sources: Path) -> Path:
    """Compiles and links a program; what the compiler warns of is an error."""
    program = where / f"{sources[-1].stem}-{sources[-1].suffix[1:]}"
    command = [*compiler, *CONFIG.cflags, f"-I{SOURCES}", *map(str, sources), *CONFIG.libs]
    command += ["-o", str(program)]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return program


def build_fortran(where: Path, source: Path) -> Path:
    """The same with the module, which is compiled first."""
    return build(where, FORTRAN, Path(CONFIG.fortran), source)


class Program:
    """A program that runs: its lines one by one, or its end."""

    def __init__(self, *command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        self.command = [str(word) for word in command]
        self.process = subprocess.Popen(
            self.command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        """Lets it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, status: int = 0) -> str:
        """Waits for its end, which has this status: what else it said."""
        out, err = self.process.communicate(timeout=100)
        assert self.process.returncode == status, f"{self.command}: {self.process.returncode}\n{out}{err}"
        return out if status == 0 else out + err


@contextmanager
def running(*programs: Program) -> Iterator[tuple[Program, ...]]:
    """None of them is left at the end."""
    try:
        yield programs
    finally:
        for one in programs:
            if one.process.poll() is None:
                one.process.kill()
            one.process.wait()
            for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
                if stream is not None:
                    stream.close()


def run(*command: object, cwd: Path | None = None) -> str:
    """Runs a program to its end, which is a good one."""
    with running(Program(*command, cwd=cwd)) as [program]:
        return program.end()
