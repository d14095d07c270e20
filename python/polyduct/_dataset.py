"""Datasets of xarray in bundles: variables and coordinates are arrays, and what xarray knows of them beside that,
dimensions and attributes, goes with each step as a value."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from polyduct._bundles import Array
from polyduct.errors import Misuse

if TYPE_CHECKING:
    from polyduct import _arrays
    from polyduct._bundle_reader import ReadStep

UNITS = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
"""Those of times in xarray, and what CF calls them."""
VALUE = "xarray"
"""What the value of a step is called that says how its arrays are a Dataset."""


def is_dataset(what: object) -> bool:
    """Whether this is a Dataset of xarray."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(what, xarray.Dataset)


def variables(dataset: Any) -> dict[str, _arrays.Array]:
    """The variables and coordinates as arrays; times as whole numbers of their unit."""
    return {str(name): _numbers(str(name), variable.data) for name, variable in dataset.variables.items()}


def arrays(dataset: Any) -> dict[str, Array]:
    """What a program says of them: each unit has all. Their attributes are those that xarray finds in a group of Zarr:
    times have their unit, as CF has it."""
    said = about(dataset)["variables"]

    def attrs(name: str) -> dict[str, Any]:
        found = dict(said[name].get("attrs", {}))
        kind = np.dtype(said[name].get("dtype", "f4"))
        if kind.kind in "mM":
            unit = UNITS[np.datetime_data(kind)[0]]
            since = {"units": f"{unit} since 1970-01-01", "calendar": "proleptic_gregorian"}
            found |= since if kind.kind == "M" else {"units": unit}
        return found

    return {
        name: Array(array.shape, array.dtype, "...", dims=said[name]["dims"], attrs=attrs(name))
        for name, array in variables(dataset).items()
    }


def attributes(dataset: Any) -> dict[str, Any]:
    """Those of the whole, as xarray finds them in a group of Zarr: its own, and which variables are coordinates besides
    those that are called as a dimension."""
    others = sorted(str(name) for name in dataset.coords if name not in dataset.dims)
    return {**_plain(dataset.attrs), **({"coordinates": " ".join(others)} if others else {})}


def about(dataset: Any) -> dict[str, Any]:
    """What makes a Dataset of the arrays, as a value of a step."""

    def variable(what: Any) -> dict[str, Any]:
        said: dict[str, Any] = {"dims": [str(dim) for dim in what.dims]}
        if what.attrs:
            said["attrs"] = _plain(what.attrs)
        if what.dtype.kind in "mM":
            said["dtype"] = what.dtype.str
        return said

    return {
        "variables": {str(name): variable(what) for name, what in dataset.variables.items()},
        "coords": sorted(map(str, dataset.coords)),
        "attrs": _plain(dataset.attrs),
    }


def dataset(step: ReadStep) -> Any:
    """A Dataset of a step's arrays."""
    import xarray

    said: Mapping[str, Any] = step.values.get(VALUE, {})
    known: Mapping[str, Any] = said.get("variables", {})

    def variable(name: str) -> Any:
        own = known.get(name, {})
        array = step[name]
        dims = own.get("dims", [f"{name.replace('/', '_')}_dim_{axis}" for axis in range(array.ndim)])
        if "dtype" in own:
            array = array.view(own["dtype"])
        return xarray.Variable(dims, array, own.get("attrs"))

    coords = set(said.get("coords", ()))
    found = {name: variable(name) for name in step}
    return xarray.Dataset(
        {name: what for name, what in found.items() if name not in coords},
        {name: what for name, what in found.items() if name in coords},
        said.get("attrs"),
    )


def _numbers(name: str, data: Any) -> _arrays.Array:
    array = np.asarray(data)
    if array.dtype.kind in "mM":
        return array.view("i8")
    if array.dtype.kind in "OUT":
        raise Misuse(
            f"the variable {name!r} is text or objects ({array.dtype}), which polyduct does not move; leave it out "
            f"(dataset.drop_vars({name!r})) or make bytes of it (astype('S'))"
        )
    return array


def _plain(what: Any) -> Any:
    """As values of a step are: without types of NumPy."""
    if isinstance(what, Mapping):
        return {str(key): _plain(value) for key, value in what.items()}
    if isinstance(what, (np.ndarray, np.generic)):
        return what.tolist()
    return [_plain(value) for value in what] if isinstance(what, (list, tuple)) else what
