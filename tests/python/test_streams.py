"""Streams: what ordinary programs at the other end of a socket get, and give."""

from __future__ import annotations

import contextlib
import io
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Process, together

import polyduct

Start = Callable[..., Process]
FIELD = np.arange(60 * 48, dtype="f4").reshape(60, 48)


class Receiver:
    """An ordinary program: takes everything until the end of its connections."""

    def __init__(self, connections: int = 1) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._got = [b""] * connections
        self._error: list[OSError] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def place(self) -> str:
        return f"tcp://127.0.0.1:{self._server.getsockname()[1]}"

    def _run(self) -> None:
        sockets = [self._server.accept()[0] for _ in self._got]
        for k, one in enumerate(sockets):
            with one:
                try:
                    while some := one.recv(1 << 16):
                        self._got[k] += some
                except OSError as e:
                    self._error.append(e)

    def all(self) -> list[bytes]:
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._server.close()
        return self._got

    def error(self) -> OSError | None:
        self.all()
        return self._error[0] if self._error else None


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """A gateway's thread ends with its stream."""
    yield
    end = time.monotonic() + 10
    while "polyduct-gatewa" in _threads():
        assert time.monotonic() < end


def _threads() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        # One that ends meanwhile has no name.
        with contextlib.suppress(OSError):
            names.append((task / "comm").read_text().strip())
    return names


def write(url: str, layout: str, units: int, steps: int, field: np.ndarray = FIELD) -> None:
    """A program of so many units that writes the field, one more in each step."""
    whole = {unit: _part(field, layout, unit, units) for unit in range(units)}

    def unit(k: int) -> None:
        with polyduct.open(
            url, "w", shape=field.shape, dtype=field.dtype, layout=layout, unit=k, units=units, program="w", timeout=30
        ) as out:
            for t in range(steps):
                out.write((whole[k] + t).astype(field.dtype))

    together(*(lambda k=k: unit(k) for k in range(units)))  # type: ignore[misc]


def _part(field: np.ndarray, layout: str, unit: int, units: int) -> np.ndarray:
    whole = polyduct.Layout("*" + ",*" * (field.ndim - 1), shape=field.shape, dtype=field.dtype, units=1)
    return polyduct.redistribute([field], whole, polyduct.Layout(layout, shape=field.shape, dtype=field.dtype, units=units))[unit]


@pytest.mark.parametrize("layout", ["block,*", "*,block", "cyclic(7),block@2x2", "*,cyclic;order=F"])
def test_a_receiver_has_the_row_major_array(layout: str) -> None:
    receiver = Receiver()
    write(receiver.place, layout, 4, 3)
    assert receiver.all()[0] == b"".join((FIELD + t).tobytes() for t in range(3))


def test_steps_as_npy_files_and_with_lengths() -> None:
    receiver = Receiver()
    write(receiver.place + "?form=npy", "block,*", 2, 3)
    files = io.BytesIO(receiver.all()[0])
    assert all((np.load(files) == FIELD + t).all() for t in range(3))
    receiver = Receiver()
    write(receiver.place + "?form=length", "*,block", 3, 2)
    got = receiver.all()[0]
    assert got == b"".join(struct.pack("<Q", FIELD.nbytes) + (FIELD + t).tobytes() for t in range(2))


def test_large_steps_move_in_pieces() -> None:
    """Of some MiB, whose parts lie in one piece, and in many."""
    field = np.arange(1 << 20, dtype="u4").reshape(1024, 1024)
    for layout in ["block,*", "*,cyclic(32)"]:
        receiver = Receiver()
        write(receiver.place, layout, 4, 2, field)
        assert receiver.all()[0] == field.tobytes() + (field + 1).tobytes()


