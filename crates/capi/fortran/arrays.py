#!/usr/bin/env python3
"""Writes what the Fortran module has for each type and rank of array: `polyduct_arrays.inc`, and what the
types `polyduct_port`, `polyduct_domain` and `polyduct_call` list of it, `polyduct_ports.inc`,
`polyduct_domains.inc` and `polyduct_results.inc`; and procedures of no type, `polyduct_generics.inc`.

    python3 crates/capi/fortran/arrays.py

Fortran 2008 has no procedures for any type and rank, and so each of seventeen has to be there for each of six
types and four ranks.
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


def next_step(name: str, how: str) -> str:
    """A step as a pointer to where it lies."""
    return f"""\
  function {name}_{{t}}_{{r}}(self, a, stat, errmsg) result(more)
    class(polyduct_port), intent(inout) :: self
    {{type}}, pointer, intent(out) :: a({{colons}})
{STATUS}
    logical :: more
    type(c_ptr) :: at
    integer(c_int64_t) :: sizes({{r}})
    type(outcome) :: done
    nullify (a)
    done = {how}(self)
    call place(self, '', type_{{t}}, at, sizes, done)
    if (done%code == POLYDUCT_OK) call c_f_pointer(at, a, sizes)
    more = done%code == POLYDUCT_OK
    call settle(done, stat, errmsg)
  end function
"""


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
    "read_box": f"""\
  subroutine read_box_{{t}}_{{r}}(self, step, lower, a, stat, errmsg)
    class(polyduct_port), intent(in) :: self
    integer, intent(in) :: step, lower(:)
    {{type}}, intent(inout) :: a({{colons}})
{STATUS}
    {{type}}, allocatable, target :: rows({{colons}})
    type(outcome) :: done
    allocate (rows({{turned}}))
    if (size(a) > 0) call box(self, .false., step, lower, shape(a), type_{{t}}, c_loc(rows), done)
    if (done%code == POLYDUCT_OK) a = reshape(rows, shape(a), order=[{{order}}])
    call settle(done, stat, errmsg)
  end subroutine
""",
    "write_box": f"""\
  subroutine write_box_{{t}}_{{r}}(self, step, lower, a, stat, errmsg)
    class(polyduct_port), intent(in) :: self
    integer, intent(in) :: step, lower(:)
    {{type}}, intent(in) :: a({{colons}})
{STATUS}
    {{type}}, allocatable, target :: rows({{colons}})
    type(outcome) :: done
    allocate (rows({{turned}}))
    rows = reshape(a, shape(rows), order=[{{order}}])
    if (size(a) > 0) call box(self, .true., step, lower, shape(a), type_{{t}}, c_loc(rows), done)
    call settle(done, stat, errmsg)
  end subroutine
""",
    "next": next_step("next", "mapped"),
    "view": next_step("view", "viewed"),
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
DOMAINS |= {
    "region": f"""\
  subroutine region_{{t}}_{{r}}(self, region, id, a, sizes, stat, errmsg)
    class(polyduct_domain), intent(in) :: self
    type(polyduct_region), intent(inout) :: region
    integer, intent(in) :: id, sizes({{r}})
    {{type}}, pointer, intent(out) :: a({{colons}})
{STATUS}
    type(c_ptr) :: at
    type(outcome) :: done
    nullify (a)
    call region_make(self, region, id, sizes, type_{{t}}, at, done)
    if (done%code == POLYDUCT_OK) call c_f_pointer(at, a, sizes)
    call settle(done, stat, errmsg)
  end subroutine
""",
    "put": f"""\
  subroutine put_{{t}}_{{r}}(self, to, id, a, offset, notify, args, stat, errmsg)
    class(polyduct_domain), intent(in) :: self
    integer, intent(in) :: to, id
    {{type}}, intent(in), target :: a({{colons}})
    integer(int64), intent(in), optional :: offset
    character(*), intent(in), optional :: notify
    integer, intent(in), optional :: args(:)
{STATUS}
    type(c_ptr) :: at
{PLACE}
    call region_put(self, to, id, at, size(a, kind=c_size_t), is_contiguous(a), type_{{t}}, offset, notify, &
                    args, stat, errmsg)
  end subroutine
""",
    "get": f"""\
  subroutine get_{{t}}_{{r}}(self, from, id, a, offset, stat, errmsg)
    class(polyduct_domain), intent(in) :: self
    integer, intent(in) :: from, id
    {{type}}, intent(inout), target :: a({{colons}})
    integer(int64), intent(in), optional :: offset
{STATUS}
    type(c_ptr) :: at
{PLACE}
    call region_get(self, from, id, at, size(a, kind=c_size_t), is_contiguous(a), type_{{t}}, offset, stat, &
                    errmsg)
  end subroutine
