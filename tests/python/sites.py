"""Two sites with a network between them, for tests: programs that write and read a field, and mishaps."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import polyduct

FIELD = np.arange(1 << 18, dtype="u4").reshape(512, 512)
KEY = "0123456789abcdef" * 4


def rows(unit: int, units: int) -> np.ndarray:
    return np.array_split(FIELD, units)[unit]


def write(url: str, units: int, steps: int) -> list[Callable[[], None]]:
    def unit(k: int) -> None:
        with polyduct.open(
            url,
            "w",
            shape=FIELD.shape,
            dtype="u4",
            layout="balanced,*",
            unit=k,
            units=units,
            program="w",
            timeout=60,
        ) as out:
            for t in range(steps):
                out.write(rows(k, units) + np.uint32(t))

    return [lambda k=k: unit(k) for k in range(units)]  # type: ignore[misc]


def read(url: str, units: int) -> list[Callable[[], list[np.ndarray]]]:
    def unit(k: int) -> list[np.ndarray]:
        port = polyduct.open(url, layout="*,balanced", unit=k, units=units, program="r", timeout=60)
        return [a.copy() for a in port]

    return [lambda k=k: unit(k) for k in range(units)]  # type: ignore[misc]


def check(parts: list[list[np.ndarray]], steps: int) -> None:
    assert [len(p) for p in parts] == [steps] * len(parts)
    for t in range(steps):
        assert np.array_equal(np.concatenate([p[t] for p in parts], axis=1), FIELD + np.uint32(t))


@dataclass
class Way:
    """One direction of a connection."""

    to: socket.socket
    left: int
    """Bytes until it is cut."""
    waiting: bytes = b""
    due: float = 0.0
    """When what waits may go on."""


class Middle:
    """A network between two sites: carries connections to a port, and cuts each after some bytes, as chance
    has it. A rough one resets what it cuts, holds some pieces back for a while, so that lanes overtake each
    other, and takes nothing at all from one connection for a second."""

    def __init__(self, to: int, most: int, seed: int, rough: bool = False) -> None:
        self._to, self._most, self._random, self._rough = to, most, random.Random(seed), rough
        self._server = socket.create_server(("127.0.0.1", 0))
        self._over, self._waker = socket.socketpair()
        self._ways: dict[socket.socket, Way] = {}
        self._thread = threading.Thread(target=self._run)
        self.cuts = self.stalls = 0
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            due = {way.to: one for one, way in self._ways.items() if way.waiting and way.due <= now}
            later = [way.due - now for way in self._ways.values() if way.waiting and way.due > now]
            idle = [one for one, way in self._ways.items() if not way.waiting]
            ready, takes, _ = select.select(
                [self._server, self._over, *idle], [*due], [], min(later, default=None)
            )
            if self._over in ready:
                break
            for one in ready:
                if one is self._server:
                    self._accept()
                elif one in self._ways:
                    self._take(one)
            for one in takes:
                if due[one] in self._ways:
                    self._give(due[one])
        for one in [*self._ways, self._server]:
            one.close()

    def _accept(self) -> None:
        here = self._server.accept()[0]
        try:
            there = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            here.close()
            return
        for one, other in ((here, there), (there, here)):
            one.setblocking(False)
            self._ways[one] = Way(other, self._random.randrange(1000, self._most))

    def _take(self, one: socket.socket) -> None:
        way = self._ways[one]
        try:
            way.waiting = one.recv(1 << 16)[: way.left]
        except OSError:
            way.waiting = b""
        way.left -= len(way.waiting)
        if not way.waiting:
            self._close(one)
        elif self._rough:
            way.due = time.monotonic() + self._random.choice([0, 0, 0, 0, 0.001, 0.02])
            # Not before the lanes have met.
            if self.stalls == 0 and self.cuts > 1:
                self.stalls += 1
                way.due += 1

    def _give(self, one: socket.socket) -> None:
        way = self._ways[one]
        try:
            way.waiting = way.waiting[way.to.send(way.waiting) :]
        except OSError:
            self._close(one)
            return
        if not way.waiting and way.left <= 0:
            self.cuts += 1
            self._close(one, self._rough)

    def _close(self, one: socket.socket, resets: bool = False) -> None:
        for end in (one, self._ways[one].to):
            if resets:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._ways.pop(end)
            end.close()

    def close(self) -> None:
        self._waker.send(b"x")
        self._thread.join()
        self._waker.close()
        self._over.close()
