"""The exceptions of polyduct. They mirror the error enums of the Rust crates; ``crates/python/src/error.rs`` maps them.

Every class is also what Python programs would catch for it: a lost peer is a ``ConnectionError``, a wrong shape a
``ValueError``. After a `TimeoutError`, an `Interrupted` or a `WrongSize` a port can be used again; after any other error
of a call on a port it should be closed.
"""

from __future__ import annotations

import builtins


class Error(Exception):
    """Anything that polyduct raises."""


# -- the caller's misuse --


class Misuse(Error, ValueError):
    """The caller asked for something that cannot be."""


class BadOption(Misuse):
    """An option has a value that it cannot have."""

    option: str | None = None


class BadUrl(Misuse):
    """A URL that is not understood, or ``-`` outside of a pipeline."""

    url: str | None = None


class BadEnvironment(Misuse):
    """A launcher's environment variable makes no sense."""

    variable: str | None = None


class LayoutError(Misuse):
    """A layout does not parse, or does not fit the array and the units."""

    position: int | None = None
    """Where in the text parsing stopped, in bytes; None when the text is fine."""


class WrongSize(Misuse):
    """An array of the wrong shape."""

    unit: int | None = None
    expected: int | None = None
    """Bytes of the unit's part."""
    found: int | None = None
    """Bytes given."""


class WrongType(Misuse, TypeError):
    """An array of the wrong dtype, or a dtype that cannot be moved."""


class NameTaken(Error):
    """Another program of this user is already the writer of the pipe or file."""


class Closed(Error, ValueError):
    """The port is closed."""


# -- the peers --


class PeerLost(Error, ConnectionError):
    """A unit's process ended without closing its port."""

    unit: int
    side: str | None = None
    """``writer`` or ``reader``; None for a unit of the own program."""
    program: int | None = None
    """Which of the reader programs, from 0."""
    pid: int


class PeerAborted(Error, ConnectionError):
    """A unit gave up in the middle of its work, because of an error of its own."""

    unit: int
    side: str | None = None
    program: int | None = None


class UnevenSteps(Error, ConnectionError):
    """The units of a program closed after different numbers of steps."""

    unit: int
    side: str | None = None
    program: int | None = None
    closed_after: int | None = None
    step: int | None = None


class ReadersGone(Error, BrokenPipeError):
    """All reader programs have closed; nobody will take further steps."""

    step: int


class Refused(Error, ConnectionRefusedError):
    """The other units did not agree to this one joining."""

    reason: str
    """``dataset``, ``disagree``, ``duplicate``, ``layout``, ``lost``, ``missing``, ``too_many_programs``, …"""
    unit: int | None = None
    """The unit that was refused, or is the trouble."""
    side: str | None = None
    program: int | None = None
    pid: int | None = None


class Stranger(Error, PermissionError):
    """The process at the other end belongs to another user or, on another host, does not prove the same key."""


class BadPeer(Error, ConnectionError):
    """A peer broke the protocol."""


# -- time and the system --


class TimeoutError(Error, builtins.TimeoutError):
    """A wait came to its deadline. The port can be used again."""

    waited: float
    """Seconds."""


class Interrupted(Error):
    """A blocking call was asked to stop. Ctrl-C raises KeyboardInterrupt, not this."""


class SystemRefused(Error, OSError):
    """The system refused something; ``errno`` says what, where it is known."""


class NoMemory(Error, MemoryError):
    """There is not enough memory for the slots."""


# -- files --


class FileError(Error, OSError):
    """Reading or writing a file failed, or the file does not hold what it must."""

    reason: str | None = None
    """``bad_header``, ``truncated``, ``shape_differs``, ``needs_dataset``, ``no_space``, ``system``, …"""


class FileMissing(FileError, FileNotFoundError):
    """The file or its directory is not there."""


class FileNotAllowed(FileError, PermissionError):
    """The file may not be read or written."""
