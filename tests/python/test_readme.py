"""What README.md shows in Python runs as it stands there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import COMMAND, ROOT, Process
from test_waiting import url_of

TEXT = (ROOT / "README.md").read_text()


def block(words: str) -> str:
    """The only example with these words in it."""
    found = [one for one in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if words in one]
    assert len(found) == 1, words
    return str(found[0])


WRITER, READER = block("this unit's rows"), block("this unit's columns")

NEAR = """
def compute():
    ((lo, hi), _), = out.layout.boxes(out.unit)
    return np.add.outer(1000.0 * np.arange(lo, hi), np.arange(4096))
"""

FAR = """
def analyse(b):
    (_, (lo, hi)), = port.layout.boxes(port.unit, halo=True)
    full = np.add.outer(1000.0 * np.arange(4096), np.arange(lo, hi))
    print("columns", lo, hi, np.array_equal(b, full.astype("f4")), flush=True)
"""


def run(text: str, tmp_path: Path, **programs: str) -> str:
    """Runs programs in a pipeline, and gives what they print."""
    for name, code in programs.items():
        (tmp_path / f"{name}.py").write_text("import numpy as np\n" + textwrap.dedent(code))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # With prefixes lines arrive whole.
    command = [str(COMMAND), "run", "--timeout", "60s", "--prefix", text]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def reader(code: str) -> str:
    """The reader of the example, whose port has a name."""
    return FAR + re.sub(r"for b in (polyduct\.open\(.*\)):", r"port = \1\nfor b in port:", code)


def columns(out: str) -> list[str]:
    return sorted(re.findall(r"columns \d+ .*$", out, re.MULTILINE))


EXPECTED = ["columns 0 1368 True", "columns 1364 2734 True", "columns 2730 4096 True"]


def test_five_lines_on_each_side(tmp_path: Path) -> None:
    out = run("-n 4 python a.py | -n 3 python b.py", tmp_path, a=NEAR + WRITER, b=reader(READER))
    assert columns(out) == EXPECTED


def test_the_same_text_for_files(tmp_path: Path) -> None:
    a, b = (code.replace("pipe:field", "field.npy") for code in (NEAR + WRITER, reader(READER)))
    run("-n 4 python a.py", tmp_path, a=a)
    assert np.load(tmp_path / "field.npy", mmap_mode="r").shape == (4096, 4096)
    assert columns(run("-n 3 python b.py", tmp_path, b=b)) == EXPECTED


@pytest.mark.parametrize("in_file", [False, True])
def test_across_hosts_the_name_changes(tmp_path: Path, in_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    key = subprocess.run(["openssl", "rand", "-hex", "32"], capture_output=True, text=True, check=True).stdout.strip()
    if in_file:
        file = tmp_path / ".job-key"
        file.write_text(key + "\n")
        file.chmod(0o600)
        monkeypatch.setenv("POLYDUCT_JOB_KEY_FILE", str(file))
    else:
        monkeypatch.setenv("POLYDUCT_JOB_KEY", key)
    url = url_of("pipe://127.0.0.1:{}/field")
    code = block("pipe://node7:4100/field").replace("pipe://node7:4100/field", url)
    opens, reads = code.split("\nfor b", 1)
    opens = NEAR + "import polyduct\n" + opens + "\n" + WRITER.split("\n", 3)[3]
    reads = reader("import polyduct\nfor b" + reads)
    assert columns(run("-n 2 python a.py | -n 3 python b.py", tmp_path, a=opens, b=reads)) == EXPECTED


def test_a_replacement_goes_on_where_the_lost_unit_stopped(pipe: str, start: Callable[..., Process]) -> None:
    code = block("unit=2, units=4").replace("pipe:field", pipe).replace("(4096, 4096)", "(8, 4)")
    compute = """
unit, until = int(sys.argv[1]), int(sys.argv[2])
def compute(step):
    if step == until:
        say("here")
        wait()
    return np.full((2, 4), 10 * step + unit, "f4")
"""
    programs = {}
    for unit in range(4):
        programs[unit] = start(
            compute + code.replace("unit=2", f"unit={unit}"), unit, 50 if unit == 2 else -1, env={"POLYDUCT_PROGRAM": "writers"}
        )
    read = """
count = 0
for a in polyduct.open(sys.argv[1], on_loss="wait"):
    assert (a == 10 * count + np.repeat(np.arange(4), 2)[:, None]).all()
    count += 1
print(count)
"""
    reads = start(read, pipe)
    assert programs[2].hear() == "here"
    programs[2].signal(signal.SIGKILL)
    programs[2].end()
    programs[2] = start(compute + code, 2, -1, env={"POLYDUCT_PROGRAM": "writers"})
    assert reads.end()[:2] == (0, "100\n")
    assert [one.end()[0] for one in programs.values()] == [0] * 4


def test_units_that_talk(tmp_path: Path) -> None:
    text = block("heat in a plate")
    prelude = "import polyduct\nrows, columns, steps = 3, 5, 20\n"
    check = """
    a[0, 0] = d.unit
    print("columns", d.unit, a.shape, float(np.abs(a[1:-1]).max()), flush=True)
"""
    out = run("-n 4 python a.py", tmp_path, a=prelude + text + check)
    assert columns(out) == [f"columns {unit} (5, 5) 0.0" for unit in range(4)]
    # What it shows is what the example does.
    example = (ROOT / "examples/halo.py").read_text()
    for line in text.splitlines()[4:]:
        assert line.strip() in example, line


def test_units_that_talk_across_hosts(start: Callable[..., Process]) -> None:
    env = {
        "POLYDUCT_JOB_KEY": os.urandom(32).hex(),
        "POLYDUCT_DOMAIN": url_of("tcp://127.0.0.1:{}"),
        "POLYDUCT_UNITS": "2",
    }
    code = "import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    units = [start(code, ROOT / "examples/halo.py", env={**env, "POLYDUCT_UNIT": str(unit)}) for unit in (0, 1)]
    assert [one.end()[::2] for one in units] == [(0, "")] * 2
