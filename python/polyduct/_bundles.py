"""Bundles: several named arrays in each step. What a program says of them, and how they are reached by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from polyduct import _arrays, _dask, _foreign, _native
from polyduct._arrays import Form, dims, is_text, natural, refused, unmasked
from polyduct._dtypes import DType, from_elem, is_carried, kept, same, to_elem
from polyduct._grids import EVERYTHING
from polyduct._layouts import Layout, text_of
from polyduct._pieces import Pieces, pieces
from polyduct.errors import Misuse

CONSTANT = -2
"""In the place of the number of an open dimension: the array does not change at all."""


class Open:
    """A dimension whose size changes from step to step, in the shape of an `Array`.

    In each step each writer unit brings a piece of it, of at most ``most``, and none is fine; the array of
    the step is their pieces in the order of the units.

    >>> Array((Open(1000), 3), "f4")
    polyduct.Array((polyduct.Open(1000), 3), 'f4', None)
    """

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        self.most = natural("most", most)

    def __eq__(self, other: object) -> bool:
        return self.most == other.most if isinstance(other, Open) else NotImplemented

    def __hash__(self) -> int:
        return hash((Open, self.most))

    def __repr__(self) -> str:
        return f"polyduct.Open({self.most})"


class Array:
    """What a program says of one of several arrays, for ``arrays=`` and ``layouts=`` of `polyduct.open`.

    shape, dtype
        Of the whole array. A writer must give them; a reader may give what it expects. One dimension may be
        `Open`: then each unit brings a piece of it, and there is no layout to say.
    layout
        How this program's units hold it. A program of one unit may leave it out and has all of it. A reader
        of an open dimension may say ``"partner"``: each unit gets what the writer unit of its number brings,
        or where they are not as many, the pieces of as many writer units as the others.
    changes
        Whether the shape changes as a whole from step to step; then ``shape`` is the most that it is. All
        writer units say the same.
    constant
        Whether the array is given with the first step alone; readers, also those that come later, have it in
        every step.
    of
        Of a reader: which of the writers' arrays it is, or is made of. A name takes one under another name;
        ``(name, index)`` takes a box of it, with an index as NumPy has them (``numpy.s_[:10, 3]``); a list puts
        several together, one behind the other along the dimension ``axis`` (0), or as planes of a new one,
        ``stack``. ``(name, index, place)`` says where in the whole array a box lies, as an index of that; then
        ``shape`` must be said. Together they make each element once.
    dims, attrs
        Of a writer: what the dimensions are called, without that of the steps, and what else is written down of the
        array, a dictionary as JSON has them. Groups of Zarr keep both, other ends neither.

    >>> Array((512, 512, 64), "f4", "block,block,*")
    polyduct.Array((512, 512, 64), 'f4', 'block,block,*')
    >>> fused = {"qkv": Array(layout="block,*", of=["q", "k", "v"])}
    """

    __slots__ = ("_place", "attrs", "changes", "constant", "dims", "dtype", "layout", "of", "shape")

    def __init__(
        self,
        shape: int | Open | Sequence[int | Open] | None = None,
        dtype: DTypeLike | None = None,
        layout: str | Layout | None = None,
        *,
        changes: bool = False,
        constant: bool = False,
        of: str | tuple[Any, ...] | list[Any] | None = None,
        axis: int | None = None,
        stack: int | None = None,
        dims: Sequence[str | None] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.shape: tuple[int | Open, ...] | None = None
        if shape is not None:
            sizes: list[Any] = [shape]
            if not isinstance(shape, Open) and not hasattr(shape, "__index__"):
                try:
                    sizes = list(shape)
                except TypeError:
                    raise Misuse(f"shape is {shape!r}; expected integers") from None
            if sum(isinstance(n, Open) for n in sizes) > (0 if changes else 1):
                raise Misuse(f"shape is {shape!r}; one dimension of an array may be open")
            self.shape = tuple(n if isinstance(n, Open) else _arrays.dims("shape", [n])[0] for n in sizes)
        self.dims = None if dims is None else [None if dim is None else str(dim) for dim in dims]
        self.attrs = None if attrs is None else dict(attrs)
        if self.dims is not None and self.shape is not None and len(self.dims) != len(self.shape):
            raise Misuse(f"dims is {self.dims}; expected a name for each dimension of {self.shape}, or None")
        self.dtype = dtype
        self.layout = None if layout is None else text_of(layout)
        self.changes = changes
        self.constant = constant
        if constant and self.open != CONSTANT:
            raise Misuse("an array is constant, or its size changes; not both")
        if of is None and (axis, stack) != (None, None):
            raise Misuse("axis and stack are of the pieces that an array is made of; expected of=[...] as well")
        self.of: Pieces | None = None if of is None else pieces(of, axis, stack)
        self._place: tuple[int, int] | None = None
        """Which unit of how many this process is, if what the layout was taken from knows it."""

    @property
    def most(self) -> list[int]:
        """The shape, of an open dimension the most."""
        return [n.most if isinstance(n, Open) else n for n in self.shape or ()]

    @property
    def open(self) -> int | None:
        """The open dimension; -1 where the shape changes as a whole, -2 where the array is constant."""
        if self.changes:
            return -1
        found = next((at for at, n in enumerate(self.shape or ()) if isinstance(n, Open)), None)
        return CONSTANT if self.constant and found is None else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name[0] != "_")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        changes = ", changes=True" if self.changes else ", constant=True" if self.constant else ""
        if self.of is not None:
            changes += f", of={[piece[0] for piece in self.of[0]]}"
        return f"polyduct.Array({self.shape}, {self.dtype!r}, {self.layout!r}{changes})"


class ArrayInfo(NamedTuple):
    """An array of an open port."""

    name: str
    """Its name, of levels between ``/``."""
    shape: tuple[int, ...]
    """Shape of the whole array: of one whose size changes, in the step at hand; where a dimension is open, a
    writer knows its own piece."""
    dtype: DType
    """Type of the elements."""
    layout: Layout
    """This program's layout."""
    local_shape: tuple[int, ...]
    """Shape of this unit's part, its halo included."""


