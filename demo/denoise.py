"""One of N processes that remove the noise of an image: each has a block of rows.

polyduct fills the halo, the few rows of the neighbours that a filter needs at the edge of a block; nobody
sends rows to anybody. The program does not know what comes after it, nor how many processes that has.
"""

from skimage.restoration import denoise_nl_means

import polyduct

# A pixel becomes the mean of those up to 6 away whose 5×5 surroundings look alike, noise of this size aside.
PATCH, DISTANCE, NOISE = 5, 6, 0.03
HALO = DISTANCE + PATCH // 2


def main() -> None:
    source = polyduct.open("-", "r", layout=f"block,*,*;halo={HALO},0,0")
    with polyduct.open("-", "w", shape=source.shape, dtype=source.dtype, layout="block,*,*") as out:
        [(held, *_)] = source.layout.boxes(source.unit, halo=True)
        [(mine, *_)] = source.layout.boxes(source.unit)
        inner = slice(mine[0] - held[0], mine[1] - held[0])
        for rows in source:
            clean = denoise_nl_means(rows, PATCH, DISTANCE, h=NOISE, channel_axis=-1, preserve_range=True)
            with out.step() as a:
                a[...] = clean[inner]


if __name__ == "__main__":
    main()
