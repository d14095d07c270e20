"""Domains of units in threads of one process, for tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from conftest import together

import polyduct
from polyduct import Domain

_counter = itertools.count()


def fresh() -> str:
    """A domain's name of this test alone."""
    return f"py-{os.getpid()}-{next(_counter)}"


def units(count: int, run: Callable[[Domain], Any], name: str | None = None, **options: Any) -> list[Any]:
    """Runs all units of a domain, each in a thread, and gives what they return."""
    name = name or fresh()

    def one(unit: int) -> Any:
        with polyduct.domain(name, unit=unit, units=count, **{"timeout": 30, **options}) as d:
            return run(d)

    return together(*[partial(one, unit) for unit in range(count)])


def alone(**options: Any) -> Domain:
    return polyduct.domain(fresh(), unit=0, units=1, **{"timeout": 30, **options})
