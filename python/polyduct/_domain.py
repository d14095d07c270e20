"""Messages between the units of a program: mail, handlers, calls, barriers, regions."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from polyduct import _native
from polyduct._arrays import Array, dims, natural, refused, seconds, unmasked
from polyduct._atexit import watch
from polyduct._encode import describe
from polyduct._lent import Lent, lend
from polyduct._ready import Polled
from polyduct._requests import Later, Receive, Request, Send, Watcher, awaited
from polyduct._regions import Named, Region, array_in, fill, region_id, rounded
from polyduct.errors import BadOption, Error, NoMemory, RegionError, WrongSize, WrongType

Data: TypeAlias = "Array | bytes | bytearray | memoryview | np.generic[Any]"
"""What can be sent: arrays of any shape and any dtype but ``object``, NumPy's numbers, bytes."""

MessageHandler: TypeAlias = Callable[[int, "tuple[int, int, int, int]", bytes], object]
"""``function(from_, args, payload)``."""

Function: TypeAlias = Callable[[Any], Any]
"""``function(argument)`` gives the result."""

T = TypeVar("T")
M = TypeVar("M", bound=MessageHandler)
F = TypeVar("F", bound=Function)


class Message(NamedTuple):
    """A message, as `Domain.recv_from` gives it."""

    unit: int
    """The unit that sent it."""
    tag: int
    """The tag that its sender gave it."""
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
    sends_high: int
    """Short messages of high priority that every connected unit is sure to have room for."""
    sends_low: int
    """The same of low priority."""
    mail_bytes: int
    """Bytes of the messages for `Domain.recv`, those that are still arriving included, and 64 more for
    each."""
    other_bytes: int
    """The same for all other messages that arrive in more than one piece: posts, calls and results."""


