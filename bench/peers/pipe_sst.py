"""ADIOS2's SST engine between two Python programs.

The engine's parameters are those that suit one host: the package has one data transport (WAN: sockets) and
takes it whatever is asked. The writer may be two steps ahead and then waits, as polyduct's default does. The
reader reads into the same array each time.
"""

import os
import sys

import adios2
import numpy as np

import pipe_common as common

PARAMETERS = {
    "DataTransport": "WAN",
    "RendezvousReaderCount": "1",
    "QueueLimit": "2",
    "QueueFullPolicy": "Block",
}


def stream(args, mode):
    adios = adios2.Adios()
    io = adios.declare_io("pipe")
    io.set_engine("SST")
    io.set_parameters({**PARAMETERS, "OpenTimeoutSecs": str(int(args.timeout))})
    return adios2.Stream(io, os.path.join(args.where, "pipe"), mode)


def write(args):
    places = common.stamp_places(args.rows * args.cols)
    array = common.content(args.rows, args.cols)
    shape = [args.rows, args.cols]
    with stream(args, "w") as out:
        for step in range(args.total):
            array.reshape(-1)[places] = step
            out.begin_step()
            if args.variables:
                for name, part in common.parts(array, args.variables).items():
                    out.write(name, part, part.shape, [0, 0], part.shape)
                # Attributes of its cannot change: what is said of a step is a variable of one value.
                for name, value in common.attributes(step, args.variables).items():
                    out.write(name, value if isinstance(value, str) else np.array(value))
            else:
                out.write("array", array, shape, [0, 0], shape)
            out.end_step()


def read(args):
    reader = common.Reader(args)
    array = np.empty((args.rows, args.cols), np.float32)
    with stream(args, "r") as source:
        for step in source.steps():
            for name, part in (common.parts(array, args.variables) if args.variables else {"array": array}).items():
                variable = source.inquire_variable(name)
                variable.set_selection([[0, 0], list(part.shape)])
                source.engine.get(variable, part, adios2.bindings.Mode.Deferred)
            source.engine.perform_gets()
            if args.variables:
                said = {name: source.read(name) for name in common.attributes(0, args.variables)}
                number = step.current_step()
                for name, value in common.attributes(number, args.variables).items():
                    found = said[name] if isinstance(value, str) else float(said[name])
                    if found != value:
                        raise SystemExit(f"step {number} says {name} = {found!r} in the place of {value!r}")
            reader.take(array)
    reader.report(library=f"ADIOS2 {adios2.__version__}")


if __name__ == "__main__":
    args = common.arguments(__doc__)
    if args.role == "drive":
        sys.exit(common.drive(args, os.path.abspath(__file__)))
    {"write": write, "read": read}[args.role](args)
