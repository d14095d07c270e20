"""The page of the display in a real browser, against a server of the tests' own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from display_mock import Mock, kind, pack, page, view
from display_page import chromium, coloured, opened, pixels, place, shown, still, table, until
from playwright.sync_api import Browser, Page

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def mock() -> Iterator[Mock]:
    made = Mock()
    yield made
    made.close()


@pytest.fixture
def look(browser: Browser, mock: Mock) -> Iterator[Open]:
    """Opens pages; none of them may have complained at the end."""
    pages = []

    def look(of: Mock = mock, **how: Any) -> Page:
        pages.append(opened(browser, of, **how))
        return pages[-1][0]

    yield look
    for page, complaints in pages:
        page.context.close()
        assert complaints == []


def ramp(rows: int = 12, columns: int = 20, dtype: Any = "f4") -> np.ndarray:
    return np.arange(rows * columns, dtype=dtype).reshape(rows, columns)


def choose(page: Page, control: str, value: str) -> None:
    page.locator(f"#{control}").select_option(value)
    still(page)


def test_the_page_is_small_and_whole() -> None:
    text = page()
    assert len(text.encode()) < 84 << 10
    assert "http://" not in text and "https://" not in text


def test_tables_are_those_that_everybody_knows() -> None:
    viridis = table("viridis")
    assert [tuple(viridis[k]) for k in (0, 128, 255)] == [(68, 1, 84), (32, 144, 140), (253, 231, 36)]
    assert table("RdBu")[0][2] > table("RdBu")[0][0] and table("RdBu")[255][0] > table("RdBu")[255][2]


TYPES = ["b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "bf16"]


@pytest.mark.parametrize("dtype", TYPES)
def test_pixels_are_what_the_table_has_for_the_values(look: Open, mock: Mock, dtype: str) -> None:
    rng = np.random.default_rng(3)
    if dtype == "bf16":
        # The upper half of f4.
        bits = (rng.normal(size=(9, 14)).astype("f4").view("u4") >> 16).astype("u2")
        values = (bits.astype("u4") << 16).view("f4")
        mock.hello(u=((9, 14), "bf16"))
        mock.show(1, view("u", bits, dtype="bf16"))
    else:
        plain = rng.normal(size=(9, 14)) * 100
        whole = plain if dtype[0] in "fc" else plain.astype("i8")
        array = plain > 0 if dtype == "b1" else whole.astype(dtype)
        values = np.abs(array) if dtype[0] == "c" else array
        mock.arrays(1, u=array)
    seen = look()
    shown(seen, 1)
    choose(seen, "table", "magma")
    choose(seen, "scale", "linear")
    state = still(seen)["views"][0]
    lo, hi = (0, 1) if dtype == "b1" else (float(values.min()), float(values.max()))
    assert (state["range"]["lo"], state["range"]["hi"]) == pytest.approx((lo, hi), rel=1e-6)
    # The page has f4 and less as they are; u8 and i8 may lie on a boundary once rounded.
    oracle = coloured(values, state["range"]["lo"], state["range"]["hi"], "magma")
    assert (pixels(seen, "u") != oracle).any(axis=2).mean() < 0.01


def test_what_is_no_number_is_told_apart(look: Open, mock: Mock) -> None:
    values = ramp()
    values[2, 3], values[4, 5], values[6, 7] = np.nan, np.inf, -np.inf
    mock.arrays(1, u=values)
    seen = look()
    found = shown(seen, 1)["views"][0]["found"]
    assert found == [0, 239]
    np.testing.assert_array_equal(pixels(seen, "u"), coloured(values, 0, 239, "viridis"))


@pytest.mark.parametrize("dtype", ["f4", "f8", "u2"])
def test_a_logarithmic_scale(look: Open, mock: Mock, dtype: str) -> None:
    values = np.geomspace(1, 50000, 600).reshape(20, 30).astype(dtype)
    values[0, :3] = 0
    if dtype != "u2":
        values[1, :4] = -1, np.nan, np.inf, -np.inf
    mock.arrays(1, u=values)
    seen = look()
    shown(seen, 1)
    seen.keyboard.press("l")
    state = still(seen)["views"][0]
    assert state["range"]["log"] and state["range"]["lo"] == values[np.isfinite(values) & (values > 0)].min()
    oracle = coloured(values, state["range"]["lo"], state["range"]["hi"], "viridis", log=True)
    got = pixels(seen, "u")
    # Logarithms differ in their last bit: a value on a boundary may have the entry beside.
    differs = (got != oracle).any(axis=2)
    assert differs.mean() < 0.01 and np.abs(got.astype(int) - oracle)[differs].max(initial=0) < 8


@pytest.mark.parametrize("percent", [1, 10])
def test_a_range_of_percentiles(look: Open, mock: Mock, percent: int) -> None:
    values = np.random.default_rng(1).gamma(2.0, size=(40, 50)).astype("f4")
    mock.arrays(1, u=values)
    seen = look()
    shown(seen, 1)
    choose(seen, "mode", "percentile")
    seen.locator("#percent").fill(str(percent))
    range_ = still(seen)["views"][0]["range"]
    expected = np.percentile(values.astype("f8"), [percent, 100 - percent])
    assert [range_["lo"], range_["hi"]] == pytest.approx(list(expected))


def test_a_range_by_hand_and_by_dragging(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp())
    seen = look()
    shown(seen, 1)
    choose(seen, "mode", "hand")
    seen.locator("#lo").fill("60")
    seen.locator("#hi").fill("180")
    seen.locator("#hi").press("Enter")
    until(seen, "state.views[0].range.lo === 60 && state.views[0].range.hi === 180 && !state.drawing")
    np.testing.assert_array_equal(pixels(seen, "u"), coloured(ramp(), 60, 180, "viridis"))
    seen.locator("#hi").blur()
    seen.keyboard.press("r")
    until(seen, "state.views[0].range.hi === 239 && !state.drawing")
    box = seen.locator(".bar").bounding_box()
    assert box is not None
    seen.mouse.move(box["x"] + 8, box["y"] + 20)
    seen.mouse.down()
    seen.mouse.move(box["x"] + 8 + (box["width"] - 16) / 4, box["y"] + 20)
    seen.mouse.up()
    range_ = still(seen)["views"][0]["range"]
    assert range_["lo"] == pytest.approx(239 / 4, abs=1) and range_["hi"] == 239


def test_signed_values_have_their_middle_at_zero(look: Open, mock: Mock) -> None:
    values = ramp() - 100
    mock.arrays(1, u=values)
    seen = look()
    state = shown(seen, 1)["views"][0]
    assert state["look"]["table"] == "RdBu" and (state["range"]["lo"], state["range"]["hi"]) == (-139, 139)
    np.testing.assert_array_equal(pixels(seen, "u"), coloured(values, -139, 139, "RdBu"))


def test_all_views_are_of_one_step_in_every_animation_frame(look: Open, mock: Mock) -> None:
    shape = (270, 480)
    arrays = {name: np.zeros(shape, "f4") for name in "abcd"}
    mock.arrays(0, **arrays)
    seen = look()
    shown(seen, 0)
    choose(seen, "mode", "hand")
    seen.locator("#lo").fill("0")
    seen.locator("#hi").fill("64")
    seen.locator("#hi").press("Enter")
    seen.evaluate(
        """() => {
            window.records = [];
            const canvases = [...document.querySelectorAll("canvas[data-view]")];
            const note = () => {
                const pixel = c => c.getContext("2d").getImageData(5, 5, 1, 1).data.join();
                window.records.push(canvases.map(c => `${c.dataset.step}: ${pixel(c)}`));
                requestAnimationFrame(note);
            };
            note();
        }"""
    )
    for step in range(1, 61):
        mock.arrays(step, **{name: np.full(shape, step, "f4") for name in arrays})
        last = mock.id
        mock.wait(lambda m, last=last: m["type"] == "ack" and m["id"] >= last - 1)
    shown(seen, 60)
    records = seen.evaluate("window.records")
    assert all(len(set(record)) == 1 and len(record) == 4 for record in records)
    assert len({record[0] for record in records}) > 20


def test_frames_are_acknowledged_after_they_were_drawn(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp())
    seen = look()
    mock.wait(lambda m: m == {"type": "ack", "id": 1})
    assert shown(seen, 1)["frames"] == 1


def test_pause_steps_back_and_play_goes_to_the_newest(look: Open, mock: Mock) -> None:
    seen = look()
    mock.wait_for_viewer()
    for step in range(5):
        mock.arrays(step, u=ramp() + step)
        shown(seen, step)
    seen.keyboard.press(" ")
    mock.wait(lambda m: m["type"] == "pause")
    mock.arrays(5, u=ramp() + 5)
    seen.keyboard.press("ArrowLeft")
    shown(seen, 3)
    seen.keyboard.press("ArrowLeft")
    state = shown(seen, 2)
    assert state["paused"] and state["newest"] == 4 and state["views"][0]["step"] == 2
    assert seen.locator("canvas[data-view=u]").get_attribute("data-step") == "2"
    assert seen.locator("#badge").text_content() == "paused"
    seen.keyboard.press("ArrowRight")
    shown(seen, 3)
    seen.keyboard.press(" ")
    mock.wait(lambda m: m["type"] == "play")
    assert not shown(seen, 5)["paused"]
    assert seen.locator("#step").text_content() == "5"


def test_stepping_back_pauses(look: Open, mock: Mock) -> None:
    seen = look()
    mock.wait_for_viewer()
    for step in range(3):
        mock.arrays(step, u=ramp())
        shown(seen, step)
    seen.locator("#back").click()
    assert shown(seen, 1)["paused"]
    mock.wait(lambda m: m["type"] == "pause")


def test_the_past_has_a_bound(look: Open, mock: Mock) -> None:
    seen = look()
    mock.wait_for_viewer()
    for step in range(35):
        mock.arrays(step, u=ramp())
        shown(seen, step)
    assert still(seen)["history"]["frames"] == 30
    for _ in range(40):
        seen.keyboard.press("ArrowLeft")
    shown(seen, 5)
    bytes_ = seen.evaluate(
        """() => {
            const history = new History();
            for (let step = 0; step < 9; step++) history.add({ step, size: 100 << 20 });
            history.add({ step: 9, size: 300 << 20 });
            const alone = history.frames.length;
            for (let step = 10; step < 19; step++) history.add({ step, size: 100 << 20 });
            return [alone, history.frames.length, history.bytes];
        }"""
    )
    assert bytes_ == [1, 2, 200 << 20]


def owners(*shape: int) -> list[dict[str, Any]]:
    """Two units, the upper and the lower half."""
    half = shape[0] // 2
    rest = list(shape[1:])
    zeros = [0] * len(rest)
    return [
        {"unit": 4, "boxes": [[[0, *zeros], [half, *rest]]]},
        {"unit": 9, "boxes": [[[half, *zeros], [shape[0], *rest]]]},
    ]


def test_the_pointer_reads_index_value_and_unit(look: Open, mock: Mock) -> None:
    values = ramp() / 8
    mock.hello(u=(values.shape, "f4", owners(12, 20)))
    mock.show(1, view("u", values))
    seen = look()
    shown(seen, 1)
    for row, column, unit in [(0, 0, 4), (5, 7, 4), (6, 7, 9), (11, 19, 9)]:
        seen.mouse.move(*place(seen, "u", row, column))
        text = seen.locator(".readout").text_content()
        assert text == f"[{row}, {column}]  {values[row, column]:.8g}  unit {unit}"
    # A new step has new values at the same place.
    mock.show(2, view("u", values + 1))
    shown(seen, 2)
    assert "30.875" in (seen.locator(".readout").text_content() or "")


def test_all_digits_of_long_integers_are_read(look: Open, mock: Mock) -> None:
    values = np.array([[2**63 + 1, 5], [7, 2**53 + 1]], "u8")
    mock.arrays(1, u=values)
    seen = look()
    shown(seen, 1)
    seen.mouse.move(*place(seen, "u", 0, 0))
    assert seen.locator(".readout").text_content() == "[0, 0]  9223372036854775809"


def test_zoom_keeps_what_is_under_the_pointer(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp(120, 200))
    seen = look()
    shown(seen, 1)
    seen.mouse.move(*place(seen, "u", 30, 40))
    before = until(seen, "state.views[0].under.index")
    for _ in range(3):
        seen.mouse.wheel(0, -300)
    state = until(seen, "state.views[0].zoom > 5 && !state.drawing && state")["views"][0]
    assert state["under"]["index"] == before == [30, 40]
    # Dragging moves the array with the pointer.
    x, y = place(seen, "u", 30, 40)
    seen.mouse.move(x, y)
    seen.mouse.down()
    seen.mouse.move(x + 80, y + 60, steps=4)
    seen.mouse.up()
    still(seen)
    dragged = until(seen, "state.views[0].under.index")
    assert np.abs(np.subtract(dragged, [30, 40])).max() <= 1
    # What is coloured does not depend on where it is seen.
    oracle = coloured(ramp(120, 200)[::7, ::9], 0, 23999, "viridis")
    np.testing.assert_array_equal(pixels(seen, "u")[::7, ::9], oracle)
    seen.keyboard.press("0")
    until(seen, "state.views[0].zoom === 1 && state.views[0].middle.join() === '0.5,0.5'")


def test_owners_are_drawn_over_the_picture(look: Open, mock: Mock) -> None:
    mock.hello(u=((12, 20), "f4", owners(12, 20)))
    mock.show(1, view("u", ramp()))
    seen = look()
    shown(seen, 1)
    assert seen.locator(".pic .over").is_hidden()
    seen.keyboard.press("o")
    still(seen)
    assert seen.locator("#owners").get_attribute("aria-pressed") == "true"
    colours = seen.evaluate(
        """() => {
            const canvas = document.querySelector(".pic .over");
            const at = y => canvas.getContext("2d").getImageData(canvas.width / 2 - 60, y, 1, 1).data.join();
            return [at(canvas.height * 0.3), at(canvas.height * 0.7)];
        }"""
    )
    assert colours[0] != colours[1] and "0,0,0,0" not in colours
    seen.keyboard.press("o")
    still(seen)
    assert seen.locator(".pic .over").is_hidden()


def test_a_page_that_nobody_looks_at_has_no_connection(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp())
    seen = look()
    shown(seen, 1)
    hide = '''hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }'''
    seen.evaluate(hide, True)
    with mock.changed:
        assert mock.changed.wait_for(lambda: not mock.viewers, 30)
    mock.arrays(2, u=ramp())
    assert not until(seen, "state")["connected"]
    seen.evaluate(hide, False)
    assert shown(seen, 2)["history"]["frames"] == 2


def test_it_comes_back_after_the_server_was_away(look: Open, mock: Mock) -> None:
    first = Mock()
    first.arrays(7, u=ramp())
    seen = look(first)
    shown(seen, 7)
    first.close()
    until(seen, "!state.connected && document.querySelector('#badge').textContent.includes('trying again')")
    # The last frame stays.
    assert still(seen)["step"] == 7 and pixels(seen, "u").any()
    second = Mock(first.port)
    try:
        second.arrays(8, u=ramp() + 1)
        state = shown(seen, 8)
        assert state["connected"] and state["history"]["frames"] == 2
        until(seen, "document.querySelector('#badge').textContent === 'live'")
    finally:
        second.close()


def test_who_paused_is_paused_on_a_new_connection(look: Open, mock: Mock) -> None:
    first = Mock()
    first.arrays(7, u=ramp())
    seen = look(first)
    shown(seen, 7)
    seen.keyboard.press(" ")
    first.wait(lambda m: m["type"] == "pause")
    first.close()
    until(seen, "!state.connected")
    second = Mock(first.port)
    try:
        second.hello(u=((12, 20), "f4"))
        second.wait(lambda m: m["type"] == "pause")
        # One that was on its way when the page paused.
        second.send(pack({"id": 1, "step": 8, "time": 0.0, "values": {}}, [view("u", ramp())]))
        state = until(seen, "state.newest === 8 && state")
        assert state["paused"] and state["step"] == 7
    finally:
        second.close()


def test_another_program_of_the_name_starts_afresh(look: Open, mock: Mock) -> None:
    mock.arrays(90, u=ramp(), values={"t": 9.0})
    seen = look()
    shown(seen, 90)
    seen.keyboard.press("c")
    mock.state("lost", "unit 2 was killed")
    until(seen, "document.querySelector('#badge').textContent === 'program lost: unit 2 was killed'")
    assert still(seen)["step"] == 90 and pixels(seen, "u").any()
    mock.greeting = None
    mock.arrays(0, u=ramp(6, 5), v=ramp(7, 5))
    state = shown(seen, 0)
    assert state["history"]["frames"] == 1 and state["state"] == "running"
    assert [one["name"] for one in state["views"]] == ["u", "v"] and state["views"][0]["shape"] == [6, 5]
    # How it was looked at stays.
    assert state["views"][0]["look"]["table"] == "magma"
    mock.state("ended")
    until(seen, "document.querySelector('#badge').textContent === 'ended'")


KEYS = {
    " ": "state.paused",
    "+": "state.views[0].zoom === 1.5",
    "c": "state.views[0].look.table === 'magma'",
    "C": "state.views[0].look.table === 'twilight'",
    "l": "state.views[0].range.log",
    "o": "document.querySelector('#owners').ariaPressed === 'true'",
    "?": "document.querySelector('#help').open",
}


@pytest.mark.parametrize("key", KEYS)
def test_keys(look: Open, mock: Mock, key: str) -> None:
    mock.hello(u=((40, 40), "f4", owners(40, 40)))
    mock.show(1, view("u", ramp(40, 40)))
    seen = look()
    shown(seen, 1)
    assert not seen.evaluate(f"() => {{ const state = polyduct.state(); return {KEYS[key]}; }}")
    seen.keyboard.press(key)
    until(seen, KEYS[key])
    # Where text is written, keys are text.
    if key in "lco":
        choose(seen, "mode", "hand")
        before = still(seen)["views"][0]["look"]
        seen.locator("#lo").press(key)
        assert still(seen)["views"][0]["look"] == before


def test_other_slices_are_asked_for(look: Open, mock: Mock) -> None:
    whole = np.arange(6 * 8 * 10, dtype="f4").reshape(6, 8, 10)
    mock.hello(rho=(whole.shape, "f4", owners(6, 8, 10)))
    mock.show(1, view("rho", whole[3], axes=[1, 2], slice=3))
    seen = look()
    shown(seen, 1)
    seen.mouse.move(*place(seen, "rho", 2, 4))
    assert seen.locator(".readout").text_content() == f"[3, 2, 4]  {whole[3, 2, 4]:g}  unit 9"
    seen.get_by_label("slice of axis 0 of rho").fill("1")
    want = mock.wait(lambda m: m["type"] == "want")
    assert want == {
        "type": "want", "view": "rho", "axes": [1, 2], "lo": [0, 0], "hi": [8, 10], "pixels": [8, 10],
        "slice": 1, "project": None, "reduce": "mean",
    }  # fmt: skip
    mock.show(2, view("rho", whole[1], axes=[1, 2], slice=1))
    shown(seen, 2)
    seen.mouse.move(*place(seen, "rho", 2, 5))
    assert seen.locator(".readout").text_content() == f"[1, 2, 5]  {whole[1, 2, 5]:g}  unit 4"
    seen.get_by_label("maximum").check()
    mock.wait(lambda m: m["type"] == "want" and m["project"] == "max" and m["slice"] is None)
    mock.show(3, view("rho", whole.max(0), axes=[1, 2]))
    shown(seen, 3)
    seen.mouse.move(*place(seen, "rho", 2, 4))
    assert seen.locator(".readout").text_content() == f"[*, 2, 4]  {whole[5, 2, 4]:g}  unit 4, 9"
    seen.get_by_label("maximum").uncheck()
    seen.get_by_label("axes of rho").select_option("axes 0 × 2")
    want = mock.wait(lambda m: m["type"] == "want" and m["axes"] == [0, 2])
    assert (want["lo"], want["hi"], want["slice"]) == ([0, 0], [6, 10], 4)
    mock.show(4, view("rho", whole[:, 4], axes=[0, 2], slice=4))
    assert shown(seen, 4)["views"][0]["full"] == [6, 10]
    np.testing.assert_array_equal(pixels(seen, "rho"), coloured(whole[:, 4], 40, 449, "viridis"))


def test_a_part_of_a_large_array_is_asked_for(look: Open, mock: Mock) -> None:
    coarse = ramp(500, 600)
    whole = {"full": [20000, 24000], "reduce": "mean"}
    mock.hello(u=((20000, 24000), "f4", owners(20000, 24000)))
    mock.show(1, view("u", coarse, **whole, lo=[0, 0], hi=[20000, 24000]))
    seen = look()
    shown(seen, 1)
    seen.mouse.move(*place(seen, "u", 300, 200))
    text = seen.locator(".readout").text_content() or ""
    assert "(mean of 40×40)  unit 9" in text
    for _ in range(4):
        seen.mouse.wheel(0, -400)
    until(seen, "state.views[0].zoom > 20")
    want = mock.wait(lambda m: m["type"] == "want" and m["hi"][1] - m["lo"][1] < 3000)
    lo, hi = want["lo"], want["hi"]
    assert lo[0] < 12000 < hi[0] and lo[1] < 8000 < hi[1] and all(0 < n <= 4096 for n in want["pixels"])
    # Until the fine part comes the coarse one is seen, magnified.
    assert still(seen)["views"][0]["hi"] == [20000, 24000]
    fine = ramp(hi[0] - lo[0], hi[1] - lo[1])
    mock.show(2, view("u", fine, full=[20000, 24000], lo=lo, hi=hi))
    shown(seen, 2)
    row, column = until(seen, "state.views[0].under.index")
    assert abs(row - 12000) < 60 and abs(column - 8000) < 60
    value = seen.locator(".readout").text_content() or ""
    assert f"{fine[row - lo[0], column - lo[1]]:.8g}  unit 9" in value


def test_values_are_saved_to_the_bit(look: Open, mock: Mock) -> None:
    arrays = [ramp(), ramp(3, 4, "u8") * 2**60, np.array([[True, False]]), ramp(2, 2) * 1j]
    for step, array in enumerate(arrays):
        mock.greeting = None
        mock.arrays(step, u=array)
        seen = look()
        shown(seen, step)
        with seen.expect_download() as saved:
            seen.keyboard.press("d")
        assert saved.value.suggested_filename == f"sim-u-{step}.npy"
        buffer = io.BytesIO()
        np.save(buffer, array)
        assert saved.value.path().read_bytes() == buffer.getvalue(), kind(array)


def test_the_picture_is_saved(look: Open, mock: Mock) -> None:
    mock.arrays(3, u=ramp())
    seen = look()
    shown(seen, 3)
    with seen.expect_download() as saved:
        seen.locator("#png").click()
    data = saved.value.path().read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and saved.value.suggested_filename == "sim-3.png"
    box = seen.locator("#stage").bounding_box()
    assert box is not None
    assert int.from_bytes(data[16:20], "big") == round(box["width"])


def test_a_bundle_has_tiles_curves_and_values(look: Open, mock: Mock) -> None:
    seen = look()
    mock.wait_for_viewer()
    line = np.sin(np.linspace(0, 9, 300))
    for step in range(3):
        mock.arrays(step, u=ramp(), s=line, values={"t": step / 4, "phase": "warm", "bad": None})
        shown(seen, step)
    assert [seen.locator(f"[data-value={name}]").text_content() for name in ("t", "phase", "bad")] == [
        "0.5", "warm", "null",
    ]  # fmt: skip
    # The curve is where the values are.
    drawn = pixels(seen, "s").astype(int)
    curve = (drawn[..., 2] - drawn[..., 0] > 80) & (drawn[..., 3] > 128)
    columns = np.flatnonzero(curve.any(axis=0))
    assert columns.size > 300
    peak, trough = (columns[int(columns.size * part)] for part in (0.17, 0.52))
    top, bottom = (int(np.flatnonzero(curve[:, column])[0]) for column in (peak, trough))
    assert top < bottom
    until(seen, "!document.querySelector('.run').hidden")
    seen.mouse.click(*place(seen, "u", 5, 5))
    until(seen, "state.views[0].visible && !state.views[1].visible && !state.drawing")
    seen.keyboard.press("c")
    seen.keyboard.press("Escape")
    state = until(seen, "state.views[1].visible && !state.drawing && state")
    assert [one["look"]["table"] for one in state["views"]] == ["magma", "viridis"]


def test_what_cannot_be_read_is_said_and_harms_nothing(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp())
    seen = look()
    shown(seen, 1)
    for frame in [b"", b"\xff\xff\xff\xff", mock.newest[:-8]]:  # type: ignore[index]
        mock.send(frame)
    until(seen, "document.querySelector('#badge').textContent.startsWith('a frame cannot be read')")
    mock.arrays(2, u=ramp())
    shown(seen, 2)
    until(seen, "document.querySelector('#badge').textContent === 'live'")


def test_gaps_are_counted_as_dropped_but_not_while_paused(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp())
    seen = look()
    shown(seen, 1)
    mock.id += 3
    mock.arrays(5, u=ramp())
    assert shown(seen, 5)["dropped"] == 3
    seen.keyboard.press(" ")
    mock.wait(lambda m: m["type"] == "pause")
    for step in range(6, 9):
        mock.arrays(step, u=ramp())
    seen.keyboard.press(" ")
    assert shown(seen, 8)["dropped"] == 3


def test_a_phone_has_the_controls_below_and_nothing_beside(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp(), v=ramp(), w=ramp(), values={"t": 1.5})
    seen = look(viewport={"width": 390, "height": 844}, has_touch=True)
    shown(seen, 1)
    below = seen.evaluate("document.querySelector('footer').getBoundingClientRect().top")
    assert below >= seen.evaluate("document.querySelector('#stage').getBoundingClientRect().bottom")
    assert seen.evaluate("document.documentElement.scrollWidth") == 390


def test_every_control_has_a_name(look: Open, mock: Mock) -> None:
    mock.hello(u=((4, 20, 30), "f4"))
    mock.show(1, view("u", ramp(20, 30), axes=[1, 2], slice=0))
    seen = look()
    shown(seen, 1)
    nameless = seen.evaluate(
        """() => [...document.querySelectorAll("button, input, select")]
            .filter(one => !one.ariaLabel && !one.closest("label"))
            .filter(one => one.tagName !== "BUTTON" || !one.textContent.trim())
            .map(one => one.outerHTML)"""
    )
    assert nameless == []


def test_the_theme_is_chosen_and_kept(look: Open, mock: Mock) -> None:
    mock.arrays(1, u=ramp())
    seen = look(color_scheme="light")
    shown(seen, 1)
    back = "() => getComputedStyle(document.body).backgroundColor"
    light = seen.evaluate(back)
    seen.locator("#theme").click()
    dark = seen.evaluate(back)
    assert light != dark
    seen.reload()
    shown(seen, 1)
    assert seen.evaluate(back) == dark


def test_all_names_are_listed_and_the_token_goes_on(browser: Browser) -> None:
    names = [{"name": "a/b", "step": 7, "viewers": 2, "state": "running"}]
    names += [{"name": "c", "step": None, "viewers": 0, "state": "running"}]
    mock = Mock(name="a/b", listing={"names": names})
    try:
        seen = browser.new_page()
        seen.goto(f"http://127.0.0.1:{mock.port}/?token=0123")
        cards = seen.locator(".card")
        cards.nth(1).wait_for()
        assert cards.all_inner_texts() == ["a/b\nstep 7 · 2 viewers", "c\nno step yet · 0 viewers"]
        mock.arrays(7, u=ramp())
        cards.nth(0).click()
        seen.wait_for_url("**/a/b?token=0123")
        shown(seen, 7)
        assert "/a/b/ws?token=0123" in mock.asked and "/status.json?token=0123" in mock.asked
        seen.close()
    finally:
        mock.close()
