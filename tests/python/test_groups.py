"""Streams that have to do with others: groups in lock step, sequences, pages of several parts."""

from __future__ import annotations

import io
import json
import os
import selectors
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import Process, together
from display_page import chromium, until
from display_viewer import Viewer
from test_display import Program
from test_gateway import Gateway, Receiver

import polyduct

Start = Callable[..., Process]
STEP = 8 << 20

WRITES = """
    out = polyduct.open(sys.argv[1], "w", shape=(int(sys.argv[2]),), dtype="u1", layout="block", timeout=60)
    say("open")
    try:
        for t in range(int(sys.argv[3])):
            out.write(np.full(int(sys.argv[2]), t % 256, "u1"))
        out.close()
        say("closed")
    except polyduct.StreamBroken as e:
        say(e)
    wait()
    """


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    one = Gateway(f"group-{os.getpid()}")
    yield one
    if one._process.poll() is None:
        assert one.end() == 0


class Steps:
    """A receiver that takes a step when it is told to, and whose system holds less than one."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.place = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        self.count = 0
        self.stream: socket.socket | None = None

    def accept(self) -> None:
        self.stream = self.server.accept()[0]
        self.stream.settimeout(60)

    def take(self) -> bool:
        assert self.stream is not None
        left = STEP
        while left and (some := self.stream.recv(min(left, 1 << 20))):
            assert some.count(self.count) == len(some)
            left -= len(some)
        self.count += not left
        return not left

    def close(self) -> None:
        self.server.close()
        if self.stream is not None:
            self.stream.close()


@pytest.mark.parametrize("programs", [2, 4])
def test_programs_move_in_lock_step(gateway: Gateway, start: Start, programs: int) -> None:
    """Whoever is slow holds the others: no receiver is ever more than a step ahead of it."""
    steps, receivers = 5, [Steps() for _ in range(programs)]
    options = f"?gateway={gateway.name}&group=g&members={programs}"
    writers = [start(WRITES, r.place + options, STEP, steps) for r in receivers]
    together(*(r.accept for r in receivers))
    assert {w.hear() for w in writers} == {"open"}
    slow, *others = receivers

    def take_all(r: Steps) -> None:
        while r.take():
            # It began this step when the slow one had moved all before it, of which its receiver may not have
            # taken yet what the system holds.
            assert r.count <= slow.count + 2

    threads = [threading.Thread(target=take_all, args=(r,)) for r in others]
    for thread in threads:
        thread.start()
    for t in range(steps - 1):
        # They come as far as they may, which the manager sees, and no further: the slow one is in its step.
        expected = [t] + [t + 1] * (programs - 1)
        found = gateway.until(lambda s, e=expected: sorted(o["steps"] for o in s) == e)  # type: ignore[misc]
        assert {o["group_name"] for o in found} == {"g"}
        assert slow.take()
    assert slow.take() and not slow.take()
    for thread in threads:
        thread.join(60)
    assert [r.count for r in receivers] == [steps] * programs
    assert {w.hear() for w in writers} == {"closed"}
    for r in receivers:
        r.close()


def test_none_begins_before_all_members_are_there(gateway: Gateway, start: Start) -> None:
    first, second, silent = Receiver(), Receiver(), Steps()
    options = f"?gateway={gateway.name}&group=late&members=2"
    gone = start(WRITES, silent.place + options, 1, 1)
    gateway.until(lambda s: len(s) == 1)
    # One that dies while it waits is no member any more.
    gone.signal(signal.SIGKILL)
    gateway.until(lambda s: not s)
    one = start(WRITES, first.place + options, 1, 3)
    (found,) = gateway.until(lambda s: len(s) == 1 and s[0]["waiting"] == 1)
    assert (found["state"], found["waits_for"], found["steps"]) == ("inactive", {"members": 1}, 0)
    table = gateway.ask("status", gateway.name).stdout
    assert "waits for 1 more of its group" in table and "late" in table
    with pytest.raises(polyduct.Unreachable, match="is to have 2 members, and not 3"):
        url = f"udp://127.0.0.1:9?gateway={gateway.name}&group=late&members=3"
        polyduct.open(url, "w", shape=4, dtype="u1", layout="*")
    assert first.got == b""
    two = start(WRITES, second.place + options, 1, 3)
    assert [one.hear(), one.hear(), two.hear(), two.hear()] == ["open", "closed"] * 2
    for r in (first, second):
        r.join(30)
        assert r.got == bytes(range(3))
    silent.close()


def test_a_member_that_dies_is_told_to_the_others(gateway: Gateway, start: Start) -> None:
    receivers = [Receiver() for _ in range(3)]
    options = f"?gateway={gateway.name}&group=g&members=3"
    writers = [start(WRITES, r.place + options, 1, 1 << 30) for r in receivers]
    assert {w.hear() for w in writers} == {"open"}
    gateway.until(lambda s: min(one["steps"] for one in s) > 3)
    writers[1].signal(signal.SIGKILL)
    for k in (0, 2):
        said = writers[k].hear()
        assert f"({receivers[1].place}) of its group g has failed" in said, said or writers[k].end()
        assert "writer unit 0" in said, said
    for r in receivers:
        r.join(30)
    gateway.until(lambda s: not s)
    # Those that come now are a group of their own.
    again = [Receiver() for _ in range(3)]
    ends = [start(WRITES, r.place + options, 1, 2) for r in again]
    assert [[w.hear(), w.hear()] for w in ends] == [["open", "closed"]] * 3
    for r in again:
        r.join(30)
        assert r.got == bytes(range(2))


def test_a_member_that_ends_is_waited_for_by_nobody(gateway: Gateway) -> None:
    receivers = [Receiver(), Receiver()]
    options = f"?gateway={gateway.name}&group=g&members=2"

    def write(k: int) -> None:
        url = receivers[k].place + options
        with polyduct.open(url, "w", shape=1, dtype="u1", layout="*", program=f"p{k}") as out:
            for t in range(2 + 6 * k):
                out.write([t])

    together(*(lambda k=k: write(k) for k in range(2)))
    for k, r in enumerate(receivers):
        r.join(30)
        assert r.got == bytes(range(2 + 6 * k))


def test_programs_that_read_are_in_lock_step_as_well(gateway: Gateway) -> None:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    options = f"?gateway={gateway.name}&group=in&members=2&form=length"
    urls = [f"tcp://127.0.0.1:{s.getsockname()[1]}{options}" for s in servers]

    def step(t: int) -> bytes:
        return (4).to_bytes(8, "little") + bytes([t] * 4)

    def read(k: int) -> Any:
        return polyduct.open(urls[k], layout="*", shape=4, dtype="u1", timeout=60)

    ins = together(*(lambda k=k: read(k) for k in range(2)))
    ends = [s.accept()[0] for s in servers]
    ends[0].sendall(b"".join(step(t) for t in range(4)))
    ends[1].sendall(step(0))
    found = gateway.until(lambda s: any("group" in (one.get("waits_for") or ()) for one in s))
    ahead, behind = sorted(found, key=lambda one: not urls[0].startswith(one["name"] + "?"))
    assert (ahead["steps"], behind["steps"], ahead["waits_for"]) == (2, 1, {"group": behind["stream"]})
    ends[1].sendall(b"".join(step(t) for t in range(1, 4)))
    for one in ends:
        one.shutdown(socket.SHUT_WR)
    assert together(*(lambda i=i: [b[0] for b in i] for i in ins)) == [[0, 1, 2, 3]] * 2
    for s in (*servers, *ends):
        s.close()


def test_a_connection_is_in_order_and_what_comes_after_it_waits(gateway: Gateway) -> None:
    """One file wholly before the next, in the order in which they were opened, not written."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    places = [f"tcp://127.0.0.1:{s.getsockname()[1]}?gateway={gateway.name}" for s in servers]
    ties = ["connection=line", "connection=line", "after=line"]
    outs = [
        polyduct.open(f"{place}&{t}", "w", shape=9, dtype="u1", layout="*") for place, t in zip(places, ties)
    ]
    events: list[int] = []
    with selectors.DefaultSelector() as select:
        for k, s in enumerate(servers):
            select.register(s.accept()[0], selectors.EVENT_READ, k)
        for k in (2, 1):
            outs[k].write([k] * 9)
        found = gateway.until(lambda s: [one["waiting"] for one in s] == [0, 1, 1])
        assert [one.get("waits_for") for one in found[1:]] == [{"stream": found[0]["stream"]}] * 2
        assert [one["connection_name"] for one in found] == ["line", "line", None]
        assert not select.select(0)
        outs[0].write([0] * 9)
        closing = [threading.Thread(target=out.close) for out in outs]
        for thread in closing:
            thread.start()
        while select.get_map():
            for key, _ in select.select(60):
                some = key.fileobj.recv(99)  # type: ignore[union-attr]
                events.append(key.data if some else -key.data - 1)
                if not some:
                    select.unregister(key.fileobj).fileobj.close()  # type: ignore[union-attr]
        for thread in closing:
            thread.join(60)
    assert events == [0, -1, 1, -2, 2, -3]
    for s in servers:
        s.close()


