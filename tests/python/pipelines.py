"""Programs and pipelines of them, as they are started in a shell at the root of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import COMMAND, ROOT


def run(*command: object) -> str:
    """What a command prints; its failure fails the test."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pipeline(text: str, *options: str) -> str:
    return run(COMMAND, "run", text, "--timeout", "60s", *options)
