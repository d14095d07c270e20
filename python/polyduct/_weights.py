"""A server's side of `polyduct.torch`: what its tensors are made of, and when all its units take new weights."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from polyduct import _foreign
from polyduct._arrays import refused
from polyduct._bundle_reader import BundleReader
from polyduct._bundles import Array, layouts_of
from polyduct._ports import open
from polyduct.errors import Error, Misuse, PeerAborted, PeerLost, Refused, TimeoutError

torch: Any = importlib.import_module("torch")
Tensor: TypeAlias = Any

Names: TypeAlias = "str | Sequence[str] | None"
Rules: TypeAlias = "Mapping[str, Names] | Callable[[str], Names]"

SOON = 0.2
"""Seconds in which a server that has weights looks for a trainer that has gone."""
OPENING = 10.0
"""Seconds in which a trainer that was found is met."""
FIRST = 60.0
"""Seconds in which the first weights must come, where nothing else is said: those of `polyduct.open`."""
PERMANENT = frozenset({"arrays", "dataset", "layout", "disagree", "unit_range", "version"})
"""Reasons of a `Refused` that do not pass by themselves: the trainer that is there now brings something else."""

WHOLE, NOT_YET, AGAIN, GONE, FAILED = range(5)
"""What a unit finds, the worst last: new weights in its reach, none, no trainer any more while there is time for another,
none for good, an error."""


def tensors(model: Any) -> dict[str, Tensor]:
    """The tensors of a module, or of what looks like its ``state_dict()``."""
    state = model.state_dict() if hasattr(model, "state_dict") else model
    if not isinstance(state, Mapping):
        raise Misuse(f"the model is a {type(model).__name__}; expected a module or a dictionary of tensors")
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}


def check_options(options: Mapping[str, Any]) -> None:
    """Raises `BadOption` for what `polyduct.open` does not know: it may be called later, or not at all."""
    for name in options:
        if name not in inspect.signature(open).parameters:
            raise refused(name, "no option of polyduct.open")


def place(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Which unit this process is, where a tensor knows it."""
    mesh = _foreign.mesh_of(state.values())
    if mesh is None:
        return {}
    unit, units = _foreign.unit_of(mesh)
    return {"unit": unit, "units": units}


def local(tensor: Any) -> Tensor:
    """What this process has of a tensor."""
    with torch.no_grad():
        part: Tensor = (tensor.to_local() if _foreign.is_sharded(tensor) else tensor).detach()
    return part


def made_of(names: Sequence[str], rules: Rules | None) -> dict[str, list[str]]:
    """Of which of the trainer's tensors each of a model's is made, without those that are left alone."""
    made, used = {}, set()
    for name in names:
        given: Names = name
        if callable(rules):
            given = rules(name)
        elif rules is not None and name in rules:
            given = rules[name]
        if given is None:
            continue
        if not isinstance(given, (str, Sequence)):
            raise Misuse(f"{name!r} is made of {given!r}; expected names of the trainer's tensors, or None")
        made[name] = [given] if isinstance(given, str) else list(given)
        if not made[name]:
            raise Misuse(f"{name!r} is made of nothing; expected names of the trainer's tensors, or None")
        for one in made[name]:
            if one in used:
                raise Misuse(f"two tensors of the model are made of {one!r}")
            used.add(one)
    return made


