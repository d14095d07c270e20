"""HPC Challenge, as Debian has it: solving, transposing, random access, transforms, bandwidth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jobs import FAR, HERE, run

#: Ranks, and the grid that they are.
GRIDS = [(1, 1, 1), (2, 1, 2), (4, 2, 2)]
#: Its input, where some numbers lack. hpcc does not read the words behind the numbers.
INPUT = (HERE / "hpccinf.txt").read_text()


def check(ranks: int, rows: int, columns: int, folder: Path, order: int, **more: str) -> None:
    (folder / "hpccinf.txt").write_text(INPUT.format(order=order, rows=rows, columns=columns))
    run("debian", ranks, "hpcc", cwd=folder, seconds=300, **more)
    said = (folder / "hpccoutf.txt").read_text()
    figures = dict(re.findall(r"^(\w+)=(.*)$", said, re.MULTILINE))
    assert figures["Success"] == "1" and figures["CommWorldProcs"] == str(ranks)
    assert "FAILED" not in said
    # The solution of a system of equations, and five transposes.
    assert re.search(r"\|\|Ax-b\|\|\S+= +\S+ \.+ PASSED", said)
    assert "5 tests completed and passed residual checks" in said
    assert figures["HPL_N"] == str(order) and float(figures["PTRANS_residual"]) < 16
    assert figures["MPIRandomAccess_Errors"] == figures["MPIRandomAccess_LCG_Errors"] == "0"
    for which in ["StarFFT", "SingleFFT", "MPIFFT"]:
        assert float(figures[f"{which}_Gflops"]) > 0
    assert 0 < float(figures["MPIFFT_maxErr"]) < 1e-12


@pytest.mark.parametrize(("ranks", "rows", "columns"), GRIDS)
def test_every_test_of_hpcc_passes(ranks: int, rows: int, columns: int, tmp_path: Path) -> None:
    check(ranks, rows, columns, tmp_path, 1000)


def test_every_test_of_hpcc_passes_by_the_network(tmp_path: Path) -> None:
    check(2, 1, 2, tmp_path, 200, **FAR)
