"""Streams against iperf3: what four units send to one receiver over TCP, in rows and in columns of 128 bytes.

Prints a table, or with --json its rows. Figures are ratios within one run, medians of several rounds; every byte that
the receiver takes is counted, and the first step is compared with what was sent.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time

import numpy as np

UNITS = 4
SHAPE = (4096, 16384)


def unit(port: int, number: int, layout: str, steps: int, reshuffle: str) -> None:
    import polyduct

    url = f"tcp://127.0.0.1:{port}" + (f"?reshuffle={reshuffle}" if reshuffle else "")
    with polyduct.open(
        url, "w", shape=SHAPE, dtype="u1", layout=layout, unit=number, units=UNITS, program=f"bench-{port}", depth=2
    ) as out:
        for step in range(steps):
            with out.step() as a:
                if step < 2:
                    a[...] = number + 1


def receive(layout: str, steps: int) -> None:
    """Takes everything, as iperf3 does, into one buffer; says how fast, after the first step, which is checked."""
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    one, _ = server.accept()
    first = bytearray(SHAPE[0] * SHAPE[1])
    at = memoryview(first)
    while at:
        at = at[one.recv_into(at) :]
    check(np.frombuffer(first, "u1").reshape(SHAPE), layout)
    buffer, count, start = bytearray(128 << 10), 0, time.perf_counter()
    while some := one.recv_into(buffer):
        count += some
    seconds = time.perf_counter() - start
    assert count == (steps - 1) * len(first), "every step whole"
    print(json.dumps({"rate": count / seconds}))


def check(step: np.ndarray, layout: str) -> None:
    rows, columns = np.arange(SHAPE[0])[:, None], np.arange(SHAPE[1])[None, :]
    own = rows // (SHAPE[0] // UNITS) if layout == "block,*" else columns // 128 % UNITS
    assert (step == np.broadcast_to(own + 1, SHAPE)).all(), "what came is what was sent"


def ours(layout: str, reshuffle: str, steps: int) -> float:
    me = [sys.executable, __file__]
    receiver = subprocess.Popen([*me, "receive", layout, str(steps)], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    port = receiver.stdout.readline().strip()
    units = [subprocess.Popen([*me, "unit", port, str(k), layout, str(steps), reshuffle]) for k in range(UNITS)]
    rate = json.loads(receiver.stdout.readline())["rate"]
    assert [p.wait() for p in [*units, receiver]] == [0] * (UNITS + 1)
    return float(rate)


def iperf() -> float:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    server = subprocess.Popen(["iperf3", "-s", "-1", "--forceflush", "-p", port], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        pass
    asked = ["iperf3", "-c", "127.0.0.1", "-p", port, "-t", "2", "-J"]
    found = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
    server.communicate()
    return float(found["end"]["sum_received"]["bits_per_second"]) / 8


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--json", action="store_true")
    words.add_argument("--rounds", type=int, default=5)
    args = words.parse_args()
    rows = []
    # The last two, for comparison: what the planner would not have chosen, whatever it chose.
    columns = "*,cyclic(128)"
    cases: list[tuple[str, str, str, float | None]] = [
        ("rows", "block,*", "", 0.85),
        ("columns of 128 bytes", columns, "", 0.7),
        ("columns, reshuffled by the units", columns, "yes", None),
        ("columns, gathered by the gateway", columns, "no", None),
    ]
    rounds: dict[str, list[float]] = {name: [] for name, *_ in cases}
    for _ in range(args.rounds):
        peer = iperf()
        for name, layout, reshuffle, _ in cases:
            rounds[name].append(ours(layout, reshuffle, 40) / peer)
    for name, layout, _, must in cases:
        ratio = statistics.median(rounds[name])
        rows.append({"case": f"4 units, {name}, to one tcp:// receiver", "layout": layout, "must": must, "of iperf3": ratio})
    if args.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            must = f"must {row['must']}" if row["must"] else "for comparison"
            print(f"{row['case']:62} {row['of iperf3']:6.2f} of iperf3   {must}")
    return int(any(row["must"] and row["of iperf3"] < row["must"] for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["unit"]:
        unit(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6])
    elif sys.argv[1:2] == ["receive"]:
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
