"""Distributed arrays between parallel programs and files, each side in its own layout.

A program says how *its own* part of an array is laid out and opens a port; polyduct copies every byte once, straight to
its place in the other side's layout.

    out = polyduct.open("-", "w", shape=(4096, 4096), dtype="f4", layout="block,*")
    with out.step() as a:                       # this unit's part, in shared memory: no copy
        a[...] = compute()

    for b in polyduct.open("-", "r", layout="*,block;halo=0,2"):
        analyse(b)                              # one array, which the next step overwrites

``-`` is what ``polyduct run`` gave the program; ``pipe:NAME``, ``pipe://HOST:PORT/NAME``, ``PATH.npy`` and
``PATH.raw`` work as well.
"""

from polyduct._layouts import Box, Layout, redistribute
from polyduct._native import __version__
from polyduct._ports import Reader, Stats, Step, Writer, open
from polyduct.errors import (
    BadEnvironment,
    BadOption,
    BadPeer,
    BadUrl,
    Closed,
    Error,
    FileError,
    FileMissing,
    FileNotAllowed,
    Interrupted,
    LayoutError,
    Misuse,
    NameTaken,
    NoMemory,
    PeerAborted,
    PeerLost,
    ReadersGone,
    Refused,
    Stranger,
    SystemRefused,
    TimeoutError,
    UnevenSteps,
    WrongSize,
    WrongType,
)

__all__ = [
    "BadEnvironment",
    "BadOption",
    "BadPeer",
    "BadUrl",
    "Box",
    "Closed",
    "Error",
    "FileError",
    "FileMissing",
    "FileNotAllowed",
    "Interrupted",
    "Layout",
    "LayoutError",
    "Misuse",
    "NameTaken",
    "NoMemory",
    "PeerAborted",
    "PeerLost",
    "Reader",
    "ReadersGone",
    "Refused",
    "Stats",
    "Step",
    "Stranger",
    "SystemRefused",
    "TimeoutError",
    "UnevenSteps",
    "Writer",
    "WrongSize",
    "WrongType",
    "__version__",
    "open",
    "redistribute",
]
