"""How the objects of other libraries hold an array, in one form: what each says is compared with what it
lists for this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyduct._grids import boxes_of, merged
from polyduct.errors import LayoutError, Misuse

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from polyduct._layouts import Box


class Held(NamedTuple):
    """How a program holds an array of which this process has a part."""

    what: str
    """What says so, for errors."""
    shape: tuple[int, ...]
    """Shape of the whole array."""
    dtype: DTypeLike | None
    """Type of the elements, if it is known."""
    text: str
    """The layout."""
    unit: int
    """Which unit this process is."""
    units: int
    """How many there are."""
    boxes: Sequence[Box] | None = None
    """The boxes that the object itself lists for this process, if it lists some."""

    def check(self) -> None:
        """Raises `Misuse` where the object's own boxes are not those of the layout, or there can be no such
        layout."""
        try:
            mine = boxes_of(self.text, self.shape, self.units, self.unit)
        except LayoutError as e:
            raise Misuse(f"{self.what} would be the layout {self.text!r}: {e}; {SAY}") from None
        if self.boxes is not None and mine != merged(self.boxes):
            raise Misuse(
                f"the layout {self.text!r} of {self.what} gives unit {self.unit} of {self.units} {mine}, its "
                f"own list for this process says {list(self.boxes)}; {SAY}"
            )


SAY = "say the layout: polyduct.Array(shape, dtype, layout)"
