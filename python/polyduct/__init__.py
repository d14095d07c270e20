"""Distributed arrays between parallel programs and files, each side in its own layout.

A program says how *its own* part of an array is laid out and opens a port; polyduct copies every byte once, straight to
its place in the other side's layout.

    out = polyduct.open("-", "w", shape=(4096, 4096), dtype="f4", layout="block,*")
    with out.step() as a:                       # this unit's part, in shared memory: no copy
        a[...] = compute()

    for b in polyduct.open("-", "r", layout="*,block;halo=0,2"):
        analyse(b)                              # one array, which the next step overwrites

The units of one program talk to each other as well:

    with polyduct.domain() as d:                # messages, calls, barriers, arrays in shared memory
        above = d.sendrecv((d.unit + 1) % d.units, a[-1], (d.unit - 1) % d.units)

``-`` is what ``polyduct run`` gave the program; ``pipe:NAME``, ``pipe://HOST:PORT/NAME``, ``PATH.npy``, ``PATH.raw``,
``PATH.safetensors#NAME`` and ``PATH.zarr`` work as well.
"""

from polyduct._domain import Call, Domain, Message, Serving, Status, domain
from polyduct._layouts import Box, Layout, redistribute
from polyduct._lent import Lent
from polyduct._native import __version__
from polyduct._ports import Addresses, Reader, Stats, Step, Writer, open
from polyduct._regions import Region
from polyduct.errors import (
    AtOdds,
    BadEnvironment,
    BadOption,
    BadPeer,
    BadUrl,
    CallCancelled,
    CallDeadline,
    CallError,
    CallFailed,
    CallPeerGone,
    Closed,
    ConfigError,
    DuplicateHandler,
    Error,
    FileError,
    FileMissing,
    FileNotAllowed,
    Full,
    HandlerError,
    HandlerVersions,
    InHandler,
    Interrupted,
    LayoutError,
    LimitReached,
    Misuse,
    NameTaken,
    NoMemory,
    NoUnit,
    PeerAborted,
    PeerLeft,
    PeerLost,
    ReadersGone,
    Refused,
    RegionError,
    Stranger,
    SystemRefused,
    TimeoutError,
    UnevenSteps,
    UnknownHandler,
    WrongSize,
    WrongType,
)

__all__ = [
    "Addresses",
    "AtOdds",
    "BadEnvironment",
    "BadOption",
    "BadPeer",
    "BadUrl",
    "Box",
    "Call",
    "CallCancelled",
    "CallDeadline",
    "CallError",
    "CallFailed",
    "CallPeerGone",
    "Closed",
    "ConfigError",
    "Domain",
    "DuplicateHandler",
    "Error",
    "FileError",
    "FileMissing",
    "FileNotAllowed",
    "Full",
    "HandlerError",
    "HandlerVersions",
    "InHandler",
    "Interrupted",
    "Layout",
    "LayoutError",
    "Lent",
    "LimitReached",
    "Message",
    "Misuse",
    "NameTaken",
    "NoMemory",
    "NoUnit",
    "PeerAborted",
    "PeerLeft",
    "PeerLost",
    "Reader",
    "ReadersGone",
    "Refused",
    "Region",
    "RegionError",
    "Serving",
    "Stats",
    "Status",
    "Step",
    "Stranger",
    "SystemRefused",
    "TimeoutError",
    "UnevenSteps",
    "UnknownHandler",
    "Writer",
    "WrongSize",
    "WrongType",
    "__version__",
    "domain",
    "open",
    "redistribute",
]
