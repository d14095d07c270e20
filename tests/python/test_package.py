"""What `pip install` puts there: a typed module, and the command."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import COMMAND

import polyduct

SAMPLE = """
import numpy as np
from pathlib import Path
from types import ModuleType
from numpy.typing import NDArray
from typing import Any
import polyduct

out = polyduct.open("-", "w", shape=(4, 4), dtype="f4", layout="block,*", depth=3, policy="latest")
with out.step() as a:
    b: NDArray[Any] = a
taken: bool = out.write(np.zeros((4, 4)))
steps: int = out.stats().steps
next_step: int = out.next_step
source = polyduct.open(Path("a.npy"), layout=out.layout, timeout=2.5)
c: NDArray[Any] | None = source.read()
for d in source:
    e: NDArray[Any] = d
layout = polyduct.Layout("block,*", shape=(4, 4), units=2, itemsize=4)
places: list[tuple[int, int]] = layout.locate((1, 2))
low: int = layout.boxes(0)[0][1][0]
parts: list[NDArray[Any]] = polyduct.redistribute([b], layout, layout)
with polyduct.domain("name", unit=0, units=1, timeout=1.0, on_loss="continue") as joined:
    joined.send(0, b, tag=3)
    f: NDArray[Any] = joined.recv(0, 3, out=b)
    unit, tag, data = joined.recv_from()
    waiting: polyduct.Message | None = joined.try_recv()

    @joined.handler("note", version=1)
    def note(from_: int, args: tuple[int, int, int, int], payload: bytes) -> None: ...

    @joined.function("twice")
    def twice(x: NDArray[Any]) -> NDArray[Any]:
        return x * 2

    joined.synchronise()
    note(0, (1, 2, 3, 4), b"")
    joined.post(0, "note", 1, payload=b"")
    call: polyduct.Call = joined.call(0, "twice", b, timeout=2.5)
    done: bool = call.done() or call.cancel()
    with joined.serving():
        joined.serve(lambda: True)
    region: polyduct.Region = joined.region("field", (3, 4), "f4")
    region.put(0, b, (slice(1, 2), ...))
    g: NDArray[Any] = region.get(0, 1, out=region.at(0)[0])
    mails: int = joined.status().mails
store = polyduct.Store.create(Path("s"), units=["a", ["b", Path("c")]], parity=1, stripe="64KiB")
store["x"] = [1, 2]
stored: polyduct.StoredArray = store["x"]
stored[0, ..., None] = b
stored.attrs["unit"] = {"a": 1}
why: str = store.status().lost[0]
appended = polyduct.open("store:s/x", "w", shape=2, dtype="i8", layout="*", append=True)
try:
    pass
except polyduct.PeerLost as lost:
    pid: int | None = lost.pid