def test_ties_that_would_never_end_are_refused(gateway: Gateway) -> None:
    base = f"udp://127.0.0.1:9?gateway={gateway.name}"
    out = polyduct.open(f"{base}&group=g&connection=c", "w", shape=4, dtype="u1", layout="*")
    cycle = r"group \d+ \(g\) would wait for the end of stream \d+ \(udp://127"
    with pytest.raises(polyduct.Unreachable, match=cycle):
        polyduct.open(f"{base}&group=g&connection=c", "w", shape=4, dtype="u1", layout="*")
    # The same in the gateway of the program itself.
    own = polyduct.open("udp://127.0.0.1:9?group=g&connection=c", "w", shape=4, dtype="u1", layout="*")
    with pytest.raises(polyduct.StreamBroken, match=cycle):
        polyduct.open("udp://127.0.0.1:9?group=g&after=c", "w", shape=4, dtype="u1", layout="*")
    for one in (out, own):
        one.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("members=2", "group="),
        ("group=a/b", "a name"),
        ("permanent=1", "yes or no"),
        ("quantum=0", "at least 1"),
        ("part=a&members=2", "expected form="),
        ("lanes=2&su=4096&lanes=3", "lanes: expected once"),
        ("packet=100", "expected form=, lanes=, su=, reshuffle=, gateway="),
    ],
)
def test_options_that_say_nothing_are_refused(options: str, why: str) -> None:
    with pytest.raises(polyduct.BadUrl, match=why):
        polyduct.open(f"tcp://127.0.0.1:1?{options}", "w", shape=3, dtype="u1", layout="*")