def test_units_reshuffle() -> None:
    """Into large blocks, where they are asked to: what comes is the same, and errors are told to all."""
    field = np.arange(1 << 19, dtype="u4").reshape(512, 1024)
    for units in [1, 3, 4]:
        receiver = Receiver(2)
        write(f"{receiver.place}?lanes=2&su=4096&reshuffle=yes", "*,cyclic(8)", units, 3, field)
        lanes = [iter(np.frombuffer(lane, "u1").reshape(-1, 4096)) for lane in receiver.all()]
        got = b"".join(next(lanes[n % 2]).tobytes() for n in range(3 * field.nbytes // 4096))
        assert got == b"".join((field + t).tobytes() for t in range(3))


def test_a_receiver_that_goes_while_units_reshuffle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}?reshuffle=yes"
        gone = threading.Thread(target=lambda: server.accept()[0].close())
        gone.start()
        with pytest.raises(polyduct.StreamBroken, match="closed|has ended"):
            write(place, "*,cyclic(4)", 3, 10_000)
        gone.join()


def test_stripes_over_lanes() -> None:
    """Striping units are dealt round the lanes, over the whole of a step."""
    receiver = Receiver(3)
    write(receiver.place + "?lanes=3&su=1024", "block,*", 2, 2)
    lanes = receiver.all()
    for t in range(2):
        data, at = (FIELD + t).tobytes(), 0
        sent = [b""] * 3
        while at < len(data):
            sent[at // 1024 % 3] += data[at : at + 1024]
            at += 1024
        for k in range(3):
            assert lanes[k][: len(sent[k])] == sent[k]
            lanes[k] = lanes[k][len(sent[k]) :]
    assert lanes == [b""] * 3


def test_a_program_that_calls_is_sent_to(port: int) -> None:
    got = []

    def call() -> None:
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as s:
                    got.append(s.makefile("rb").read())
                return
            except ConnectionRefusedError:
                pass

    thread = threading.Thread(target=call)
    thread.start()
    write(f"tcp://:{port}", "block,*", 2, 1)
    thread.join()
    assert got == [FIELD.tobytes()]


def send(port: int, data: bytes, resets: bool = False) -> threading.Thread:
    def call() -> None:
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as s:
                    s.sendall(data)
                    if resets:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            except ConnectionRefusedError:
                pass

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def npy(*steps: np.ndarray) -> bytes:
    file = io.BytesIO()
    for step in steps:
        np.save(file, step)
    return file.getvalue()


@pytest.mark.parametrize("units", [1, 3])
def test_what_comes_is_read_in_any_layout(port: int, units: int) -> None:
    thread = send(port, npy(FIELD, FIELD + 1))

    def unit(k: int) -> list[np.ndarray]:
        steps = polyduct.open(f"tcp://:{port}", layout="*,block", unit=k, units=units, program="r", timeout=30)
        return [a.copy() for a in steps]

    parts = together(*(lambda k=k: unit(k) for k in range(units)))  # type: ignore[misc]
    thread.join()
    for t in range(2):
        assert np.array_equal(np.concatenate([p[t] for p in parts], axis=1), FIELD + t)


def test_plain_bytes_are_what_the_reader_says(port: int) -> None:
    thread = send(port, FIELD.tobytes() * 2)
    steps = polyduct.open(f"tcp://:{port}", layout="block,*", shape=FIELD.shape, dtype="f4", timeout=30)
    assert [np.array_equal(a, FIELD) for a in steps] == [True, True]
    thread.join()
    thread = send(port, struct.pack("<Q", FIELD.nbytes) + FIELD.tobytes())
    url = f"tcp://:{port}?form=length"
    with polyduct.open(url, layout="block,*", shape=FIELD.shape, dtype="f4", timeout=30) as reader:
        assert np.array_equal(reader.read(), FIELD)
    thread.join()


@pytest.mark.parametrize(
    ("data", "query", "why"),
    [
        (npy(FIELD) + FIELD.tobytes(), "", "another shape"),
        (npy(FIELD)[:-5], "", "11515 of 11520 bytes are there"),
        (struct.pack("<Q", 7) + bytes(7), "?form=length", "has 7 bytes"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "", "version"),
    ],
)
def test_what_is_no_step_is_an_error_that_says_what_was_found(port: int, data: bytes, query: str, why: str) -> None:
    thread = send(port, data)
    with pytest.raises(polyduct.StreamBroken, match=why) as e:
        for _ in polyduct.open(f"tcp://:{port}{query}", layout="block,*", shape=FIELD.shape, dtype="f4", timeout=30):
            pass
    assert e.value.place == f"tcp://:{port}"
    thread.join()


def test_an_array_that_no_memory_holds_is_an_error_that_says_so(port: int) -> None:
    for shape, why in (
        ((1 << 40, 1 << 20), "address space"),
        ((1 << 46,), "562949953421312|memory"),
        ((1 << 63, 1 << 63), "more than 2.63-1 bytes"),
    ):
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        thread = send(port, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
        with pytest.raises(polyduct.StreamBroken, match=why):
            polyduct.open(f"tcp://:{port}", layout="block,*" if len(shape) == 2 else "block", timeout=60).read()
        thread.join()


def test_all_units_that_read_hear_why_nothing_comes(port: int) -> None:
    thread = send(port, npy(FIELD, FIELD) + FIELD.tobytes())

    def unit(k: int) -> str:
        steps = polyduct.open(f"tcp://:{port}", layout="*,block", unit=k, units=3, program="r", timeout=30)
        assert [np.array_equal(next(steps), FIELD[:, 16 * k : 16 * (k + 1)]) for _ in range(2)] == [True, True]
        with pytest.raises(polyduct.StreamBroken, match="step 2: .*another shape") as e:
            next(steps)
        assert e.value.place == f"tcp://:{port}"
        return str(e.value)

    said = together(*(lambda k=k: unit(k) for k in range(3)))  # type: ignore[misc]
    assert said == said[:1] * 3
    thread.join()


def hang_up(query: str, connections: int = 1) -> list[polyduct.StreamBroken]:
    """What three units are told that write to somebody who hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}{query}"

        def close() -> None:
            server.settimeout(30)
            sockets = [server.accept()[0] for _ in range(connections)]
            for one in sockets:
                one.settimeout(30)
                one.recv(100)
            for one in sockets:
                one.close()

        def unit(k: int) -> polyduct.StreamBroken:
            out = polyduct.open(
                place, "w", shape=FIELD.shape, dtype="f4", layout="block,*", unit=k, units=3, program="w", timeout=60
            )
            with pytest.raises(polyduct.StreamBroken) as e:
                while True:
                    out.write(FIELD[20 * k : 20 * (k + 1)])
            return e.value

        *broken, _ = together(*(lambda k=k: unit(k) for k in range(3)), close)  # type: ignore[misc]
    assert {e.place for e in broken} == {place.split("?")[0]}, broken
    return broken


@pytest.mark.parametrize("query", ["", "?reshuffle=yes", "?lanes=2&su=1024"])
def test_a_receiver_that_hangs_up_is_an_error_for_all_units_that_says_why(query: str) -> None:
    broken = hang_up(query, 2 if "lanes" in query else 1)
    assert "the receiver closed the connection" in str(broken[0])
    assert {str(e) for e in broken} == {str(broken[0])}


def test_a_stream_that_breaks_does_not_look_like_one_that_ended(start: Start) -> None:
    receiver = Receiver()
    writer = start(
        """
        out = polyduct.open(sys.argv[1], "w", shape=3, dtype="u1", layout="*")
        out.write([1, 2, 3])
        say("wrote")
        wait()
        out.abort()
        say("aborted")
        wait()
        """,
        receiver.place,
    )
    assert writer.hear() == "wrote"
    writer.tell()
    assert writer.hear() == "aborted"
    assert isinstance(receiver.error(), ConnectionResetError)


def test_a_writer_unit_that_is_killed_ends_the_stream(start: Start) -> None:
    receiver = Receiver()
    code = """
        url, unit = sys.argv[1], int(sys.argv[2])
        out = polyduct.open(url, "w", shape=(2, 3), dtype="u1", layout="block,*", unit=unit, units=2, program="w")
        out.write([[1, 2, 3]])
        say("wrote")
        wait()
        try:
            out.write([[1, 2, 3]])
            out.write([[1, 2, 3]])
            out.write([[1, 2, 3]])
        except polyduct.PeerLost as e:
            say(e)
        """
    writers = [start(code, receiver.place, unit) for unit in range(2)]
    assert [w.hear() for w in writers] == ["wrote"] * 2
    writers[1].signal(signal.SIGKILL)
    writers[0].tell()
    assert "writer unit 1" in writers[0].hear()
    assert receiver.error() is not None


def test_nobody_there_and_urls_that_cannot_be() -> None:
    with pytest.raises(polyduct.Unreachable, match="refused") as e:
        polyduct.open("tcp://127.0.0.1:1", "w", shape=3, dtype="u1", layout="*", timeout=0.2)
    assert e.value.place == "tcp://127.0.0.1:1"
    with pytest.raises(polyduct.Unreachable, match="no.such.host.invalid:1: not reached"):
        polyduct.open("tcp://no.such.host.invalid:1", "w", shape=3, dtype="u1", layout="*", timeout=0.2)
    for url, at in [
        ("tcp://", 6),
        ("tcp://h", 7),
        ("tcp://h:0", 8),
        ("tcp://h:1/x", 9),
        ("tcp://:x", 7),
        ("tcp://h:1?form=x", 15),
        ("tcp://h:1?lanes=0", 16),
        ("tcp://h:1?form=raw&colour=1", 19),
    ]:
        with pytest.raises(polyduct.BadUrl, match=f"at character {at}"):
            polyduct.open(url, "w", shape=3, dtype="u1", layout="*")


def test_a_receiver_that_takes_nothing_delays_nobody_with_latest() -> None:
    """The program goes on; the steps that the receiver gets are whole."""
    server = socket.create_server(("127.0.0.1", 0))
    field = np.zeros((1 << 20,), "u1")
    url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    out = polyduct.open(url, "w", shape=field.shape, dtype="u1", layout="*", policy="latest", timeout=30)
    with server.accept()[0] as receiver:
        for t in range(100):
            out.write(np.full_like(field, t))
        # It begins to take them.
        file = receiver.makefile("rb")
        first = np.frombuffer(file.read(field.size), "u1")
        assert (first == first[0]).all()
        closing = threading.Thread(target=out.close)
        closing.start()
        rest = np.frombuffer(file.read(), "u1").reshape(-1, field.size)
        closing.join()
    assert (rest == rest[:, :1]).all() and rest[-1, 0] == 99
    server.close()


def test_two_streams_of_one_program_to_one_place() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    outs = [polyduct.open(url, "w", shape=3, dtype="u1", layout="*") for _ in range(2)]
    ends = [server.accept()[0] for _ in outs]
    for k, out in enumerate(outs):
        out.write([k, k, k])
        out.close()
    assert [end.makefile("rb").read() for end in ends] == [b"\0\0\0", b"\1\1\1"]
    for end in [*ends, server]:
        end.close()


def datagrams(count: int) -> tuple[str, Callable[[], list[bytes]]]:
    """A place for datagrams, and those that came there until one says that it is the last, or so many."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(30)

    def take() -> list[bytes]:
        with receiver:
            return [receiver.recv(1 << 16) for _ in range(count)]

    return f"127.0.0.1:{receiver.getsockname()[1]}", take


def test_datagrams_say_where_they_belong() -> None:
    """As the table in docs/streams.md has it: read here with nothing but `struct`."""
    packets = -(-FIELD.nbytes // 1000)
    place, take = datagrams(2 * packets + 1)
    write(f"udp://{place}?packet=1000", "*,block", 2, 2)
    steps = [bytearray(FIELD.nbytes) for _ in range(2)]
    came = take()
    for datagram in came[:-1]:
        magic, version, end, stream, step, at, length, size, _ = struct.unpack("<4sBBHQQQII", datagram[:40])
        assert (magic, version, end, length, size) == (b"PDUD", 2, 0, FIELD.nbytes, len(datagram) - 40)
        steps[step][at : at + size] = datagram[40:]
    assert [bytes(s) for s in steps] == [(FIELD + t).tobytes() for t in range(2)]
    assert struct.unpack("<4sBBHQ", came[-1][:16]) == (b"PDUD", 2, 1, stream, 2)


def test_a_sender_of_datagrams_that_comes_again_is_heard(port: int, start: Callable[..., Process]) -> None:
    sender = """
    with polyduct.open(sys.argv[1], "w", shape=8, dtype="u1", layout="*", timeout=30) as out:
        while True:
            out.write(np.full(8, int(sys.argv[2]), "u1"))
    """
    reader = polyduct.open(f"udp://:{port}", layout="*", shape=8, dtype="u1", timeout=30)
    for who in (1, 2):
        one = start(sender, f"udp://127.0.0.1:{port}", who)
        while next(reader)[0] != who:
            pass
        one.signal(signal.SIGKILL)
        one.end()
    reader.abort()


def test_steps_of_datagrams_come_whole_or_not_at_all(port: int) -> None:
    got: list[np.ndarray] = []

    def into() -> None:
        url = f"udp://:{port}"
        got.extend(a.copy() for a in polyduct.open(url, layout="block,*", shape=FIELD.shape, dtype="f4", timeout=30))

    reader = threading.Thread(target=into)
    reader.start()
    out = polyduct.open(f"udp://127.0.0.1:{port}", "w", shape=FIELD.shape, dtype="f4", layout="*,*", timeout=30)
    # Whoever listens later than the first are sent misses them.
    t = 0
    while not got and t < 100_000:
        out.write(FIELD + t % 50)
        t += 1
    out.write(FIELD)
    out.close()
    reader.join(30)
    assert not reader.is_alive()
    assert got and all(np.array_equal(a - a[0, 0], FIELD) for a in got)


def test_raw_video_is_that_of_rfc_4175() -> None:
    frame = np.arange(30 * 50 * 3, dtype="u2").astype("u1").reshape(30, 50, 3)
    packets = -(-frame.nbytes // 1380)
    place, take = datagrams(2 * packets)
    with polyduct.open(f"rtp://{place}", "w", shape=frame.shape, dtype="u1", layout="block,*,*") as out:
        out.write(frame)
        out.write(frame + 1)
    seen = np.zeros((2, 30, 150), "u1")
    k = 0
    for number, packet in enumerate(take()):
        flags, kind, low, stamp, source = struct.unpack(">BBHII", packet[:12])
        assert (flags, kind & 0x7F, low) == (0x80, 96, number)
        lines, at = [], 14
        while True:
            length, line, offset = struct.unpack(">HHH", packet[at : at + 6])
            lines.append((length, line & 0x7FFF, offset & 0x7FFF))
            at += 6
            if not offset & 0x8000:
                break
        for length, line, offset in lines:
            seen[k, line, 3 * offset : 3 * offset + length] = np.frombuffer(packet[at : at + length], "u1")
            at += length
        assert at == len(packet)
        k += kind >> 7
    assert k == 2
    assert np.array_equal(seen.reshape(2, 30, 50, 3), [frame, frame + 1])
    with pytest.raises(polyduct.Misuse, match=r"height, width, 3 or 4"):
        polyduct.open("rtp://127.0.0.1:9", "w", shape=(3, 4), dtype="f4", layout="*,*")
    with pytest.raises(polyduct.Misuse, match="datagrams go to a host"):
        polyduct.open("udp://:9", "w", shape=(3, 4), dtype="f4", layout="*,*")


def test_a_window_has_the_newest_step_whole(tmp_path: Path) -> None:
    """As the table in docs/streams.md has it: mapped here with nothing but NumPy."""
    path = tmp_path / "frame"
    arrays = {"shape": FIELD.shape, "dtype": "f4", "layout": "*,block"}
    out = polyduct.open(f"window:{path}", "w", **arrays)  # type: ignore[call-overload]
    for t in range(5):
        out.write(FIELD + t)
    while not path.exists() or np.memmap(path, "<u8", "r", 16, 1)[0] < 5:
        pass
    head = path.read_bytes()[:4096]
    magic, version, state = struct.unpack("<8sII", head[:16])
    frames, at, size, stride, places, dims = struct.unpack("<6Q", head[16:64])
    shape = struct.unpack("<8Q", head[64:128])[:dims]
    assert (magic, version, state, places) == (b"PDWINDOW", 1, 1, 3)
    assert (size, shape, head[128:144].rstrip(b"\0")) == (FIELD.nbytes, FIELD.shape, b"<f4")
    newest = np.memmap(path, "<f4", "r", at + (frames - 1) % places * stride, shape)
    assert np.array_equal(newest, FIELD + 4)
    out.write(FIELD + 9)
    out.close()
    assert struct.unpack("<IQ", path.read_bytes()[12:24]) == (2, 6)
    for wrong, why in (("none/x", "No such file"), (f"{path.name}/x", "[Nn]ot a directory"), ("", "is a directory")):
        with pytest.raises(polyduct.Unreachable, match=why):
            polyduct.open(f"window:{tmp_path}/{wrong}", "w", **arrays)  # type: ignore[call-overload]
    assert list(tmp_path.iterdir()) == [path]


def test_who_takes_nothing_of_what_comes_is_told_at_once(port: int) -> None:
    for shape, layout, why in (
        ((2, 2), "*,*", r"^tcp://:\d+: the reader expects shape \[2, 2\]; the writer gives \[60, 48\]"),
        (None, "*", "^tcp://.*the layout has 1 dimension"),
    ):
        thread, start = send(port, npy(FIELD)), time.monotonic()
        with pytest.raises(polyduct.Refused, match=why):
            polyduct.open(f"tcp://:{port}", layout=layout, shape=shape, timeout=60).read()
        assert time.monotonic() - start < 1.5, "the gateway does not wait for another reader"
        thread.join()
    thread = send(port, npy(FIELD))
    assert np.array_equal(polyduct.open(f"tcp://:{port}", layout="*,*", timeout=60).read(), FIELD)
    thread.join()
