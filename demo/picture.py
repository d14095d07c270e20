"""The demo's picture: what went in, what came out, and who owned what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import polyduct

NIGHT, PANEL, INK, FAINT, LINE = "#0b0e14", "#11151f", "#e6edf3", "#8b949e", "#2a3140"
ROWS = ["#5ec8f2", "#58a6ff", "#7c83fd", "#b07cf7"]
COLUMNS = ["#ffb454", "#ff7a59", "#f25f9c"]
# Everything is drawn twice as large, and made smaller in the end: smooth edges.
SCALE = 2


@dataclass
class Moves:
    """Who holds what on both sides of the pipe, and what went from whom to whom."""

    rows: polyduct.Layout
    columns: polyduct.Layout
    rows_in: polyduct.Layout
    """How the row side reads its file, halo included."""

    @cached_property
    def traffic(self) -> np.ndarray:
        """Bytes from each unit of the rows to each of the columns."""
        return np.array(
            [[self._shared(a, b) for b in range(self.columns.units)] for a in range(self.rows.units)]
        )

    @property
    def halo_bytes(self) -> int:
        """Bytes that the column side got for its halos."""
        return int(self.traffic.sum()) - int(np.prod(self.rows.shape)) * self.rows.itemsize

    def _shared(self, a: int, b: int) -> int:
        [one], [other] = self.rows.boxes(a), self.columns.boxes(b, halo=True)
        sizes = [max(0, min(p[1], q[1]) - max(p[0], q[0])) for p, q in zip(one, other)]
        return int(np.prod(sizes)) * self.rows.itemsize


class Canvas:
    """A picture in final pixels, drawn larger."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width * SCALE, height * SCALE), NIGHT)

    def paste(self, image: Image.Image, x: float, y: float, width: float, height: float) -> None:
        size = (round(width * SCALE), round(height * SCALE))
        self.image.paste(image.resize(size, Image.Resampling.LANCZOS), (round(x * SCALE), round(y * SCALE)))

    def polygon(self, points: list[tuple[float, float]], colour: str, alpha: float) -> None:
        """A filled shape that lets what is below shine through."""
        layer = Image.new("L", self.image.size)
        ImageDraw.Draw(layer).polygon([(x * SCALE, y * SCALE) for x, y in points], fill=round(255 * alpha))
        self.image.paste(colour, (0, 0), layer)

    def box(self, x: float, y: float, width: float, height: float, colour: str, alpha: float) -> None:
        self.polygon([(x, y), (x + width, y), (x + width, y + height), (x, y + height)], colour, alpha)

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1) -> None:
        ImageDraw.Draw(self.image).line(
            [(x * SCALE, y * SCALE) for x, y in points],
            fill=colour,
            width=round(width * SCALE),
            joint="curve",
        )

    def ring(self, x: float, y: float, radius: float, colour: str, width: float) -> None:
        box = [(c + s * radius) * SCALE for s in (-1, 1) for c in (x, y)]
        ImageDraw.Draw(self.image).ellipse(box, outline=colour, width=round(width * SCALE))

    def text(
        self, x: float, y: float, words: str, size: float, colour: str = INK, anchor: str = "ls"
    ) -> None:
        font = ImageFont.load_default(size * SCALE)
        ImageDraw.Draw(self.image).text((x * SCALE, y * SCALE), words, fill=colour, font=font, anchor=anchor)

    def finish(self) -> Image.Image:
        width, height = self.image.size
        return self.image.resize((width // SCALE, height // SCALE), Image.Resampling.LANCZOS)


def draw(image: np.ndarray, found: np.ndarray, moves: Moves, stats: dict, seconds: float) -> Image.Image:
    """The whole picture."""
    height, width = found.shape
    margin, gap, top = 48, 40, 156
    wide = 820
    tall = wide * height / width
    below = top + tall + 92
    small = 400
    small_tall = small * height / width
    canvas = Canvas(2 * wide + gap + 2 * margin, round(below + small_tall + 110))
    right = margin + wide + gap

    canvas.text(margin, 58, "Stars in the Hubble deep field", 34)
    words = f"4 processes denoise blocks of rows, 3 find stars in blocks of columns: {np.count_nonzero(found)} objects"
    canvas.text(margin, 90, words, 18, FAINT)

    light = Image.fromarray((np.clip(image, 0, 1) ** 0.8 * 255).astype("u1"))
    canvas.paste(light, margin, top, wide, tall)
    heading(canvas, margin, top, "input", f"hubble.npy, {height} by {width} pixels, 3 float32 each")

    dim = Image.fromarray((np.clip(image, 0, 1).mean(axis=2) ** 0.8 * 170).astype("u1")).convert("RGB")
    canvas.paste(dim, right, top, wide, tall)
    heading(
        canvas,
        right,
        top,
        "result",
        "stars.npy: a ring for each object, in the colour of the process that found it",
    )
    mark(canvas, found, moves, right, top, wide / width)

    flows(canvas, light, moves, (margin, below, small, small_tall), 2 * wide + gap)
    canvas.text(margin, below + small_tall + 66, summary(moves, stats, seconds), 17, FAINT)
    return canvas.finish()


def heading(canvas: Canvas, x: float, y: float, title: str, words: str) -> None:
    canvas.text(x, y - 12, title, 20)
    canvas.text(x + 14 + len(title) * 10.5, y - 12, words, 15, FAINT)


def mark(canvas: Canvas, found: np.ndarray, moves: Moves, x: float, y: float, scale: float) -> None:
    """A ring for each object, larger for a brighter one."""
    bounds = [moves.columns.boxes(unit)[0][1] for unit in range(moves.columns.units)]
    for unit, (low, high) in enumerate(bounds):
        rows, columns = np.nonzero(found[:, low:high])
        for row, column in zip(rows, columns + low):
            brightness = float(found[row, column])
            at = (x + (column + 0.5) * scale, y + (row + 0.5) * scale)
            canvas.ring(*at, 4 + 11 * min(brightness, 1), COLUMNS[unit], 1.5)
        if low:
            edge = x + low * scale
            for start in np.arange(y, y + found.shape[0] * scale - 4, 12):
                canvas.line([(edge, start), (edge, start + 5)], FAINT, 1)


def flows(
    canvas: Canvas, light: Image.Image, moves: Moves, place: tuple[float, float, float, float], total: float
) -> None:
    """Both owners' maps, and between them a ribbon for what each process of one side gave to each of the
    other."""
    x, y, width, height = place
    far = x + total - width
    scale = height / moves.rows.shape[0]
    grey = light.convert("L").convert("RGB")
    for left in (x, far):
        canvas.paste(grey, left, y, width, height)
    heading(canvas, x, y, "owners of rows", str(moves.rows_in))
    heading(canvas, far, y, "owners of columns", str(moves.columns))
    for unit, colour in enumerate(ROWS):
        [(own, *_)], [(held, *_)] = moves.rows.boxes(unit), moves.rows_in.boxes(unit, halo=True)
        canvas.box(x, y + own[0] * scale, width, (own[1] - own[0]) * scale, colour, 0.42)
        canvas.box(x, y + held[0] * scale, width, (held[1] - held[0]) * scale, colour, 0.14)
        canvas.text(x + 14, y + sum(own) / 2 * scale, f"{unit}", 24, INK, "lm")
    for unit, colour in enumerate(COLUMNS):
        [(_, own, _)], [(_, held, _)] = moves.columns.boxes(unit), moves.columns.boxes(unit, halo=True)
        canvas.box(far + own[0] * scale, y, (own[1] - own[0]) * scale, height, colour, 0.42)
        canvas.box(far + held[0] * scale, y, (held[1] - held[0]) * scale, height, colour, 0.14)
        canvas.text(far + sum(own) / 2 * scale, y + 24, f"{unit}", 24, INK, "mm")

    # The ribbons leave the rows' side in proportion to what was moved, and arrive at one bar for each of the
    # columns.
    start, end = x + width + 18, far - 18
    bar, space = 14, 16
    traffic = moves.traffic
    per_byte = (height - space * (len(COLUMNS) - 1)) / traffic.sum()
    left_per_byte = height / traffic.sum()
    arrive = np.cumsum([0, *(traffic.sum(axis=0)[:-1] * per_byte + space)]) + y
    bars = arrive.copy()
    leave = y
    for unit, row in enumerate(traffic):
        tall = row.sum() * left_per_byte
        canvas.box(start, leave + 1, bar, tall - 2, ROWS[unit], 1)
        for other, amount in enumerate(row):
            a, b = amount * left_per_byte, amount * per_byte
            ribbon(canvas, (start + bar, leave, a), (end - bar, arrive[other], b), ROWS[unit])
            canvas.text(start + bar + 14, leave + a / 2, f"{amount / 1e6:.2f} MB", 13, INK, "lm")
            leave += a
            arrive[other] += b
    for other, colour in enumerate(COLUMNS):
        amount = traffic[:, other].sum()
        canvas.box(end - bar, bars[other], bar, amount * per_byte, colour, 1)
        canvas.text(
            end - bar - 14, bars[other] + amount * per_byte / 2, f"{amount / 1e6:.2f} MB", 15, INK, "rm"
        )
    canvas.text((start + end) / 2, y - 12, "what was moved, once, from memory to memory", 15, FAINT, "ms")


def ribbon(canvas: Canvas, a: tuple[float, float, float], b: tuple[float, float, float], colour: str) -> None:
    """A band from a vertical edge (x, y, height) to another."""
    t = np.linspace(0, 1, 40)
    ease = t * t * (3 - 2 * t)
    x = a[0] + (b[0] - a[0]) * t
    upper = a[1] + (b[1] - a[1]) * ease
    lower = a[1] + a[2] + (b[1] + b[2] - a[1] - a[2]) * ease
    outline = [*zip(x, upper + 0.7), *zip(x[::-1], lower[::-1] - 0.7)]
    canvas.polygon([(float(p), float(q)) for p, q in outline], colour, 0.34)


def summary(moves: Moves, stats: dict, seconds: float) -> str:
    """One line of figures."""
    total = moves.traffic.sum()
    words = [f"{total / 1e6:.1f} MB moved, {moves.halo_bytes / 1e6:.1f} MB of it halo"]
    for pipe in stats["pipes"]:
        if pipe["url"].startswith("pipe:") and pipe["readers"]["copy_s"] > 0:
            rate = total / moves.columns.units / pipe["readers"]["copy_s"] / 1e9
            words.append(f"each reader copied at {rate:.1f} GB/s")
    words.append(
        f"{len(stats['processes'])} processes, {seconds:.1f} s in all, most of it starting Python and filtering"
    )
    return "   ·   ".join(words)