def test_streams_say_what_they_need(gateway: Gateway) -> None:
    """Lanes of a gateway are 256: those that keep theirs leave enough for any other that is there."""
    base = f"udp://127.0.0.1:9?gateway={gateway.name}&lanes=64"

    def write(options: str) -> Any:
        return polyduct.open(base + options, "w", shape=4, dtype="u1", layout="*")

    outs = [write("&priority=-3&quantum=7"), *(write("&permanent=yes") for _ in range(3))]
    found = gateway.until(lambda s: [one["lanes"] for one in s] == [64] * 4)
    said = [(one["priority"], one["quantum"], one["permanent"]) for one in found]
    assert said == [(-3, 7, False)] + [(0, 1, True)] * 3
    with pytest.raises(polyduct.StreamBroken, match="lanes: there are 256, of which 192 belong to permanent"):
        more = write("&permanent=yes")
        while True:
            more.write([1] * 4)
    for out in outs:
        out.write([2] * 4)
        out.close()
    gateway.until(lambda s: not s)


SHOWS = """
    k = int(sys.argv[2])
    arrays = {"u": polyduct.Array((30, 20), "u2", "block,*")}
    out = polyduct.open(sys.argv[1], "w", arrays=arrays, timeout=60)
    say("open")
    wait()
    try:
        for t in range(int(sys.argv[3])):
            out.write({"u": np.full((30, 20), 100 * k + t % 100, "u2")}, t=t)
        out.close()
        say("closed")
    except polyduct.StreamBroken as e:
        say(e)
    wait()
    """


