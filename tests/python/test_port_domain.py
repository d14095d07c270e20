"""The domain of a port: messages between both sides of a pipe, beside its steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import together

import polyduct


def write(pipe: str, unit: int) -> polyduct.Writer:
    return polyduct.open(
        pipe, "w", shape=(4, 6), dtype="f4", layout="block,*", unit=unit, units=2, program="w", timeout=30
    )


def test_both_sides_talk_while_steps_flow(pipe: str) -> None:
    def tell(d: polyduct.Domain) -> None:
        for to in range(d.units):
            if to != d.unit:
                d.send(to, np.full(3, d.unit))
        for _ in range(d.units - 1):
            message = d.recv_from()
            assert (message.data == message.unit).all()

    def writer(unit: int) -> None:
        with write(pipe, unit) as out:
            assert out.addresses == ((range(0, 2)), [range(2, 3)])
            d = out.domain()
            assert (d.unit, d.units) == (unit, 3) and out.domain() is d
            for step in range(3):
                out.write(np.full(out.local_shape, step, "f4"))
                tell(d)
            d.barrier()
        # Whoever has it stays in it.
        d.barrier()
        d.close()
        with pytest.raises(polyduct.Closed):
            out.domain()

    def reader() -> None:
        with polyduct.open(pipe, layout="*,*", program="r", timeout=30) as port:
            d = port.domain()
            assert d.unit == port.addresses.readers[0][0] == 2
            for step in range(3):
                a = port.read()
                assert a is not None and (a == step).all()
                tell(d)
            d.barrier()
        d.barrier()
        d.close()

    # The second time under the same name.
    for _ in range(2):
        together(lambda: writer(0), lambda: writer(1), reader)


def test_who_does_not_ask_is_named(pipe: str) -> None:
    def writer() -> None:
        with polyduct.open(pipe, "w", shape=4, dtype="f4", layout="*", program="w", timeout=30) as out:
            with pytest.raises(polyduct.Refused, match="unit 1 did not come") as e:
                out.domain(open_timeout=0.2)
            assert e.value.reason == "missing"
            out.write(np.zeros(4, "f4"))
            out.domain().barrier()

    def reader() -> None:
        with polyduct.open(pipe, layout="*", program="r", timeout=30) as port:
            assert port.read() is not None
            port.domain().barrier()
            assert port.read() is None

    together(writer, reader)


def test_a_file_has_none(tmp_path: Path) -> None:
    out = polyduct.open(str(tmp_path / "a.npy"), "w", shape=4, dtype="f4", layout="*")
    for ask in [out.domain, lambda: out.addresses]:
        with pytest.raises(polyduct.Misuse):
            ask()
    with pytest.raises(polyduct.BadOption):
        out.domain(on_loss="perhaps")  # type: ignore[arg-type]
    out.abort()
