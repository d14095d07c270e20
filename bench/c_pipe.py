#!/usr/bin/env python3
"""Two C programs started apart, 64 MiB steps of float32 from one to the other: prints the median time of a
step, as `python_pipe.py` does of two Python programs. Builds them (`c_pipe.c`) with what `polyduct config` says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polyduct


def main() -> int:
    source, config = Path(__file__).with_suffix(".c"), polyduct.config()
    with tempfile.TemporaryDirectory() as where:
        program = f"{where}/c_pipe"
        subprocess.run(
            ["cc", "-O2", "-std=c99", *config.cflags, str(source), *config.libs, "-o", program], check=True
        )
        command = [program, "write"], [program, "read"]
        programs = [subprocess.Popen([*words, f"pipe:bench-c-{os.getpid()}"]) for words in command]
        return max(p.wait() for p in programs)


if __name__ == "__main__":
    sys.exit(main())
