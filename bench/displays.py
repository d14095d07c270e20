"""Displays in a headless Chromium: four 1080p arrays in lock step, an array of 4 GiB that units reduce, and
what viewers cost the program, one of which takes nothing.

Prints a table, or with --json its rows; medians of several rounds. Pages say themselves which step each of
their views shows. Memory is what a process has for itself (RssAnon), beside the program's slots. Where there
is no memory for the slots of the large array its rows are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

UNITS, EDGE = 4, 32768
NAME = "bench"
#: Bytes of frames that a page keeps to step back, and what a page has beside them.
HISTORY, PAGE = 256 << 20, 256 << 20
#: Pictures of a viewer's screen, two of them on the way, for everybody, and buffers of a gateway.
GATEWAY = 64 << 20


def cameras(port: int) -> None:
    """Four arrays that change in every step, 60 times in a second if that goes, until it is told to end."""
    import polyduct

    arrays = {n: polyduct.Array((1080, 1920), "f4", "block,*") for n in "abcd"}
    at = np.add.outer(np.arange(1080, dtype="f4") / 300, np.arange(1920, dtype="f4") / 100)
    with polyduct.open(f"display://:{port}/{NAME}", "w", arrays=arrays, timeout=60) as out:
        step, start = 0, time.monotonic()
        # Whoever closes the other end wants no more.
        while not select.select([sys.stdin], [], [], max(0.0, start + step / 60 - time.monotonic()))[0]:
            with out.step() as s:
                for n in "abcd":
                    # All of it at first, and then as much as takes no time that viewers need.
                    (s[n] if step < 6 else s[n][:8])[...] = np.sin(at if step < 6 else at[:8] + step)
            step += 1


def huge(port: int, unit: int, gateway: str) -> None:
    import polyduct

    with polyduct.open(
        f"display://:{port}/{NAME}?gateway={gateway}",
        "w",
        shape=(EDGE, EDGE),
        dtype="f4",
        layout="block,*",
        unit=unit,
        units=UNITS,
        program=f"huge-{port}",
        timeout=120,
    ) as out:
        step, rows = 0, EDGE // UNITS
        while True:
            with out.step() as a:
                # All of each slot at first.
                a[slice(None) if step < 3 else slice(step % rows, step % rows + 16)] = step % 7
            step += 1
            time.sleep(0.02)


def steps(port: int) -> None:
    """Writes steps without a pause; says for each line that it gets how long one took since the last."""
    import polyduct

    with polyduct.open(
        f"display://:{port}/{NAME}", "w", shape=(512, 512), dtype="f4", layout="*,*", timeout=60
    ) as out:
        step = np.zeros((512, 512), "f4")
        while True:
            took: list[float] = []
            while len(took) < 1000 or not select.select([sys.stdin], [], [], 0)[0]:
                begin = time.perf_counter()
                out.write(step)
                took.append(time.perf_counter() - begin)
                step += 1
            if not sys.stdin.readline():
                break
            print(statistics.median(took) * 1e6, flush=True)


@contextmanager
def program(*words: object) -> Iterator[list[subprocess.Popen[str]]]:
    """The units of one of those above, until this is left."""
    units = UNITS if words[0] == "huge" else 1
    all_words = [[*words[:2], k, *words[2:]] if units > 1 else [*words] for k in range(units)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([sys.executable, __file__, *map(str, w)], **pipes) for w in all_words]
    try:
        yield running
    finally:
        # Units would have to agree on the last step. Stopped ones do not complain of each other's death.
        for number in (signal.SIGSTOP, signal.SIGKILL) if units > 1 else ():
            for one in running:
                one.send_signal(number)
        for one in running:
            one.communicate()
            assert one.returncode == (-signal.SIGKILL if units > 1 else 0)


@contextmanager
def page(port: int) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
        # Somebody listens a little before there is something.
        shown_at(port)
        while (answer := tab.goto(f"http://127.0.0.1:{port}/{NAME}")) is None or answer.status != 200:
            time.sleep(0.1)
        tab.wait_for_function("window.polyduct && polyduct.state().frames > 5", timeout=120_000)
        yield tab
        browser.close()


def frames(tab: Any, seconds: float) -> tuple[float, int]:
    """Frames that are drawn in a second, and by how many steps views differ at most."""
    found = tab.evaluate(
        """seconds => new Promise(done => {
            const start = performance.now(), first = polyduct.state().frames;
            let skew = 0;
            const look = () => {
                const state = polyduct.state(), shown = state.views.map(view => view.step);
                skew = Math.max(skew, Math.max(...shown) - Math.min(...shown));
                const took = (performance.now() - start) / 1000;
                if (took > seconds) return done([(state.frames - first) / took, skew]);
                requestAnimationFrame(look);
            };
            look();
        })""",
        seconds,
    )
    return float(found[0]), int(found[1])


def own_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def renderer(browser_of: int) -> int:
    """Memory of the largest of a browser's renderers, which is the page's."""
    found = subprocess.run(["pgrep", "-f", "type=renderer"], capture_output=True, text=True).stdout.split()
    return max(own_memory(int(pid)) for pid in found if browser_of in ancestors(int(pid)))


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        yield pid


def shown_at(port: int) -> None:
    """Waits until somebody listens."""
    end = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def four() -> tuple[float, int, int]:
    port = free_port()
    with program("cameras", port), page(port) as tab:
        rate, skew = frames(tab, 5)
        return rate, skew, renderer(os.getpid())


def large() -> tuple[float, int, int]:
    port, name = free_port(), f"bench-{os.getpid()}"
    command = os.path.join(os.path.dirname(sys.executable), "polyduct")
    gateway = subprocess.Popen([command, "gateway", name], stderr=subprocess.PIPE, text=True)
    assert gateway.stderr is not None
    gateway.stderr.readline()
    try:
        with program("huge", port, name), page(port) as tab:
            rate, _ = frames(tab, 5)
            return rate, own_memory(gateway.pid), renderer(os.getpid())
    finally:
        gateway.terminate()
        gateway.communicate()


def body_of(port: int, greeting: str | bytes) -> bytes:
    """The request by which a viewer gets what it is shown."""
    path = f"/{NAME}/frames?viewer={json.loads(greeting)['id']}"
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()


async def look(port: int, count: int, until: Callable[[], bool]) -> int:
    """So many viewers, each of which takes what it gets; how many frames came in all."""
    import websockets

    async def one() -> int:
        came = 0
        async with websockets.connect(f"ws://127.0.0.1:{port}/{NAME}/ws", compression=None) as server:
            shown, asks = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            asks.write(body_of(port, await server.recv()))
            await shown.readuntil(b"\r\n\r\n")
            while not until():
                size = int.from_bytes(await asyncio.wait_for(shown.readexactly(8), 30), "little")
                said = await shown.readexactly(size)
                head = json.loads(said[4 : 4 + int.from_bytes(said[:4], "little")])
                if head["type"] == "frame":
                    await server.send(json.dumps({"type": "ack", "id": head["id"]}))
                    came += 1
            asks.close()
        return came

    return sum(await asyncio.gather(*(one() for _ in range(count))))


def viewers() -> dict[str, float]:
    """Microseconds of a step alone; how many times that beside a stopped viewer, and beside 50."""
    from websockets.sync.client import connect

    port = free_port()
    with program("steps", port) as (writer,):
        shown_at(port)
        assert writer.stdin is not None and writer.stdout is not None
        stdin, stdout = writer.stdin, writer.stdout

        def took(seconds: float) -> float:
            def ask() -> float:
                stdin.write("\n")
                stdin.flush()
                return float(stdout.readline())

            ask()
            time.sleep(seconds)
            return ask()

        alone = took(1)
        speaks = connect(f"ws://127.0.0.1:{port}/{NAME}/ws", compression=None)
        with speaks, socket.create_connection(("127.0.0.1", port)) as stopped:
            stopped.sendall(body_of(port, speaks.recv()))
            assert b"200" in stopped.recv(100)
            beside = took(1)
        crowd = subprocess.Popen(
            [sys.executable, __file__, "look", str(port)], stdout=subprocess.PIPE, text=True
        )
        assert crowd.stdout is not None
        crowd.stdout.readline()
        many = took(1)
        assert int(crowd.communicate()[0]) > 50, "viewers get frames"
    return {"alone": alone, "stopped": beside / alone, "crowd": many / alone}


def crowd(port: int) -> None:
    print("they come", flush=True)
    end = time.monotonic() + 4
    print(asyncio.run(look(port, 50, lambda: time.monotonic() > end)))


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--json", action="store_true")
    words.add_argument("--rounds", type=int, default=3)
    args = words.parse_args()
    rows: list[dict[str, Any]] = []

    def row(case: str, value: float, unit: str, must: float, least: bool = True) -> None:
        rows.append(
            {
                "case": case,
                "value": value,
                "unit": unit,
                "must": must,
                "ok": value >= must if least else value <= must,
            }
        )

    def page(shown: list[Any]) -> None:
        most = max(memory for _, _, memory in shown)
        row("memory of the page, history included", most / 2**20, "MiB", (HISTORY + PAGE) >> 20, False)

    middle = statistics.median
    shown = [four() for _ in range(args.rounds)]
    row("4 arrays of 1080 x 1920 f4, in a browser", middle(r for r, _, _ in shown), "frames/s", 30)
    row("steps by which they differ", max(s for _, s, _ in shown), "steps", 0, False)
    page(shown)
    # Slots of three steps.
    if 3 * 4 * EDGE**2 < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        shown = [large() for _ in range(args.rounds)]
        row(
            f"{EDGE} x {EDGE} f4 of {UNITS} units, reduced, in a browser",
            middle(r for r, _, _ in shown),
            "frames/s",
            15,
        )
        row("memory of its gateway", max(g for _, g, _ in shown) / 2**20, "MiB", GATEWAY >> 20, False)
        page(shown)
    cost = [viewers() for _ in range(args.rounds)]
    row(
        "a step beside a viewer that takes nothing, of one alone",
        middle(c["stopped"] for c in cost),
        "",
        1.5,
        False,
    )
    # The writer, the gateway and the viewers share the processors.
    row("a step beside 50 viewers, of one alone", middle(c["crowd"] for c in cost), "", 3, False)
    if args.json:
        print(json.dumps(rows))
    else:
        for r in rows:
            short = "" if r["ok"] else "   SHORT"
            print(f"{r['case']:58} {r['value']:8.2f} {r['unit']:8}   must {r['must']}{short}")
    return int(not all(r["ok"] for r in rows))


ROLES: dict[str, Callable[..., None]] = {
    "cameras": lambda port: cameras(int(port)),
    "huge": lambda port, unit, gateway: huge(int(port), int(unit), gateway),
    "steps": lambda port: steps(int(port)),
    "look": lambda port: crowd(int(port)),
}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
