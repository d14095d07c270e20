"""Which unit of how many a process is, as the arrays say that a port is opened with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyduct import _dask, _foreign
from polyduct._bundles import Array, flatten, layout_of, layouts_of
from polyduct._grids import EVERYTHING
from polyduct._dataset import is_dataset
from polyduct.errors import Misuse

if TYPE_CHECKING:
    from polyduct._bundle_reader import BundleReader
    from polyduct._bundle_writer import BundleWriter

LAUNCHERS = (
    "POLYDUCT_UNIT",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "MV2_COMM_WORLD_RANK",
    "RANK",
)
"""Variables by which the native module knows a unit."""


def is_launched() -> bool:
    """Whether a launcher says which unit this is."""
    return any(name in os.environ for name in LAUNCHERS)


class Told:
    """What the arrays say that a port is opened with, for ``arrays=`` or ``layouts=`` of `polyduct.open`:
    how they are held, and which unit this is."""

    def __init__(self, what: str, tree: Any, options: dict[str, Any]) -> None:
        self.tree = tree
        """The arrays; those of which this process has a part as `polyduct.Array`."""
        self._who: tuple[str, int, int] | None = None
        if not isinstance(tree, Mapping) or is_dataset(tree):
            return
        leaves, usual = flatten(what, tree), None
        leaves |= layouts_of({name: leaf for name, leaf in leaves.items() if _foreign.is_held(leaf)})
        for name, leaf in leaves.items():
            if _dask.is_array(leaf):
                # One process alone has all chunks.
                alone = options["units"] == 1 or (options["units"] is None and not is_launched())
                leaves[name] = Array(leaf.shape, leaf.dtype, EVERYTHING) if alone else layout_of(leaf)
            if not isinstance(leaf, Array) or leaf._place is None:
                continue
            if leaf.layout is None or leaf.layout.startswith(EVERYTHING):
                # The number matters to no element, and may be that of some of the units.
                usual = usual or leaf._place
            elif self._who is None:
                self._who = name, *leaf._place
            elif self._who[1:] != leaf._place:
                raise Misuse(f"{what}: {self._other(*leaf._place)} for {name!r}; all belong to one program")
        self.tree = leaves
        place = usual if self._who is None else self._who[1:]
        if place is not None and (options["unit"], options["units"]) == (None, None):
            # Else the launcher's word tells programs apart as well.
            if not is_launched():
                options["unit"], options["units"] = place
        elif self._who is not None and self._who[1:] != (options["unit"], options["units"]):
            raise Misuse(f"{what}: {self._other(options['unit'], options['units'])} by unit= and units=")

    def _other(self, unit: Any, units: Any) -> str:
        assert self._who is not None
        name, mine, of = self._who
        return f"this process is unit {mine} of {of} for {name!r}, and unit {unit} of {units}"

    def check(self, port: BundleReader | BundleWriter) -> None:
        """Raises `Misuse`, and ends the port, unless it is the unit that the arrays say."""
        if self._who is not None and self._who[1:] != (port.unit, port.units):
            port.abort()
            _, unit, units = self._who
            raise Misuse(
                f"{self._other(port.unit, port.units)} for what started it; say unit={unit}, units={units}"
            )
