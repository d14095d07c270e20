"""A viewer of a display without a browser: what a page asks the server, and what it gets."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class Viewer:
    """Speaks by a websocket, and reads the body of what it is shown, as far as it is asked to; the system
    holds `room` bytes of it before that. OSError and EOFError where it is refused or the server goes away."""

    def __init__(self, port: int, name: str, room: int | None = None) -> None:
        with contextlib.ExitStack() as stack:

            def ask(path: str, more: str, status: int, room: int | None) -> tuple[socket.socket, BinaryIO]:
                asks = stack.enter_context(socket.socket())
                asks.settimeout(60)
                asks.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if room is not None:
                    asks.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
                asks.connect(("127.0.0.1", port))
                asks.sendall(f"GET /{name}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}\r\n".encode())
                answer = stack.enter_context(asks.makefile("rb"))
                first = answer.readline()
                if first.split()[1:2] != [str(status).encode()]:
                    raise ConnectionRefusedError(first)
                while answer.readline().strip():
                    pass
                return asks, answer

            self._socket, greeting = ask("ws", UPGRADE, 101, None)
            # The server's frames have no mask, and this one is short.
            viewer = json.loads(read(greeting, read(greeting, 2)[1]))["id"]
            _, self._body = ask(f"frames?viewer={viewer}", "", 200, room)
            self._stack = stack.pop_all()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def messages(self) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
        """What is told, and of frames the arrays by name. A frame is acknowledged when the next is awaited."""
        while True:
            message = read(self._body, int.from_bytes(read(self._body, 8), "little"))
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
        """Says something short; a mask of zeros is one, too."""
        text = json.dumps(message).encode()
        assert len(text) < 126
        self._socket.sendall(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)


def read(stream: BinaryIO, size: int) -> bytes:
    came = stream.read(size)
    if len(came) < size:
        raise EOFError(f"{len(came)} bytes of {size}")
    return came
