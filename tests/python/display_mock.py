"""A server in the place of the display's, to test its page alone: sends what tests say, keeps what it hears."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

PARTS = Path(__file__).resolve().parents[2] / "crates" / "display" / "src" / "page"
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:"
)
INTEGERS = [f"{sign}{size}" for sign in "ui" for size in (1, 2, 4, 8)]
NAMES = {np.dtype(code).str[1:]: code for code in ["f2", "f4", "f8", "c8", "c16", *INTEGERS]}
#: A view's header and its values.
View = tuple[dict[str, Any], bytes]


def page() -> str:
    """The document, from the parts that ``mod.rs`` puts together, squeezed as it does it."""
    source = (PARTS / "mod.rs").read_text()
    inside = source[source.index("concat!(") : source.index("\n);")]
    parts = re.findall(r'include_str!\("([^"]+)"\)|"([^"]*)"', inside)
    text = "".join((PARTS / file).read_text() if file else said.replace("\\n", "\n") for file, said in parts)
    comments = ("//", "/**", "*  ")
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith(comments)]
    return "".join(line if line.endswith(("{", ",", ";", "(")) else line + "\n" for line in lines)


def kind(array: np.ndarray) -> str:
    """The type as frames name it."""
    if array.dtype == bool:
        return "b1"
    return NAMES.get(array.dtype.str[1:], array.dtype.name.replace("bfloat16", "bf16"))


def view(name: str, array: np.ndarray, **more: Any) -> View:
    """One view of a frame: the whole of an array, or what `more` says that it is of one."""
    array = np.ascontiguousarray(array)
    plain = {
        "name": name, "dtype": kind(array), "shape": array.shape, "full": array.shape, "lo": [0] * array.ndim,
        "hi": array.shape, "slice": None, "axes": list(range(array.ndim)), "reduce": None,
    }  # fmt: skip
    return {**plain, **more}, array.tobytes()


def pack(head: dict[str, Any], views: list[View]) -> bytes:
    """A frame as it goes over the wire."""
    at, parts, listed = 0, [], []
    for one, data in views:
        listed.append({**one, "at": at, "len": len(data)})
        padded = data + bytes(-len(data) % 8)
        parts.append(padded)
        at += len(padded)
    text = json.dumps({"type": "frame", **head, "views": listed}).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, bytes(-(4 + len(text)) % 8), *parts])


def packed(text: str) -> bytes:
    """A message without arrays as it goes over the wire."""
    return len(text.encode()).to_bytes(4, "little") + text.encode()


class Viewer:
    """What one page is sent in its body: two frames on the way, behind them the newest."""

    def __init__(self, connection: ServerConnection) -> None:
        self.socket = connection
        self.id = connection.id.hex
        self.out = 0
        self.paused = False
        self.waiting: bytes | None = None
        #: Messages before the next frame.
        self.texts: list[bytes] = []
        self.gone = False


class Mock:
    """Serves the page and one name's frames on loopback. ``heard`` has all messages of all pages."""

    def __init__(self, port: int = 0, name: str = "sim", listing: dict[str, Any] | None = None) -> None:
        self.name = name
        self.listing = listing
        self.page = page().encode()
        self.heard: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.greeting: str | None = None
        self.newest: bytes | None = None
        self.id = 0
        self.viewers: list[Viewer] = []
        self.changed = threading.Condition()
        self.server = serve(
            self._viewer, "127.0.0.1", port, process_request=self._request, compression=None,
            max_size=1 << 16, ping_interval=None,
        )  # fmt: skip
        self.port = self.server.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.name}"

    def close(self) -> None:
        """Ends all connections and the listening."""
        with self.changed:
            for one in self.viewers:
                one.gone = True
            self.changed.notify_all()
        self.server.shutdown()
        for one in list(self.viewers):
            one.socket.close()
        self.thread.join()

    def hello(self, **shapes: Any) -> None:
        """Greets: NAME=(shape, type) or (shape, type, owners) for each view."""
        views = [
            {"name": name, "shape": said[0], "dtype": said[1], "owners": said[2] if len(said) > 2 else None}
            for name, said in shapes.items()
        ]
        self.greeting = json.dumps({"type": "hello", "name": self.name, "views": views, "group": None})
        self.newest = None
        self.text(self.greeting)

    def state(self, state: str, why: str = "") -> None:
        self.text(json.dumps({"type": "state", "state": state, "why": why}))

    def text(self, text: str) -> None:
        self.send(packed(text))

    def send(self, message: bytes) -> None:
        with self.changed:
            for one in self.viewers:
                one.texts.append(message)
            self.changed.notify_all()

    def show(self, step: int, *views: View, values: dict[str, Any] | None = None) -> None:
        """Publishes a frame."""
        self.id += 1
        head = {"id": self.id, "step": step, "time": time.time(), "values": values or {}}
        frame = pack(head, list(views))
        with self.changed:
            self.newest = frame
            for one in self.viewers:
                one.waiting = frame
            self.changed.notify_all()

    def arrays(self, step: int, values: dict[str, Any] | None = None, **arrays: np.ndarray) -> None:
        """Publishes whole arrays; greets first where nothing was said."""
        if self.greeting is None:
            self.hello(**{name: (a.shape, kind(a)) for name, a in arrays.items()})
        self.show(step, *(view(name, a) for name, a in arrays.items()), values=values)

    def wait(self, told: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message of a page that is as asked; waits until there is one."""
        with self.changed:
            assert self.changed.wait_for(lambda: any(map(told, self.heard)), 30), self.heard
            return next(filter(told, self.heard))

    def wait_for_viewer(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: bool(self.viewers), 30)

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        self.asked.append(request.path)
        path, _, query = request.path.partition("?")
        if path == f"/{self.name}/ws":
            return None
        if path == f"/{self.name}/frames":
            return self._body(connection, parse_qs(query)["viewer"][0])
        if path == "/status.json" and self.listing is not None:
            return self._answer(200, "application/json", json.dumps(self.listing).encode())
        if path in ("/", f"/{self.name}"):
            return self._answer(200, "text/html; charset=utf-8", self.page)
        return self._answer(404, "text/plain", b"no such name\n")

    def _answer(self, status: int, what: str, body: bytes) -> Response:
        headers = Headers({"Content-Type": what, "Content-Length": str(len(body)), "Connection": "close"})
        headers["Content-Security-Policy"] = POLICY
        return Response(status, "", headers, body)

    def _viewer(self, connection: ServerConnection) -> None:
        one = Viewer(connection)
        with self.changed:
            if self.greeting:
                one.texts.append(packed(self.greeting))
            one.waiting = self.newest
            self.viewers.append(one)
            self.changed.notify_all()
        try:
            connection.send(json.dumps({"type": "viewer", "id": one.id}))
            for text in connection:
                self._hear(one, json.loads(text))
        except ConnectionClosed:
            pass
        finally:
            with self.changed:
                one.gone = True
                self.viewers.remove(one)
                self.changed.notify_all()

    def _hear(self, one: Viewer, message: dict[str, Any]) -> None:
        with self.changed:
            self.heard.append(message)
            if message["type"] == "ack":
                one.out -= 1
            elif message["type"] == "pause":
                one.paused = True
            elif message["type"] == "play":
                one.paused = False
                one.waiting = self.newest
            self.changed.notify_all()

    def _body(self, connection: ServerConnection, viewer: str) -> Response:
        """Writes a viewer's messages until it is gone: more than an answer can be here."""
        with self.changed:
            one = next(one for one in self.viewers if one.id == viewer)

        def ready() -> bool:
            return one.gone or bool(one.texts) or (one.waiting is not None and one.out < 2 and not one.paused)

        body = connection.socket
        with contextlib.suppress(OSError):
            body.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n")
            while True:
                with self.changed:
                    self.changed.wait_for(ready)
                    if one.gone:
                        break
                    message: bytes | None = one.texts.pop(0) if one.texts else None
                    if message is None:
                        message, one.waiting = one.waiting, None
                        one.out += 1
                assert message is not None
                body.sendall(len(message).to_bytes(8, "little") + message)
            body.shutdown(socket.SHUT_WR)
        # Nobody reads that.
        return self._answer(200, "text/plain", b"")
