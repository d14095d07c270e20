"""An ordinary program: takes fields from four sockets and says how rough the edge of each is.

python examples/quadrants/analyse.py PORT SIZE PICTURE.png
"""

import contextlib
import socket
import sys
from collections.abc import Iterator

import numpy as np
from PIL import Image

LANES, UNIT = 4, 16384


def fields(port: int, size: int) -> Iterator[np.ndarray]:
    """The bytes of each field come in units, one from each connection in turn, beginning with the first."""
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", port)))
        lanes = [sockets.enter_context(server.accept()[0]).makefile("rb") for _ in range(LANES)]
        units = [min(UNIT, size * size - at) for at in range(0, size * size, UNIT)]
        while first := lanes[0].read(units[0]):
            others = [lanes[k % LANES].read(units[k]) for k in range(1, len(units))]
            yield np.frombuffer(first + b"".join(others), "u1").reshape(size, size)


def dimension(field: np.ndarray, level: int = 20) -> float:
    """The box dimension of the line around what is above the level: how the number of boxes that it goes
    through grows when they get smaller."""
    above = field > level
    edge = np.zeros_like(above)
    edge[:-1] |= above[:-1] != above[1:]
    edge[:, :-1] |= above[:, :-1] != above[:, 1:]
    boxes = [2**k for k in range(1, len(field).bit_length() - 3)]
    counts = []
    for box in boxes:
        whole = len(field) // box * box
        tiles = edge[:whole, :whole].reshape(whole // box, box, whole // box, box)
        counts.append(max(1, np.count_nonzero(tiles.any(axis=(1, 3)))))
    return float(-np.polyfit(np.log(boxes), np.log(counts), 1)[0])


def colours() -> list[int]:
    """Of 256 values: from night over blue and gold to black, which is what stays."""
    value = np.linspace(0, 1, 256) ** 0.35
    stops = [0, 0.25, 0.45, 0.65, 0.85, 1]
    shades = [(4, 6, 30), (24, 60, 140), (110, 170, 220), (250, 240, 200), (230, 140, 30), (0, 0, 0)]
    table = np.stack([np.interp(value, stops, channel) for channel in zip(*shades, strict=True)], axis=1)
    return [int(shade) for shade in table.flatten()]


def main() -> None:
    port, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    seen = []
    for step, field in enumerate(fields(port, size)):
        inside, rough = np.mean(field == 255), dimension(field)
        print(f"field {step}: {inside:.1%} stays, the edge has dimension {rough:.2f}", flush=True)
        seen.append(field)
    seen += [np.zeros_like(field)] * (-len(seen) % 4)
    picture = Image.fromarray(np.vstack([np.hstack(seen[at : at + 4]) for at in range(0, len(seen), 4)]), "P")
    picture.putpalette(colours())
    picture.save(path)


if __name__ == "__main__":
    main()