"""

WRONG = """
import polyduct
polyduct.open("-", "w", layout="*")  # no shape
polyduct.open("-", "r", layout="*", depth=2)  # not a reader's
polyduct.open("-", "x", layout="*")  # no such mode
polyduct.open("-", layout="*", policy="newest")
polyduct.open("-", layout="*").stats().step
polyduct.domain(on_loss="wait")
polyduct.domain().send(0, [1, 2])
polyduct.domain().region("x", (1,)).put(0, 1.0, "all")
polyduct.Store("s", parity=1)
polyduct.open("store:s/x", layout="*", append=True)
"""


def mypy(text: str, path: Path) -> tuple[int, str]:
    path.write_text(text)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(path.parent / "cache"),
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=path.parent, timeout=110)
    return done.returncode, done.stdout


def test_a_user_of_the_types(tmp_path: Path) -> None:
    assert mypy(SAMPLE, tmp_path / "sample.py") == (0, "Success: no issues found in 1 source file\n")


def test_types_find_mistakes(tmp_path: Path) -> None:
    status, found = mypy(WRONG, tmp_path / "wrong.py")
    lines = {line.split(":")[1] for line in found.splitlines() if ": error:" in line}
    assert status == 1 and lines == {"3", "4", "5", "6", "7", "8", "9", "10", "11", "12"}, found


def test_the_package_itself_is_typed(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(tmp_path),
        "-p",
        "polyduct",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=110)
    assert done.returncode == 0, done.stdout
    assert (Path(polyduct.__file__).parent / "py.typed").exists()


def test_the_stub_says_what_is_there() -> None:
    from polyduct import _native

    stub = Path(polyduct.__file__).with_name("_native.pyi").read_text()
    for name in dir(_native):
        if not name.startswith("__"):
            assert f"class {name}" in stub or f"def {name}(" in stub, name
    ports = (_native.WritePort, _native.ReadPort, _native.Domain, _native.Call, _native.Region)
    for one in (_native.Layout, *ports, _native.Store, _native.StoredArray):
        for name in set(vars(one)) - set(dir(object)):
            if not name.startswith("__"):
                assert f"def {name}(" in stub, f"{one.__name__}.{name}"


def test_the_command_is_of_the_same_version() -> None:
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"polyduct {polyduct.__version__}\n"


def test_one_process_fails_and_the_run_names_it(tmp_path: Path) -> None:
    writer = tmp_path / "writer.py"
    writer.write_text(
        "import polyduct\n"
        "with polyduct.open('-', 'w', shape=(2, 2), dtype='f4', layout='block,*') as out:\n"
        "    out.write([[1, 2]])\n"
        "    if out.unit == 1:\n"
        "        raise SystemExit(7)\n"
        "    out.write([[1, 2]])\n"
    )
    reader = tmp_path / "reader.py"
    reader.write_text("import polyduct\nfor a in polyduct.open('-', layout='*,*'): pass\n")
    out = tmp_path / "out.npy"
    np.save(out, np.zeros(1))
    text = f"-n 2 {sys.executable} {writer} | -n 1 {sys.executable} {reader}"
    done = subprocess.run(
        [COMMAND, "run", text, "--timeout", "60s"], capture_output=True, text=True, timeout=90
    )
    assert done.returncode != 0 and "polyduct:" in done.stderr


@pytest.mark.parametrize("writers", [1, 3])
def test_plain_programs_at_both_ends(tmp_path: Path, writers: int) -> None:
    middle = tmp_path / "middle.py"
    middle.write_text(
        "import polyduct\n"
        "source = polyduct.open('-', layout='*,block', shape=(6, 6), dtype='u1')\n"
        "out = polyduct.open('-', 'w', shape=source.shape, dtype=source.dtype, layout='*,block')\n"
        "for a in source:\n"
        "    out.write(a ^ 0x20)\n"
        "out.close()\n"
    )
    text = "abcdefghijklmnopqrstuvwxyzabcdefghij"
    command = [
        COMMAND,
        "run",
        f"printf {text} | -n {writers} {sys.executable} {middle} | cat",
        "--timeout",
        "60s",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (0, text.upper()), done.stderr


def test_the_help_of_the_whole_fits_on_a_few_screens() -> None:
    text = pydoc.render_doc(polyduct, renderer=pydoc.plaintext)
    assert len(text.splitlines()) < 120
    public = {
        n for n, one in vars(polyduct).items() if not n.startswith("_") and not isinstance(one, ModuleType)
    }
    above = {
        n
        for n in public
        if not (isinstance(getattr(polyduct, n), type) and issubclass(getattr(polyduct, n), polyduct.Error))
    }
    assert not [name for name in above if not re.search(rf"\b{name}\b", text)]


def test_everything_public_can_be_imported_at_once() -> None:
    found: dict[str, object] = {}
    exec("from polyduct import *", found)
    public = {
        n for n, one in vars(polyduct).items() if not n.startswith("_") and not isinstance(one, ModuleType)
    }
    assert set(found) - {"__builtins__"} == set(polyduct.__all__) == public | {"__version__"}  # type: ignore[attr-defined]
    assert not hasattr(polyduct, "nonsense")
