"""Streams between sites: how much of several links of 50 MB/s, with 10 ms on the way in either direction (20
ms there and back), one stream fills.

Makes two network namespaces and a link for each lane, whose packets a program of `crates/rig` carries (needs
root and /dev/net/tun; few kernels have `netem`). Two units write at one site, three read at the other, and
check what came. Beside it stands what plain sockets get over the same links, one each. Prints a table, or with
--json its rows.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

RATE = 50e6
DELAY_MS = 10
#: What a lane must bring, and what it is to bring.
MUST, AIM = 0.93, 0.97
SHAPE = (2048, 4096)
STEP = SHAPE[0] * SHAPE[1]
HERE, THERE = f"pd-a-{os.getpid()}", f"pd-b-{os.getpid()}"
PORT = 4200
#: Longer than this nothing takes here.
LIMIT_S = 120


def unit(url: str, side: str, number: int, steps: int) -> None:
    import polyduct

    if side == "w":
        with polyduct.open(
            url, "w", shape=SHAPE, dtype="u1", layout="block,*", unit=number, units=2, program="w", timeout=60
        ) as out:
            for step in range(steps):
                with out.step() as a:
                    a[...] = step + 1
        return
    start, last = 0.0, 0.0
    port = polyduct.open(url, layout="*,balanced", unit=number, units=3, program="r", timeout=60)
    for step, a in enumerate(port):
        assert (a[:: len(a) // 7] == step + 1).all(), "what came is what was sent"
        last = time.perf_counter()
        start = start or last
    print(json.dumps((steps - 1) * STEP / (last - start)))


def plain(side: str, lanes: int, steps: int) -> None:
    """A socket for each link; like a stream's, the first step does not count. Who sends says how long it takes
    to connect, which is the way there and back."""
    most, room = steps * STEP // lanes, STEP // lanes
    ends: list[float] = []
    ways: list[float] = []
    barrier = threading.Barrier(lanes + 1)

    def send(k: int) -> None:
        begun = time.perf_counter()
        with socket.create_connection((f"10.77.{k}.2", PORT), timeout=LIMIT_S) as to:
            ways.append(time.perf_counter() - begun)
            data = bytes(1 << 20)
            for at in range(0, most, len(data)):
                to.sendall(data[: most - at])
            to.shutdown(socket.SHUT_WR)
            assert to.recv(1) == b""

    def receive(one: socket.socket) -> None:
        with one:
            into, had = bytearray(1 << 20), 0
            while had < room:
                had += one.recv_into(into)
            barrier.wait()
            while n := one.recv_into(into):
                had += n
            ends.append(time.perf_counter())
            assert had == most, "all that was sent"

    if side == "w":
        threads = [threading.Thread(target=send, args=(k,)) for k in range(lanes)]
    else:
        server = socket.create_server(("", PORT))
        print("ready", flush=True)
        threads = [threading.Thread(target=receive, args=(server.accept()[0],)) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    if side == "r":
        barrier.wait()
        start = time.perf_counter()
    for thread in threads:
        thread.join()
    print(json.dumps(lanes * (most - room) / (max(ends) - start) if side == "r" else min(ways)))


def told_to_end(*_: object) -> None:
    # Once: what is being taken away then is taken away.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def emulator() -> str:
    """The program that carries packets."""
    top = Path(__file__).parent.parent
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "-p", "polyduct-rig", "--example", "ways"]
    subprocess.run(cargo, cwd=top, check=True)
    return str(top / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "examples" / "ways")


def links(program: str, count: int) -> subprocess.Popen[str]:
    for name in (HERE, THERE):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    words = ["ip", "netns", "exec", HERE, program, str(count), str(RATE), str(DELAY_MS)]
    ways = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert ways.stdout
        mtu = ways.stdout.readline().removeprefix("ready ").strip()
        for k in range(count):
            ip("-n", HERE, "link", "set", f"pdb{k}", "netns", THERE)
            for space, link, host in ((HERE, f"pda{k}", 1), (THERE, f"pdb{k}", 2)):
                ip("-n", space, "addr", "add", f"10.77.{k}.{host}/24", "dev", link)
                ip("-n", space, "link", "set", link, "mtu", mtu, "up")
    except BaseException:
        ways.kill()
        raise
    return ways


def start(space: str, *words: object) -> subprocess.Popen[str]:
    env = {**os.environ, "POLYDUCT_JOB_KEY": "5a" * 32}
    command = ["ip", "netns", "exec", space, sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def ended(*programs: subprocess.Popen[str]) -> list[str]:
    try:
        said = [p.communicate(timeout=LIMIT_S)[0] for p in programs]
    finally:
        for p in programs:
            p.kill()
    assert [p.wait() for p in programs] == [0] * len(programs)
    return said


def once(program: str, lanes: int) -> tuple[float, float, float]:
    """Bytes a second of a stream, and of plain sockets, and how long the way is there and back."""
    ways, steps = None, 8 + 20 * lanes
    try:
        ways = links(program, lanes)
        server = start(THERE, "plain", "r", lanes, steps)
        assert server.stdout and server.stdout.readline() == "ready\n"
        bare, way = map(float, ended(server, start(HERE, "plain", "w", lanes, steps)))
        hosts = ",".join(f"10.77.{k}.2" for k in range(lanes))
        into, out = f"stream://:{PORT}/bench", f"stream://{hosts}:{PORT}/bench?lanes={lanes}"
        readers = [start(THERE, "unit", into, "r", k, steps) for k in range(3)]
        writers = [start(HERE, "unit", out, "w", k, steps) for k in range(2)]
        return min(float(said) for said in ended(*readers, *writers)[:3]), bare, way
    finally:
        if ways:
            ways.kill()
            ways.wait()
        for name in (HERE, THERE):
            subprocess.run(["ip", "netns", "del", name], check=False)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--json", action="store_true")
    words.add_argument("--rounds", type=int, default=3)
    args = words.parse_args()
    signal.signal(signal.SIGTERM, told_to_end)
    program = emulator()
    rows: list[dict[str, Any]] = []
    for lanes in (1, 2, 4):
        runs = [once(program, lanes) for _ in range(args.rounds)]
        rate, bare, way = (statistics.median(run[n] for run in runs) for n in range(3))
        total = lanes * RATE
        case = f"{lanes} lanes of 50 MB/s, {way * 1e3:.1f} ms there and back"
        shares = {"of the sum": rate / total, "plain sockets, of the sum": bare / total}
        rows.append({"case": case, "bytes/s": rate, "must": MUST, "aim": AIM, **shares})
    if args.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(
                f"{row['case']:44} {row['bytes/s'] / 1e6:7.1f} MB/s {row['of the sum']:6.3f} of the sum"
                f"   plain sockets {row['plain sockets, of the sum']:6.3f}"
                f"   must {row['must']}, aim {row['aim']}"
            )
    return int(any(row["of the sum"] < row["must"] for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["unit"]:
        unit(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    elif sys.argv[1:2] == ["plain"]:
        plain(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
