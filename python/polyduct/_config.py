"""Where the library for C and Fortran is, as compilers take it: what ``polyduct config`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Config(NamedTuple):
    """Where the header, the library and the Fortran module are. Text is without a shell's quotes."""

    include: str
    """The directory of ``polyduct.h``, of ``polyduct_mpi.h`` and of ``polyduct.f90``: ``-I``."""
    lib: str
    """The directory of ``libpolyduct.so``: ``-L``, and ``-Wl,-rpath,``."""
    fortran: str
    """The source of the Fortran module, which is compiled with the program."""
    pkg_config: str
    """The directory of ``polyduct.pc``: ``PKG_CONFIG_PATH``."""

    @property
    def cflags(self) -> list[str]:
        """What the compiler needs to find the header."""
        return [f"-I{self.include}"]

    @property
    def libs(self) -> list[str]:
        """What the linker needs."""
        return [f"-L{self.lib}", "-lpolyduct", f"-Wl,-rpath,{self.lib}"]


def config() -> Config:
    """Says where the library for C and Fortran is, for who builds programs with it."""
    package = Path(__file__).resolve().parent
    include, lib = package / "include", package / "lib"
    return Config(str(include), str(lib), str(include / "polyduct.f90"), str(lib / "pkgconfig"))
