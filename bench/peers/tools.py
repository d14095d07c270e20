#!/usr/bin/env python3
"""Runs a measuring tool that has a server and a client of its own, and prints its figure as one line of JSON.

    tools.py ucx-latency|ucx-rate LEN UCX_PERFTEST     half of a round trip, or each message of a stream, of active messages
    tools.py tcp-stream BYTES IPERF3                   so many bytes on one connection

Server and client are kept to a processor each, as polyduct's processes are. Neither tool checks the bytes
that it moves, so `verified` is null.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

WAIT = 10.0  # seconds for a server to listen


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Whether somebody does, without connecting: the server would take that for its client."""
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        if any(row[1].endswith(":" + wanted) and row[3] == "0A" for row in rows):
            return True
    return False


def serve_and_ask(server: list[str], client: list[str], port: int) -> str:
    """What the client printed."""
    serving = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + WAIT
        while not listens(port):
            if serving.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"tools.py: {server[0]} does not listen")
            time.sleep(0.01)
        asked = subprocess.run(client, capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            raise SystemExit(
                f"tools.py: {client[0]} ended with {asked.returncode}: {asked.stderr.strip()[-300:]}"
            )
        return asked.stdout
    finally:
        serving.kill()
        serving.wait()


def ucx(mode: str, length: int, program: str, cpus: list[int]) -> float:
    test = {"ucx-latency": "ucp_am_lat", "ucx-rate": "ucp_am_bw"}[mode]
    times = max(200, min(100_000, (256 << 20) // max(length, 1)))
    port = free_port()
    common = [
        "-t",
        test,
        "-s",
        str(length),
        "-n",
        str(times),
        "-w",
        str(max(10, times // 10)),
        "-p",
        str(port),
    ]
    said = serve_and_ask(
        [program, *common, "-c", str(cpus[0])],
        [program, "127.0.0.1", *common, "-c", str(cpus[1 % len(cpus)]), "-f", "-v"],
        port,
    )
    heading, *rows = [line.split(",") for line in said.splitlines() if "," in line]
    row = dict(zip(heading, rows[-1], strict=False))
    if mode == "ucx-rate":
        return 1 / float(row["overall_mr"])
    # The tool's own median: its mean has what the scheduler did in it.
    return float(row["50.0_percentile_lat"]) * 1e-6


def iperf(total: int, program: str, cpus: list[int]) -> float:
    port = free_port()
    said = serve_and_ask(
        [program, "-s", "-1", "-p", str(port), "-A", str(cpus[0])],
        [program, "-c", "127.0.0.1", "-p", str(port), "-n", str(total), "-A", str(cpus[1 % len(cpus)]), "-J"],
        port,
    )
    end = json.loads(said)["end"]["sum_received"]
    return total * end["seconds"] / end["bytes"]


def main() -> None:
    if (
        len(sys.argv) != 4
        or sys.argv[1] not in ("ucx-latency", "ucx-rate", "tcp-stream")
        or not sys.argv[2].isdigit()
    ):
        raise SystemExit(__doc__)
    mode, number, program, cpus = sys.argv[1], int(sys.argv[2]), sys.argv[3], sorted(os.sched_getaffinity(0))
    seconds = iperf(number, program, cpus) if mode == "tcp-stream" else ucx(mode, number, program, cpus)
    line = {
        "case": mode,
        "n": 2,
        "bytes": number,
        "median_s": seconds,
        "min_s": seconds,
        "verified": None,
        "runs": 1,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
