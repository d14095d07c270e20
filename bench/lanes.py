"""Streams between sites: how much of several links of 50 MB/s, with 20 ms on the way, one stream fills.

Makes two network namespaces with a link for each lane, shaped by `tc` (needs root). Two units write at one site, three
read at the other, and check what came. Prints a table, or with --json its rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

RATE = 50e6
SHAPE = (2048, 4096)
HERE, THERE = f"pd-a-{os.getpid()}", f"pd-b-{os.getpid()}"


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
    for step, a in enumerate(polyduct.open(url, layout="*,balanced", unit=number, units=3, program="r", timeout=60)):
        assert (a[:: len(a) // 7] == step + 1).all(), "what came is what was sent"
        last = time.perf_counter()
        start = start or last
    print(json.dumps((steps - 1) * SHAPE[0] * SHAPE[1] / (last - start)))


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def links(count: int) -> bool:
    """Whether there is a delay on the way: not every kernel has that."""
    delayed = True
    for name in (HERE, THERE):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    for k in range(count):
        a, b = f"pda{k}", f"pdb{k}"
        ip("link", "add", a, "netns", HERE, "mtu", "9000", "type", "veth", "peer", "name", b, "netns", THERE, "mtu", "9000")
        for space, link, host in ((HERE, a, 1), (THERE, b, 2)):
            ip("-n", space, "addr", "add", f"10.77.{k}.{host}/24", "dev", link)
            ip("-n", space, "link", "set", link, "up")
        rate = ["rate", f"{RATE * 8:.0f}", "burst", "128kb", "limit", "16mb"]
        subprocess.run(["tc", "-n", HERE, "qdisc", "add", "dev", a, "root", "handle", "1:", "tbf", *rate], check=True)
        delay = ["netem", "delay", "20ms", "limit", "20000"]
        asked = subprocess.run(["tc", "-n", THERE, "qdisc", "add", "dev", b, "root", *delay], capture_output=True)
        delayed &= asked.returncode == 0
    return delayed


def once(lanes: int, steps: int) -> tuple[float, bool]:
    try:
        delayed = links(lanes)
        hosts = ",".join(f"10.77.{k}.2" for k in range(lanes))
        env = {**os.environ, "POLYDUCT_JOB_KEY": "5a" * 32}
        me = [sys.executable, __file__]

        def start(space: str, url: str, side: str, number: int) -> subprocess.Popen[str]:
            words = ["ip", "netns", "exec", space, *me, "unit", url, side, str(number), str(steps)]
            return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)

        readers = [start(THERE, "stream://:4200/bench", "r", k) for k in range(3)]
        writers = [start(HERE, f"stream://{hosts}:4200/bench?lanes={lanes}", "w", k) for k in range(2)]
        rates = [json.loads(r.communicate()[0]) for r in readers]
        assert [p.wait() for p in [*readers, *writers]] == [0] * 5
        return float(min(rates)), delayed
    finally:
        for name in (HERE, THERE):
            subprocess.run(["ip", "netns", "del", name], check=False)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--json", action="store_true")
    words.add_argument("--rounds", type=int, default=3)
    args = words.parse_args()
    rows = []
    for lanes in (1, 2, 4):
        runs = [once(lanes, 8 + 12 * lanes) for _ in range(args.rounds)]
        rate, way = statistics.median(rate for rate, _ in runs), "20 ms" if runs[0][1] else "no delay: no netem here"
        rows.append({"case": f"{lanes} lanes of 50 MB/s, {way}", "bytes/s": rate, "must": 0.93, "of the sum": rate / (lanes * RATE)})
    if args.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['case']:48} {row['bytes/s'] / 1e6:7.1f} MB/s {row['of the sum']:6.2f} of the sum   must {row['must']}")
    return int(any(row["of the sum"] < row["must"] for row in rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["unit"]:
        unit(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        sys.exit(main())
