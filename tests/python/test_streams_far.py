"""Streams between sites: lanes that break, ends that die, keys that are wrong."""

from __future__ import annotations

import signal
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Process, together
from sites import KEY, Middle, check, read, write

import polyduct

Start = Callable[..., Process]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_JOB_KEY", KEY)


@pytest.fixture
def middle() -> Iterator[Callable[..., Middle]]:
    made: list[Middle] = []

    def make(*args: Any) -> Middle:
        made.append(Middle(*args))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("listens", ["reader", "writer"])
def test_each_site_has_a_layout_and_units_of_its_own(port: int, listens: str) -> None:
    call, wait = f"stream://127.0.0.1:{port}/a/b?lanes=3", f"stream://:{port}/a/b"
    out, into = (call, wait) if listens == "reader" else (wait, call)
    results = together(*write(out, 3, 5), *read(into, 2))
    check(results[3:], 5)


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_lanes_that_are_cut_again_and_again(port: int, middle: Callable[..., Middle], seed: int, rough: bool) -> None:
    """Where the network is rough they are reset, overtake each other, and one is stalled as well."""
    between = middle(port, 3_000_000, seed, rough)
    url = f"stream://127.0.0.1:{between.port}/x?lanes={1 + seed}"
    results = together(*write(url, 2, 12), *read(f"stream://:{port}/x", 2))
    check(results[2:], 12)
    assert between.cuts > 2 and between.stalls == rough


def test_many_small_steps(port: int) -> None:
    def out() -> None:
        with polyduct.open(f"stream://127.0.0.1:{port}/s?lanes=2", "w", shape=1, dtype="i8", layout="*", timeout=60) as o:
            for t in range(3000):
                o.write([t])

    def into() -> list[int]:
        return [int(a[0]) for a in polyduct.open(f"stream://:{port}/s", layout="*", timeout=60)]

    assert together(out, into)[1] == list(range(3000))


def test_a_trusted_network_is_not_encrypted(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_TRUSTED_NETWORK", "1")
    check(together(*write(f"stream://127.0.0.1:{port}/t", 1, 3), *read(f"stream://:{port}/t", 2))[1:], 3)


def test_a_wrong_key_is_said(port: int, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = start(
        """
        try:
            polyduct.open(f"stream://:{sys.argv[1]}/x", layout="*", timeout=3)
        except polyduct.Error as e:
            say(e)
        """,
        port,
    )
    monkeypatch.setenv("POLYDUCT_JOB_KEY", "ff" * 32)
    with pytest.raises((polyduct.StreamBroken, polyduct.Unreachable)) as e:
        polyduct.open(f"stream://127.0.0.1:{port}/x", "w", shape=1, dtype="u1", layout="*", timeout=2)
    assert f"stream://127.0.0.1:{port}/x" in str(e.value)
    said = reader.hear()
    assert f"stream://:{port}/x" in said and "came, and was turned away" in said


@pytest.mark.parametrize(("name", "mode", "why"), [("y", "w", "nobody here has a stream"), ("x", "r", "both ends read")])
def test_who_does_not_fit_is_told(port: int, name: str, mode: str, why: str) -> None:
    stop = threading.Event()

    def into() -> None:
        with pytest.raises(polyduct.Error, match=f"came, and was turned away: {why}"):
            polyduct.open(f"stream://:{port}/x", layout="*", timeout=3)
        stop.set()

    thread = threading.Thread(target=into)
    thread.start()
    url = f"stream://127.0.0.1:{port}/{name}"
    with pytest.raises(polyduct.Error, match=why):
        if mode == "w":
            polyduct.open(url, "w", shape=1, dtype="u1", layout="*", timeout=1)
        else:
            polyduct.open(url, layout="*", timeout=1)
    thread.join()


def test_a_reader_that_takes_nothing_of_it_is_known_to_the_writer(port: int) -> None:
    why = r"the reader expects shape \[4, 4\]; the writer gives \[8, 8\]"

    def writer() -> None:
        with pytest.raises(polyduct.StreamBroken, match=why):
            with polyduct.open(
                f"stream://127.0.0.1:{port}/f", "w", shape=(8, 8), dtype="f4", layout="*,*", timeout=60
            ) as out:
                while True:
                    out.write(np.ones((8, 8), "f4"))

    def reader() -> None:
        with pytest.raises(polyduct.Refused, match=why):
            polyduct.open(f"stream://:{port}/f", layout="*,*", shape=(4, 4), timeout=60)

    together(writer, reader)


def test_no_key_is_said_with_how_to_make_one(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYDUCT_JOB_KEY")
    with pytest.raises(polyduct.Error, match="openssl rand"):
        polyduct.open(f"stream://127.0.0.1:{port}/x", "w", shape=1, dtype="u1", layout="*")


ENDS = {
    "writer": """
        out = polyduct.open(sys.argv[1], "w", shape=(512, 512), dtype="u4", layout="*,*", timeout=60)
        for t in range(100000):
            out.write(np.full((512, 512), t, "u4"))
            if t == 3:
                say("under way")
        """,
    "reader": """
        for t, a in enumerate(polyduct.open(sys.argv[1], layout="*,*", timeout=60)):
            if (a != t).any():
                say("mixed")
            if t == 3:
                say("under way")
        """,
}


@pytest.mark.parametrize("dies", ["writer", "reader"])
def test_an_end_that_is_killed_is_known_to_the_other(port: int, start: Start, dies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYDUCT_MESSAGE_SILENCE", "1s")
    other = "reader" if dies == "writer" else "writer"
    urls = {"writer": f"stream://127.0.0.1:{port}/k?lanes=2", "reader": f"stream://:{port}/k"}
    lines = textwrap.indent(textwrap.dedent(ENDS[other]), "    ")
    code = f"try:\n{lines}\n    say('ended')\nexcept polyduct.StreamBroken as e:\n    say(e)\n"
    survivor = start(code, urls[other])
    victim = start(ENDS[dies], urls[dies])
    assert victim.hear() == "under way" and survivor.hear() == "under way"
    victim.signal(signal.SIGKILL)
    assert f":{port}/k" in survivor.hear()
