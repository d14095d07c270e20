"""A viewer of a display without a browser: what a page asks the server, and what it gets."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
from websockets.sync.client import connect


class Viewer:
    """Speaks by a websocket, and reads the body of what it is shown, as far as it is asked to; the system
    holds `room` bytes of it before that. Throws what these throw where it is refused."""

    def __init__(self, port: int, name: str, room: int | None = None) -> None:
        with contextlib.ExitStack() as stack:
            url = f"ws://127.0.0.1:{port}/{name}/ws"
            speaking = connect(url, compression=None, close_timeout=1)
            self._socket = speaking.__enter__()
            stack.callback(self._close, speaking)
            viewer = json.loads(self._socket.recv(30))["id"]
            body = stack.enter_context(socket.socket())
            body.settimeout(60)
            if room is not None:
                body.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            body.connect(("127.0.0.1", port))
            asking = http.client.HTTPConnection("127.0.0.1", port)
            asking.sock = body
            asking.request("GET", f"/{name}/frames?viewer={viewer}")
            self._body = stack.enter_context(asking.getresponse())
            if self._body.status != 200:
                raise ConnectionRefusedError(self._body.read().decode())
            self._stack = stack.pop_all()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def _close(speaking: connect) -> None:
        # The library asserts that no end closes while the other does.
        with contextlib.suppress(AssertionError):
            speaking.__exit__(None, None, None)

    def _read(self, size: int) -> bytes:
        read = self._body.read(size)
        if len(read) < size:
            raise EOFError(f"{len(read)} bytes of {size}")
        return read

    def messages(self) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
        """What is told, and of frames the arrays by name. A frame is acknowledged when the next is awaited."""
        while True:
            message = self._read(int.from_bytes(self._read(8), "little"))
            size = int.from_bytes(message[:4], "little")
            head = json.loads(message[4 : 4 + size])
            if head["type"] != "frame":
                yield head, {}
                continue
            start, arrays = (4 + size + 7) // 8 * 8, {}
            for view in head["views"]:
                count = int(np.prod(view["shape"]))
                array = np.frombuffer(message, view["dtype"], count, start + view["at"])
                arrays[view["name"]] = array.reshape(view["shape"])
            yield head, arrays
            self.say({"type": "ack", "id": head["id"]})

    def say(self, message: dict[str, Any]) -> None:
        self._socket.send(json.dumps(message))
