"""HPC Challenge, as Debian has it: solving, transposing, random access, transforms, bandwidth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jobs import FAR, run

#: Ranks, and the grid that they are.
GRIDS = [(1, 1, 1), (2, 1, 2), (4, 2, 2)]
#: The lines of its input, each with a word behind it that hpcc does not read.
INPUT = """\
HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out  output file name (if any)
8        device out (6=stdout,7=stderr,file)
1        # of problems sizes (N)
{order}  Ns
1        # of NBs
32       NBs
0        PMAP process mapping (0=Row-,1=Column-major)
1        # of process grids (P x Q)
{rows}   Ps
{columns} Qs
16.0     threshold
1        # of panel fact
2        PFACTs (0=left, 1=Crout, 2=Right)
1        # of recursive stopping criterium
4        NBMINs (>= 1)
1        # of panels in recursion
2        NDIVs
1        # of recursive panel fact.
1        RFACTs (0=left, 1=Crout, 2=Right)
1        # of broadcast
1        BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1        # of lookahead depth
1        DEPTHs (>=0)
2        SWAP (0=bin-exch,1=long,2=mix)
64       swapping threshold
0        L1 in (0=transposed,1=no-transposed) form
0        U  in (0=transposed,1=no-transposed) form
1        Equilibration (0=no,1=yes)
8        memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0        Number of additional problem sizes for PTRANS
1200     values of N
0        number of additional blocking sizes for PTRANS
40       values of NB
"""


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
