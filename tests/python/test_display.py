"""Displays: what programs show, as browsers and ``curl`` get it."""

from __future__ import annotations

import io
import json
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Process, together
from display_page import chromium, until
from display_viewer import Viewer
from playwright.sync_api import Browser, Page

import polyduct
from polyduct import Array, Open

Start = Callable[..., Process]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        return answer.read()  # type: ignore[no-any-return]


def array(port: int, path: str) -> np.ndarray:
    return np.load(io.BytesIO(get(port, path)))  # type: ignore[no-any-return]


def shown(port: int, name: str, t: int, query: str = "") -> dict[str, Any]:
    """What is said of the frame of step `t`, once that is shown."""
    while True:
        try:
            said = json.loads(get(port, f"{name}.json{query}"))
            if said["values"]["t"] == t:
                return said  # type: ignore[no-any-return]
        except urllib.error.HTTPError as e:
            with e:
                assert e.code == 503, e.read()


class Program:
    """A program of some units that writes a step when it is told to; the step's number is in its values."""

    def __init__(self, url: str, arrays: dict[str, tuple[np.ndarray, str]], units: int = 2) -> None:
        declared = {n: Array(a.shape, a.dtype, layout) for n, (a, layout) in arrays.items()}
        self._arrays, self._units, self._t = arrays, units, 0

        def unit(k: int) -> Any:
            return polyduct.open(url, "w", arrays=declared, unit=k, units=units, program=url, timeout=60)

        self._outs = together(*(lambda k=k: unit(k) for k in range(units)))  # type: ignore[misc]

    def part(self, name: str, k: int, value: np.ndarray) -> np.ndarray:
        layout = self._arrays[name][1]
        whole = polyduct.Layout(",".join("*" * max(1, value.ndim)), shape=value.shape, dtype=value.dtype, units=1)
        own = polyduct.Layout(layout, shape=value.shape, dtype=value.dtype, units=self._units)
        return polyduct.redistribute([value], whole, own)[k]

    def step(self, **changed: np.ndarray) -> int:
        values = {n: changed.get(n, a) for n, (a, _) in self._arrays.items()}
        for k, out in enumerate(self._outs):
            out.write({n: self.part(n, k, value) for n, value in values.items()}, t=self._t)
        self._t += 1
        return self._t - 1

    def close(self) -> None:
        together(*(out.close for out in self._outs))

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


WAVE = np.sin(np.arange(300 * 200, dtype="f4").reshape(300, 200) / 999)


def test_curl_gets_the_newest_frame(port: int) -> None:
    cube = np.arange(4 * 5 * 6, dtype="u2").reshape(4, 5, 6)
    arrays = {"u": (WAVE, "block,*"), "cube": (cube, "*,*,cyclic"), "curve": (np.linspace(0, 1, 50), "block")}
    with Program(f"display://:{port}/run/7", arrays) as program:
        program.step()
        said = shown(port, "run/7", program.step(u=WAVE + 1))
        views = {view["name"]: view for view in said["views"]}
        assert np.isclose(views["u"]["mean"], (WAVE + 1).mean(), atol=1e-5)
        assert views["cube"]["slice"] == 2 and views["cube"]["max"] == cube[2].max()
        assert np.array_equal(array(port, "run/7.npy"), WAVE + 1)
        assert np.array_equal(array(port, "run/7.npy?view=cube"), cube)
        assert np.array_equal(array(port, "run/7.npy?view=curve"), np.linspace(0, 1, 50))
        assert get(port, "run/7.png").startswith(b"\x89PNG")
        assert b"run/7" in get(port, "status.json")


@pytest.mark.parametrize("layout", ["block,*", "*,block", "block,block@2x2", "cyclic(100),*", "*,block;order=F", "*,cyclic"])
def test_large_arrays_are_reduced_as_they_lie(port: int, layout: str) -> None:
    """More than the gateway takes as a whole: units make pictures, also of layouts with more boxes than that."""
    rng = np.random.default_rng(1)
    big = rng.random((1600, 1500), "f4")
    small = rng.random((40, 30), "f4")
    with Program(f"display://:{port}/big", {"big": (big, layout), "small": (small, "*,block")}, 4) as program:
        said = shown(port, "big", program.step())
        view = {view["name"]: view for view in said["views"]}["big"]
        assert view["reduce"] == "mean" and view["full"] == [1600, 1500]
        assert abs(view["mean"] - big.mean()) < 1e-3
        done = threading.Event()

        def go_on() -> None:
            # A file of an array is brought with a step.
            while not done.is_set():
                program.step()

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            assert np.array_equal(array(port, "big.npy?view=big"), big)
        finally:
            done.set()
            thread.join()


