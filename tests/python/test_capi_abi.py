"""What programs that were compiled once rely on: symbols, codes, sizes and places.

`tests/c/abi.txt` has them; a line that changes or goes is a new POLYDUCT_ABI, and new ones are added.

    python tests/python/test_capi_abi.py > tests/c/abi.txt
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT
from programs import C, CONFIG, CPP, FORTRAN, MPICXX, SOURCES, build, run

import polyduct
from polyduct import errors

HEADER = "".join(Path(CONFIG.include, f"polyduct{part}.h").read_text() for part in ("", "_messages"))
TEXT = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)


def declared() -> list[str]:
    """The functions of the header."""
    return sorted(re.findall(r"^[a-z_0-9 ]+?\*?\b(polyduct_\w+)\(", TEXT, re.MULTILINE))


def prototypes() -> dict[str, list[str]]:
    """The functions that give a code, and what they take."""
    found = re.findall(r"^int (polyduct_\w+)\((.*?)\);", TEXT, re.MULTILINE | re.DOTALL)
    return {name: [" ".join(one.split()) for one in takes.split(",")] for name, takes in found}


def structures() -> dict[str, list[str]]:
    """The structures that callers see, and their members."""
    found = {}
    for body, name in re.findall(r"^typedef struct \w+ \{(.*?)^\} (\w+);", TEXT, re.MULTILINE | re.DOTALL):
        members = (one.split()[-1].lstrip("*") for one in body.split(";") if one.strip())
        found[name] = [re.sub(r"\[.*", "", member) for member in members]
    return found


def constants() -> list[str]:
    enums = re.findall(r"^enum \w+ \{(.*?)\}", TEXT, re.MULTILINE | re.DOTALL)
    values = re.findall(r"(POLYDUCT_\w+) =", "".join(enums))
    return [*values, "POLYDUCT_ABI", "POLYDUCT_MAX_DIMS", "POLYDUCT_ANY", "POLYDUCT_TYPE_BYTES(3)"]


def table(where: Path) -> str:
    """What a program in C says of all that."""
    lines = [f'    printf("{name} %d\\n", (int){name});' for name in constants()]
    for struct, members in structures().items():
        lines.append(f'    printf("{struct} %zu\\n", sizeof({struct}));')
        for name in members:
            size = f"sizeof((({struct} *)0)->{name})"
            lines.append(f'    printf("{struct}.{name} %zu %zu\\n", offsetof({struct}, {name}), {size});')
    source = where / "abi.c"
    head = "#include <polyduct.h>\n#include <stdio.h>\nint main(void) {\n"
    source.write_text(head + "\n".join(lines) + "\n    return 0;\n}\n")
    return run(build(where, C, source)) + "".join(f"{name}()\n" for name in exported())


def exported() -> list[str]:
    """The symbols of the library."""
    said = run("nm", "-D", "--defined-only", f"{CONFIG.lib}/libpolyduct.so")
    return sorted(line.split()[-1] for line in said.splitlines())


def test_the_library_has_what_the_header_declares_and_nothing_else() -> None:
    assert exported() == declared()


def test_the_table_is_what_is_there(tmp_path: Path) -> None:
    assert table(tmp_path) == (SOURCES / "abi.txt").read_text()


NOTHING = r"""
#include <polyduct.h>
#include <stdio.h>
#include <unistd.h>

static polyduct_port *port(void) {
    polyduct_port *made = NULL;
    polyduct_options o = {.struct_size = sizeof o, .units = 1};
    int64_t shape[] = {4};
    if (polyduct_open_write(&made, "x.npy", POLYDUCT_U8, 1, shape, "*", &o)) puts(polyduct_error_text());
    return made;
}

static polyduct_domain *domain(void) {
    polyduct_domain *made = NULL;
    polyduct_domain_options o = {.struct_size = sizeof o, .units = 1, .timeout = 0.05};
    if (polyduct_join(&made, &o)) puts(polyduct_error_text());
    return made;
}

static polyduct_layout *layout(void) {
    polyduct_layout *made = NULL;
    int64_t shape[] = {4};
    if (polyduct_layout_new(&made, "block", POLYDUCT_U8, 1, shape, 2)) puts(polyduct_error_text());
    return made;
}

static void said(const char *name, int code) {
    printf("%s %s\n", name, polyduct_code_name(code));
    fflush(stdout);
}

