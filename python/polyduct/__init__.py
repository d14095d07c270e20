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
``PATH.safetensors#NAME``, ``PATH.zarr`` and ``store:DIR/NAME`` work as well.

A store keeps arrays on several disks, of which some may be lost; each is read in any box:

    s = polyduct.Store("/data/run7")
    s["table"] = a
    s["density"][-1, 100:200, ::2]              # the last step: only the blocks that this lies in are read
"""

from polyduct._at import At
from polyduct._domain import Call, Domain, Message, Serving, Status, domain
from polyduct._layouts import Box, Layout, redistribute
from polyduct._lent import Lent
from polyduct._native import __version__
from polyduct._ports import Addresses, Reader, Stats, Step, Writer, open
from polyduct._regions import Region
from polyduct._stores import Attributes, Store, StoredArray, StoreStatus
from polyduct.errors import (
    Absent,
    AtOdds,
    BadEnvironment,
    BadIndex,
    BadName,
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
    DatasetMissing,
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
    StoreError,
    Stranger,
    SystemRefused,
    TimeoutError,
    UnevenSteps,
    UnknownHandler,
    WrongSize,
    WrongType,
)

__all__ = [
    "Absent",
    "Addresses",
    "At",
    "AtOdds",
    "Attributes",
    "BadEnvironment",
    "BadIndex",
    "BadName",
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
    "DatasetMissing",
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
    "Store",
    "StoreError",
    "StoreStatus",
    "StoredArray",
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