class Target:
    """A model, and what its tensors are made of."""

    def __init__(self, model: Any, rules: Rules | None) -> None:
        self._rules = rules
        try:
            self._model: Callable[[], Any] | None = weakref.ref(model)
        except TypeError:
            # A dictionary may be another in each call, of the same tensors.
            self._model = None
        self._state = tensors(model)
        self._made = made_of(list(self._state), rules)
        if not self._made:
            raise Misuse("the model has no tensors, or all are left alone")
        if meta := [name for name, tensor in self._state.items() if tensor.device.type == "meta"]:
            raise Misuse(f"{meta[0]!r} is on the device meta, where nothing is kept")
        self.mesh = _foreign.mesh_of(self._state.values())
        self.place = place(self._state)
        self.layouts = self._layouts(self._state)
        self.filled = False
        """Whether it has had weights."""

    def _layouts(self, state: Mapping[str, Tensor]) -> dict[str, Array]:
        layouts = {}
        for name, held in layouts_of({name: state[name] for name in self._made}).items():
            for one in self._made[name]:
                # Of one that is a part of another only the layout is known.
                shape = held.shape if len(self._made[name]) == 1 else None
                layouts[one] = Array(shape, held.dtype, held.layout)
        return layouts

    def is_of(self, model: Any, rules: Rules | None) -> bool:
        """Whether it is this model, with the same rules: a module is known by itself, whatever becomes of its
        tensors, a dictionary by where its tensors lie."""
        if rules is not self._rules and made_of(list(self._state), rules) != self._made:
            return False
        if self._model is not None:
            return self._model() is model
        return self._lie(tensors(model)) == self._lie(self._state)

    def _lie(self, state: Mapping[str, Tensor]) -> list[tuple[str, int, Any, Any]]:
        parts = {name: local(tensor) for name, tensor in state.items()}
        return [(name, part.data_ptr(), part.dtype, part.shape) for name, part in parts.items()]

    def renew(self, model: Any) -> bool:
        """Takes the tensors that the model has now; False where they are of another kind than those before."""
        state = tensors(model)
        if _kinds(state) != _kinds(self._state):
            return False
        self._state = state
        return True

    def fill(self, port: BundleReader) -> int:
        """Reads the next step where the tensors lie: one that the port holds already."""
        out: dict[str, Tensor] = {}
        staged: list[tuple[Tensor, Tensor]] = []
        for name, made in self._made.items():
            whole, at = local(self._state[name]), 0
            for one in made:
                length = port._places.form(one).shape[0] if len(made) > 1 else None
                part = whole if length is None else whole.narrow(0, at, length)
                at += length or 0
                if part.device.type != "cpu":
                    here = torch.empty(part.shape, dtype=part.dtype)
                    staged.append((part, here))
                    part = here
                out[one] = part
            if len(made) > 1 and at != whole.shape[0]:
                raise Misuse(
                    f"{name!r} has {whole.shape[0]} rows here; {', '.join(map(repr, made))} have {at} together"
                )
        step = port.read(out)
        assert step is not None
        for part, here in staged:
            part.copy_(here)
        self.filled = True
        version: int = step.values.get("step", step.number)
        return version


def _kinds(state: Mapping[str, Tensor]) -> list[tuple[Any, ...]]:
    """What each tensor is like, whatever is in it."""
    said = ("shape", "dtype", "placements", "device_mesh")
    return [(name, *(getattr(tensor, one, None) for one in said)) for name, tensor in state.items()]


class _Answered(Exception):
    """A trainer says what it brings."""


def _answers(name: str, array: Array) -> None:
    """In the place of layouts: takes no place among the readers."""
    raise _Answered


