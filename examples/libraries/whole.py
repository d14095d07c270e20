"""Reads all of what somebody writes: python examples/libraries/whole.py pipe:field"""

import sys

import polyduct

for step in polyduct.open(sys.argv[1], layouts="...", timeout=60):
    for name, array in step.items():
        print(f"step {step.number}: {name} {array.shape} {array.dtype}, sum {array.sum():.0f}", flush=True)