def parts(gateway: Gateway, start: Start, port: int, steps: list[int]) -> list[Process]:
    """A program for each part, which goes on when it is told to."""
    url = f"display://:{port}/cameras?gateway={gateway.name}&members={len(steps)}&part=p"
    programs = [start(SHOWS, f"{url}{k}", k, n) for k, n in enumerate(steps)]
    assert {p.hear() for p in programs} == {"open"}
    return programs


def watch(port: int, name: str) -> Viewer:
    while True:
        try:
            return Viewer(port, name)
        except ConnectionRefusedError:
            # The page comes with its last part.
            continue


def messages(viewer: Viewer) -> Iterator[dict[str, Any]]:
    """What is said, and frames, the values of whose views are checked: of one step."""
    for head, arrays in viewer.messages():
        for name, values in arrays.items():
            k = int(name[1])
            assert (values == 100 * k + head["step"] % 100).all(), (name, head["step"], values)
            assert head["values"][f"p{k}/t"] == head["step"]
        yield head


def test_parts_of_a_page_are_shown_together(gateway: Gateway, start: Start, port: int) -> None:
    programs = parts(gateway, start, port, [40, 10, 40, 40])
    with watch(port, "cameras") as viewer:
        heard = messages(viewer)
        assert [view["name"] for view in next(heard)["views"]] == ["p0/u", "p1/u", "p2/u", "p3/u"]
        for program in programs:
            program.tell()
        whole = short = 0
        noted = False
        for message in heard:
            if message["type"] == "frame":
                names = [view["name"][:2] for view in message["views"]]
                ended = message["step"] >= 10
                assert names == ["p0", "p2", "p3"] if ended else names == ["p0", "p1", "p2", "p3"]
                whole, short = whole + (not ended), short + ended
            elif message["state"] == "ended":
                break
            else:
                noted |= message["why"] == "p1 ended"
        assert whole and short and noted
    assert {p.hear() for p in programs} == {"closed"}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/cameras.npy?view=p2/u", timeout=30) as answer:
        assert (np.load(io.BytesIO(answer.read())) == 239).all()


def test_a_part_that_dies_is_told_to_all(gateway: Gateway, start: Start, port: int) -> None:
    programs = parts(gateway, start, port, [1 << 30] * 4)
    for program in programs:
        program.tell()
    with watch(port, "cameras") as viewer:
        heard = messages(viewer)
        frames = 0
        for message in heard:
            frames += message["type"] == "frame"
            if frames == 5:
                programs[2].signal(signal.SIGKILL)
            if message["type"] == "state" and message["state"] == "lost":
                assert message["why"].startswith("p2: ") and "writer unit 0" in message["why"]
                break
    for k in (0, 1, 3):
        assert "(p2)) of its group" in programs[k].hear()


def test_a_part_has_its_name_and_its_page_its_number_of_parts(gateway: Gateway, port: int) -> None:
    base = f"display://:{port}/two?gateway={gateway.name}"

    def write(options: str, **more: Any) -> Any:
        return polyduct.open(base + options, "w", shape=(3, 3), dtype="u1", layout="*,*", **more)

    one = write("&part=a&members=2")
    with pytest.raises(polyduct.Unreachable, match="to have 2 members, and not 3"):
        write("&part=b&members=3")
    with pytest.raises(polyduct.Misuse, match="every step"):
        write("&part=b&members=2", policy="latest")
    # The second of a name is refused, and the first goes on.
    with pytest.raises(polyduct.Unreachable, match="part a.* is shown by another program"):
        write("&part=a&members=2")
    assert gateway.streams()[0]["state"] == "inactive", gateway.streams()
    with one, write("&part=b&members=2") as other:
        for t in range(5):
            together(*(partial(out.write, np.full((3, 3), t, "u1")) for out in (one, other)))
            # So is one that comes when the page has all its parts.
            with pytest.raises(polyduct.Unreachable, match="part b.* is shown by another program"):
                write("&part=b&members=2")
            assert len(gateway.streams()) == 2, gateway.streams()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/two.json", timeout=30) as answer:
        shown = json.loads(answer.read())
    assert (shown["step"], [view["name"] for view in shown["views"]]) == (4, ["a", "b"]), shown
    # Another page follows.
    with write("&part=a&members=2") as one, write("&part=b&members=2") as other:
        together(*(partial(out.write, np.full((3, 3), 9, "u1")) for out in (one, other)))


