"""Messages between the units of a program: mail, handlers, calls, barriers, regions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType, TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from polyduct import _native
from polyduct._arrays import Array, dims
from polyduct._atexit import watch
from polyduct._dtypes import DType, same
from polyduct._encode import decode, describe, encode, flat_bytes, read_description
from polyduct.errors import BadOption, Error, Misuse, RegionError, WrongSize, WrongType

Data: TypeAlias = "Array | bytes | bytearray | memoryview | np.generic[Any]"
"""What can be sent: arrays of any shape and any dtype but ``object``, NumPy's numbers, bytes."""

Index: TypeAlias = "int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]"
"""Where in a region: integers and slices, as in NumPy."""

MessageHandler: TypeAlias = Callable[[int, "tuple[int, int, int, int]", bytes], object]
"""``function(from_, args, payload)``."""

Function: TypeAlias = Callable[[Any], Any]
"""``function(argument)`` gives the result."""

MOST_DESCRIPTION = 1 << 16
"""Bytes of what stands at the end of a region and says what it holds, at most."""

M = TypeVar("M", bound=MessageHandler)
F = TypeVar("F", bound=Function)


class Message(NamedTuple):
    """What `Domain.recv_from` gives."""

    unit: int
    """Who sent it."""
    tag: int
    """What the sender says that it is about."""
    data: Any
    """An array, or bytes."""


class Status(NamedTuple):
    """What waits at a unit."""

    waiting_high: int
    """Messages of high priority (answers, barriers) that have come and were not handled."""
    waiting_low: int
    """Messages of low priority (mail, posts) that have come and were not handled."""
    mails: int
    """Messages for `Domain.recv` that were not taken."""
    calls: int
    """Calls under way, and results that nobody has fetched."""


