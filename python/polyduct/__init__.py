"""Distributed arrays between parallel programs and files, each side in its own layout.

A program says how *its own* part of an array is laid out and opens a port; polyduct copies every byte once,
straight to its place in the other side's layout.

    out = polyduct.open("-", "w", shape=(4096, 4096), dtype="f4", layout="block,*")
    with out.step() as a:                       # this unit's part, in shared memory: no copy
        a[...] = compute()

    for b in polyduct.open("-", "r", layout="*,block;halo=0,2"):
        analyse(b)                              # one array, which the next step overwrites

The units of one program talk to each other as well:

    with polyduct.domain() as d:                # messages, calls, barriers, arrays in shared memory
        above = d.sendrecv((d.unit + 1) % d.units, a[-1], (d.unit - 1) % d.units)

A step may have several arrays, each with its own layout on each side:

    out = polyduct.open("pipe:state", "w", arrays={"u": polyduct.Array((512, 512), "f4", "block,*"), "mask": mask})
    out.write({"u": u, "mask": mask}, time=0.2)

    for s in polyduct.open("pipe:state", "r", layouts={"u": "*,block"}):
        analyse(s["u"], s.values["time"])

``-`` is what ``polyduct run`` gave the program; ``pipe:NAME``, ``pipe://HOST:PORT/NAME``, ``PATH.npy``,
``PATH.raw``, ``PATH.safetensors#NAME``, ``PATH.zarr`` and ``store:DIR/NAME`` work as well.

A store keeps arrays on several disks, of which some may be lost; each is read in any box:

    s = polyduct.Store("/data/run7")
    s["table"] = a
    s["density"][-1, 100:200, ::2]              # the last step: only the blocks that this lies in are read

The interface; each name has a help of its own (``help(polyduct.open)``):

    open                        a port: Writer (with Step), Reader (with Steps, At); Stats, Addresses
    Array                       of several in a step: BundleWriter (BundleStep, FilledStep), BundleReader (BundleSteps,
                                ReadStep), Arrays, ArrayInfo, Open; layout_of
    Layout, redistribute        who owns what (Box), and regrouping within one process
    domain                      Domain: Message, Call, Channel, Region, Lent, Serving, Status; Request, waitany
    Store                       StoredArray, Attributes, StoreStatus
    config                      Config: where the library for C and Fortran is
    Error                       base of all exceptions; `polyduct.errors` describes each
"""

import sys as _sys
import types as _types
import typing as _typing

# `X as X` makes a name part of the interface to type checkers; `__all__` below does to `import *`.
from polyduct._at import At as At
from polyduct._bundle_reader import BundleReader as BundleReader, BundleSteps as BundleSteps, ReadStep as ReadStep
from polyduct._bundle_writer import BundleStep as BundleStep, BundleWriter as BundleWriter, FilledStep as FilledStep
from polyduct._bundles import Array as Array, ArrayInfo as ArrayInfo, Arrays as Arrays, Open as Open, layout_of as layout_of
from polyduct._config import Config as Config, config as config
from polyduct._domain import (
    Call as Call,
    Channel as Channel,
    Domain as Domain,
    Message as Message,
    Serving as Serving,
    Status as Status,
    domain as domain,
)
from polyduct._layouts import (
    Box as Box,
    Layout as Layout,
    redistribute as redistribute,
)
from polyduct._lent import Lent as Lent
from polyduct._native import __version__ as __version__
from polyduct._port import Addresses as Addresses, Stats as Stats
from polyduct._ports import open as open
from polyduct._reader import Reader as Reader, Steps as Steps
from polyduct._regions import Region as Region
from polyduct._requests import Request as Request, waitany as waitany
from polyduct._stores import (
    Attributes as Attributes,
    Store as Store,
    StoredArray as StoredArray,
    StoreStatus as StoreStatus,
)
from polyduct._writer import Step as Step, Writer as Writer
from polyduct.errors import (
    Absent as Absent,
    AtOdds as AtOdds,
    BadEnvironment as BadEnvironment,
    BadIndex as BadIndex,
    BadName as BadName,
    BadOption as BadOption,
    BadPeer as BadPeer,
    BadUrl as BadUrl,
    CallCancelled as CallCancelled,
    CallDeadline as CallDeadline,
    CallError as CallError,
    CallFailed as CallFailed,
    CallPeerGone as CallPeerGone,
    Closed as Closed,
    ConfigError as ConfigError,
    DatasetMissing as DatasetMissing,
    DuplicateHandler as DuplicateHandler,
    Error as Error,
    FileError as FileError,
    FileMissing as FileMissing,
    FileNotAllowed as FileNotAllowed,
    Full as Full,
    HandlerError as HandlerError,
    HandlerVersions as HandlerVersions,
    InHandler as InHandler,
    Interrupted as Interrupted,
    LayoutError as LayoutError,
    LimitReached as LimitReached,
    Misuse as Misuse,
    NameTaken as NameTaken,
    NoMemory as NoMemory,
    NoUnit as NoUnit,
    PeerAborted as PeerAborted,
    PeerLeft as PeerLeft,
    PeerLost as PeerLost,
    ReadersGone as ReadersGone,
    Refused as Refused,
    RegionError as RegionError,
    StoreError as StoreError,
    Stranger as Stranger,
    StreamBroken as StreamBroken,
    SystemRefused as SystemRefused,
    TimeoutError as TimeoutError,
    UnevenSteps as UnevenSteps,
    UnknownHandler as UnknownHandler,
    Unreachable as Unreachable,
    WrongSize as WrongSize,
    WrongType as WrongType,
)

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> list[str]:
        """Gives ``__all__`` to everybody but pydoc, which would print the whole help of each name in
        ``help(polyduct)``."""
        if name != "__all__" or _sys._getframe(1).f_globals.get("__name__") == "pydoc":
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name, obj=_sys.modules[__name__]
            )
        public = [n for n, one in globals().items() if n[0] != "_" and not isinstance(one, _types.ModuleType)]
        return [*sorted(public), "__version__"]
