"""Weights from a trainer to servers, while both run: each side says nothing but what it holds.

The trainer, every few minutes; it never waits for a server, on whichever host:

    polyduct.torch.publish("pipe:weights", model, step=n)

A server, between two requests; all tensors are of one version then:

    polyduct.torch.refresh("pipe:weights", server_model)

Both may be sharded, each in its own way: modules of FSDP2 and tensor-parallel ones have DTensors, whose meshes
and placements are their layouts. Servers come, die and come again while the trainer goes on, and a trainer that
starts again is found by the servers that run.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from polyduct import _foreign
from polyduct._bundle_reader import BundleReader
from polyduct._bundle_writer import BundleWriter
from polyduct._bundles import Array, layout_of
from polyduct._ports import open
from polyduct.errors import Error, Misuse, PeerAborted, PeerLost, Refused, TimeoutError

torch: Any = importlib.import_module("torch")
Tensor: TypeAlias = Any

Names: TypeAlias = "str | Sequence[str] | None"
Rules: TypeAlias = "Mapping[str, Names] | Callable[[str], Names]"

_writers: dict[str, BundleWriter] = {}
_readers: dict[str, tuple[BundleReader, Any]] = {}

SOON = 0.2
"""Seconds in which a server that has weights looks for a trainer that has gone."""


def publish(url: str, model: Any, step: int | None = None, **options: Any) -> int:
    """Has servers get the weights as they are now; returns their version, counted from 0.

    url
        ``pipe:NAME`` on this host, or ``pipe://HOST:PORT/NAME``, where unit 0 listens for servers of other hosts.
    model
        A module, or a dictionary of tensors such as its ``state_dict()``: the same names, shapes and shards in each
        call.
    step
        What servers get as the version, instead.
    options
        Of `polyduct.open`, in the first call.

    The tensors are copied once, into memory that servers read; it does not wait for them to do so (the policy is
    ``latest``).
    """
    state = _tensors(model)
    out = _writers.get(url)
    if out is None or out.closed:
        usual = {"policy": "latest", "depth": 3, "readers": "any"}
        units = _units(state)
        out = _writers[url] = open(url, "w", arrays=_held(state), **{**usual, **units, **options})
    version = out.next_step
    parts = {name: _in_memory(tensor) for name, tensor in state.items()}
    out.write(parts, **({} if step is None else {"step": int(step)}))
    return version


def refresh(
    url: str, model: Any, map: Rules | None = None, *, wait: float | None = None, **options: Any
) -> int | None:
    """Takes the newest weights into a model, in place, if there are newer ones; returns their version (what the
    trainer said as ``step``, else its count), or None where nothing has changed.

    map
        What a tensor of the model is made of, by its name: the name of one of the trainer's, a list of those that
        lie one behind the other in the part of each unit (a fused ``qkv`` of ``q``, ``k`` and ``v``), or None for
        one that is left alone. A function from names to these, or a dictionary; a name that it does not have is
        the trainer's, too.
    wait
        Seconds in which the weights must come. The first call waits for the trainer, as `polyduct.open` does;
        others return at once, also while there is no trainer.
    options
        Of `polyduct.open`, in the first call.

    Where the units of the server are processes of torch.distributed, unit 0 says whether all take new weights:
    each of them calls this as often as the others. Dtypes are converted where they can be (f32↔bf16, f32↔f16,
    f64↔f32).
    """
    first = url not in _readers
    port, target = _open_reader(url, model, map, first, wait, options)
    if port is None or target is None:
        return None
    try:
        if not _is_there(port, wait if wait is not None or not first else options.get("timeout", 60.0)):
            _lose(url, port)
            return None
        version: int | None = target.fill(port)
    except TimeoutError:
        if wait is not None:
            raise
        return None
    except (PeerLost, PeerAborted):
        # The server has whole weights, and goes on with them until a trainer comes again.
        _lose(url, port)
        return None
    if version is None:
        _lose(url, port)
    return version


def close(url: str) -> None:
    """Ends what `publish` or `refresh` has open there."""
    writer, reader = _writers.pop(url, None), _readers.pop(url, None)
    if writer is not None:
        writer.close()
    if reader is not None:
        reader[0].close()


def _tensors(model: Any) -> dict[str, Tensor]:
    state = model.state_dict() if hasattr(model, "state_dict") else model
    if not isinstance(state, Mapping):
        raise Misuse(f"the model is a {type(model).__name__}; expected a module or a dictionary of tensors")
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}


def _held(state: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: layout_of(tensor) for name, tensor in state.items()}


def _units(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Which unit this process is, where a tensor knows it."""
    sharded = next((tensor for tensor in state.values() if _foreign.is_sharded(tensor)), None)
    if sharded is None:
        return {}
    unit, units = _foreign.unit_of(sharded)
    return {"unit": unit, "units": units}