""",
    "call": f"""\
  subroutine call_{{t}}_{{r}}(self, call, to, name, a, timeout, stat, errmsg)
    class(polyduct_domain), intent(in) :: self
    type(polyduct_call), intent(inout) :: call
    integer, intent(in) :: to
    character(*), intent(in) :: name
    {{type}}, intent(in), target :: a({{colons}})
    real(real64), intent(in), optional :: timeout
{STATUS}
    type(c_ptr) :: at
{PLACE}
    call call_start(self, call, to, name, at, shape(a), is_contiguous(a), type_{{t}}, timeout, stat, errmsg)
  end subroutine
""",
}
RESULTS = {
    "result": f"""\
  subroutine result_{{t}}_{{r}}(self, a, stat, errmsg)
    class(polyduct_call), intent(inout) :: self
    {{type}}, allocatable, intent(out) :: a({{colons}})
{STATUS}
    type(c_mail), target :: mail
    type(outcome) :: done
    call call_fetch(self, mail, done)
    if (done%code == POLYDUCT_OK) call taken_{{t}}_{{r}}(mail, a, done)
    call freed(mail, done)
    call settle(done, stat, errmsg)
  end subroutine
""",
}
# What a message has, copied into an array that is made for it.
PLAIN = {
    "taken": """\
  subroutine taken_{t}_{r}(mail, a, done)
    type(c_mail), intent(in) :: mail
    {type}, allocatable, intent(out) :: a({colons})
    type(outcome), intent(inout) :: done
    {type}, pointer :: p({colons})
    integer :: sizes({r})
    call fits(mail, {r}, type_{t}, done)
    if (done%code /= POLYDUCT_OK) return
    sizes = int(mail%shape(1:{r}))
    allocate (a({sized}))
    if (size(a) == 0) return
{copy}
  end subroutine
""",
}
# Procedures of no type's own, under one name each.
GENERICS = {
    "take": f"""\
  subroutine take_{{t}}_{{r}}(argument, a, stat, errmsg)
    type(c_ptr), intent(in) :: argument
    {{type}}, allocatable, intent(out) :: a({{colons}})
{STATUS}
    type(c_mail), pointer :: mail
    type(outcome) :: done
    call argument_of(argument, mail, done)
    if (done%code == POLYDUCT_OK) call taken_{{t}}_{{r}}(mail, a, done)
    call settle(done, stat, errmsg)
  end subroutine
""",
    "reply": f"""\
  subroutine reply_{{t}}_{{r}}(reply, a, stat, errmsg)
    type(c_ptr), intent(in) :: reply
    {{type}}, intent(in), target :: a({{colons}})
{STATUS}
    type(c_ptr) :: at
{PLACE}
    call reply_by(reply, at, shape(a), is_contiguous(a), type_{{t}}, stat, errmsg)
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


def generics() -> str:
    lines = [HEAD]
    for what in GENERICS:
        lines.append(f"  interface polyduct_{what}\n")
        for start in range(0, 24, 6):
            lines.append(f"    module procedure {', '.join(names(what)[start : start + 6])}\n")
        lines.append("  end interface\n")
    return "".join(lines)


def procedures() -> str:
    text = [HEAD]
    every = (PORTS, DOMAINS, RESULTS, PLAIN, GENERICS)
    kinds = [template for kind in every for template in kind.values()]
    for template in kinds:
        for t, type_ in TYPES.items():
            for r in RANKS:
                order = ", ".join(map(str, range(r, 0, -1)))
                copy = COPY[r > 1].format(r=r, order=order)
                colons = ", ".join(":" * r)
                sized = ", ".join(f"sizes({n})" for n in range(1, r + 1))
                turned = ", ".join(f"size(a, {n})" for n in range(r, 0, -1))
                given = {"t": t, "type": type_, "r": r, "colons": colons, "copy": copy, "sized": sized}
                text.append("\n" + template.format(**given, turned=turned, order=order))
    return "".join(text)


def main() -> dict[str, str]:
    return {
        "polyduct_ports.inc": listed(PORTS),
        "polyduct_domains.inc": listed(DOMAINS),
        "polyduct_results.inc": listed(RESULTS),
        "polyduct_generics.inc": generics(),
        "polyduct_arrays.inc": procedures(),
    }


if __name__ == "__main__":
    for name, text in main().items():
        (INCLUDE / name).write_text(text)