def page(browser: Browser, port: int, name: str, **how: Any) -> Page:
    page = browser.new_context(**{"viewport": {"width": 1000, "height": 700}, **how}).new_page()
    page.goto(f"http://127.0.0.1:{port}/{name}")
    return page


def test_a_browser_shows_all_arrays_of_one_step(port: int, browser: Browser) -> None:
    arrays = {n: (WAVE, "block,*") for n in "abcd"}
    with Program(f"display://:{port}/four", arrays, 3) as program:
        program.step()
        tab = page(browser, port, "four")
        until(tab, "state.connected && state.frames > 0")
        for _ in range(5):
            t = program.step()
            state = until(tab, f"state.step >= {t} && !state.drawing && state")
            assert {view["step"] for view in state["views"]} == {state["step"]}, "lock step"
        tab.close()


def test_who_zooms_into_a_large_array_gets_every_element(port: int, browser: Browser) -> None:
    """Also of a program that makes no steps meanwhile."""
    big = np.arange(2400 * 2400, dtype="f4").reshape(2400, 2400) % 1000
    with Program(f"display://:{port}/zoom", {"big": (big, "block,*")}, 2) as program:
        program.step()
        tab = page(browser, port, "zoom")
        until(tab, "state.frames > 0")
        box = tab.locator("canvas[data-view=big]").bounding_box()
        assert box is not None
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for _ in range(12):
            tab.mouse.wheel(0, -400)
        state = until(tab, "state.views[0].hi[0] - state.views[0].lo[0] === state.views[0].shape[0] && state")
        lo, hi = state["views"][0]["lo"], state["views"][0]["hi"]
        assert hi[0] - lo[0] < 1200
        tab.close()


def test_a_stopped_viewer_delays_nobody(port: int, browser: Browser) -> None:
    with Program(f"display://:{port}/slow", {"u": (WAVE, "block,*")}, 2) as program:
        program.step()
        # It asks for frames and reads none.
        with Viewer(port, "slow", room=4096):
            tab = page(browser, port, "slow")
            until(tab, "state.frames > 0")
            for _ in range(30):
                t = program.step()
                until(tab, f"state.step >= {t}")
            tab.close()


def test_a_paused_page_gets_nothing(port: int, browser: Browser) -> None:
    with Program(f"display://:{port}/pause", {"u": (WAVE, "block,*")}, 1) as program:
        program.step()
        tab = page(browser, port, "pause")
        until(tab, "state.frames > 0")
        tab.keyboard.press("Space")
        before = until(tab, "state.paused && !state.drawing && state")
        for _ in range(20):
            t = program.step()
        assert until(tab, "state")["frames"] == before["frames"]
        tab.keyboard.press("Space")
        until(tab, f"state.step === {t}")
        tab.close()


def test_a_program_that_is_killed_is_lost_and_its_successor_goes_on(port: int, browser: Browser, start: Start) -> None:
    code = """
        out = polyduct.open(sys.argv[1], "w", shape=(40, 30), dtype="f4", layout="*,*", timeout=60)
        say("open")
        for t in range(1 << 30):
            out.write(np.full((40, 30), t, "f4"))
        """
    first = start(code, f"display://:{port}/again")
    assert first.hear() == "open"
    tab = page(browser, port, "again")
    until(tab, "state.frames > 3")
    first.signal(signal.SIGKILL)
    until(tab, "!state.connected")
    second = start(code, f"display://:{port}/again")
    assert second.hear() == "open"
    until(tab, "state.connected && state.state === 'running'")
    second.signal(signal.SIGKILL)
    tab.close()