def layout_of(
    what: Any,
    *,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    comm: Any = None,
) -> Array:
    """How an array is held: shape, dtype and layout, as ``arrays=`` and ``layouts=`` of `polyduct.open` take
    them. Both take the array itself as well.

    what
        A DTensor of torch (its mesh and placements, uneven and strided shards and replicas included; those of
        FSDP2 and of tensor-parallel modules in their ``state_dict()``), whose mesh is the units of the program. An
        array of JAX on the devices of several processes, or a `jax.ShapeDtypeStruct` with such a sharding: each
        process is a unit. A `Cartcomm` of mpi4py, of which each process has a block, or a subarray or darray type of
        it, which say where in the whole array a process's elements are. An array of Dask, of which each unit has a
        chunk, in the order of its blocks. Or any other array or tensor, of which every unit has all.
    shape, dtype
        Of the whole array, for a `Cartcomm`. Its dimensions are cut along the communicator's, as ``block`` cuts
        them; those beyond are not.
    comm
        The communicator of a subarray type: all of its processes call this, and learn of each other's.

    What such an object lists for this process is checked against the layout: raises `Misuse` where that is
    something else.
    """
    return _layout_of(what, shape, dtype, comm, None)


def layouts_of(leaves: Mapping[str, Any]) -> dict[str, Array]:
    """The same of each of these, which belong to one program: tensors of torch whose meshes differ to the largest of
    these."""
    mesh = _foreign.mesh_of(leaves.values())
    return {name: _layout_of(leaf, None, None, None, mesh) for name, leaf in leaves.items()}


