"""Watches a simulation as fast as it can and misses what it must. See simulate.py."""

import numpy as np

import polyduct

with polyduct.open("-", "r", layout="*,*") as source:
    seen = 0
    for a in source:
        seen += 1
        spectrum = np.abs(np.fft.rfft2(a))  # slower than the simulation
        k = np.unravel_index(spectrum.argmax(), spectrum.shape)
    print(f"saw {seen} steps, the last was {source.number}; its strongest wave is {k[0]}, {k[1]}")
