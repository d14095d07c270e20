"""Streams against iperf3 and plain sockets: what four units send to one receiver over TCP, in rows and in
columns of 128 bytes, and as datagrams; two streams of a gateway against one; and from `write` to the first
byte at the receiver.

Prints a table, or with --json its rows. Figures are medians of several rounds, each with both sides; every
byte that the receiver takes is counted, and the first step is compared with what was sent. Of datagrams those
that leave are counted, since a receiver of either kind loses some.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

UNITS = 4
SHAPE = (4096, 16384)
#: Of a datagram, with the header before its data.
DATAGRAM, HEADER = 1420, 40


def unit(url: str, number: int, units: int, layout: str, steps: int) -> None:
    import polyduct

    with polyduct.open(
        url,
        "w",
        shape=SHAPE,
        dtype="u1",
        layout=layout,
        unit=number,
        units=units,
        program=url,
        depth=2,
        timeout=60,
    ) as out:
        for step in range(steps):
            with out.step() as a:
                if step < 2:
                    a[...] = number + 1
            if step == 1:
                start = time.perf_counter()
    if number == 0:
        # Two of them may have been on their way at the start.
        print(json.dumps({"rate": (steps - 2) * SHAPE[0] * SHAPE[1] / (time.perf_counter() - start)}))


def receive(layout: str, units: int, steps: int) -> None:
    """Takes everything, as iperf3 does, into one buffer; checks the first step, and times the rest."""
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    one, _ = server.accept()
    first = bytearray(SHAPE[0] * SHAPE[1])
    at = memoryview(first)
    while at:
        at = at[one.recv_into(at) :]
    check(np.frombuffer(first, "u1").reshape(SHAPE), layout, units)
    buffer, count, start = bytearray(128 << 10), 0, time.perf_counter()
    while some := one.recv_into(buffer):
        count += some
    assert count == (steps - 1) * len(first), "every step whole"
    print(json.dumps({"bytes": count, "start": start, "end": time.perf_counter()}))


def datagrams() -> None:
    """Takes datagrams until one says that there are no more; each of step 0 is checked."""
    receiver = socket.socket(type=socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(5)
    print(receiver.getsockname()[1], flush=True)
    buffer, count, some, own = bytearray(1 << 16), 0, HEADER, SHAPE[0] * SHAPE[1] // UNITS
    while some:
        some = receiver.recv_into(buffer)
        _, end, _, step, at = struct.unpack_from("<5sBHQQ", buffer)
        assert some == DATAGRAM or end or at + some - HEADER == SHAPE[0] * SHAPE[1]
        assert (
            step > 0
            or end
            or {buffer[HEADER], buffer[some - 1]} == {at // own + 1, (at + some - HEADER - 1) // own + 1}
        )
        count += some
        some = 0 if end else some
    print(json.dumps({"bytes": count}))


def first_byte(count: int) -> None:
    """Takes so many numbers, the times when they were sent, and asks for each; says how long they took.

    It does not sleep meanwhile: how long the system takes to wake a receiver, 5 to 70 us, is not the sender's.
    """
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    one, back = server.accept()[0], server.accept()[0]
    back.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setblocking(False)
    took = []
    for _ in range(count):
        while True:
            try:
                some = one.recv(8)
                break
            except BlockingIOError:
                pass
        now = time.perf_counter_ns()
        assert len(some) == 8
        took.append(now - struct.unpack("<q", some)[0])
        back.send(b"k")
    print(json.dumps({"us": statistics.median(took) / 1e3}))


def check(step: np.ndarray, layout: str, units: int) -> None:
    rows, columns = np.arange(SHAPE[0])[:, None], np.arange(SHAPE[1])[None, :]
    own = rows // (SHAPE[0] // units) if layout == "block,*" else columns // 128 % units
    assert (step == np.broadcast_to(own + 1, SHAPE)).all(), "what came is what was sent"


def start(*words: object) -> tuple[subprocess.Popen[str], str]:
    """One of the processes above, and what it says first."""
    process = subprocess.Popen(
        [sys.executable, __file__, *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip() if words[0] != "unit" else ""


def said(process: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = process.communicate()
    assert process.returncode == 0
    return dict(json.loads(out or "{}"))


def ours(layout: str, steps: int, units: int = UNITS, streams: int = 1, query: str = "") -> float:
    """Bytes in a second that the receivers of so many streams take together."""
    receivers = [start("receive", layout, units, steps) for _ in range(streams)]
    writers = [
        start("unit", f"tcp://127.0.0.1:{port}{query}", k, units, layout, steps)[0]
        for _, port in receivers
        for k in range(units)
    ]
    took = [said(one) for one, _ in receivers]
    for writer in writers:
        said(writer)
    seconds = max(t["end"] for t in took) - min(t["start"] for t in took)
    return sum(t["bytes"] for t in took) / seconds


def ours_udp(steps: int) -> float:
    receiver, port = start("datagrams")
    url = f"udp://127.0.0.1:{port}?packet={DATAGRAM - HEADER}"
    rates = [
        said(writer) for writer in [start("unit", url, k, UNITS, "block,*", steps)[0] for k in range(UNITS)]
    ]
    assert said(receiver)["bytes"] > 0
    return rates[0]["rate"] * DATAGRAM / (DATAGRAM - HEADER)


def one_and_two(steps: int) -> tuple[float, float]:
    """What a gateway of its own carries in one stream, and in two."""
    name = f"bench-{os.getpid()}"
    command = os.path.join(os.path.dirname(sys.executable), "polyduct")
    gateway = subprocess.Popen([command, "gateway", name], stderr=subprocess.PIPE, text=True)
    assert gateway.stderr is not None
    gateway.stderr.readline()
    try:
        one, two = (ours("block,*", steps, 1, streams, f"?gateway={name}") for streams in (1, 2))
        return one, two
    finally:
        gateway.terminate()
        gateway.communicate()


def latency(plain: bool, count: int = 3000) -> float:
    """Microseconds from `write`, or from a plain `send`, to the first byte at the receiver."""
    import polyduct

    receiver, port = start("first-byte", count)
    if plain:
        to = socket.create_connection(("127.0.0.1", int(port)))
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        out = polyduct.open(f"tcp://127.0.0.1:{port}", "w", shape=1, dtype="i8", layout="*")
    number = np.zeros(1, "i8")
    with socket.create_connection(("127.0.0.1", int(port))) as back:
        for _ in range(count):
            number[0] = time.perf_counter_ns()
            if plain:
                to.send(number.tobytes())
            else:
                out.write(number)
            assert back.recv(1) == b"k"
    to.close() if plain else out.close()
    return said(receiver)["us"]


def iperf(*how: str) -> float:
    """Bytes in a second that a server of it takes; of datagrams those that leave."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "--forceflush", "-p", port], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        pass
    asked = ["iperf3", "-c", "127.0.0.1", "-p", port, "-t", "2", "-J", *how]
    found = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
    server.communicate()
    return float(found["end"]["sum" if how else "sum_received"]["bits_per_second"]) / 8


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--json", action="store_true")
    words.add_argument("--rounds", type=int, default=5)
    args = words.parse_args()
    rows: list[dict[str, Any]] = []

    def row(case: str, ratios: list[float], of: str, must: float | None) -> None:
        rows.append({"case": case, "ratio": statistics.median(ratios), "of": of, "must": must})

    def each(*sides: Any) -> list[list[float]]:
        return [[side() for side in sides] for _ in range(args.rounds)]

    columns = "*,cyclic(128)"
    # The last two are for comparison: what the planner chooses of these depends on the processors.
    how = ["?reshuffle=yes", "?reshuffle=no"]
    shuffled = [lambda query=query: ours(columns, 40, query=query) for query in how]
    tcp = each(iperf, lambda: ours("block,*", 40), lambda: ours(columns, 40), *shuffled)
    row("4 units, rows, to one tcp:// receiver", [r / p for p, r, *_ in tcp], "iperf3", 0.85)
    row("4 units, columns of 128 bytes, to one tcp:// receiver", [c / p for p, _, c, *_ in tcp], "iperf3", 0.7)
    row("columns, reshuffled by the units", [y / p for p, *_, y, _ in tcp], "iperf3", None)
    row("columns, gathered by the gateway", [n / p for p, *_, n in tcp], "iperf3", None)
    udp = each(
        lambda: iperf("-u", "-b", "0", "-l", str(DATAGRAM)), lambda: ours_udp(20), lambda: ours("block,*", 20)
    )
    row(
        f"4 units, rows, to udp://, datagrams of {DATAGRAM} bytes",
        [u / p for p, u, _ in udp],
        "iperf3 -u",
        0.9,
    )
    row("the same", [u / t for _, u, t in udp], "tcp://", None)
    streams = [one_and_two(30) for _ in range(args.rounds)]
    row("two streams of a gateway together", [two / one for one, two in streams], "one stream", 0.95)
    sent = each(lambda: latency(False), lambda: latency(True))
    row(
        "8 bytes, from write to the first byte at the receiver",
        [w / p for w, p in sent],
        "a plain socket",
        None,
    )
    rows[-1]["us"] = statistics.median(w for w, _ in sent)
    rows[-1]["at most"] = 50
    if args.json:
        print(json.dumps(rows))
    else:
        for r in rows:
            must = f"must {r['must']}" if r["must"] else ""
            extra = f"{r['us']:.1f} us, must be at most {r['at most']}" if "us" in r else ""
            print(f"{r['case']:58} {r['ratio']:6.2f} of {r['of']:16} {must}{extra}")
    return int(any(r["ratio"] < (r["must"] or 0) or r.get("us", 0) > r.get("at most", 0) for r in rows))


ROLES: dict[str, Callable[..., None]] = {
    "unit": lambda url, number, units, layout, steps: unit(url, int(number), int(units), layout, int(steps)),
    "receive": lambda layout, units, steps: receive(layout, int(units), int(steps)),
    "datagrams": datagrams,
    "first-byte": lambda count: first_byte(int(count)),
}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
