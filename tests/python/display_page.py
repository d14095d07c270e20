"""A browser for tests of the display's page, and what they ask a page."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from display_mock import PARTS, Mock
from playwright.sync_api import Browser, Page, sync_playwright

#: Entries behind a table's 256 colours, as RGBA: NaN, and both infinities.
NOTHING, OVER, UNDER = (0, 0, 0, 0), (255, 79, 216, 255), (0, 229, 255, 255)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser. Without one tests are skipped, but fail where everything is to be tested."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    if not os.access(path, os.X_OK):
        why = f"no browser at {path}: apt-get install chromium, or say where it is in CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def until(page: Page, condition: str) -> Any:
    """Waits until an expression of the page is true; `state` in it is what ``polyduct.state()`` says. The
    page's policy forbids to evaluate texts there, which is how playwright itself would wait."""
    return page.evaluate(
        """() => new Promise((found, failed) => {
            const end = performance.now() + 30000;
            const look = () => {
                const state = polyduct.state();
                let value;
                try { value = (%s); } catch (error) { return failed(error); }
                if (value) return found(value);
                if (performance.now() > end) return failed(new Error(%r + " of " + JSON.stringify(state)));
                setTimeout(look, 5);
            };
            look();
        })"""
        % (condition, condition)
    )


def shown(page: Page, step: int) -> dict[str, Any]:
    """The state when a step is on the screen and nothing waits to be drawn."""
    return until(page, f"state.step === {step} && !state.drawing && state")  # type: ignore[no-any-return]


def still(page: Page) -> dict[str, Any]:
    """The state when nothing waits to be drawn."""
    return until(page, "!state.drawing && state")  # type: ignore[no-any-return]


def pixels(page: Page, name: str) -> np.ndarray:
    """What a view's canvas has: rows, columns, RGBA."""
    width, height, data = page.evaluate(
        """name => {
            const canvas = document.querySelector(`canvas[data-view="${name}"]`);
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            return [width, height, Array.from(data)];
        }""",
        name,
    )
    return np.array(data, np.uint8).reshape(height, width, 4)


def table(name: str) -> np.ndarray:
    """The 256 colours of a table, RGB."""
    if name == "grey":
        return np.repeat(np.arange(256), 3).reshape(256, 3)
    source = (PARTS / "tables.js").read_text()
    found = re.search(rf"  {name}: .*?first: \[(.*?)\], rest: `(.*?)`", source, re.DOTALL)
    assert found is not None
    steps = [ord(letter) - ord("P") for letter in re.sub(r"\s", "", found[2])]
    first = np.array(found[1].split(","), int)
    return np.vstack([first, first + np.cumsum(np.array(steps).reshape(255, 3), axis=0)])


def coloured(values: np.ndarray, lo: float, hi: float, name: str, *, log: bool = False) -> np.ndarray:
    """The oracle: each value on its own, as slow as that is."""
    colours = table(name)
    out = np.zeros((*values.shape, 4), np.uint8)
    for at, value in np.ndenumerate(values.astype(float)):
        if np.isnan(value) or (log and value <= 0 and not np.isinf(value)):
            out[at] = NOTHING
        elif np.isinf(value):
            out[at] = OVER if value > 0 else UNDER
        else:
            part = np.log(value / lo) / np.log(hi / lo) if log else (value - lo) / (hi - lo)
            out[at] = (*colours[min(255, max(0, int(np.floor(256 * part))))], 255)
    return out


def place(page: Page, name: str, row: float, column: float) -> tuple[float, float]:
    """Where the middle of an element of a view's canvas is on the screen."""
    box = page.evaluate(
        """name => {
            const canvas = document.querySelector(`canvas[data-view="${name}"]`);
            const { left, top, width, height } = canvas.getBoundingClientRect();
            return [left, top, width / canvas.width, height / canvas.height];
        }""",
        name,
    )
    return box[0] + (column + 0.5) * box[2], box[1] + (row + 0.5) * box[3]


def opened(browser: Browser, mock: Mock, **how: Any) -> tuple[Page, list[str]]:
    """A page of its own for a server, and what it complained about."""
    page = browser.new_context(**{"viewport": {"width": 1000, "height": 700}, **how}).new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # A server that is away is no fault of the page.
    page.on(
        "console",
        lambda message: complaints.append(message.text)
        if message.type == "error" and "WebSocket connection" not in message.text
        else None,
    )
    page.goto(mock.url)
    return page, complaints