class Call:
    """A call of another unit's function, as `Domain.call` gives it. Forgotten when it is dropped; the other unit is told."""

    __slots__ = ("_call", "_to")

    def __init__(self, call: _native.Call, to: int) -> None:
        self._call = call
        self._to = to

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the result, ``timeout`` seconds at most (the domain's by default), and gives it: an array or bytes.

        Raises `CallFailed` (the function raised), `CallDeadline`, `CallCancelled`, `CallPeerGone`; `TimeoutError` when
        the time given here is over, after which it can be asked for again.
        """
        words, flat = self._call.result(timeout)
        return decode(words, flat, self._to)

    def done(self) -> bool:
        """Whether there is a result, or an error. Receives what has come."""
        return self._call.done()

    def cancel(self) -> bool:
        """Gives the call up, if it has no outcome yet. Returns whether it is cancelled."""
        return self._call.cancel()


class Region:
    """An array that the other units put into and get from.

    `Domain.region` makes it. On one host it lies in shared memory, and this unit has no part in what the others do with it.
    Across hosts it must receive: wait, poll or serve; each contiguous run of an index is a message there and back, so that a
    row costs one, and a column one for each row. A put is there when the call returns, and a message sent after it arrives after it. What two
    units do to the same element at once is theirs to order, by messages or a barrier.
    """

    __slots__ = ("_domain", "_far", "_id", "_views", "array", "name")

    def __init__(self, domain: Domain, name: int | str, array: Array, id_: int) -> None:
        self._domain = domain
        self._id = id_
        self._views: dict[int, Array] = {}
        self._far: dict[int, Array] = {}
        self.name = name
        """The region's name, or its number."""
        self.array: Array = array
        """This unit's own array. It stays there for as long as somebody has it, also after the domain was left."""

    def at(self, unit: int) -> Array:
        """The array that a unit has under this region's name, where it lies: what is written there, that unit sees.

        Raises `RegionError` where the unit has no such region (it may not have made it yet: a barrier helps), or is on
        another host; `PeerLost` and `PeerLeft` where the unit is gone. An array that was given before stays readable after that.
        """
        [unit] = dims("unit", unit)
        if unit == self._domain.unit:
            self._domain._port.config()  # raises Closed
            return self.array
        found = self._domain._port.region_of(unit, self._id)
        if unit not in self._views:
            self._views[unit] = _array_in(found.array(), self.name, unit)
        return self._views[unit]

    def put(self, to: int, values: ArrayLike, index: Index = ...) -> None:
        """Writes ``values`` into a unit's array: ``array[index] = values`` there, with NumPy's broadcasting.

        Raises `RegionError` for an index beyond its end, `WrongType` for values of another dtype (lists and Python's
        numbers take the array's), `WrongSize` for values that do not fit; and as `at`.
        """
        [to] = dims("to", to)
        near = self._is_near(to)
        array = self.at(to) if near else self._shadow(to)
        part = _part(array, index)
        given = np.asarray(values)
        if not hasattr(values, "dtype") and np.can_cast(given.dtype, array.dtype, "same_kind"):
            given = given.astype(array.dtype, copy=False)
        if not same(given.dtype, array.dtype):
            raise WrongType(f"the values have dtype {given.dtype}; the region has {array.dtype}")
        try:
            if near:
                part[...] = given
            else:
                self._put_far(to, array, part, np.broadcast_to(given, part.shape))
        except ValueError as e:
            raise WrongSize(f"values of shape {given.shape} do not fit into {part.shape}: {e}") from None

    @overload
    def get(self, from_: int, index: Index = ...) -> Array: ...
    @overload
    def get(self, from_: int, index: Index = ..., *, out: Array) -> Array: ...
    def get(self, from_: int, index: Index = ..., *, out: Array | None = None) -> Array:
        """A copy of ``array[index]`` of a unit; in ``out``, of the same shape and dtype, if that is given.

        Raises as `put`.
        """
        [from_] = dims("from_", from_)
        if self._is_near(from_):
            part = _part(self.at(from_), index)
            return part.copy() if out is None else _fill(out, part)
        array = self._shadow(from_)
        got = self._get_far(from_, array, _part(array, index))
        return got if out is None else _fill(out, got)

    def _is_near(self, unit: int) -> bool:
        return self._domain._port.maps or unit == self._domain.unit

    def _shadow(self, unit: int) -> Array:
        """An array like a unit's own on another host, to find places in, as `_described` gives it."""
        if unit not in self._far:
            port = self._domain._port
            length = port.region_len(unit, self._id)
            end = port.get(unit, self._id, max(length - MOST_DESCRIPTION, 0), min(length, MOST_DESCRIPTION))
            self._far[unit] = _described(end, length, self.name, unit)
        return self._far[unit]

    def _put_far(self, to: int, array: Array, part: Array, values: Array) -> None:
        for index, offset in _runs(array, part):
            run = np.ascontiguousarray(values[index])
            self._domain._port.put(to, self._id, offset, run.reshape(-1).view(np.uint8))

    def _get_far(self, from_: int, array: Array, part: Array) -> Array:
        got = np.empty(part.shape, part.dtype)
        for index, offset in _runs(array, part):
            size = got[index].nbytes
            run = self._domain._port.get(from_, self._id, offset, size)
            got[index] = run.view(part.dtype).reshape(got[index].shape)
        return got

    def __repr__(self) -> str:
        return f"<polyduct.Region {self.name!r}: {self.array.shape} {self.array.dtype}>"


class Domain:
    """A unit's place among the units of its program; `polyduct.domain` joins; or among those on both sides
    of a port, `Writer.domain` and `Reader.domain`.

    As a context manager it is left at the end, in order; an exception gives it up, and the others get `PeerLost`, as
    they do when the process dies. A domain that is still joined when the program ends is left if the exit status is 0.

    Handlers and functions run in whichever thread of this unit receives: in every call that waits, in `poll`, `serve`,
    and in the background of `serving`. Any number of threads may use a domain at once.
    """

    def __init__(self, port: _native.Domain) -> None:
        self._port = port
        self._closed = False
        self._serving: list[Serving] = []
        self._regions: dict[int, int | str] = {}
        watch(self)

    # -- who and how many --

    @property
    def unit(self) -> int:
        """Number of this unit, from 0."""
        return self._port.unit

    @property
    def units(self) -> int:
        """Units of the domain."""
        return self._port.units

    @property
    def name(self) -> str:
        """Name of the domain."""
        return self._port.name

    @property
    def closed(self) -> bool:
        """Whether this unit has left or given up."""
        return self._closed

    # -- mail --

    def send(self, to: int, what: Data, tag: int = 0) -> None:
        """Sends an array or bytes to a unit, which takes it by `recv`. What is sent is the caller's again on return.

        Arrays arrive with their dtype, shape and order. Messages to a unit arrive in the order in which they were sent.
        Waits while the other has no room, and receives meanwhile. (In a handler it does not wait; up to 64 MiB are kept.)

        Raises `WrongType`, a ``TypeError``, for what cannot be sent; `NoUnit`; `PeerLost`, `PeerLeft`, `TimeoutError`.
        """
        words, flat = encode(what)
        self._port.send(_number("to", to), _number("tag", tag), words, flat)

    @overload
    def recv(self, from_: int | None = None, tag: int | None = None) -> Any: ...
    @overload
    def recv(self, from_: int | None = None, tag: int | None = None, *, out: Array) -> Array: ...
    def recv(self, from_: int | None = None, tag: int | None = None, *, out: Array | None = None) -> Any:
        """Waits for the first message of a unit (any by default) with a tag (any by default): an array, or bytes.

        The array lies in the memory in which it was received. ``out``, an array of the same shape and dtype, is filled
        instead and given back, and that memory used again. Where ``out`` does not fit, the message is in the exception's
        ``data``.

        Raises `PeerLost` and `PeerLeft` when the unit is gone and nothing of it waits; `WrongType` and `WrongSize` for
        an ``out`` that does not fit; `TimeoutError`; `BadPeer` for a message that is no array.
        """
        return self.recv_from(from_, tag, out=out).data

    def recv_from(self, from_: int | None = None, tag: int | None = None, *, out: Array | None = None) -> Message:
        """As `recv`, and says who sent the message and its tag."""
        _check_out(out)
        return _message(self._port.recv(_maybe("from_", from_), _maybe("tag", tag)), out)

    def try_recv(self, from_: int | None = None, tag: int | None = None) -> Message | None:
        """The first message that has come and fits, if there is one. Does not wait."""
        found = self._port.try_recv(_maybe("from_", from_), _maybe("tag", tag))
        return None if found is None else _message(found, None)

    def sendrecv(
        self, to: int, what: Data, from_: int | None = None, tag: int = 0, *, out: Array | None = None
    ) -> Any:
        """Sends to one unit, then receives from another (``to`` by default), both with ``tag``. Units that do so in a
        ring, or in pairs, do not wait for each other in a circle."""
        self.send(to, what, tag)
        return self.recv_from(to if from_ is None else from_, tag, out=out).data

    # -- all together --

    def barrier(self) -> None:
        """Waits until all units have come to it.

        Raises `PeerLost` and `PeerLeft`, naming a unit that will not come; `TimeoutError`, after which the next call waits
        for the same barrier.
        """
        self._port.barrier()

    def synchronise(self) -> None:
        """Makes the handlers and functions that were installed so far known to all units. All units call it.

        Raises `HandlerVersions`, in all units, where two disagree about a version: then what was agreed before holds.
        """
        self._port.synchronise()

    # -- handlers and calls --

    @overload
    def handler(self, name: str, function: None = None, *, version: int = 0) -> Callable[[M], M]: ...
    @overload
    def handler(self, name: str, function: M, *, version: int = 0) -> M: ...
    def handler(self, name: str, function: M | None = None, *, version: int = 0) -> M | Callable[[M], M]:
        """Installs ``function(from_, args, payload)`` for the messages that others `post` under this name. Also a decorator.

        ``args`` are four integers, ``payload`` bytes. It must not wait, but may send, post and call. What it raises goes to
        ``sys.unraisablehook``, and the unit goes on; Ctrl-C ends the call in whose thread it runs.

        Raises `DuplicateHandler`; `HandlerError` for a name that cannot be one. The others know it after `synchronise`.
        """
        if function is None:
            return lambda given: self.handler(name, given, version=version)
        self._port.handler(name, _number("version", version), _callable(function))
        return function

    @overload
    def function(self, name: str, function: None = None, *, version: int = 0) -> Callable[[F], F]: ...
    @overload
    def function(self, name: str, function: F, *, version: int = 0) -> F: ...
    def function(self, name: str, function: F | None = None, *, version: int = 0) -> F | Callable[[F], F]:
        """Installs ``function(argument)``, which others `call` under this name. Also a decorator.

        Argument and result are arrays or bytes; None gives empty bytes. It must not wait, but may send, post and call. What
        it raises, the caller gets as `CallFailed`.

        Raises as `handler`.
        """
        if function is None:
            return lambda given: self.function(name, given, version=version)
        called: Callable[[Any], Any] = _callable(function)

        def run(from_: int, words: tuple[int, int], flat: Array) -> tuple[tuple[int, int], Array]:
            result = called(decode(words, flat, from_))
            return encode(b"" if result is None else result)

        self._port.function(name, _number("version", version), run)
        return function

    def post(self, to: int, name: str, *args: int, payload: bytes | bytearray | memoryview | Array = b"") -> None:
        """Sends a message to a handler: up to four integers from 0 to 2**32-1 (0 where there are fewer), and bytes.

        An array's bytes are sent; its dtype and shape are not. Waits and raises as `send`, in order with that;
        `UnknownHandler`. To this unit itself, the handler has run when it returns.
        """
        if len(args) > 4:
            raise Misuse(f"{len(args)} arguments; a message has four at most")
        words = [_number("an argument", n) for n in args] + [0] * (4 - len(args))
        if isinstance(payload, np.ndarray):
            payload = payload.tobytes()
        self._port.post(_number("to", to), name, (words[0], words[1], words[2], words[3]), flat_bytes(payload))

    def call(self, to: int, name: str, argument: Data = b"", timeout: float | None = None) -> Call:
        """Calls a function of a unit with an array or bytes, and does not wait: see `Call.result`.

        ``timeout`` is the deadline of the call in seconds, after which its outcome is `CallDeadline`. The other unit
        answers when it receives: when it waits, polls or serves.

        Raises `UnknownHandler`, `NoUnit`, `WrongType`, `LimitReached` for more than 65536 calls under way.
        """
        words, flat = encode(argument)
        return Call(self._port.call(_number("to", to), name, words, flat, timeout), to)

    # -- receiving --

    def poll(self) -> int:
        """Handles what has come, without waiting. Gives the number of messages and parts of messages handled."""
        return self._port.poll()

    def serve(self, until: Callable[[], object], timeout: float | None = None) -> bool:
        """Handles what comes until ``until()`` is true, which is asked after each handler and ten times a second.

        Gives False when ``timeout`` seconds have passed before.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = self._port.handled
            if until():
                return True
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            self._port.serve(seen, left)

    def serving(self) -> Serving:
        """Answers in a thread of its own, for as long as a block lasts:

            with domain.serving():
                compute()

        or from now on, until ``stop()`` or until the domain is left.
        """
        one = Serving(self)
        self._serving.append(one)
        return one

    # -- regions --

    def region(self, name: str | int, array: ArrayLike | tuple[int, ...], dtype: DTypeLike | None = None) -> Region:
        """An array in shared memory under a name (or a number below 2**31) that the other units can put into and get from.

        ``array`` gives its first values; or it is a shape (a tuple), and the values are 0. ``dtype`` is ``float64`` by
        default, or the array's. Units may have different shapes under one name. Others find it as soon as it is made: a `barrier` before they use it.

        Raises `RegionError` where the name is taken in this unit; `WrongType` for objects; `NoMemory`.
        """
        first: Array | None = None
        if isinstance(array, tuple):
            shape, of = tuple(dims("shape", array)), np.dtype(dtype)
        else:
            first = np.asarray(array, dtype)
            shape, of = first.shape, first.dtype
        text = describe(str(name), of, shape)
        size = int(np.prod(shape, dtype=object)) * of.itemsize
        id_ = _region_id(name)
        if self._regions.setdefault(id_, name) != name:
            raise RegionError(f"regions {self._regions[id_]!r} and {name!r} have one number; rename one of them")
        flat = self._port.region(id_, _rounded(size) + len(text) + 4).array()
        flat[len(flat) - 4 :] = np.frombuffer(len(text).to_bytes(4, "little"), np.uint8)
        flat[len(flat) - 4 - len(text) : -4] = np.frombuffer(text, np.uint8)
        mine = _array_in(flat, name, self.unit)
        if first is not None:
            mine[...] = first
        return Region(self, name, mine, id_)

    # -- the rest --

    def status(self) -> Status:
        """What waits at this unit, exactly. Not in a handler."""
        return Status(*self._port.status())

    def config(self) -> dict[str, int]:
        """The sizes in force, in bytes; ``polyduct doctor`` says where each comes from."""
        return dict(self._port.config())

    def leave(self) -> None:
        """Leaves in order: the others wait for this unit no more. What it sent can still be received. Again does nothing."""
        self._end(self._port.close)

    close = leave

    def abort(self) -> None:
        """Gives up: the others get `PeerLost`, as if the process had died."""
        self._end(self._port.abort)

    def _end(self, end: Callable[[], None]) -> None:
        if not self._closed:
            self._stop_serving()
            self._closed = True
            end()

    def _stop_serving(self) -> None:
        """Ends the threads that answer in the background."""
        for one in list(self._serving):
            one.stop()

    def __enter__(self) -> Domain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.leave()
        else:
            self.abort()

    def __repr__(self) -> str:
        state = ", left" if self._closed else ""
        return f"<polyduct.Domain {self.name!r}: unit {self.unit} of {self.units}{state}>"


class Serving:
    """A thread that answers; `Domain.serving` starts it."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        domain._port.stop_serving(False)
        self._thread = threading.Thread(target=self._run, args=(domain._port,), name="polyduct-serving", daemon=True)
        self._thread.start()

    @staticmethod
    def _run(port: _native.Domain) -> None:
        try:
            port.serve_in_background()
        except Error:
            # A loss, or the end of the domain: the program's own calls say so.
            pass

    def stop(self) -> None:
        """Ends the thread, and waits until it has."""
        if self in self._domain._serving:
            self._domain._serving.remove(self)
            if not self._domain.closed:
                self._domain._port.stop_serving(True)
            if self._thread is not threading.current_thread():
                self._thread.join()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def domain(
    name: str | None = None,
    *,
    unit: int | None = None,
    units: int | None = None,
    timeout: float | None = None,
    open_timeout: float = 60.0,
    on_loss: Literal["raise", "continue"] = "raise",
) -> Domain:
    """Joins the message domain of this program, and waits until all its units have.

    name
        The domain's name: 1 to 64 letters, digits, ``.``, ``_``, ``-``, the same in all its units and in no other domain of
        this user. Or where units on several hosts meet, ``tcp://HOST:PORT`` or ``udp://HOST:PORT``: unit 0 listens there, and
        every unit needs the job's key in ``POLYDUCT_JOB_KEY``. By default what ``POLYDUCT_DOMAIN`` says, or what tells the
        launcher's jobs apart (``polyduct run``, mpiexec, srun, torchrun).
    unit, units
        Which unit this is, and how many there are. By default what the launcher says; without a launcher the only one.
        Given by hand, they need a name.
    timeout
        Longest wait of any call, in seconds. By default no limit: the loss of a unit ends a wait at once.
    open_timeout
        How long to wait for the others to join, in seconds.
    on_loss
        ``raise`` (default): when a unit is lost, every call that waits, for whatever, raises `PeerLost` naming it.
        ``continue``: only those that need the lost unit.

    Raises `Refused` when the units do not come or disagree, `TimeoutError` without unit 0, `NameTaken`, `BadOption`, `BadUrl`,
    `BadEnvironment` (no key, too), `ConfigError`.
    """
    number, of = _maybe("unit", unit), _maybe("units", units)
    return Domain(_native.join(name, number, of, timeout, open_timeout, on_loss))


def _number(what: str, n: int) -> int:
    [found] = dims(what, n)
    if found >= 2**32:
        raise BadOption(f"{what} is {found}; expected less than 2**32")
    return found


def _maybe(what: str, n: int | None) -> int | None:
    return None if n is None else _number(what, n)


def _callable(function: object) -> Any:
    if not callable(function):
        raise WrongType(f"a {type(function).__name__} is no function")
    return function


def _message(found: tuple[int, int, tuple[int, int], Array], out: Array | None) -> Message:
    unit, tag, words, flat = found
    data = decode(words, flat, unit)
    if out is not None:
        try:
            data = _fill(out, data)
        except (WrongType, WrongSize) as e:
            e.data = data
            raise
    return Message(unit, tag, data)


def _check_out(out: object) -> None:
    if out is not None and not isinstance(out, np.ndarray):
        raise WrongType(f"out is a {type(out).__name__}; expected a numpy.ndarray")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise Misuse("out is read-only")


def _fill(out: Array, data: object) -> Array:
    _check_out(out)
    if not isinstance(data, np.ndarray) or not same(data.dtype, out.dtype):
        found = data.dtype if isinstance(data, np.ndarray) else "bytes"
        raise WrongType(f"out has dtype {out.dtype}; what came has {found}")
    if data.shape != out.shape:
        raise WrongSize(f"out has shape {out.shape}; what came has {data.shape}")
    out[...] = data
    return out


def _region_id(name: object) -> int:
    if isinstance(name, str):
        import zlib

        # Names have the upper half of the numbers. Where two meet in one unit, `Domain.region` refuses the second; where
        # they meet across units, the name that stands in the region tells.
        return zlib.crc32(name.encode()) | 1 << 31
    [number] = dims("the name of a region", name)  # type: ignore[arg-type]
    if number >= 2**31:
        raise BadOption(f"the number of a region is {number}; expected less than 2**31")
    return number


def _rounded(size: int) -> int:
    return -(-size // 64) * 64


def _runs(array: Array, part: Array) -> Iterator[tuple[tuple[int, ...], int]]:
    """The contiguous runs of ``part``, a view of ``array``: the index of each in ``part``, and its byte in ``array``."""
    if not part.nbytes:
        return
    outer, run = part.ndim, part.itemsize
    while outer and (part.shape[outer - 1] == 1 or part.strides[outer - 1] == run):
        outer -= 1
        run *= part.shape[outer]
    first = part.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    for index in np.ndindex(part.shape[:outer]):
        yield index, first + sum(i * stride for i, stride in zip(index, part.strides))


def _array_in(flat: Array, name: object, unit: int) -> Array:
    """The array in the memory of a region, by the description at its end."""
    found = _described(flat, len(flat), name, unit)
    return flat[: found.nbytes].view(found.dtype).reshape(found.shape) if found.nbytes else found


def _described(end: Array, total: int, name: object, unit: int) -> Array:
    """An array with dtype, shape and strides of that in a region of ``total`` bytes, by the description at its end. It has no
    memory of its own: it must not be read or written."""
    try:
        length = int.from_bytes(end[-4:].tobytes(), "little")
        if length > min(MOST_DESCRIPTION, len(end)) - 4:
            raise ValueError("no description")
        found, dtype, shape = read_description(end[len(end) - 4 - length : -4].tobytes())
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size > total - 4 - length:
            raise ValueError("it is shorter than it says")
        if not size:
            array: Array = np.empty(shape, dtype)
        else:
            strides = [size // int(np.prod(shape[: k + 1], dtype=object)) for k in range(len(shape))]
            array = np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
    except (ValueError, TypeError, IndexError, KeyError, MemoryError, RecursionError, OverflowError) as e:
        raise RegionError(f"region {name!r} of unit {unit} holds no array: {e}") from None
    if found != str(name):
        raise RegionError(f"unit {unit} has a region {found!r}, not {name!r}")
    return array


def _part(array: Array, index: Index) -> Array:
    """``array[index]`` as a view. NumPy cuts slices off at the end; here that is an error."""
    given: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
    if sum(part is Ellipsis for part in given) > 1 or sum(part is not Ellipsis for part in given) > array.ndim:
        raise RegionError(f"{index!r} is no index of an array of {array.ndim} dimensions")
    if Ellipsis in given:
        at = given.index(Ellipsis)
        given = (*given[:at], *[slice(None)] * (array.ndim - len(given) + 1), *given[at + 1 :])
    full: list[Any] = []
    for part, n in zip(given, array.shape):
        if isinstance(part, slice):
            if any(k is not None and not -n <= k <= n for k in (part.start, part.stop)):
                raise RegionError(f"{index!r} goes beyond the region's shape {array.shape}")
            full.append(part)
        elif hasattr(part, "__index__"):
            if not -n <= part.__index__() < n:
                raise RegionError(f"{index!r} lies beyond the region's shape {array.shape}")
            full.append(part.__index__())
        else:
            raise WrongType(f"{part!r} is no index of a region; expected integers, slices and ...")
    view: Array = array[(*full, ...)]
    return view
