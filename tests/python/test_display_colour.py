"""Pictures in colour on a display: pixels in a browser and in files against NumPy."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from display_page import chromium, pixels, place, shown, still, until
from PIL import Image
from playwright.sync_api import Browser, Page
from test_display import Program, array, get, page

import polyduct


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def picture(rows: int, columns: int, channels: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(rows)
    if dtype == "u1":
        return rng.integers(0, 256, (rows, columns, channels), "u1")
    # Some of it beyond what a screen has.
    return rng.uniform(-0.2, 1.2, (rows, columns, channels)).astype("f4")


def rgba(image: np.ndarray) -> np.ndarray:
    """The oracle: what a screen shows of such an array."""
    channels = image if image.dtype == np.uint8 else np.rint(np.clip(image.astype(float), 0, 1) * 255)
    opaque = np.full((*image.shape[:2], 4 - image.shape[2]), 255)
    return np.concatenate([channels, opaque], axis=2).astype(np.uint8)


def flat(image: np.ndarray) -> np.ndarray:
    """Colours where they are opaque, and how much they are: canvases keep colours times that."""
    return np.where([[[True] * 3 + [False]]] & (image[..., 3:] < 255), 0, image)


def together(tab: Page) -> tuple[dict[str, Any], np.ndarray]:
    """What is said of the first view, and its pixels, between which no finer picture came."""
    while True:
        before = still(tab)["views"][0]
        seen = pixels(tab, before["name"])
        if still(tab)["views"][0] == before:
            return before, seen


@pytest.mark.parametrize("dtype", ["u1", "f4"])
@pytest.mark.parametrize(("name", "channels"), [("rgb", 3), ("rgba", 4)])
def test_a_picture_is_shown_as_it_is(
    port: int, browser: Browser, name: str, channels: int, dtype: str
) -> None:
    image = picture(30, 40, channels, dtype)
    image[:10, :, 3:] = 1 if dtype == "f4" else 255
    with Program(f"display://:{port}/eye?colour={name}", {"u": (image, "block,*,*")}) as program:
        tab = page(browser, port, "eye")
        t = program.step()
        shown(tab, t)
        assert np.array_equal(flat(pixels(tab, "u")), flat(rgba(image)))
        assert tab.locator("canvas.bar").is_hidden() and tab.locator(".dims").is_hidden()
        # The value of every channel is under the pointer.
        tab.mouse.move(*place(tab, "u", 7, 9))
        said = until(tab, "state.views[0].under")
        assert said["index"][:2] == [7, 9]
        found = [float(value) for value in said["value"].split(", ")]
        assert np.allclose(found, image[7, 9], rtol=1e-7)
        tab.close()
        with Image.open(io.BytesIO(get(port, "eye.png"))) as file:
            assert file.mode == "RGBA" and np.array_equal(np.asarray(file), rgba(image))
        assert np.array_equal(array(port, "eye.npy"), image)


@pytest.mark.parametrize("layout", ["block,*,*", "*,block,*", "block,block,*@2x2", "*,*,block@3"])
def test_units_reduce_each_channel(port: int, browser: Browser, layout: str) -> None:
    """More than the gateway takes as a whole, and so is what is seen after zooming in."""
    rows, columns = 1800, 1600
    y, x = np.mgrid[0:rows, 0:columns]
    image = np.stack([y % 256, x % 256, (x + y) % 256], axis=2).astype("u1")
    units = 3 if "@3" in layout else 4
    url = f"display://:{port}/large?colour=rgb"
    with Program(url, {"u": (image, layout), "v": (image[::2, ::2].copy(), layout)}, units) as program:
        tab = page(browser, port, "large")
        t = program.step()
        state = shown(tab, t)
        whole = state["views"][0]
        assert whole["shape"][2] == 3 and whole["full"] == [rows, columns] and whole["dtype"] == "u1"
        box = tab.locator("canvas[data-view=u]").bounding_box()
        assert box is not None
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for _ in range(12):
            tab.mouse.wheel(0, -400)
        until(tab, "state.views[0].hi[0] - state.views[0].lo[0] === state.views[0].shape[0]")
        view, seen = together(tab)
        (top, left), (bottom, right) = view["lo"], view["hi"]
        assert bottom - top < 900 and view["stride"] == 1
        assert np.array_equal(seen, rgba(image[top:bottom, left:right]))
        tab.close()


def test_a_pixel_is_the_mean_of_each_channel(port: int, browser: Browser) -> None:
    image = np.random.default_rng(3).random((2048, 2048, 3), "f4")
    with Program(f"display://:{port}/mean?colour=rgb", {"u": (image, "block,*,*")}, 2) as program:
        tab = page(browser, port, "mean")
        t = program.step()
        until(tab, f"state.step === {t} && state.views[0].stride === 1")
        view, seen = together(tab)
        rows, columns, _ = view["shape"]
        ends = [np.arange(n + 1) * 2048 // n for n in (rows, columns)]
        sums = np.add.reduceat(np.add.reduceat(image.astype(float), ends[0][:-1]), ends[1][:-1], axis=1)
        means = sums / np.multiply.outer(np.diff(ends[0]), np.diff(ends[1]))[..., None]
        # What is sent has 16 bits.
        assert np.abs(seen.astype(int) - rgba(means.astype("f4"))).max() <= 1
        tab.close()


def test_beside_pictures_other_arrays_are_shown_as_ever(port: int, browser: Browser) -> None:
    arrays = {"eye": (picture(20, 30, 3, "u1"), "block,*,*"), "heat": (np.eye(20, 30), "block,*")}
    with Program(f"display://:{port}/both?colour=rgb", arrays) as program:
        tab = page(browser, port, "both")
        t = program.step()
        views = {view["name"]: view for view in shown(tab, t)["views"]}
        assert views["eye"]["shape"] == [20, 30, 3] and views["heat"]["shape"] == [20, 30]
        assert np.array_equal(pixels(tab, "eye"), rgba(arrays["eye"][0]))
        assert views["heat"]["range"] == {"lo": 0, "hi": 1, "log": False}
        tab.close()


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 5), "u1"), ((4, 5, 4), "u1"), ((4, 5, 3), "f8"), ((3, 4, 5), "f4")]
)
def test_what_has_no_colours_is_refused(port: int, shape: Any, dtype: str) -> None:
    with pytest.raises(polyduct.Misuse, match=r"colour=rgb shows arrays of shape \[rows, columns, 3\]"):
        polyduct.open(f"display://:{port}/x?colour=rgb", "w", shape=shape, dtype=dtype, layout="*")
    with pytest.raises(polyduct.BadUrl, match="rgb or rgba"):
        polyduct.open(f"display://:{port}/x?colour=hsv", "w", shape=shape, dtype=dtype, layout="*")
