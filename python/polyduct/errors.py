"""The exceptions of polyduct. They mirror the error enums of the Rust crates; ``crates/python/src/error.rs``
maps them.

Every class is also what Python programs would catch for it: a lost peer is a ``ConnectionError``, a wrong
shape a ``ValueError``. After a `TimeoutError`, an `Interrupted` or a `WrongSize` a port can be used again;
after any other error of a call on a port it should be closed. A domain can be used after any error; a unit
that is lost or has left stays so.
"""

from __future__ import annotations

import builtins
from typing import Any


class Error(Exception):
    """Anything that polyduct raises. It keeps its attributes when it is pickled or copied."""

    url: str | None = None
    """The URL that was to be opened, or the port's: set for all errors of pipes, and for others where it is
    known."""
    place: str | None = None
    """The place of the stream, for all errors of streams; of a `ConfigError`, the file or the variable."""

    # An OSError would show its errno and file instead of its words, a KeyError their representation.
    __str__ = BaseException.__str__

    def __reduce__(self) -> tuple[Any, ...]:
        # What an OSError keeps beside its dictionary is lost by the way that exceptions have.
        kept = {name: getattr(self, name, None) for name in ("errno", "strerror", "filename", "filename2")}
        return _again, (
            type(self),
            self.args,
            {**{k: v for k, v in kept.items() if v is not None}, **self.__dict__},
        )


def _again(kind: type[Error], args: tuple[Any, ...], attributes: dict[str, Any]) -> Error:
    error = kind(*args)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


# -- the caller's misuse --


class Misuse(Error, ValueError):
    """The caller asked for something that cannot be."""


class BadOption(Misuse):
    """An option has a value that it cannot have."""

    option: str | None = None


class BadUrl(Misuse):
    """A URL that is not understood, or ``-`` outside of a pipeline."""


class BadEnvironment(Misuse):
    """A launcher's environment variable makes no sense."""

    variable: str | None = None


class LayoutError(Misuse):
    """A layout does not parse, or does not fit the array and the units."""

    reason: str | None = None
    """``text``, ``hole``, ``overlap``, ``dims_differ``, ``grid_size``, ``shapes_differ``, …"""
    position: int | None = None
    """Where in the text parsing stopped, in bytes; None when the text is fine."""
    index: tuple[int, ...] | None = None
    """The first element that no unit holds (``hole``), or that two hold (``overlap``)."""
    units: tuple[int, int] | None = None
    """The two units that hold it (``overlap``); the same number twice where two boxes of one unit overlap."""


class WrongSize(Misuse):
    """An array of the wrong shape."""

    unit: int | None = None
    """The unit whose part was expected."""
    expected: int | None = None
    """Bytes of the unit's part."""
    found: int | None = None
    """Bytes given."""
    data: object = None
    """The message that did not fit into ``out`` (`Domain.recv`)."""


class WrongType(Misuse, TypeError):
    """An array of the wrong dtype, or a dtype that cannot be moved, or something that is no array."""

    unit: int | None = None
    """The unit whose part was expected."""
    expected: str | None = None
    """The dtype of the unit's part."""
    found: str | None = None
    """The dtype of the array, or the type of what is no array."""
    data: object = None
    """The message that did not fit into ``out`` (`Domain.recv`)."""


class BadIndex(Misuse, IndexError):
    """An index that goes beyond an array in a store, or that cannot be an index."""


class NoUnit(Misuse, IndexError):
    """There is no such unit in the domain."""

    unit: int
    units: int


class AtOdds(Misuse):
    """Units called `Domain.barrier` and `Domain.synchronise` at once, and each would wait for the other."""

    unit: int
    """A unit that called the other operation."""


class InHandler(Misuse):
    """A handler called something that waits for messages, which its own thread would have to receive.
    Handlers may send, post and call."""


class RegionError(Misuse, IndexError):
    """A region that is not there, or an index beyond its end."""

    reason: str | None = None
    """What is wrong with it, without its name; None where an index is what is wrong."""


class HandlerError(Misuse):
    """A handler's name is wrong."""

    name: str


class UnknownHandler(HandlerError, LookupError):
    """No unit has a handler of this name, or the addressed unit has none. Units know each other's handlers
    after `Domain.synchronise`."""

    unit: int | None = None
    """The unit that has none, while others have."""


class DuplicateHandler(HandlerError):
    """The name is taken in this unit."""


class HandlerVersions(HandlerError):
    """Two units have the same name in different versions."""

    first: int
    first_unit: int
    second: int
    second_unit: int


class ConfigError(Misuse):
    """The file or the environment gives a size that cannot be, or rings that do not fit into memory."""

    reason: str
    """``unreadable``, ``unknown``, ``bad_value``, ``too_big``"""


class LimitReached(Error):
    """A limit was reached: ``what`` names it, ``limit`` is the most that is allowed."""

    what: str
    limit: int
    found: int


class Full(Error):
    """The other unit has not taken what was sent before; nothing is wrong, try again when there is room."""

    unit: int


class NameTaken(Error):
    """Another program of this user is already the writer of the pipe or file, or this unit of the domain. For
    a pipe on this host ``pid`` is that program's process, 0 where it is not known."""

    unit: int | None = None
    pid: int | None = None