def test_a_unit_that_dies_is_told_to_who_looks(port: int, browser: Browser, start: Start) -> None:
    code = """
        unit = int(sys.argv[2])
        out = polyduct.open(sys.argv[1], "w", shape=(40, 30), dtype="f4", layout="block,*", unit=unit, units=2, program="w")
        say("open")
        try:
            for t in range(1 << 30):
                out.write(np.full((20, 30), t, "f4"))
        except polyduct.PeerLost as e:
            say(e)
            wait()
        """
    units = [start(code, f"display://:{port}/dies", k) for k in range(2)]
    assert [u.hear() for u in units] == ["open"] * 2
    tab = page(browser, port, "dies")
    until(tab, "state.frames > 3")
    units[1].signal(signal.SIGKILL)
    assert "writer unit 1" in units[0].hear()
    until(tab, "state.state === 'lost'")
    tab.close()


def test_two_programs_share_an_address_and_a_name_is_one_programs(port: int) -> None:
    with Program(f"display://:{port}/a", {"u": (WAVE, "*,*")}, 1) as a, Program(
        f"display://:{port}/b", {"u": (WAVE, "*,*")}, 1
    ) as b:
        shown(port, "a", a.step())
        shown(port, "b", b.step())
        with pytest.raises(polyduct.Unreachable, match="another program"):
            out = polyduct.open(f"display://:{port}/a", "w", shape=(3, 3), dtype="f4", layout="*,*", timeout=10)
            for _ in range(1000):
                out.write(np.zeros((3, 3), "f4"))


def test_an_array_that_grows_is_shown_as_it_is(port: int) -> None:
    with polyduct.open(f"display://:{port}/grows", "w", arrays={"x": Array((Open(100), 3), "f4")}) as out:
        for t, rows in enumerate([0, 5, 100, 2]):
            out.write({"x": np.full((rows, 3), rows, "f4")}, t=t)
        assert shown(port, "grows", 3)["views"][0]["full"] == [2, 3]


def test_what_cannot_be_shown_is_said(port: int) -> None:
    with pytest.raises(polyduct.Misuse, match="written, and not read"):
        polyduct.open(f"display://:{port}/x", layout="*")
    with pytest.raises(polyduct.BadUrl, match="/NAME"):
        polyduct.open(f"display://:{port}", "w", shape=3, dtype="u1", layout="*")
    with socket.create_server(("127.0.0.1", port)), pytest.raises(polyduct.Unreachable, match="in use"):
        polyduct.open(f"display://:{port}/x", "w", shape=3, dtype="u1", layout="*")


def test_others_than_this_machine_need_the_token(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    with Program(f"display://0.0.0.0:{port}/secret", {"u": (WAVE, "*,*")}, 1) as program:
        t = program.step()
        address = capfd.readouterr().err.split()[-1]
        assert "?token=" in address
        with pytest.raises(urllib.error.HTTPError) as e:
            get(port, "secret.json")
        with e.value:
            assert e.value.code == 403
        assert shown(port, "secret", t, "?" + address.split("?")[1])["step"] >= 0


def test_what_is_said_to_be_shown_is_there(port: int, start: Start) -> None:
    """The page answers from when its address is printed, though not all units of the program are there yet."""
    code = """
        import sys
        with polyduct.open(sys.argv[1], "w", shape=(4, 4), dtype="f4", layout="block,*", unit=int(sys.argv[2]), units=2) as out:
            out.write(np.full((2, 4), 3, "f4"))
            wait()
        """
    first = start(code, f"display://:{port}/early", 0)
    assert first.process.stderr is not None
    address = first.process.stderr.readline().split()[-1]
    assert address == f"http://127.0.0.1:{port}/early"
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert answer.status == 200 and b"<html" in answer.read().lower()
    second = start(code, f"display://:{port}/early", 1)
    for one in (first, second):
        one.tell()
    for one in (first, second):
        assert one.end()[0] == 0


def test_a_program_that_waits_for_its_steps_does_not_wait_for_viewers(port: int) -> None:
    start = time.monotonic()
    with polyduct.open(f"display://:{port}/all", "w", shape=(3, 3), dtype="f4", layout="*,*", policy="block") as out:
        for t in range(200):
            out.write(np.full((3, 3), t, "f4"))
    assert time.monotonic() - start < 20, "four steps a second are what nobody who looks is shown"