def test_pages_follow_what_a_display_is_told(gateway: Gateway, port: int) -> None:
    url = f"display://:{port}/told?gateway={gateway.name}&members=2&part="
    small = np.arange(600, dtype="f4").reshape(20, 30)
    arrays = {"u": (small, "block,*")}
    with Program(url + "a", arrays) as a, Program(url + "b", arrays, 1) as b:
        for program in (a, b):
            program.step()
        numbers = {one["name"][-2]: one["stream"] for one in gateway.streams()}
        with chromium() as browser:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{port}/told")
            until(page, "state.views.length === 2")
            words = ["colors=magma", "range=-1..2.5", "scale=symmetric"]
            assert gateway.ask("tell", gateway.name, numbers["a"], *words).returncode == 0
            told = "state.views.find(v => v.name === 'a/u').look.table === 'magma' && state"
            state = until(page, told)
            looks = {view["name"]: view["look"] for view in state["views"]}
            said = {"hand": [-1, 2.5], "mode": "hand", "scale": "symmetric", "table": "magma"}
            assert looks["a/u"].items() >= said.items()
            assert looks["b/u"].items() >= {"table": "viridis", "mode": "auto"}.items()
            # Who comes later sees the same.
            later = browser.new_page()
            later.goto(f"http://127.0.0.1:{port}/told")
            until(later, f"state.views.length === 2 && {told}")
        for word, why in (("colors=pink", "viridis, magma"), ("range=2..1", "LO..HI"), ("go", "colors=")):
            refused = gateway.ask("tell", gateway.name, numbers["a"], word)
            assert refused.returncode == 1 and why in refused.stderr
    refused = gateway.ask("tell", gateway.name, numbers["a"], "range=auto")
    assert refused.returncode == 1 and "not shown on a display" in refused.stderr


def test_large_and_small_parts_are_on_one_page(port: int) -> None:
    """Of one program's ports, one of them of arrays that its units make pictures of."""
    rng = np.random.default_rng(1)
    big, small = rng.random((1600, 1500), "f4"), rng.random((40, 30), "f4")
    url = f"display://:{port}/mixed?members=2&part="
    with Program(url + "large", {"u": (big, "block,block@2x2")}, 4) as large, Program(
        url + "small", {"v": (small, "block,*")}, 2
    ) as little, chromium() as browser:
        for program in (large, little):
            program.step()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/mixed")
        until(page, "state.frames > 0 && state.views.length === 2")
        for _ in range(5):
            t = large.step()
            assert little.step(v=small + t) == t
            state = until(page, f"state.step >= {t} && !state.drawing && state")
            assert {view["name"]: view["step"] for view in state["views"]} == {"large/u": t, "small/v": t}
        # Who zooms in gets the elements, also of a program that makes no steps meanwhile.
        box = page.locator("canvas[data-view='large/u']").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for _ in range(12):
            page.mouse.wheel(0, -400)
        part = "state.views.find(v => v.name === 'large/u')"
        until(page, f"{part}.hi[0] - {part}.lo[0] === {part}.shape[0] && {part}.shape[0] < 800")
        done = threading.Event()

        def go_on() -> None:
            # A file of a large array is brought with a step.
            while not done.is_set():
                large.step()
                little.step()

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            url = f"http://127.0.0.1:{port}/mixed.npy?view=large/u"
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert np.array_equal(np.load(io.BytesIO(answer.read())), big)
        finally:
            done.set()
            thread.join()