def _layout_of(
    what: Any, shape: int | Sequence[int] | None, dtype: DTypeLike | None, comm: Any, mesh: Any
) -> Array:
    if isinstance(what, Array):
        return what
    sizes = None if shape is None else dims("shape", shape)
    held = _foreign.held(what, shape=sizes, dtype=dtype, comm=comm, mesh=mesh)
    if held is not None:
        held.check()
        found = Array(held.shape, held.dtype, held.text)
        found._place = held.unit, held.units
        return found
    if _dask.is_array(what) and (shape, dtype, comm) == (None, None, None):
        return Array(what.shape, what.dtype, _dask.text_of(what))
    if (shape, dtype, comm) != (None, None, None):
        raise Misuse(f"a {type(what).__name__} says its shape and dtype itself; leave out shape, dtype and comm")
    if _foreign.is_described(what):
        return Array(tuple(what.shape), _foreign.dtype_of(what), EVERYTHING)
    if isinstance(what, Mapping):
        raise Misuse(f"a {type(what).__name__} is no array; layout_of is for each of those in it")
    array = unmasked(what)
    return Array(array.shape, array.dtype, EVERYTHING)


def flatten(what: str, tree: object) -> dict[str, Any]:
    """The leaves of dictionaries of dictionaries, by their names: the keys with ``/`` between them."""
    if not isinstance(tree, (Mapping, Arrays)):
        raise refused(what, f"{type(tree).__name__!r}; expected a dictionary of names", Misuse)
    found: dict[str, Any] = {}

    def walk(tree: Mapping[Any, Any] | Arrays, path: str) -> None:
        for key, leaf in tree.items():
            if not isinstance(key, (str, Integral)):
                raise Misuse(f"{what}: {key!r} is no name; expected text, or a number")
            name = path + str(key)
            if isinstance(leaf, (Mapping, Arrays)):
                walk(leaf, name + "/")
            elif name in found:
                raise Misuse(f"{what}: two arrays are called {name!r}")
            elif not is_text(name):
                raise Misuse(f"{what}: {name!r} is no name; expected text")
            else:
                found[name] = leaf

    walk(tree, "")
    return found


def written_down(
    url: str, arrays: Mapping[str, Array], dtypes: Mapping[str, DType]
) -> list[tuple[str, str, list[str | None] | None, str | None]]:
    """What is written down of arrays, for the native module: attributes as JSON, names of dimensions, and these dtypes,
    where the other end keeps them."""
    found = []
    for name, leaf in arrays.items():
        descr = kept(url, dtypes[name]) if name in dtypes else None
        if not leaf.attrs and (leaf.dims, descr) == (None, None):
            continue
        try:
            text = json.dumps(leaf.attrs or {}, allow_nan=False)
        except (TypeError, ValueError) as e:
            raise Misuse(f"arrays: the attributes of {name!r} are no JSON: {e}") from None
        found.append((name, text, leaf.dims, descr))
    return found


def carried(arrays: Mapping[str, Array]) -> dict[str, DType]:
    """What NumPy takes elements for that are bytes to polyduct."""
    said = {name: to_elem(leaf.dtype)[1] for name, leaf in arrays.items() if leaf.dtype is not None}
    return {name: dtype for name, dtype in said.items() if is_carried(dtype)}


def given(arrays: Mapping[str, Array]) -> list[tuple[str, list[int], str, str | None, int | None]]:
    """What a writer says of its arrays, for the native module: of an array of NumPy each unit has all."""

    def one(name: str, leaf: Array) -> tuple[str, list[int], str, str | None, int | None]:
        if leaf.shape is None or leaf.dtype is None:
            raise Misuse(f"arrays: {name!r} has no shape or no dtype; a writer must say both")
        if leaf.of is not None:
            raise Misuse(f"arrays: {name!r} says of what it is made; that is for readers")
        return name, leaf.most, to_elem(leaf.dtype)[0], leaf.layout, leaf.open

    return [one(name, leaf) for name, leaf in arrays.items()]


