"""One of N processes that find stars and galaxies in an image: each has a block of columns.

Its result is an image of the same size that is 0 but at the peak of each object, where it is the object's
brightness. Each peak is found by the one process that owns its pixel, because all see enough of their
neighbours' columns.
"""

import numpy as np
from scipy import ndimage

import polyduct

# Objects are maxima within this many pixels,
REACH = 4
# and brighter by this much than the sky around them.
SKY, CONTRAST = 20, 0.2
HALO = REACH + SKY + 4


def peaks(image: np.ndarray) -> np.ndarray:
    """Brightness above the sky where there is a peak, else 0."""
    light = ndimage.gaussian_filter(image.mean(axis=2), 1.2, truncate=3)
    sky = ndimage.uniform_filter(ndimage.minimum_filter(light, 2 * REACH + 1), 2 * (SKY - REACH) + 1)
    above = light - sky
    is_peak = (light == ndimage.maximum_filter(light, 2 * REACH + 1)) & (above > CONTRAST)
    return np.where(is_peak, above, 0).astype(image.dtype)


def main() -> None:
    source = polyduct.open("-", "r", layout=f"*,block,*;halo=0,{HALO},0")
    shape = source.shape[:2]
    with polyduct.open("-", "w", shape=shape, dtype=source.dtype, layout="*,block") as out:
        [(_, held, _)] = source.layout.boxes(source.unit, halo=True)
        [(_, mine, _)] = source.layout.boxes(source.unit)
        for columns in source:
            found = peaks(columns)
            with out.step() as a:
                a[...] = found[:, mine[0] - held[0] : mine[1] - held[0]]


if __name__ == "__main__":
    main()
