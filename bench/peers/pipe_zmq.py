"""ZeroMQ PUSH/PULL over ipc between two Python programs.

The writer sends its buffers without a copy (copy=False) and reuses one only when ZeroMQ is done with it;
there are two, as polyduct's slots by default. The reader takes the message as it lies (copy=False): no copy
into an array of its own. A second pair of sockets tells the writer that it may go: libzmq drops what it has
not yet read when the other side hangs up.
"""

import os
import sys

import numpy as np
import zmq

import pipe_common as common

DEPTH = 2


def socket(args, context, kind, name, bind):
    sock = context.socket(kind)
    milliseconds = int(args.timeout * 1000)
    for option in (zmq.LINGER, zmq.RCVTIMEO, zmq.SNDTIMEO):
        sock.setsockopt(option, milliseconds)
    for option in (zmq.SNDHWM, zmq.RCVHWM):
        sock.setsockopt(option, DEPTH)
    (sock.bind if bind else sock.connect)("ipc://" + os.path.join(args.where, name))
    return sock


def write(args):
    places = common.stamp_places(args.rows * args.cols)
    buffers = [common.content(args.rows, args.cols) for _ in range(DEPTH)]
    busy = [None] * DEPTH
    with zmq.Context() as context:
        done = socket(args, context, zmq.PULL, "done", bind=True)
        out = socket(args, context, zmq.PUSH, "steps", bind=False)
        for step in range(args.total):
            slot = step % DEPTH
            if busy[slot] is not None:
                busy[slot].wait(args.timeout)
            buffers[slot].reshape(-1)[places] = step
            busy[slot] = out.send(buffers[slot], copy=False, track=True)
        done.recv()
        out.close()
        done.close()


def read(args):
    reader = common.Reader(args)
    with zmq.Context() as context:
        steps = socket(args, context, zmq.PULL, "steps", bind=True)
        done = socket(args, context, zmq.PUSH, "done", bind=False)
        for _ in range(args.total):
            frame = steps.recv(copy=False)
            reader.take(np.frombuffer(frame.buffer, dtype=np.float32))
            del frame
        done.send(b"")
        steps.close()
        done.close()
    reader.report(library=f"libzmq {zmq.zmq_version()}, pyzmq {zmq.__version__}")


if __name__ == "__main__":
    args = common.arguments(__doc__)
    if args.role == "drive":
        sys.exit(common.drive(args, os.path.abspath(__file__)))
    {"write": write, "read": read}[args.role](args)
