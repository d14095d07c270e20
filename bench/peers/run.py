#!/usr/bin/env python3
"""Runs the peers that setup.sh has put in place and prints what they took, as a JSON list.

    run.py                                       every default case on every peer
    run.py --case rows-cols-4096x4096-f32-n2     one case (a pattern such as 'pipe-*' chooses among the default ones)
    run.py --peer openmpi --repeat 5 --list

Cases name what is moved, so that any size can be asked for:

    FROM-TO-ROWSxCOLS-TYPE-nN      within a communicator; FROM, TO: rows cols block; TYPE: u8 i16 f32 f64
    cyclicA-cyclicB-NxN-TYPE-nN    block-cyclic with AxA blocks to BxB blocks; TYPE: f32 f64
    pipe-ROWSxCOLS-f32             steps from one program to another
    message-latency-LEN            a message of LEN bytes there and back; the time is one way
    array-latency-LEN              an array of LEN bytes there and back from Python; the time is one way
    array-latency-LEN-busy         the same beside a process that computes, nothing bound to a core
    array-put-get-LEN              LEN bytes put into another's window from Python and got back; the time is of both (-busy, too)
    message-rate-LEN               a stream of such messages; the time is that of each
    tcp-stream-BYTES               so many bytes on one TCP connection on loopback
    file-write-ZxYxX-i32-nN        a new file in --dir, collectively from 3-D blocks, till it is durable
    file-read-ZxYxX-i32-nN         the same file, with nothing of it in the cache

Each record has peer, case, n, bytes, median_s, min_s, gb_per_s (bytes over median), verified (null of tools
that check nothing) and runs. A peer that is not there has `missing` and the reason, one that failed `failed`;
both have no figures and are not verified. The status is 1 if any failed. Each run has a time bound and a
folder of its own, and whatever it started or left is gone when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
ELEMENT_BYTES = {"u8": 1, "i16": 2, "f32": 4, "f64": 8}
MARK = "POLYDUCT_PEER_RUN"  # in the environment of all that a run starts, with a value of its own
FOREIGN = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MPIR_", "MPICH_", "HYDRA_", "HYDI_", "SLURM_")
SEGMENTS = ("mpich_shm_*", "mpich_shar_tmp*", "ucx_shm_posix_*")  # in /dev/shm

DEFAULT_CASES = [
    *(
        f"{pair}-4096x4096-f32-n{n}"
        for pair in ("rows-cols", "rows-rows", "rows-block", "block-cols")
        for n in (2, 4)
    ),
    *(f"rows-cols-1024x1024-u8-n{n}" for n in (2, 4)),
    *(f"{pair}-4096x4096-f32-n{n}" for pair in ("cyclic64-cyclic96", "cyclic96-cyclic64") for n in (2, 4)),
    "pipe-4096x4096-f32",
    "bundle4-4096x4096-f32",
    *(f"message-{what}-{length}" for what in ("latency", "rate") for length in (8, 1 << 20)),
    "array-latency-8",
    "array-latency-8-busy",
    "array-put-get-8",
    "tcp-stream-1073741824",
    *(f"file-{way}-256x512x512-i32-n{n}" for way in ("write", "read") for n in (4, 8)),
]

WITHIN = re.compile(r"(rows|cols|block)-(rows|cols|block)-(\d{1,7})x(\d{1,7})-(u8|i16|f32|f64)-n(\d{1,3})")
CYCLIC = re.compile(r"cyclic(\d{1,6})-cyclic(\d{1,6})-(\d{1,6})x(\d{1,6})-(f32|f64)-n(\d{1,3})")
PIPE = re.compile(r"pipe-(\d{1,7})x(\d{1,7})-f32")
BUNDLE = re.compile(r"bundle(\d{1,2})-(\d{1,7})x(\d{1,7})-f32")
MESSAGE = re.compile(r"message-(latency|rate)-(\d{1,8})")
ARRAY = re.compile(r"array-(latency|put-get)-(\d{1,8})(-busy)?")
STREAM = re.compile(r"tcp-stream-(\d{1,12})")
COLLECTIVE = re.compile(r"file-(write|read)-(\d{1,6})x(\d{1,6})x(\d{1,6})-i32-n(\d{1,3})")
FORMS = (WITHIN, CYCLIC, PIPE, BUNDLE, MESSAGE, ARRAY, STREAM, COLLECTIVE)
UNCHECKED = ("ucx", "iperf3")  # tools that check nothing they move


@dataclasses.dataclass(frozen=True)
class Job:
    """One program run, and what its output is called: `cases` maps the program's name of a case to ours."""

    peer: str
    n: int
    bytes: int
    command: tuple[str, ...]
    cases: dict[str, str] = dataclasses.field(hash=False)


