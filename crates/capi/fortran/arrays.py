#!/usr/bin/env python3
"""Writes what the Fortran module has for each type and rank of array: `polyduct_arrays.inc`, and what the
types `polyduct_port` and `polyduct_domain` list of it, `polyduct_ports.inc` and `polyduct_domains.inc`.

    python3 crates/capi/fortran/arrays.py

Fortran 2008 has no procedures for any type and rank, and so each of seven has to be there for each of six types
and four ranks.
"""

from __future__ import annotations

from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[3] / "python/polyduct/include"
TYPES = {
    "i4": "integer(int32)",
    "i8": "integer(int64)",
    "r4": "real(real32)",
    "r8": "real(real64)",
    "c4": "complex(real32)",
    "c8": "complex(real64)",
}
RANKS = range(1, 5)

STATUS = """\
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg"""

# How contiguous arrays are taken: where they lie, which nobody asks of those without elements.
PLACE = """\
    at = c_null_ptr
    if (size(a) > 0 .and. is_contiguous(a)) at = c_loc(a)"""

PORTS = {
    "write": f"""\
  subroutine write_{{t}}_{{r}}(self, a, stat, errmsg)
    class(polyduct_port), intent(in) :: self
    {{type}}, intent(in), target :: a({{colons}})
{STATUS}
    type(c_ptr) :: at
{PLACE}
    call port_put(self, at, shape(a), is_contiguous(a), type_{{t}}, stat, errmsg)
  end subroutine
""",
    "read": f"""\
  subroutine read_{{t}}_{{r}}(self, a, step, stat, errmsg)
    class(polyduct_port), intent(in) :: self
    {{type}}, intent(inout), target :: a({{colons}})
    integer, intent(out), optional :: step
{STATUS}
    type(c_ptr) :: at
{PLACE}
    call port_get(self, at, shape(a), is_contiguous(a), type_{{t}}, step, stat, errmsg)
  end subroutine
""",
    "step": f"""\
  subroutine step_{{t}}_{{r}}(self, a, stat, errmsg)
    class(polyduct_port), intent(inout) :: self
    {{type}}, pointer, intent(out) :: a({{colons}})
{STATUS}
    type(c_ptr) :: at
    integer(c_int64_t) :: sizes({{r}})
    type(outcome) :: done
    nullify (a)
    done = begun(self)
    call place(self, '', type_{{t}}, at, sizes, done)
    if (done%code == POLYDUCT_OK) call c_f_pointer(at, a, sizes)
    call settle(done, stat, errmsg)
  end subroutine
""",
    "next": f"""\
  function next_{{t}}_{{r}}(self, a, stat, errmsg) result(more)
    class(polyduct_port), intent(inout) :: self
    {{type}}, pointer, intent(out) :: a({{colons}})
{STATUS}
    logical :: more
    type(c_ptr) :: at
    integer(c_int64_t) :: sizes({{r}})
    type(outcome) :: done
    nullify (a)
    done = mapped(self)
    call place(self, '', type_{{t}}, at, sizes, done)
    if (done%code == POLYDUCT_OK) call c_f_pointer(at, a, sizes)
    more = done%code == POLYDUCT_OK
    call settle(done, stat, errmsg)
  end function
""",
    "at": f"""\
  subroutine at_{{t}}_{{r}}(self, name, a, stat, errmsg)
    class(polyduct_port), intent(in) :: self
    character(*), intent(in) :: name
    {{type}}, pointer, intent(out) :: a({{colons}})
{STATUS}
    type(c_ptr) :: at
    integer(c_int64_t) :: sizes({{r}})
    type(outcome) :: done
    nullify (a)
    call place(self, name, type_{{t}}, at, sizes, done)
    if (done%code == POLYDUCT_OK) call c_f_pointer(at, a, sizes)
    call settle(done, stat, errmsg)
  end subroutine
""",
}
DOMAINS = {
    "send": f"""\
  subroutine send_{{t}}_{{r}}(self, to, a, tag, stat, errmsg)
    class(polyduct_domain), intent(in) :: self
    integer, intent(in) :: to
    {{type}}, intent(in), target :: a({{colons}})
    integer, intent(in), optional :: tag
{STATUS}
    type(c_ptr) :: at
{PLACE}
    call domain_put(self, to, at, shape(a), is_contiguous(a), type_{{t}}, tag, stat, errmsg)
  end subroutine
""",
    "recv": f"""\
  subroutine recv_{{t}}_{{r}}(self, from, a, tag, stat, errmsg)
    class(polyduct_domain), intent(in) :: self
    integer, intent(in) :: from
    {{type}}, intent(inout) :: a({{colons}})
    integer, intent(in), optional :: tag
{STATUS}
    type(c_mail) :: mail
    type(outcome) :: done
    {{type}}, pointer :: p({{colons}})
    integer :: sizes({{r}})
    sizes = shape(a)
    call domain_get(self, from, sizes, type_{{t}}, tag, mail, done)
    if (done%code == POLYDUCT_OK .and. size(a) > 0) then
{{copy}}
    end if
    call freed(mail, done)
    call settle(done, stat, errmsg)
  end subroutine
""",
}
COPY = {
    False: """\
      call c_f_pointer(mail%data, p, sizes)
      a = p""",
    True: """\
      if (mail%column_major /= 0 .or. mail%elem == 0) then
        call c_f_pointer(mail%data, p, sizes)
        a = p
      else
        call c_f_pointer(mail%data, p, sizes({r}:1:-1))
        a = reshape(p, sizes, order=[{order}])
      end if""",
}
HEAD = "! Written by crates/capi/fortran/arrays.py.\n"


def names(what: str) -> list[str]:
    return [f"{what}_{t}_{r}" for t in TYPES for r in RANKS]


def listed(kinds: dict[str, str]) -> str:
    lines = [HEAD]
    for what in kinds:
        for start in range(0, 24, 6):
            lines.append(f"    procedure, private :: {', '.join(names(what)[start : start + 6])}\n")
        for start in range(0, 24, 6):
            lines.append(f"    generic :: {what} => {', '.join(names(what)[start : start + 6])}\n")
    return "".join(lines)


def procedures() -> str:
    text = [HEAD]
    for template in [*PORTS.values(), *DOMAINS.values()]:
        for t, type_ in TYPES.items():
            for r in RANKS:
                order = ", ".join(map(str, range(r, 0, -1)))
                copy = COPY[r > 1].format(r=r, order=order)
                colons = ", ".join(":" * r)
                text.append("\n" + template.format(t=t, type=type_, r=r, colons=colons, copy=copy))
    return "".join(text)


def main() -> dict[str, str]:
    return {
        "polyduct_ports.inc": listed(PORTS),
        "polyduct_domains.inc": listed(DOMAINS),
        "polyduct_arrays.inc": procedures(),
    }


if __name__ == "__main__":
    for name, text in main().items():
        (INCLUDE / name).write_text(text)
