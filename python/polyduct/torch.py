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

from typing import Any

from polyduct._arrays import natural
from polyduct._bundle_writer import BundleWriter
from polyduct._ports import open
from polyduct._bundles import layouts_of
from polyduct._weights import Rules, Server, check_options, local, place, tensors
from polyduct.errors import Misuse

_writers: dict[str, tuple[BundleWriter, dict[str, Any]]] = {}
_servers: dict[str, Server] = {}


def publish(url: str, model: Any, step: int | None = None, **options: Any) -> int:
    """Has servers get the weights as they are now; returns their version, counted from 0.

    url
        ``pipe:NAME`` on this host, or ``pipe://HOST:PORT/NAME``, where unit 0 listens for servers of other hosts.
    model
        A module, or a dictionary of tensors such as its ``state_dict()``: the same names, shapes and shards in each
        call. Tensors of several meshes belong to the largest of these, whose processes are the units.
    step
        What servers get as the version, instead.
    options
        Of `polyduct.open`; what was said in a call holds for those after it.

    The tensors are copied once, into memory that servers read; it does not wait for them to do so (the policy is
    ``latest``).
    """
    check_options(options)
    if step is not None:
        step = natural("step", step)
    state = tensors(model)
    if not state:
        raise Misuse("the model has no tensors")
    out, said = _writers.get(url, (None, {}))
    if out is None or out.closed:
        said = {**said, **options}
        usual = {"policy": "latest", "depth": 3, "readers": "any"}
        out = open(url, "w", arrays=layouts_of(state), **{**usual, **place(state), **said})
        _writers[url] = out, said
    version = out.next_step
    parts = {name: _in_memory(tensor) for name, tensor in state.items()}
    out.write(parts, **({} if step is None else {"step": step}))
    return version


def refresh(
    url: str, model: Any, map: Rules | None = None, *, wait: float | None = None, **options: Any
) -> int | None:
    """Takes the newest weights into a model, in place, if there are newer ones; returns their version (what the
    trainer said as ``step``, else its count), or None where nothing has changed.

    model
        A module, or a dictionary of tensors. One model at a time has the weights of a url: another one gets the newest as
        in a first call.
    map
        What a tensor of the model is made of, by its name: the name of one of the trainer's, a list of those that
        lie one behind the other in the part of each unit (a fused ``qkv`` of ``q``, ``k`` and ``v``), or None for
        one that is left alone. A function from names to these, or a dictionary; a name that it does not have is
        the trainer's, too.
    wait
        Seconds in which the weights must come: a `TimeoutError` then. Without it the calls up to the first weights wait for
        the trainer, as `polyduct.open` does (``timeout``, 60 s); others do not wait for weights, and while there is no
        trainer they look for one for 0.2 s.
    options
        Of `polyduct.open`; what was said in a call holds for those after it.

    Tensors change when all weights are there, on all units of the server: a trainer that dies meanwhile, or is
    stopped, leaves them as they were. From other hosts the weights are received into memory of their size first.
    Where the units are processes of torch.distributed, each of them calls this as often as the others. Dtypes are
    converted where they can be (f32↔bf16, f32↔f16, f64↔f32), as NumPy does it.
    """
    server = _servers.setdefault(url, Server(url))
    return server.refresh(model, map, wait, options)


def close(url: str) -> None:
    """Ends what `publish` or `refresh` has open there."""
    writer, server = _writers.pop(url, None), _servers.pop(url, None)
    if writer is not None:
        writer[0].close()
    if server is not None:
        server.close()


def _in_memory(tensor: Any) -> Any:
    """A tensor, where it lies in main memory, else a copy of this unit's part there."""
    part = local(tensor)
    return part if part.device.type == "cpu" else part.cpu()