class Server:
    """What is known of one url: the port, while there is a trainer, and the model that has its weights."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._options: dict[str, Any] = {}
        self._port: BundleReader | None = None
        self._target: Target | None = None
        self._units = 1
        """Of the server, as the port said that was open last."""

    def refresh(self, model: Any, rules: Rules | None, wait: float | None, options: dict[str, Any]) -> int | None:
        """See `polyduct.torch.refresh`."""
        check_options(options)
        self._options.update(options)
        target = self._target
        if target is None or not target.is_of(model, rules):
            # The newest weights come again for a model that has not had them.
            self.close()
            target = self._target = Target(model, rules)
        must = wait is not None or not target.filled
        limit = wait if wait is not None else self._options.get("timeout", FIRST) if must else 0.0
        start, left, found = time.monotonic(), limit, AGAIN
        while found == AGAIN:
            port = self._meet(target, must, left)
            if port is None:
                return None
            left = None if limit is None else max(0.0, start + limit - time.monotonic())
            found, error = self._look(port, left)
            if found == GONE and must and (limit is None or time.monotonic() < start + limit):
                found = AGAIN
            found, error = self._agreed(target, found, error)
            if found not in (WHOLE, NOT_YET):
                self.close()
            left = None if limit is None else max(0.0, start + limit - time.monotonic())
        if found == WHOLE:
            if target.renew(model):
                assert port is not None
                return target.fill(port)
            self._target = None
            return self.refresh(model, rules, wait, {})
        # The server has whole weights, and goes on with them, also until a trainer comes again.
        if target.filled and (found == GONE or (found == NOT_YET and not must)):
            return None
        assert error is not None
        raise error

    def close(self) -> None:
        """Leaves the trainer; another may come."""
        port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(Error):
                port.close()

    def _meet(self, target: Target, must: bool, limit: float | None) -> BundleReader | None:
        """The port to the trainer. Unless it must be met, only one that is there is: None where none is."""
        if self._port is not None and not self._port.closed:
            return self._port
        if not must and not self._is_answered(target):
            return None
        options = {**target.place, **self._options, "timeout": limit if must else OPENING}
        error: Error | None = None
        try:
            self._port = open(self._url, "r", layouts=target.layouts, convert=True, **options)
        except (TimeoutError, PeerLost, PeerAborted, Refused) as e:
            if must:
                raise
            error = e
        if must:
            return self._port
        passes = not isinstance(error, Refused) or error.reason not in PERMANENT
        mine = WHOLE if error is None else GONE if passes else FAILED
        found, error = self._agreed(target, mine, error)
        if found == WHOLE:
            return self._port
        self.close()
        if found == FAILED and error is not None:
            raise error
        return None

    def _is_answered(self, target: Target) -> bool:
        """Whether there is a trainer, as unit 0 finds."""
        found = WHOLE
        if target.place.get("unit", self._options.get("unit")) in (0, None):
            try:
                open(self._url, "r", layouts=_answers, unit=0, units=1, timeout=SOON, job=self._options.get("job"))
            except _Answered:
                pass
            except (TimeoutError, PeerLost, PeerAborted, Refused):
                found = GONE
        return self._agree(target, found)[0] == WHOLE

    def _look(self, port: BundleReader, limit: float | None) -> tuple[int, Error | None]:
        """What this unit finds."""
        try:
            if port._port.hold(limit) is not None:
                return WHOLE, None
            return GONE, PeerLost(f"{self._url}: the trainer has ended, and brings no other weights")
        except TimeoutError as e:
            return NOT_YET, e
        except (PeerLost, PeerAborted) as e:
            return GONE, e
        except Error as e:
            return FAILED, e

    def _agreed(self, target: Target, found: int, error: Error | None) -> tuple[int, Error | None]:
        """The worst that a unit of the server finds, and its error."""
        worst, why = self._agree(target, found, "" if error is None else str(error))
        if worst == found:
            return found, error
        kind = {NOT_YET: TimeoutError, AGAIN: PeerLost, GONE: PeerLost}.get(worst, Error)
        return worst, kind(f"{self._url}: another unit of the server says: {why}")

    def _agree(self, target: Target, found: int, why: str = "") -> tuple[int, str]:
        """The worst that one of the server's units finds: all do the same then."""
        worst = found, why
        for group in self._groups(target):
            said: list[Any] = [None] * torch.distributed.get_world_size(group)
            torch.distributed.all_gather_object(said, worst, group=group)
            worst = max(said, key=lambda one: int(one[0]))
        return worst

    def _groups(self, target: Target) -> list[Any]:
        """Processes of torch.distributed that are the server's units: along each side of the mesh, or all."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return []
        if target.mesh is not None:
            sizes = [int(n) for n in target.mesh.mesh.shape]
            return [target.mesh.get_group(dim) for dim, size in enumerate(sizes) if size > 1]
        world = distributed.get_world_size()
        if self._port is not None:
            self._units = self._port.units
        return [distributed.group.WORLD] if self._units == world > 1 else []
