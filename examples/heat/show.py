"""Shows what comes in a browser: units that have columns, whatever those before have."""

import os

import polyduct

plate = polyduct.open("-", layout="*,block")
place = os.environ.get("DISPLAY_AT", "display://:8080/heat")
with polyduct.open(place, "w", shape=plate.shape, dtype="f4", layout="*,block") as page:
    for part in plate:
        page.write(part)