def rules(layouts: object) -> list[_native.Rule]:
    """What a reader says of the arrays that it takes, for the native module."""

    def one(name: str, leaf: object) -> _native.Rule:
        if leaf is None or isinstance(leaf, (str, Layout)):
            return name, None if leaf is None else text_of(leaf), None, None, None
        if not isinstance(leaf, Array) and not hasattr(leaf, "dtype"):
            raise refused("layouts", f"{leaf!r} for {name!r}; expected a layout, a polyduct.Array or an array")
        leaf = layout_of(leaf)
        elem = None if leaf.dtype is None else to_elem(leaf.dtype)[0]
        return name, leaf.layout, None if leaf.shape is None else leaf.most, elem, leaf.of

    if isinstance(layouts, (str, Layout, Array)):
        return [one("*", layouts)]
    return [one(name, leaf) for name, leaf in flatten("layouts", layouts).items()]


def described(arrays: list[tuple[str, list[int], str, str, int | None]]) -> dict[str, Array]:
    """What a port brings, from what the native module says of it."""

    found = {}
    for name, most, elem, layout, open in arrays:
        shape = [Open(n) if at == open else n for at, n in enumerate(most)]
        of_all = layout if shape == most else None
        changes, constant = open == -1, open == CONSTANT
        found[name] = Array(shape, from_elem(elem), of_all, changes=changes, constant=constant)
    return found


def expected(layouts: object) -> Callable[[str], DType | None]:
    """What a reader says that elements are that are bytes to polyduct, by the names of the arrays that it takes: as the
    first rule that fits says."""
    said = {"*": layouts} if isinstance(layouts, (str, Layout, Array)) else flatten("layouts", layouts)
    dtypes = carried({rule: leaf for rule, leaf in said.items() if isinstance(leaf, Array)})
    if not dtypes:
        return lambda name: None
    # Few rules are patterns.
    patterns = [rule for rule in said if "*" in rule or "?" in rule]
    order = {rule: at for at, rule in enumerate(said)}

    def of(name: str) -> DType | None:
        fitting = [rule for rule in patterns if _native.fits(rule, name)] + [name] * (name in order)
        return dtypes.get(min(fitting, key=order.__getitem__, default=""))

    return of


def chosen(choose: Callable[[str, Array], object], arrays: dict[str, Array]) -> dict[str, Any]:
    """The arrays that a function takes: for what it gives None is left out."""
    found = {name: choose(name, array) for name, array in arrays.items()}
    taken = {name: layout for name, layout in found.items() if layout is not None}
    if not taken:
        raise Misuse(f"layouts: the function took none of the writer's {len(arrays)} arrays")
    return taken


class Places:
    """Where the parts of a port's unit lie in the memory of a step, and what each is like."""

    def __init__(
        self, arrays: list[_native.Placed], unit: int, url: str, dtypes: Mapping[str, DType]
    ) -> None:
        self._native = {placed[0]: placed for placed in arrays}
        self._nothing = dict(self._native)
        """As they are at first: those whose size changes have nothing."""
        self._dtypes = dtypes
        """Of those whose elements are more to NumPy than to polyduct."""
        self._index = {placed[0]: index for index, placed in enumerate(arrays)}
        self._unit = unit
        self._url = url
        self._forms: dict[str, Form] = {}
        self.changing = [name for name, _, _, _, open in arrays if open not in (None, CONSTANT)]
        """Those whose size changes."""
        self.constant = frozenset(name for name, _, _, _, open in arrays if open == CONSTANT)
        """Those that are given once."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._native)

    def __len__(self) -> int:
        return len(self._native)

    def __contains__(self, name: object) -> bool:
        return name in self._native

    def index(self, name: str) -> int:
        """The number of an array."""
        return self._index[name]

    def open(self, name: str) -> int | None:
        """The open dimension of an array; -1 where its shape changes as a whole, -2 where it is constant."""
        return self._native[name][4]

    def resize(self, placed: _native.Placed) -> None:
        """An array is so from now on."""
        self._native[placed[0]] = placed
        self._forms.pop(placed[0], None)

    def resize_nothing(self, names: Iterable[str]) -> None:
        """Arrays whose size changes have nothing from now on."""
        for name in names:
            self.resize(self._nothing[name])

    def form(self, name: str) -> Form:
        """What an array of this unit's part looks like."""
        form = self._forms.get(name)
        if form is None:
            layout = self._native[name][1]
            side = f"{self._url}, array {name!r}"
            form = self._forms[name] = Form(layout, self._unit, self.dtype(name), url=side)
        return form

    def dtype(self, name: str) -> DType:
        """Type of the elements of an array."""
        plain = from_elem(self._native[name][1].elem)
        dtype = self._dtypes.get(name, plain)
        return dtype if same(dtype, plain) else plain

    def at(self, name: str) -> slice:
        """Where the part lies."""
        return slice(*self._native[name][2:4])

    def info(self, name: str) -> ArrayInfo:
        """What is known of an array."""
        layout = Layout._of(self._native[name][1])
        return ArrayInfo(name, layout.shape, self.dtype(name), layout, self.form(name).shape)