class Closed(Error, ValueError):
    """The port is closed, or the domain was left."""


# -- the peers --


class PeerLost(Error, ConnectionError):
    """A unit's process ended without closing its port or leaving its domain, or it gave up by an exception,
    or its host was not heard for as long as the setting ``silence`` says."""

    unit: int
    side: str | None = None
    """``writer`` or ``reader``; None for a unit of the own program, or of a domain."""
    program: int | None = None
    """Which of the reader programs, from 0."""
    pid: int | None = None
    """Its process; None for a unit of another host."""


class PeerLeft(Error, ConnectionError):
    """A unit has left the domain in order: nothing more will come from it."""

    unit: int


class PeerAborted(Error, ConnectionError):
    """A unit gave up in the middle of its work, because of an error of its own."""

    unit: int
    side: str | None = None
    program: int | None = None
    reason: str = ""
    """Why, in its words; empty if it did not say."""


class Unreachable(Error, ConnectionError):
    """Nobody was at the other end of a stream, or this side cannot listen there."""


class StreamBroken(Error, ConnectionError):
    """A stream ended before its program did: the other end closed or broke, sent what is not its form, or somebody stopped
    it."""

    step: int | None = None
    """The step that did not arrive, where that is known."""


class UnevenSteps(Error, ConnectionError):
    """The units of a program closed after different numbers of steps."""

    unit: int
    side: str | None = None
    program: int | None = None
    closed_after: int | None = None
    step: int | None = None


class ReadersGone(Error, BrokenPipeError):
    """All reader programs have closed; nobody will take further steps. A writer whose readers come and go is
    opened with ``readers="any"``."""

    step: int


class Refused(Error, ConnectionRefusedError):
    """The other units did not agree to this one joining."""

    reason: str
    """``dataset``, ``disagree``, ``duplicate``, ``layout``, ``lost``, ``missing``, ``too_many_programs``,
    …"""
    unit: int | None = None
    """The unit that was refused, or that caused the refusal."""
    side: str | None = None
    program: int | None = None
    pid: int | None = None


class Stranger(Error, PermissionError):
    """The process at the other end belongs to another user or, on another host, has another key, trust,
    domain or version."""


class BadPeer(Error, ConnectionError):
    """A peer broke the protocol."""

    unit: int | None = None


# -- calls of functions of other units --


class CallError(Error):
    """A call has no result."""

    unit: int
    """The unit that was called."""
    name: str
    """The function that was called."""


class CallFailed(CallError):
    """The function raised an exception."""

    error: str
    """Its class and text."""
    traceback: str = ""
    """Where it was raised in the other unit; empty where that unit is not a Python program."""


class CallDeadline(CallError, builtins.TimeoutError):
    """No answer came before the call's deadline. A later answer is dropped."""

    waited: float
    """Seconds."""


class CallCancelled(CallError):
    """This unit gave the call up."""


class CallPeerGone(CallError, PeerLost):
    """The unit was lost, or left, before it answered. A `PeerLost`, as every wait for a lost unit gives."""


# -- time and the system --


class TimeoutError(Error, builtins.TimeoutError):
    """A wait came to its deadline. A port that is open can be used again."""

    waited: float
    """Seconds."""
    unit: int | None = None
    """The unit that waited, with its side: known where it waited for a pipe."""
    side: str | None = None


class Absent(Refused, TimeoutError):
    """Units did not come within the time that opening may take; `reason` is ``missing``."""


class Interrupted(Error):
    """A blocking call was asked to stop. Ctrl-C raises KeyboardInterrupt, not this."""

    unit: int | None = None
    """This unit, with its side, in a pipe."""
    side: str | None = None


class SystemRefused(Error, OSError):
    """The system refused something; ``errno`` says what, where it is known."""

    unit: int | None = None
    """The unit that was refused, with its side, in a pipe."""
    side: str | None = None


class NoMemory(Error, MemoryError):
    """There is not enough memory for the slots, or for a region."""

    unit: int | None = None
    """The unit that lacks it, with its side, in a pipe."""
    side: str | None = None


# -- files --


class FileError(Error, OSError):
    """Reading or writing a file failed, or the file does not hold what it must.

    ``filename`` is its path; ``errno`` is the system's error number, where the system refused it.
    """

    reason: str | None = None
    """``bad_header``, ``truncated``, ``shape_differs``, ``needs_dataset``, ``no_tensor``, ``no_space``,
    ``system``, …"""


class FileMissing(FileError, FileNotFoundError):
    """The file or its directory is not there."""


class FileNotAllowed(FileError, PermissionError):
    """The file may not be read or written."""


# -- stores --


class StoreError(Error, OSError):
    """A store could not be read or changed, or does not hold what it must. ``filename`` is its path."""

    reason: str | None = None
    """``not_there``, ``exists``, ``shape_differs``, ``elem_differs``, ``manifest``, ``too_many_lost``,
    ``outdated``, ``forked``, ``damaged``, ``no_space``, ``limit``, ``system``, …"""


class BadName(BadOption, KeyError):
    """No array in a store can have this name: `option` is ``name``."""


class DatasetMissing(FileMissing, StoreError, KeyError):
    """There is no dataset of this name in the store, or there is none any more."""