def _local(tensor: Any) -> Tensor:
    local: Tensor = (tensor.to_local() if _foreign.is_sharded(tensor) else tensor).detach()
    return local


def _in_memory(tensor: Any) -> Any:
    """A tensor, where it lies in main memory, else a copy of this unit's part there."""
    local = _local(tensor)
    return local if local.device.type == "cpu" else local.cpu()


class _Target:
    """What a server's tensors are made of."""

    def __init__(self, model: Any, rules: Rules | None) -> None:
        self.state = _tensors(model)
        self.layouts: dict[str, Array] = {}
        self.parts: dict[str, tuple[str, int]] = {}
        self._made: dict[str, list[str]] = {}
        for name, tensor in self.state.items():
            names: Names = name
            if callable(rules):
                names = rules(name)
            elif rules is not None and name in rules:
                names = rules[name]
            if names is None:
                continue
            made = [names] if isinstance(names, str) else list(names)
            held = layout_of(tensor)
            for given in made:
                if given in self.layouts:
                    raise Misuse(f"two tensors of the model are made of {given!r}")
                # Of one that is a part of another only the layout is known.
                self.layouts[given] = Array(held.shape if len(made) == 1 else None, held.dtype, held.layout)
            self._made[name] = made

    def fill(self, port: BundleReader) -> int | None:
        """Reads the next step where the tensors lie."""
        out: dict[str, Tensor] = {}
        staged: list[tuple[Tensor, Tensor]] = []
        for name, made in self._made.items():
            local, at = _local(self.state[name]), 0
            for given in made:
                length = port._places.form(given).shape[0] if len(made) > 1 else None
                part = local if length is None else local.narrow(0, at, length)
                at += length or 0
                if part.device.type != "cpu":
                    here = torch.empty(part.shape, dtype=part.dtype)
                    staged.append((part, here))
                    part = here
                out[given] = part
            if len(made) > 1 and at != local.shape[0]:
                raise Misuse(
                    f"{name!r} has {local.shape[0]} rows here; {', '.join(map(repr, made))} have {at} together"
                )
        step = port.read(out)
        if step is None:
            return None
        for part, here in staged:
            part.copy_(here)
        version: int = step.values.get("step", step.number)
        return version


def _open_reader(
    url: str, model: Any, rules: Rules | None, first: bool, wait: float | None, options: dict[str, Any]
) -> tuple[BundleReader | None, Any]:
    if not first and not _readers[url][0].closed:
        return _readers[url]
    target = _Target(model, rules) if first else _readers[url][1]
    units = _units(target.state)
    if not first:
        options = {**options, "timeout": SOON if wait is None else wait}
    try:
        port = open(url, "r", layouts=target.layouts, convert=True, **{**units, **options})
    except (TimeoutError, PeerLost, PeerAborted, Refused):
        if first or wait is not None:
            raise
        return None, None
    _readers[url] = port, target
    return port, target


def _is_there(port: BundleReader, wait: float | None) -> bool:
    """Whether the next weights are there, as unit 0 sees it; False where the trainer has ended. A look that
    finds none yet raises `TimeoutError`, on every unit."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if port.units == 1 or not distributed:
        return port.peek(0.0 if wait is None else wait) is not None
    found: list[Any] = [None]
    if port.unit == 0:
        try:
            found = ["there" if port.peek(0.0 if wait is None else wait) is not None else "ended"]
        except TimeoutError as e:
            found = [str(e)]
        except Error as e:
            found = ["lost", e]
            torch.distributed.broadcast_object_list([found[0]], src=0)
            raise
    torch.distributed.broadcast_object_list(found, src=0)
    if found[0] == "lost":
        raise PeerLost("the trainer is gone, unit 0 of the server says")
    if found[0] not in ("there", "ended"):
        raise TimeoutError(found[0])
    return bool(found[0] == "there")


def _lose(url: str, port: BundleReader) -> None:
    """Leaves a trainer that has ended; another may come."""
    with contextlib.suppress(Error):
        port.close()
