"""Bundles: several named arrays in each step. What a program says of them, and how they are reached by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from polyduct import _arrays
from polyduct._arrays import Form, dims, is_text, refused, unmasked
from polyduct._dtypes import DType, from_elem, to_elem
from polyduct._layouts import Layout, text_of
from polyduct.errors import Misuse

EVERYTHING = "..."
"""The layout in which every unit has all of an array."""


class Array:
    """What a program says of one of several arrays, for ``arrays=`` and ``layouts=`` of `polyduct.open`.

    shape, dtype
        Of the whole array. A writer must give them; a reader may give what it expects.
    layout
        How this program's units hold it. A program of one unit may leave it out and has all of it.

    >>> Array((512, 512, 64), "f4", "block,block,*")
    polyduct.Array((512, 512, 64), 'f4', 'block,block,*')
    """

    __slots__ = ("dtype", "layout", "shape")

    def __init__(
        self,
        shape: int | Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        layout: str | Layout | None = None,
    ) -> None:
        self.shape = None if shape is None else tuple(dims("shape", shape))
        self.dtype = dtype
        self.layout = None if layout is None else text_of(layout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self.shape, self.dtype, self.layout) == (other.shape, other.dtype, other.layout)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"polyduct.Array({self.shape}, {self.dtype!r}, {self.layout!r})"


class ArrayInfo(NamedTuple):
    """An array of an open port."""

    name: str
    """Its name, of levels between ``/``."""
    shape: tuple[int, ...]
    """Shape of the whole array."""
    dtype: DType
    """Type of the elements."""
    layout: Layout
    """This program's layout."""
    local_shape: tuple[int, ...]
    """Shape of this unit's part, its halo included."""


def flatten(what: str, tree: object) -> dict[str, Any]:
    """The leaves of dictionaries of dictionaries, by their names: the keys with ``/`` between them."""
    if not isinstance(tree, Mapping):
        raise refused(what, f"{type(tree).__name__!r}; expected a dictionary of names", Misuse)
    found: dict[str, Any] = {}

    def walk(tree: Mapping[Any, Any], path: str) -> None:
        for key, leaf in tree.items():
            name = path + str(key)
            if isinstance(leaf, Mapping):
                walk(leaf, name + "/")
            elif name in found:
                raise Misuse(f"{what}: two arrays are called {name!r}")
            elif not is_text(name):
                raise Misuse(f"{what}: {name!r} is no name; expected text")
            else:
                found[name] = leaf

    walk(tree, "")
    return found


def given(arrays: object) -> list[tuple[str, list[int], str, str | None]]:
    """What a writer says of its arrays, for the native module: of an array of NumPy each unit has all."""

    def one(name: str, leaf: object) -> tuple[str, list[int], str, str | None]:
        if not isinstance(leaf, Array):
            held = unmasked(leaf)
            return name, list(held.shape), to_elem(held.dtype)[0], EVERYTHING
        if leaf.shape is None or leaf.dtype is None:
            raise Misuse(f"arrays: {name!r} has no shape or no dtype; a writer must say both")
        return name, list(leaf.shape), to_elem(leaf.dtype)[0], leaf.layout

    return [one(name, leaf) for name, leaf in flatten("arrays", arrays).items()]


def rules(layouts: object) -> list[tuple[str, str | None, list[int] | None, str | None]]:
    """What a reader says of the arrays that it takes, for the native module."""

    def one(name: str, leaf: object) -> tuple[str, str | None, list[int] | None, str | None]:
        if leaf is None or isinstance(leaf, (str, Layout)):
            return name, None if leaf is None else text_of(leaf), None, None
        if not isinstance(leaf, Array):
            raise refused("layouts", f"{leaf!r} for {name!r}; expected a layout or a polyduct.Array")
        elem = None if leaf.dtype is None else to_elem(leaf.dtype)[0]
        return name, leaf.layout, None if leaf.shape is None else list(leaf.shape), elem

    if isinstance(layouts, (str, Layout, Array)):
        return [one("*", layouts)]
    return [one(name, leaf) for name, leaf in flatten("layouts", layouts).items()]


class Places:
    """Where the parts of a port's unit lie in the memory of a step, and what each is like."""

    def __init__(self, arrays: list[tuple[str, Any, int, int]], unit: int, url: str) -> None:
        self._native = {name: (layout, slice(start, end)) for name, layout, start, end in arrays}
        self._unit = unit
        self._url = url
        self._forms: dict[str, Form] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._native)

    def __len__(self) -> int:
        return len(self._native)

    def __contains__(self, name: object) -> bool:
        return name in self._native

    def form(self, name: str) -> Form:
        """What an array of this unit's part looks like."""
        form = self._forms.get(name)
        if form is None:
            layout = self._native[name][0]
            side = f"{self._url}, array {name!r}"
            form = self._forms[name] = Form(layout, self._unit, from_elem(layout.elem), url=side)
        return form

    def at(self, name: str) -> slice:
        """Where the part lies."""
        return self._native[name][1]

    def info(self, name: str) -> ArrayInfo:
        """What is known of an array."""
        layout = Layout._of(self._native[name][0])
        return ArrayInfo(
            name, layout.shape, from_elem(layout._bound.elem), layout, self.form(name).shape
        )


class Arrays(Mapping[str, Any]):
    """The arrays of a step by their names. The beginning of names up to a ``/`` gives those below it."""

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

    def __repr__(self) -> str:
        return f"<polyduct.{type(self).__name__} {list(self)}>"


def parts_of(places: Places, tree: object) -> list[_arrays.Array]:
    """The bytes of each array of a step, from wherever a program has them: all that the port has and no
    others."""
    leaves = flatten("arrays", tree)
    check_names(places, leaves)
    return [places.form(name).to_flat(places.form(name).given(leaves[name])) for name in places]


def check_names(places: Places, leaves: Mapping[str, object]) -> None:
    """Raises an error unless these are the names of a port's arrays."""
    if len(leaves) == len(places) and all(name in places for name in leaves):
        return
    lacking = [name for name in places if name not in leaves]
    unknown = [name for name in leaves if name not in places]
    why = [f"{what} {_listed(names)}" for what, names in (("without", lacking), ("with", unknown)) if names]
    raise Misuse(f"a step of {len(places)} arrays {' and '.join(why)}; each has all of the port's arrays")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def empty(len_bytes: int) -> _arrays.Bytes:
    """New memory for a step, its content undefined, that begins at a cache line."""
    room = np.empty(len_bytes + _arrays.LINE, np.uint8)
    start = -room.ctypes.data % _arrays.LINE
    return room[start : start + len_bytes]
