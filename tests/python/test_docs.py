"""The documentation does what it says: every program and command in it runs, in the order of its page.

A block of Python whose first line is ``# NAME.py`` becomes that file; another one runs by itself. A block of
``sh`` runs in a shell that stops at the first failure. All blocks of a page share one folder. ``text`` is
shown and not run.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = [
    *PAGES,
    ROOT / "ARCHITECTURE.md",
    ROOT / "BENCHMARKS.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if re.search("^```(python|sh)$", page.read_text(), re.M)], ids=name
)
def test_a_page_runs(page: Path, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYDUCT_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for kind, block in FENCE.findall(page.read_text()):
        block = block.replace("127.0.0.1:4100", f"127.0.0.1:{port}")
        if kind == "python" and (file := re.match(r"# (\w+\.py)\n", block)):
            (tmp_path / file[1]).write_text(block)
            continue
        command = {"python": ["python", "-c", block], "sh": ["bash", "-euo", "pipefail", "-c", block]}.get(
            kind
        )
        if command:
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in [
                re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
            ], target


def test_blocks_are_programs_commands_or_plain_text() -> None:
    for page in PAGES:
        kinds = {kind for kind, _ in FENCE.findall(page.read_text())}
        assert kinds <= {"python", "sh", "text"}, f"{name(page)}: {kinds}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1800