int main(void) {
    polyduct_port *a_port;
    polyduct_domain *a_domain;
    polyduct_layout *a_layout;
    void *wrong = layout();
    alarm(60);
"""


def test_functions_bear_nothing_and_handles_of_another_kind(tmp_path: Path) -> None:
    """Every function with 0 for everything, with a handle of another kind, and with one that is right and 0
    for all else: an answer, and neither a crash nor an endless wait."""
    lines = [NOTHING]

    def call(what: str, name: str, *given: str) -> None:
        zeros = ["0"] * (len(prototypes()[name]) - len(given))
        takes = ", ".join([*given, *zeros])
        lines.append(f'    said("{what} {name}", {name}({takes}));\n')

    kinds = ["port", "listing", "layout", "domain", "channel", "call", "region", "lent"]
    handles = {f"polyduct_{kind} *{kind}" for kind in kinds}
    ends = {"port": "abort(a_port, NULL)", "domain": "leave(a_domain)", "layout": "layout_close(a_layout)"}
    for name, takes in prototypes().items():
        if takes == ["void"]:
            continue
        call("nothing", name)
        if takes[0] in handles:
            call("wrong", name, "wrong" if takes[0] != "polyduct_layout *layout" else "(void *)port()")
        for kind, end in ends.items():
            if takes[0] == f"polyduct_{kind} *{kind}":
                lines.append(f"    a_{kind} = {kind}();\n")
                call("right", name, f"a_{kind}")
                lines.append(f"    polyduct_{end};\n")
    source = tmp_path / "nothing.c"
    source.write_text("".join(lines) + "    return 0;\n}\n")
    found = [line.split() for line in run(build(tmp_path, C, source), cwd=tmp_path).splitlines()]
    said = {(what, name): code for what, name, code in found}
    fine = {name for (what, name), code in said.items() if what == "nothing" and code in ("OK", "?")}
    assert fine == {"polyduct_code_is"}, "0 is a code, and one of its own class"
    # Some look at an element type first.
    assert {code for (what, _), code in said.items() if what == "wrong"} <= {"Misuse", "WrongType"}


def test_codes_are_the_classes_of_python() -> None:
    """Each class has a code of its name, and each code the base classes of its class."""
    types = {name: one for name, one in vars(errors).items() if isinstance(one, type)}
    classes = {name: one for name, one in types.items() if issubclass(one, polyduct.Error)}
    codes = dict(re.findall(r"POLYDUCT_(\w+) = (-\d+)", HEADER))
    named = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(): name for name in classes}
    assert set(codes) - set(named) == {"INTERNAL"} and set(named) <= set(codes)
    rust = (ROOT / "crates/capi/src/code.rs").read_text()
    rows = re.findall(r'\((-\d+), c"(\w+)", &\[(.*?)\]\)', rust)
    assert {name: int(code) for code, name, _ in rows if name != "Internal"} == {
        name: int(codes[upper]) for upper, name in named.items()
    }
    for _, name, bases in rows:
        if name != "Internal":
            mine = [base.__name__ for base in classes[name].__bases__ if issubclass(base, polyduct.Error)]
            assert re.findall(r'"(\w+)"', bases) == mine, name


def test_types_are_those_of_messages() -> None:
    from polyduct._encode import _ELEMS

    [types] = re.findall(r"enum polyduct_type \{.*?\}", HEADER, re.DOTALL)
    numbers = {int(n): name.lower() for name, n in re.findall(r"POLYDUCT_(\w+) = (\d+)", types)}
    assert numbers == dict(enumerate(_ELEMS, start=1))


@pytest.mark.parametrize("header", ["polyduct.h", "polyduct_messages.h", "polyduct_mpi.h"])
@pytest.mark.parametrize("compiler", ["c99", "c17", "c++11", "c++20"])
def test_headers_go_without_a_warning(tmp_path: Path, header: str, compiler: str) -> None:
    mpi = header == "polyduct_mpi.h"
    if compiler[1] == "+":
        command = [*(MPICXX if mpi else CPP), f"-std={compiler}"]
    else:
        command = ["mpicc" if mpi else "gcc", *C[1:], f"-std={compiler}"]
    source = tmp_path / ("x.cpp" if compiler[1] == "+" else "x.c")
    twice = f"#include <{header}>\n" * 2
    source.write_text(twice + "int main(void) { return polyduct_abi() != POLYDUCT_ABI; }\n")
    assert run(build(tmp_path, command, source)) == ""


def test_the_module_goes_without_a_warning(tmp_path: Path) -> None:
    command = [*FORTRAN, f"-I{CONFIG.include}", "-c", CONFIG.fortran]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_written_for_each_type_is_what_its_writer_writes() -> None:
    source = (ROOT / "crates/capi/fortran/arrays.py").read_text()
    found: dict[str, object] = {"__name__": "arrays", "__file__": str(ROOT / "crates/capi/fortran/arrays.py")}
    exec(compile(source, "arrays.py", "exec", dont_inherit=True), found)
    for name, text in found["main"]().items():  # type: ignore[operator]
        assert (ROOT / "python/polyduct/include" / name).read_text() == text, name


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        sys.stdout.write(table(Path(place)))
