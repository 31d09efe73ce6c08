"""Next states inside the blocks of their clocks, in Verilog as Amaranth and Yosys write it.

They write the next state of each register as logic of its own, which a block of the clock copies. A block of the clock
can have that logic in it::

    always @* begin                                   always @(posedge clk) begin
      next = count;                                     if (counts) begin
      if (counts) begin               becomes             count <= more;
        next = more;                                    end
      end                                             end
    end
    always @(posedge clk) count <= next;

Verilator evaluates logic of its own whenever something that it reads may have changed, also while the clock of the
register rests; in the block, only at edges of that clock. For synthesis both are the same.
"""

import re

NAME = r"\\\$\d+ "
"""What Amaranth calls a signal without a name, with the space that ends it."""
REGISTER = re.compile(rf"^  always @\(posedge (.*?) ?\)\n    (\\\S+ |\w+) ?<= ({NAME});\n", re.M)
"""(clock, register, next state)"""
LOGIC = re.compile(r"^  always @\* begin\n    if \(\\\$auto\$\S+ \) begin end\n((?:    .*\n)+)  end\n", re.M)
"""(statements), after one that makes them run when a simulation begins"""
ASSIGNED = re.compile(r"^( +)(\{ [^}=]* \}|(?:\\\S+ |\w+)(?: ?\[[^]]*\])?) *= ", re.M)
"""(spaces, what is assigned: a signal, part of one, or parts in braces)"""

RESET = re.compile(rf"    if \((\w*rst)\) begin\n      ({NAME}) = (.*);\n    end\n\Z")
"""(reset, next state, value in a reset), which Amaranth writes last"""


def clocked(text: str) -> str:
    """Verilog of modules, whose next states are in the blocks of their clocks. A next state that anything else reads
    stays as it is."""
    return "".join(map(_clocked, re.split(r"(?<=^endmodule\n)", text, flags=re.M)))


def _clocked(module: str) -> str:
    logic = {}
    for found in LOGIC.finditer(module):
        assigned = [parts for _, parts in ASSIGNED.findall(found[1])]
        names = {name for parts in assigned for name in _signals(parts)}
        if len(names) == 1 and len(assigned) == found[1].count(" = "):
            logic[names.pop()] = found
    used: dict[str, int] = {}
    for name in re.findall(NAME, module):
        used[name] = used.get(name, 0) + 1
    changes: dict[tuple[int, int], str] = {}
    for found in REGISTER.finditer(module):
        clock, register, name = found.groups()
        # Its declaration, the register, and what assigns it.
        if name in logic and used[name] == 2 + len(re.findall(re.escape(name), logic[name][1])):
            changes[logic[name].span()] = ""
            changes[found.span()] = (
                f"  always @(posedge {clock} ) begin\n{_block(register, name, logic[name][1])}  end\n"
            )
    parts, end = [], 0
    for (first, past), new in sorted(changes.items()):
        parts += [module[end:first], new]
        end = past
    return "".join([*parts, module[end:]])


def _signals(parts: str) -> list[str]:
    """Names in what is assigned."""
    return re.findall(r"\\\S+ |\w+", re.sub(r"\[[^]]*\]", "", parts))


def _block(register: str, name: str, statements: str) -> str:
    """Statements of the clock's block. A register that holds its value unless something happens is written where it
    happens: no copy for what stays. What a reset does comes first: Verilator tests it once for all that follows."""
    reset = RESET.search(statements)
    if reset and reset[2] == name:
        rest = _block(register, name, statements[: reset.start()])
        lines = "".join(f"  {line}" for line in rest.splitlines(keepends=True))
        return f"    if ({reset[1]}) begin\n      {register} <= {reset[3]};\n    end else begin\n{lines}    end\n"
    first, rest = statements.split("\n", 1)
    if first == f"    {name} = {register};":
        return ASSIGNED.sub(lambda found: f"{found[1]}{found[2].replace(name, register)} <= ", rest)
    if not rest and first.startswith(f"    {name} = "):
        return f"    {register} <= {first.partition(' = ')[2]}\n"
    return f"{statements}    {register} <= {name};\n"
