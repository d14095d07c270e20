"""A store as an xarray Dataset: ``xarray.open_dataset("/data/run7", engine="polyduct")``. xarray finds this
by its entry point.

Nothing is read before it is needed. A variable's dimensions are those of its attribute ``dims`` (a list of
names), or ``_ARRAY_DIMENSIONS`` as in Zarr; without one, ``NAME_0``, ``NAME_1``, … A variable of one
dimension that has its own name is a coordinate, as everywhere in xarray.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import xarray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from polyduct._stores import Store, StoredArray
from polyduct.errors import Misuse

NAMES = ("dims", "_ARRAY_DIMENSIONS")
"""Attributes that name the dimensions."""


class LazyArray(BackendArray):
    """An array of a store in the form that xarray indexes."""

    def __init__(self, array: StoredArray) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER_1VECTOR
        return indexing.explicit_indexing_adapter(key, self.shape, support, self.array.__getitem__)


class StoreBackend(BackendEntrypoint):
    """Opens a store as a Dataset, its arrays as variables."""

    description = "polyduct stores: arrays on several disks, of which some may be lost"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "timeout")

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: str | os.PathLike[str],
        *,
        drop_variables: str | Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> xarray.Dataset:
        """``filename_or_obj`` is the store's directory, or ``store:DIR``; ``timeout`` is that of `Store`."""
        store = Store(_directory(filename_or_obj), timeout=timeout)
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        return xarray.Dataset({name: _variable(store[name]) for name in store if name not in dropped})

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a store: a directory with a ``store.toml``."""
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        return os.path.isfile(os.path.join(_directory(filename_or_obj), "store.toml"))


def _directory(given: str | os.PathLike[str]) -> str:
    return os.fspath(given).removeprefix("store:")


def _variable(array: StoredArray) -> xarray.Variable:
    attrs = dict(array.attrs)
    given = next((attrs.pop(name) for name in NAMES if name in attrs), None)
    dims = given if given is not None else [f"{array.name}_{k}" for k in range(array.ndim)]
    if not isinstance(dims, list) or len(dims) != array.ndim or not all(isinstance(one, str) for one in dims):
        raise Misuse(
            f"{array.name}: the attribute that names its dimensions is {dims!r}; expected {array.ndim} names"
        )
    chunks = {dim: sizes[0] for dim, sizes in zip(dims, array.chunks) if sizes}
    return xarray.Variable(
        dims, indexing.LazilyIndexedArray(LazyArray(array)), attrs, {"preferred_chunks": chunks}
    )