class Call:
    """A call of another unit's function, as `Domain.call` gives it. A call that is dropped is given up, and
    the other unit is told."""

    __slots__ = ("_call", "_domain")
    _wanted = None

    def __init__(self, call: _native.Call, domain: Domain) -> None:
        self._call: _native.Call = call
        self._domain = domain

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the result, ``timeout`` seconds at most (the domain's by default), and gives it: an array
        or bytes.

        Raises `CallFailed` (the function raised), `CallDeadline`, `CallCancelled`, `CallPeerGone`;
        `TimeoutError` when the time given here is over, after which it can be asked for again.
        """
        return self._call.result(timeout if timeout is None else seconds("timeout", timeout))

    def done(self) -> bool:
        """Whether there is a result, or an error. Receives what has come."""
        return self._call.done()

    _settle = done

    def __await__(self) -> Generator[Any, None, Any]:
        return awaited(self, self.result).__await__()

    def cancel(self) -> bool:
        """Gives the call up, if it has no outcome yet. Returns whether it is cancelled."""
        return self._call.cancel()


class Channel:
    """A way to a unit with an order and a priority of its own; `Domain.channel` opens it."""

    __slots__ = ("_channel", "to")

    def __init__(self, channel: _native.Channel, to: int) -> None:
        self._channel = channel
        self.to = to
        """The unit at the other end."""

    def send(self, what: Data, tag: int = 0, timeout: float | None = None) -> None:
        """As `Domain.send`. Messages of an ordered channel arrive in the order in which they were sent;
        messages outside of the channel have no order with them."""
        self._channel.send(what, tag, seconds("timeout", timeout))

    def post(
        self,
        name: str,
        *args: int,
        payload: bytes | bytearray | memoryview | Array = b"",
        timeout: float | None = None,
    ) -> None:
        """As `Domain.post`, in the same order."""
        self._channel.post(name, args, payload, seconds("timeout", timeout))

    def flush(self, timeout: float | None = None) -> None:
        """Waits until the unit has handled all that was sent."""
        self._channel.flush(seconds("timeout", timeout))


class Domain:
    """A unit's place among the units of its program, as `polyduct.domain` gives it, or among those on both
    sides of a port, as `Writer.domain` and `Reader.domain` do.

    As a context manager it is left at the end, in order; an exception gives it up, and the others get
    `PeerLost`, as they do when the process dies. A domain that is still joined when the program ends is left
    if the exit status is 0.

    Handlers and functions run in whichever thread of this unit receives: in every call that waits, in `poll`,
    `serve`, and in the background of `serving`. Any number of threads may use a domain at once.
    """

    def __init__(self, port: _native.Domain) -> None:
        self._port = port
        self._closed = False
        self._serving: list[Serving] = []
        self._later: Later | None = None
        self._watcher: Watcher | None = None
        self._polled: Polled | None = None
        self._making = threading.Lock()
        self._stops: set[_native.Stop] = set()
        self._regions: dict[int, int | str] = {}
        self._next_lent = int.from_bytes(os.urandom(4), "little") >> 1
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

    def send(self, to: int, what: Data, tag: int = 0, timeout: float | None = None) -> None:
        """Sends an array or bytes to a unit, which receives it by `recv`. The caller may change what it sent
        as soon as this returns.

        Arrays arrive with their dtype, shape and order. Messages to a unit arrive in the order in which they
        were sent. Waits while the other has no room, and receives meanwhile. (In a handler it does not wait;
        up to 64 MiB are kept.) Units that send each other more than the inbox holds (setting ``inbox``, 256
        MiB) before any receives wait for each other: exchange with `sendrecv`.

        Here and in all calls that wait, ``timeout`` is the longest wait in seconds, the domain's by default.

        Raises `WrongType`, a ``TypeError``, for what cannot be sent; `NoUnit`; `PeerLost`, `PeerLeft`,
        `TimeoutError`.
        """
        if self._later is not None:
            self._later.drain(to, timeout if timeout is None else seconds("timeout", timeout))
        self._port.send(to, what, tag, timeout if timeout is None else seconds("timeout", timeout))

    @overload
    def recv(
        self, from_: int | None = None, tag: int | None = None, *, timeout: float | None = None
    ) -> Any: ...
    @overload
    def recv(
        self, from_: int | None = None, tag: int | None = None, *, out: Array, timeout: float | None = None
    ) -> Array: ...
    def recv(
        self,
        from_: int | None = None,
        tag: int | None = None,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Waits for the first message of a unit (any by default) with a tag (any by default): an array, or
        bytes.

        The array lies in the memory in which it was received. ``out``, an array of the same shape and dtype,
        is filled instead and given back, and that memory used again. Where ``out`` does not fit, the message
        is in the exception's ``data``.

        Raises `PeerLost` and `PeerLeft` when the unit is gone and no message of it waits; `WrongType` and
        `WrongSize` for an ``out`` that does not fit; `TimeoutError`; `BadPeer` for a message that is no
        array.
        """
        limit = timeout if timeout is None else seconds("timeout", timeout)
        try:
            return self._port.recv(from_, tag, out, limit)
        finally:
            if self._polled is not None:
                self._polled.look()

    def recv_from(
        self,
        from_: int | None = None,
        tag: int | None = None,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Message:
        """As `recv`; gives the message with its sender and its tag."""
        limit = timeout if timeout is None else seconds("timeout", timeout)
        try:
            return Message(*self._port.recv_from(from_, tag, out, limit))
        finally:
            if self._polled is not None:
                self._polled.look()

    def try_recv(self, from_: int | None = None, tag: int | None = None) -> Message | None:
        """The first message that has come and fits, if there is one. Does not wait."""
        try:
            found = self._port.try_recv(from_, tag)
        finally:
            if self._polled is not None:
                self._polled.look()
        return None if found is None else Message(*found)

    def fileno(self) -> int:
        """A descriptor for ``select``, ``selectors`` and event loops, to be polled and never read: readable
        for as long as a message waits that `recv` or `try_recv` would give, or an error. It stays readable
        after `leave`, and is valid as long as the domain's object lives.

        The first call starts a thread that receives while the program polls, and runs handlers, as `serving`
        does. In asyncio messages are awaited instead: see `irecv`.
        """
        with self._making:
            if self._polled is None:
                self._port.config()  # raises Closed
                self._polled = Polled(self._port)
            return self._polled.fd

    def sendrecv(
        self,
        to: int,
        what: Data,
        from_: int | None = None,
        tag: int = 0,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Sends to one unit, then receives from another (``to`` by default), both with ``tag``. Units that do
        so in a ring, or in pairs, do not wait for each other in a circle, however large their arrays are.

        Raises what `send` and `recv` do."""
        limit = timeout if timeout is None else seconds("timeout", timeout)
        if self._later is not None:
            self._later.drain(to, timeout if timeout is None else seconds("timeout", timeout))
        try:
            return self._port.sendrecv(to, what, from_, tag, out, limit)
        finally:
            if self._polled is not None:
                self._polled.look()

    def isend(self, to: int, what: Data, tag: int = 0) -> Request:
        """As `send`, and does not wait: a message that finds no room is sent by a thread once there is room.
        ``what`` must stay as it is until `Request.test` says that it is over.

        Messages of `send`, `isend` and `post` to a unit arrive in the order of the calls.
        Raises `LimitReached` for more than 4096 that wait for room.
        """
        if self._later is None:
            self._later = Later(self)
        send = Send(self, _number("to", to), what, _number("tag", tag))
        self._later.send(send)
        return send

    def irecv(self, from_: int | None = None, tag: int | None = None, *, out: Array | None = None) -> Request:
        """As `recv`, and does not wait: `Request.test` says whether the message has come, and `Request.wait`
        gives it.

        It is taken when it is tested or waited for, by the first request that it fits; see `waitany`. In
        asyncio:

            a = await d.irecv(1)
            b, c = await asyncio.gather(d.irecv(2), d.irecv(3, tag=7))
        """
        return Receive(self, _maybe("from_", from_), _maybe("tag", tag), out)

    def channel(self, to: int, *, priority: Literal["low", "high"] = "low", ordered: bool = True) -> Channel:
        """A channel to another unit.

        priority
            ``high``: its messages do not wait behind those of low priority, which are all others but the
            library's own.
        ordered
            False: none of its messages is held up because an earlier one was lost on the way or found no
            room. (Between units of one host nothing is lost, and they come in order all the same.)

        Raises `NoUnit`, `BadOption`; `Misuse` for this unit itself; `LimitReached` for more than 4094 to one
        unit. Handlers cannot use channels; they send and post by the domain.
        """
        if not isinstance(ordered, bool):
            raise refused("ordered", f"{ordered!r}; expected True or False")
        if not isinstance(priority, str):
            raise refused("priority", f"{priority!r}; expected 'low' or 'high'")
        return Channel(self._port.channel(to, priority, ordered), to)

    @contextlib.contextmanager
    def _stirred(self, stop: _native.Stop) -> Iterator[None]:
        """Has what waits for ``stop`` look again when a message was sent later."""
        self._stops.add(stop)
        try:
            yield
        finally:
            self._stops.discard(stop)

    def _stir(self) -> None:
        for stop in list(self._stops):
            if not self._closed:
                self._port.stop_serving(stop)

    def _watch(self) -> Watcher:
        if self._watcher is None:
            self._watcher = Watcher(self)
        return self._watcher

    # -- all together --

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until all units have called it.

        Threads of a unit that call this or `synchronise` at once do so one after the other: each call is a
        barrier of its own, which all units have to call.

        Raises `PeerLost` and `PeerLeft`, naming a unit that will not come; `AtOdds`, naming one that called
        `synchronise`; `TimeoutError`, after which the next call waits for the same barrier.
        """
        self._port.barrier(seconds("timeout", timeout))

    def synchronise(self, timeout: float | None = None) -> None:
        """Makes the handlers and functions that were installed so far known to all units. All units call it.

        Raises `HandlerVersions`, in all units, where two disagree about a version, and `HandlerError` where a
        name is a function in one and a handler in another: then what was agreed before still holds. `AtOdds`,
        naming a unit that called `barrier`.
        """
        self._port.synchronise(seconds("timeout", timeout))

    # -- handlers and calls --

    @overload
    def handler(self, name: str, function: None = None, *, version: int = 0) -> Callable[[M], M]: ...
    @overload
    def handler(self, name: str, function: M, *, version: int = 0) -> M: ...
    def handler(self, name: str, function: M | None = None, *, version: int = 0) -> M | Callable[[M], M]:
        """Installs ``function(from_, args, payload)`` for the messages that others `post` under this name.
        Also a decorator.

        ``args`` are four integers, ``payload`` bytes. The function must not wait, but may send, post and
        call. An exception in it goes to ``sys.unraisablehook``, and the unit goes on; Ctrl-C ends the call in
        whose thread it runs.

        Raises `DuplicateHandler`; `HandlerError` for a name that cannot be one. The others know it after
        `synchronise`.
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

        Argument and result are arrays or bytes; None gives empty bytes. The function must not wait, but may
        send, post and call. An exception in it reaches the caller as `CallFailed`.

        Raises as `handler`.
        """
        if function is None:
            return lambda given: self.function(name, given, version=version)
        self._port.function(name, _number("version", version), _callable(function))
        return function

    def post(
        self,
        to: int,
        name: str,
        *args: int,
        payload: bytes | bytearray | memoryview | Array = b"",
        timeout: float | None = None,
    ) -> None:
        """Sends a message to a handler: up to four integers from 0 to 2**32-1 (0 where there are fewer), and
        bytes.

        An array's bytes are sent; its dtype and shape are not. Waits and raises as `send`, in order with
        that; `UnknownHandler`. To this unit itself, the handler has run when it returns.
        """
        if self._later is not None:
            self._later.drain(to, timeout if timeout is None else seconds("timeout", timeout))
        self._port.post(to, name, args, payload, timeout if timeout is None else seconds("timeout", timeout))

    def call(self, to: int, name: str, argument: Data = b"", timeout: float | None = None) -> Call:
        """Calls a function of a unit with an array or bytes, and does not wait: see `Call.result`.

        ``timeout`` is the deadline of the call in seconds, after which its outcome is `CallDeadline`. The
        other unit answers when it receives: when it waits, polls or serves.

        Raises `UnknownHandler`, `NoUnit`, `WrongType`, `LimitReached` for more than 65536 calls under way.
        """
        limit = timeout if timeout is None else seconds("timeout", timeout)
        return Call(self._port.call(to, name, argument, limit), self)

    # -- receiving --

    def poll(self) -> int:
        """Handles what has come, without waiting. Gives the number of messages and parts of messages
        handled."""
        return self._port.poll()

    def serve(self, until: Callable[[], object], timeout: float | None = None) -> bool:
        """Handles what comes until ``until()`` is true, which is asked after each handler and ten times a
        second.

        Gives False when ``timeout`` seconds have passed before.
        """
        seconds("timeout", timeout)
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
        """Receives and answers in a thread of its own, for as long as a block lasts:

            with domain.serving():
                compute()

        or from now on, until ``stop()`` or until the domain is left.
        """
        one = Serving(self)
        self._serving.append(one)
        return one

    # -- regions --

    def region(
        self, name: str | int, array: ArrayLike | tuple[int, ...], dtype: DTypeLike | None = None
    ) -> Region:
        """An array in shared memory under a name (or a number below 2**31) that the other units can put into
        and get from.

        ``array`` gives its first values; or it is a shape (a tuple), and the values are 0. ``dtype`` is
        ``float64`` by default, or the array's. Units may have different shapes under one name. Others find it
        once it is made: call a `barrier` before they use it.

        Raises `RegionError` where the name is taken in this unit; `WrongType` for objects; `NoMemory`.
        """
        first: Array | None = None
        if isinstance(array, tuple):
            shape, of = tuple(dims("shape", array)), np.dtype(dtype)
        else:
            first = np.asarray(unmasked(array), dtype)
            shape, of = first.shape, first.dtype
        text = describe(str(name), of, shape)
        size = int(np.prod(shape, dtype=object)) * of.itemsize
        if size >= 1 << 47:
            raise NoMemory(f"region {name!r}: shape {shape} takes {size} bytes; a process can have 2**47")
        id_ = region_id(name)
        if self._regions.setdefault(id_, name) != name:
            raise RegionError(
                f"regions {self._regions[id_]!r} and {name!r} have one number; rename one of them"
            )
        with Named(f"region {name!r}"):
            flat = self._port.region(id_, rounded(size) + len(text) + 4).array()
        flat[len(flat) - 4 :] = np.frombuffer(len(text).to_bytes(4, "little"), np.uint8)
        flat[len(flat) - 4 - len(text) : -4] = np.frombuffer(text, np.uint8)
        mine = array_in(flat, name, self.unit)
        if first is not None:
            mine[...] = first
        return Region(self, name, mine, id_)

    def lend(self, name: str | int, array: Array | bytearray | memoryview | None = None) -> Lent:
        """Lends an array of this program, where it lies: the other units can put into it and get from it
        under a name (or a number below 2**31), until it is withdrawn or this handle is dropped.

        ``array`` must be C-contiguous and writable; other writable buffers are lent as bytes. It is kept for
        as long. Without ``array`` this unit lends nothing and only uses what the others lend. Names are apart
        from those of `region`, which is faster for small parts. For units of this host the kernel copies,
        without this unit's doing; where it refuses, and for units of other hosts, this unit answers when it
        receives.

        Raises `Misuse` for an array that is read-only or not contiguous, `RegionError` where the name is
        taken in this unit; `WrongType` for objects.
        """
        return lend(self, name, array)

    # -- the rest --

    def status(self) -> Status:
        """What waits at this unit, exactly. Handlers cannot call it."""
        return Status(*self._port.status())

    def config(self) -> dict[str, int]:
        """The sizes in force, in bytes; ``polyduct doctor`` says where each comes from."""
        return dict(self._port.config())

    def leave(self, timeout: float | None = None) -> None:
        """Leaves in order: the others wait for this unit no more, and messages that it has not received are
        dropped. A second call does nothing.

        Waits until the others have what this unit sent, or until it lies where they find it, for as long as
        they live. Raises `TimeoutError` after ``timeout`` seconds (the domain's by default); units that miss
        something take this unit for lost then. Raises `InHandler` in a handler, and does nothing there.
        """
        seconds("timeout", timeout)
        if not self._closed:
            self._port.check_outside()
            if self._later is not None:
                self._later.drain(None, timeout)
        self._end(lambda: self._port.close(timeout))

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
        if self._polled is not None and self._port.ours:
            self._polled.end()

    def __del__(self) -> None:
        # Threads keep the place in the domain, which is left when nobody does. They are not waited for here:
        # this may run in any thread, whatever locks it has.
        if not getattr(self, "_port", None) or not self._port.ours:
            return
        for one in self._serving:
            one.let_go()
        if self._polled is not None:
            self._polled.let_go()

    def __enter__(self) -> Domain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._port.ours:
            # A fork comes through its parent's blocks when it exits, and the place is not its to leave.
            return
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
        self._port = domain._port
        self._stop = _native.Stop()
        args = (domain._port, self._stop)
        self._thread = threading.Thread(target=self._run, args=args, name="polyduct-serving", daemon=True)
        self._thread.start()

    @staticmethod
    def _run(port: _native.Domain, stop: _native.Stop) -> None:
        try:
            port.serve_in_background(stop)
        except Error:
            # A loss, or the end of the domain: the program's own calls say so.
            pass

    def let_go(self) -> None:
        """Has the thread end. Waits for nothing."""
        with contextlib.suppress(Error):
            self._port.stop_serving(self._stop)

    def stop(self) -> None:
        """Ends the thread, and waits until it has."""
        if not self._domain._port.ours:
            # A fork has no copy of the thread.
            return
        if self in self._domain._serving:
            self._domain._serving.remove(self)
            if not self._domain.closed:
                self._domain._port.stop_serving(self._stop)
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
        The domain's name: 1 to 64 letters, digits, ``.``, ``_``, ``-``, the same in all its units and in no
        other domain of this user. Or where units on several hosts meet, ``tcp://HOST:PORT`` or
        ``udp://HOST:PORT``: unit 0 listens there, and every unit needs the job's key in ``POLYDUCT_JOB_KEY``,
        or in a file that ``POLYDUCT_JOB_KEY_FILE`` names. By default what ``POLYDUCT_DOMAIN`` says, or what
        tells the launcher's jobs apart (``polyduct run``, mpiexec, srun, torchrun).
    unit, units
        Which unit this is, and how many there are. By default what the launcher says; without a launcher the
        only one. Given by hand, they need a name.
    timeout
        Longest wait of any call, in seconds. By default no limit: the loss of a unit ends a wait at once.
    open_timeout
        How long to wait for the others to join, in seconds.
    on_loss
        ``raise`` (default): when a unit is lost, every call that waits, whatever it waits for, raises
        `PeerLost` naming it. ``continue``: only calls that need the lost unit do.

    Raises `Refused` when the units do not come or disagree, `TimeoutError` without unit 0, `NameTaken`,
    `BadOption`, `BadUrl`, `BadEnvironment` (no key, too), `ConfigError`.
    """
    number, of = _maybe("unit", unit), _maybe("units", units)
    seconds("timeout", timeout)
    seconds("open_timeout", open_timeout)
    return Domain(_native.join(name, number, of, timeout, open_timeout, on_loss))


def _number(what: str, n: int) -> int:
    return natural(what, n, 2**32, BadOption)


def _maybe(what: str, n: int | None) -> int | None:
    return None if n is None else _number(what, n)


def _callable(function: object) -> Any:
    if not callable(function):
        raise WrongType(f"a {type(function).__name__} is no function")
    return function


def _into(out: Array, data: object) -> Array:
    """``out``, filled with what came; that is in the exception's ``data`` where it does not fit."""
    try:
        return fill(out, data)
    except (WrongType, WrongSize) as e:
        e.data = data
        raise
