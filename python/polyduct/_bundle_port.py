"""What the two ports of bundles share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyduct import _html
from polyduct._bundles import ArrayInfo, Places
from polyduct._dtypes import DType
from polyduct._port import _Port


class _BundlePort(_Port):
    """A port of several arrays."""

    _places: Places

    def _start_bundle(self, url: str, timeout: float | None, dtypes: Mapping[str, DType]) -> None:
        self._places = Places(self._port.arrays, self.unit, url, dtypes)
        self._start(url, timeout)

    @property
    def arrays(self) -> dict[str, ArrayInfo]:
        """What is known of each array, by its name."""
        return {name: self._places.info(name) for name in self._places}

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [("unit", f"{self.unit} of {self.units}")]
        rows += [(info.name, f"{info.shape} {info.dtype}, {info.layout}") for info in self.arrays.values()][:50]
        if len(self._places) > 50:
            rows.append(("…", f"{len(self._places)} arrays"))
        closed = " (closed)" if self._closed else ""
        return _html.table(f"polyduct.{type(self).__name__} {self._url}{closed}", rows)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return (
            f"<polyduct.{type(self).__name__} {self._url!r}: unit {self.unit} of {self.units}, "
            f"{len(self._places)} arrays{state}>"
        )