def jobs_of(
    case: str, peers: pathlib.Path, repeat: int, timeout: float, scratch: Scratch | None
) -> list[Job]:
    """What every peer that can do `case` would run; empty if the name says nothing."""
    if match := WITHIN.fullmatch(case):
        source, target, rows, cols, kind, n = match.groups()
        elem = ELEMENT_BYTES[kind]
        program = (source, target, rows, cols, str(elem), str(repeat))
        size = int(rows) * int(cols) * elem
        named = {f"{source}-{target}": case}
        return [
            Job("openmpi", int(n), size, (*openmpi(peers / "venv/bin/mpiexec", n, "btl_sm_backing_directory", scratch),
                                          str(peers / "bin/alltoallw-openmpi"), *program), named),
            Job("mpich", int(n), size, (str(peers / "mpich/bin/mpiexec"), "-n", n, "-bind-to", "none",
                                        str(peers / "bin/alltoallw-mpich"), *program), named),
        ]  # fmt: skip
    if (match := CYCLIC.fullmatch(case)) and match[3] == match[4]:
        a, b, extent, _, kind, n = match.groups()
        elem, count = ELEMENT_BYTES[kind], int(n)
        rows = max((r for r in range(1, count + 1) if count % r == 0 and r * r <= count), default=1)
        program = (str(rows), str(count // rows), extent, a, b, str(elem), str(repeat))
        launcher = openmpi(peers / "bin/gemr2d-mpirun", n, "btl_vader_backing_directory", scratch)
        named = {f"cyclic{a}-cyclic{b}": case}
        return [
            Job(
                "scalapack",
                count,
                int(extent) ** 2 * elem,
                (*launcher, str(peers / "bin/gemr2d"), *program),
                named,
            )
        ]
    bundle = BUNDLE.fullmatch(case)
    if match := bundle or PIPE.fullmatch(case):
        *variables, rows, cols = match.groups()
        common = ("drive", f"--rows={rows}", f"--cols={cols}", f"--steps={repeat}", f"--timeout={timeout}")
        common += tuple(f"--variables={n}" for n in variables)
        python = str(peers / "venv/bin/python")
        size = int(rows) * int(cols) * 4
        return [
            Job(peer, 2, size, (python, "-B", str(HERE / script), *common, *more), {"bundle" if bundle else "pipe": case})
            for peer, script, more in (
                ("adios2-sst", "pipe_sst.py", ()),
                ("adios2-sst-reuse", "pipe_sst.py", ("--reuse-memory",)),
                ("zmq-ipc", "pipe_zmq.py", ()),
                ("zmq-ipc-reuse", "pipe_zmq.py", ("--reuse-memory",)),
            )
            if not (bundle and script == "pipe_zmq.py")
        ]
    if match := MESSAGE.fullmatch(case):
        mode, length = match.groups()
        named = {mode: case}
        program = (mode, length, str(repeat))
        mpiexec = openmpi(peers / "venv/bin/mpiexec", "2", "btl_sm_backing_directory", scratch, spin=True)
        tool = (
            sys.executable,
            "-B",
            str(HERE / "tools.py"),
            f"ucx-{mode}",
            length,
            str(peers / "bin/ucx_perftest"),
        )
        return [
            Job("openmpi", 2, int(length), (*mpiexec, str(peers / "bin/message-openmpi"), *program), named),
            Job("mpich", 2, int(length), (str(peers / "mpich/bin/mpiexec"), "-n", "2", "-bind-to", "none",
                                          str(peers / "bin/message-mpich"), *program), named),
            Job("ucx", 2, int(length), tool, {f"ucx-{mode}": case}),
        ]  # fmt: skip
    if match := ARRAY.fullmatch(case):
        mode, length, busy = match.groups()
        mpiexec = openmpi(peers / "venv/bin/mpiexec", "2", "btl_sm_backing_directory", scratch, spin=True)
        program = (str(peers / "venv/bin/python"), "-B", str(HERE / "message_mpi4py.py"), length, str(repeat))
        more = [option for option, given in (("--put-get", mode == "put-get"), ("--busy", busy)) if given]
        return [
            Job(
                "mpi4py",
                2,
                int(length),
                (*mpiexec, *program, *more),
                {"put-get" if mode == "put-get" else "array": case},
            )
        ]
    if match := STREAM.fullmatch(case):
        tool = (
            sys.executable,
            "-B",
            str(HERE / "tools.py"),
            "tcp-stream",
            match[1],
            str(peers / "bin/iperf3"),
        )
        return [Job("iperf3", 2, int(match[1]), tool, {"tcp-stream": case})]
    if match := COLLECTIVE.fullmatch(case):
        way, planes, rows, cols, n = match.groups()
        program = (way, planes, rows, cols, str(scratch.on_disk() if scratch else "."), str(repeat))
        size = int(planes) * int(rows) * int(cols) * 4
        launcher = openmpi(peers / "venv/bin/mpiexec", n, "btl_sm_backing_directory", scratch)
        return [
            Job("openmpi", int(n), size, (*launcher, str(peers / "bin/mpiio-openmpi"), *program), {way: case}),
            Job("mpich", int(n), size, (str(peers / "mpich/bin/mpiexec"), "-n", n, "-bind-to", "none",
                                        str(peers / "bin/mpiio-mpich"), *program), {way: case}),
        ]  # fmt: skip
    return []


def openmpi(
    launcher: pathlib.Path, n: str, backing_directory: str, scratch: Scratch | None, spin: bool = False
) -> tuple[str, ...]:
    """Unbound, as polyduct runs, and yielding while it waits: that costs nothing while cores are free, and
    much less else. Programs that take a core each do not yield (`spin`)."""
    command = [str(launcher), "-n", n, "--oversubscribe", "--bind-to", "none"]
    command += ["--mca", "mpi_yield_when_idle", "0" if spin else "1"]
    if scratch and scratch.shm:
        command += ["--mca", backing_directory, str(scratch.shm)]
    return tuple(command)


def state_of(peers: pathlib.Path) -> dict[str, tuple[str, str]]:
    """What setup.sh found: peer -> (ok or missing, version or reason)."""
    try:
        lines = (peers / "status.tsv").read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        peer, state, text = line.split("\t", 2)
        found[peer] = (state, text)
    return found


def why_missing(job: Job, state: dict[str, tuple[str, str]]) -> str | None:
    known = state.get(job.peer.removesuffix("-reuse"))
    if known is None:
        return "not set up (bench/peers/setup.sh)"
    if known[0] != "ok":
        return known[1]
    for part in job.command:
        if (
            part.startswith(os.sep)
            and "=" not in part
            and not part.startswith("/dev/")
            and not os.path.exists(part)
        ):
            return f"{part} is gone (bench/peers/setup.sh)"
    return None


class Scratch:
    """The folders of one run, in the temporary directory, in shared memory and on the disk to measure, and
    what may have been left elsewhere."""

    def __init__(self, disk: pathlib.Path) -> None:
        self.disk = disk
        self.measured: pathlib.Path | None = None
        self.began = time.time() - 1
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pd-peer-"))
        self.shm: pathlib.Path | None = None
        with contextlib.suppress(OSError):
            self.shm = pathlib.Path(tempfile.mkdtemp(prefix="pd-peer-", dir="/dev/shm"))

    def on_disk(self) -> pathlib.Path:
        """A folder on the disk to measure, made where a case needs one."""
        if not self.measured:
            self.measured = pathlib.Path(tempfile.mkdtemp(prefix=".pd-peer-", dir=self.disk))
        return self.measured

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.measured:
            shutil.rmtree(self.measured, ignore_errors=True)
        if self.shm:
            shutil.rmtree(self.shm, ignore_errors=True)
        for left in self.abandoned():
            with contextlib.suppress(OSError):
                left.unlink()

    def abandoned(self) -> list[pathlib.Path]:
        """The peers' segments of this user, no older than this run, that no process has mapped or open: MPICH
        takes no folder for them, and leaves them when it is killed."""
        left = []
        for name in SEGMENTS:
            for path in pathlib.Path("/dev/shm").glob(name):
                with contextlib.suppress(OSError):
                    status = path.lstat()
                    if status.st_uid == os.getuid() and status.st_mtime >= self.began:
                        left.append(path)
        if not left:
            return []
        used: set[str] = set()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                used.update(
                    line.split(maxsplit=5)[-1] for line in (process / "maps").read_text().splitlines()
                )
                used.update(os.readlink(fd) for fd in (process / "fd").iterdir())
        return [path for path in left if str(path) not in used]


def marked(mark: str) -> list[int]:
    """The processes that carry a run's mark, wherever they have been moved to."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if wanted in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def end(process: subprocess.Popen, mark: str) -> None:
    """Ends the group that was started, gently and then not, and after it what left the group (MPI's ranks
    do)."""
    for how, grace in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    until = time.monotonic() + 5
    while (left := marked(mark)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def execute(command: tuple[str, ...], scratch: Scratch, timeout: float) -> tuple[list[dict], str | None]:
    """The JSON lines that a command printed, or why there are none to trust."""
    mark = uuid.uuid4().hex
    environment = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    environment |= {
        MARK: mark,
        "TMPDIR": str(scratch.folder),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    for key in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD"):
        environment.pop(key, None)
    out_path, err_path = scratch.folder / "stdout", scratch.folder / "stderr"
    with out_path.open("wb") as out, err_path.open("wb") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=scratch.folder,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end(process, mark)
    if status is None:
        return [], f"not done after {timeout:g} s"
    if status != 0:
        said = err_path.read_text(errors="replace").split("\n")
        return [], f"status {status}: " + " / ".join(line for line in said if line.strip())[-400:]
    lines = []
    for line in out_path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
    return lines, None


def record(job: Job, case: str, **more: object) -> dict:
    empty = {"median_s": None, "min_s": None, "gb_per_s": None, "verified": False, "runs": 0}
    return {"peer": job.peer, "case": case, "n": job.n, "bytes": job.bytes, **empty, **more}


def measure(job: Job, version: str, scratch: Scratch, timeout: float) -> list[dict]:
    lines, failure = execute(job.command, scratch, timeout)
    by_case = {line.get("case"): line for line in lines}
    records = []
    for said, case in job.cases.items():
        line = by_case.get(said)
        if failure or line is None:
            records.append(record(job, case, failed=failure or "printed no result"))
        elif (
            line.get("verified") is not (None if job.peer in UNCHECKED else True)
            or line.get("bytes") != job.bytes
        ):
            records.append(record(job, case, failed="the result was not verified"))
        else:
            kept = ("median_s", "min_s", "mean_s", "median_own_s", "verified", "runs")
            figures = {key: line[key] for key in kept if key in line}
            figures["gb_per_s"] = job.bytes / line["median_s"] / 1e9
            records.append(record(job, case, **figures, version=version))
    return records


def chosen(patterns: list[str] | None) -> list[str]:
    if not patterns:
        return DEFAULT_CASES
    cases: list[str] = []
    for pattern in patterns:
        if any(c in pattern for c in "*?["):
            hits = fnmatch.filter(DEFAULT_CASES, pattern)
        else:
            hits = [pattern] if any(form.fullmatch(pattern) for form in FORMS) else []
        if not hits:
            raise SystemExit(f"run.py: no case is called {pattern}; see --list and --help")
        cases += [hit for hit in hits if hit not in cases]
    return cases


def grouped(jobs: list[Job]) -> list[Job]:
    """ScaLAPACK's program measures both directions in one run: ask once where both are wanted."""
    merged: list[Job] = []
    for job in jobs:
        for other in merged:
            if (
                job.peer == other.peer == "scalapack"
                and (job.n, job.bytes, job.command[-2:]) == (other.n, other.bytes, other.command[-2:])
                and job.command[-4:-2] == other.command[-3:-5:-1]
                and job.command[:-4] == other.command[:-4]
            ):
                other.cases.update(job.cases)
                break
        else:
            merged.append(job)
    return merged


def terminated(*_: object) -> None:
    raise SystemExit(143)  # runs the finally blocks


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", help="a case or a pattern; may be repeated")
    parser.add_argument("--peer", action="append", help="only this peer or pattern; may be repeated")
    parser.add_argument("--repeat", type=int, default=11, help="repetitions or steps that are timed (11)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for each program (60)")
    parser.add_argument(
        "--peers", type=pathlib.Path, default=HERE.parent.parent / ".peers", help="what setup.sh made"
    )
    parser.add_argument(
        "--dir", type=pathlib.Path, default=".", help="on the disk that files are written to (.)"
    )
    parser.add_argument("--list", action="store_true", help="print case, peer and its state, and run nothing")
    parser.add_argument("--json", action="store_true", help="print JSON (always so)")
    args = parser.parse_args()
    if args.repeat < 1 or args.timeout <= 0:
        parser.error("--repeat and --timeout are positive")
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, terminated)

    peers = args.peers.resolve()
    state = state_of(peers)
    cases = chosen(args.case)

    def wanted(scratch: Scratch | None) -> list[Job]:
        jobs = [job for case in cases for job in jobs_of(case, peers, args.repeat, args.timeout, scratch)]
        return [j for j in jobs if not args.peer or any(fnmatch.fnmatch(j.peer, p) for p in args.peer)]

    if args.list:
        for job in wanted(None):
            reason = why_missing(job, state)
            for case in job.cases.values():
                text = f"missing: {reason}" if reason else state[job.peer.removesuffix("-reuse")][1]
                print(f"{case}\t{job.peer}\t{text}")
        return 0

    records: list[dict] = []
    scratch = Scratch(args.dir.resolve())
    try:
        jobs = grouped(wanted(scratch))
        if not jobs:
            raise SystemExit("run.py: no peer does that case; see --list")
        for job in jobs:
            if reason := why_missing(job, state):
                records += [record(job, case, missing=reason) for case in job.cases.values()]
            else:
                version = state[job.peer.removesuffix("-reuse")][1]
                records += measure(job, version, scratch, args.timeout)
    finally:
        scratch.remove()
    print("[" + ",\n ".join(json.dumps(r) for r in records) + "]")
    return 1 if any("failed" in r for r in records) else 0


if __name__ == "__main__":
    sys.exit(main())