class Arrays:
    """The arrays of a step by their names, as a dictionary has them. The beginning of names up to a ``/`` gives
    those below it."""

    __slots__ = ("_below", "_find", "_names", "_views")

    def __init__(self, names: Places, find: Callable[[str], _arrays.Array], below: str = "") -> None:
        self._names = names
        self._find = find
        self._below = below
        self._views: dict[str, _arrays.Array] = {}

    def __getitem__(self, name: str) -> Any:
        view = self._views.get(name)
        if view is not None:
            return view
        full = self._below + name
        if full in self._names:
            view = self._views[name] = self._find(full)
            return view
        below = full + "/"
        if isinstance(name, str) and any(other.startswith(below) for other in self._names):
            return Arrays(self._names, self._find, below)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        start = len(self._below)
        return (name[start:] for name in self._names if name.startswith(self._below))

    def __len__(self) -> int:
        return sum(1 for _ in self) if self._below else len(self._names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._below + name in self._names

    def keys(self) -> list[str]:
        """The names."""
        return list(self)

    def torch(self, name: str) -> Any:
        """An array as a tensor of torch, which must be installed, in the same memory: a part that was read, or one
        that is to be filled. bfloat16 is torch's own.

        >>> for s in polyduct.open("pipe:weights", layouts="..."):       # doctest: +SKIP
        ...     model.weight.data.copy_(s.torch("weight"))
        """
        return _foreign.as_torch(self[name])

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and arrays."""
        return ((name, self[name]) for name in self)

    def __repr__(self) -> str:
        return f"<polyduct.{type(self).__name__} {list(self)}>"


def check_names(
    what: str, places: Places, leaves: Mapping[str, object], given: frozenset[str] = frozenset()
) -> None:
    """Raises an error unless these are the names of a port's arrays, without the constant ones that it was
    given."""
    if len(leaves) == len(places) - len(given) and all(name in places and name not in given for name in leaves):
        return
    again = [name for name in leaves if name in given]
    if again:
        raise Misuse(f"{_listed(again)}: constant, and given with the first step; leave it out of the others")
    lacking = [name for name in places if name not in leaves and name not in given]
    unknown = [name for name in leaves if name not in places]
    why = [f"{what} {_listed(names)}" for what, names in (("without", lacking), ("with", unknown)) if names]
    raise Misuse(f"{what} comes {' and '.join(why)}; expected all {len(places)} arrays of the port, and no others")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def empty(len_bytes: int) -> _arrays.Bytes:
    """New memory for a step, its content undefined, that begins at a cache line."""
    room = np.empty(len_bytes + _arrays.LINE, np.uint8)
    start = -room.ctypes.data % _arrays.LINE
    return room[start : start + len_bytes]
