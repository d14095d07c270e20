"""Opening ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, overload

from numpy.typing import DTypeLike

from polyduct._arrays import dims, is_text, natural, refused, seconds
from polyduct._bundle_reader import BundleReader
from polyduct._bundle_writer import BundleWriter
from polyduct._bundles import Array
from polyduct._layouts import Layout, text_of
from polyduct._reader import Reader
from polyduct._units import Told
from polyduct._writer import Writer
from polyduct.errors import BadOption, BadUrl, Misuse

Layouts: TypeAlias = "str | Layout | Array | Mapping[Any, Any] | Callable[[str, Array], Any]"
Policy = Literal["block", "latest", "drop_oldest", "drop_newest"]
OnLoss = Literal["raise", "wait"]


@overload
def open(
    url: str | os.PathLike[str],
    mode: Literal["w"],
    *,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    layout: str | Layout | None = None,
    unit: int | None = None,
    units: int | None = None,
    depth: int | None = None,
    policy: Policy | None = None,
    readers: int | Literal["any"] | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    append: bool = False,
    chunks: int | Sequence[int] | None = None,
    compress: str | None = None,
) -> Writer: ...
@overload
def open(
    url: str | os.PathLike[str],
    mode: Literal["r"] = "r",
    *,
    layout: str | Layout | None = None,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    unit: int | None = None,
    units: int | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    convert: bool = False,
) -> Reader: ...
@overload
def open(
    url: str | os.PathLike[str],
    mode: Literal["w"],
    *,
    arrays: Mapping[Any, Any],
    unit: int | None = None,
    units: int | None = None,
    depth: int | None = None,
    policy: Policy | None = None,
    readers: int | Literal["any"] | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    shard_bytes: int | None = None,
) -> BundleWriter: ...
@overload
def open(
    url: str | os.PathLike[str],
    mode: Literal["r"] = "r",
    *,
    layouts: Layouts,
    unit: int | None = None,
    units: int | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    convert: bool = False,
) -> BundleReader: ...
def open(
    url: str | os.PathLike[str],
    mode: Literal["r", "w"] = "r",
    *,
    arrays: Mapping[Any, Any] | None = None,
    layouts: Layouts | None = None,
    layout: str | Layout | None = None,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    unit: int | None = None,
    units: int | None = None,
    depth: int | None = None,
    policy: Policy | None = None,
    readers: int | Literal["any"] | None = None,
    timeout: float | None = None,
    on_loss: OnLoss | None = None,
    program: str | None = None,
    job: str | None = None,
    convert: bool = False,
    append: bool = False,
    chunks: int | Sequence[int] | None = None,
    compress: str | None = None,
    shard_bytes: int | None = None,
) -> Writer | Reader | BundleWriter | BundleReader:
    """Opens a port, and waits until all units on both sides have come.

    url
        ``-`` (what ``polyduct run`` gave), ``pipe:NAME``, ``pipe://HOST:PORT/NAME``, ``PATH.npy``,
        ``PATH.raw``, ``PATH.safetensors`` (a file of one tensor, or of several ``arrays``),
        ``PATH.safetensors#NAME`` (one of several; writing leaves the others), ``PATH.safetensors.index.json`` (a
        set of such files, ``PATH-00001-of-00002.safetensors`` and so on), ``PATH.npz`` (several arrays; to read,
        ``PATH.npz#NAME`` is one of them), ``PATH.zarr`` (a directory, Zarr version 2 or 3: an array, or a group of
        several ``arrays``; ``PATH.zarr/NAME`` is an array in a group) or ``store:DIR/NAME``, a
        dataset in a `Store`; a path may be a `pathlib.Path`.
    mode
        ``w`` or ``r``.
    layout
        How this program's units hold the array: ``block,*``, ``*,block;halo=0,2``, ``cyclic(64),block@2x3``,
        … A program of one unit may leave it out and has all of it.
    shape, dtype
        Shape and dtype of the whole array. A writer must give them; a reader may give what it expects, and
        must where plain bytes come.
    arrays
        Of a writer of several arrays in each step, in the place of shape, dtype and layout: a dictionary of
        their names, which may have dictionaries in it (``"encoder/0/weight"``). Each is a `polyduct.Array`,
        or an array that is like it, of which every unit has all or, where it says so itself, its part (see
        `layout_of`). Or a Dataset of xarray, whose variables and coordinates they are; readers make one of a step
        (`ReadStep.dataset`). A pipe, a group of Zarr and a folder of a store take them in each step; a ``.safetensors``
        or ``.npz`` file, and a set of files, in one; and ``PATH.npy`` one array in each step, whose size changes.
    layouts
        Of a reader of several arrays: a dictionary from names, or patterns (``"encoder/*"``), to layouts or,
        where it expects a shape or dtype, to a `polyduct.Array`; or one layout for all, which must fit
        each: arrays of fewer dimensions need a rule of their own. Of two patterns that fit a name the first
        counts. What none fits is not moved. Or a function that is asked of each array of
        the writer, by its name and what the writer says of it (a `polyduct.Array`), and gives one of these, or
        None where it is not taken. With ``of`` of `polyduct.Array` arrays are renamed, put together from
        several or split; patterns leave out what they use. With ``convert`` the dtypes that are said are
        converted to.
    unit, units
        Which unit this is, and how many there are. By default what the launcher says (``polyduct run``,
        mpiexec, srun, torchrun), else what the arrays say of which each process has a part (see `layout_of`);
        without either the only one.
    depth
        Slots of each writer unit (default 2). Only ``w``.
    policy
        What a writer does when all slots are full: ``block`` (default), ``latest``, ``drop_oldest``,
        ``drop_newest``. Only ``w``.
    readers
        Reader programs that the writer waits for (default 1). Or ``"any"``, on one host, with the policy
        ``latest``: it waits for none and never ends for lack of them. Up to 8 at once come, leave or are
        killed, and come again, each with its own number of units and layout; each begins with the newest step
        that is there, and gets steps newer than the last from then on. A ``depth`` of one more than the
        programs that read at once keeps slow ones from holding up others. Only ``w``.
    timeout
        Longest wait of any call, in seconds. By default 60 s for the others to come, and then no limit: the
        death of a peer is noticed at once without it.
    on_loss
        ``raise`` (default), or ``wait``: the survivors wait for a replacement that opens with the lost unit's
        number. It finds the pipe through the writers' unit 0, whose ``close`` waits until no unit can need a
        replacement any more; unit 0 can be replaced, too. Across hosts a writer that replaces another begins
        with the first step that some reader has yet to get: it must write what its predecessor did.
    program
        Name of this program, the same in all its units: tells several reader programs of one pipe apart.
    job
        Job that the name of a pipe belongs to: programs of the same job meet. By default ``POLYDUCT_JOB``, or
        what tells the launcher's jobs apart; with empty text the name belongs to the user alone.
    convert
        Lets a reader have another floating dtype than the writer's, converted on the way (f32↔bf16, f32↔f16,
        f64↔f32). Only ``r``.
    append
        Lets the steps follow those that the store has under this name, if there are any. Only ``w``, of a
        store.
    chunks
        Shape of a chunk of a Zarr array: a size for each dimension of a step, and maybe one of steps before
        them. By default whole rows, 32 MiB of them, or 2 MiB before they are compressed. All units must give
        the same. Only ``w``, of Zarr.
    compress
        What chunks of a Zarr array are compressed with: ``zstd``, ``gzip``, ``gzip:0`` to ``gzip:9``,
        ``blosc`` (LZ4 of shuffled bytes) or ``none`` (default). All units must give the same. Only ``w``, of
        Zarr.

    shard_bytes
        The most bytes of data of each file of a set (default 5 GB), unless it has one array of more. All units
        must give the same. Only ``w``, of a set.

    A file has no slots and no readers to wait for: with one, ``depth``, ``policy`` and ``readers`` do
    nothing, but must be what a pipe would take. ``on_loss="wait"`` is for pipes: `BadOption` for files and
    stores.
    """
    if mode not in ("r", "w"):
        raise refused("mode", f"{mode!r}; expected 'r' or 'w'")
    url = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not is_text(url):
        raise BadUrl(f"the url is {url!r}; expected text or a path, in UTF-8")
    options: dict[str, Any] = {
        "unit": unit,
        "units": units,
        "program": program,
        "job": job,
        "depth": depth,
        "policy": policy,
        "readers": readers,
        "timeout": timeout,
        "on_loss": on_loss,
        "append": append,
        "chunks": None if chunks is None else dims("chunks", chunks),
        "compress": compress,
        "shard_bytes": shard_bytes,
        "written_down": [],
    }
    if not isinstance(append, bool):
        raise refused("append", f"{append!r}; expected True or False")
    for name in ("unit", "units", "depth", "readers"):
        if options[name] is not None and (name, readers) != ("readers", "any"):
            options[name] = natural(name, options[name], 2**32, BadOption)
    if shard_bytes is not None:
        options["shard_bytes"] = natural("shard_bytes", shard_bytes, 2**63, BadOption)
    for name in ("program", "job", "policy", "on_loss", "compress"):
        if options[name] is not None and not is_text(options[name]):
            raise refused(name, f"{options[name]!r}; expected text")
    text = None if layout is None else text_of(layout)
    seconds("timeout", timeout)
    several = arrays if mode == "w" else layouts
    if (arrays, layouts) != (None, None):
        name, other = ("arrays", layouts) if mode == "w" else ("layouts", arrays)
        if other is not None:
            raise refused("layouts" if mode == "w" else "arrays", "for the other side: " + name + " here")
        if (shape, dtype, layout) != (None, None, None):
            raise Misuse(f"with {name} each array has its own shape, dtype and layout")
    if mode == "w":
        if several is not None and not convert:
            told = Told("arrays", several, options)
            writer = BundleWriter(url, told.tree, options)
            told.check(writer)
            return writer
        if shape is None or dtype is None:
            raise Misuse("a writer must say shape and dtype")
        if convert:
            raise refused("convert", "for readers: the writer's dtype is what its arrays hold")
        return Writer(url, dims("shape", shape), dtype, text, options)
    for name in ("depth", "policy", "readers", "chunks", "compress", "shard_bytes"):
        if options[name] is not None:
            raise refused(name, "the writer's to say")
    if append:
        raise refused("append", "the writer's to say")
    if several is not None:
        told = Told("layouts", several, options)
        reader = BundleReader(url, told.tree, convert, options)
        told.check(reader)
        return reader
    if convert and dtype is None:
        raise refused("convert", "True; expected the dtype to convert to as well")
    return Reader(url, None if shape is None else dims("shape", shape), dtype, text, convert, options)
