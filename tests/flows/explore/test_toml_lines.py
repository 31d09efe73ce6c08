"""Where the values of a TOML text stand: every path that tomllib finds has a line, and the line holds it."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.flows.explore.space.toml_lines import Path, lines_of


def paths_of(value: Any, path: Path = ()) -> set[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path}.union(*(paths_of(inner, (*path, key)) for key, inner in items))


TEXT = '''# comment with [brackets] and = and "quotes
top = 1  # = 2
"quoted key" = "a # no comment, [no table]"
'literal \\ key'.inner = 'C:\\'   # a literal string ends with a backslash
a.b . c = 3
[ axes ]  # table
sram = [  # [[
    "64 KiB", # first, ]
    "]", '}',
    1979-05-27T07:32:00Z,

    [1,
     2], { x = 1, y = { z = [ 5 ] } },
] # done
multi = """
[not.a.table]
key = \\"""\\\\""""
after = \'\'\'
'' [[network]] \'\'\'\'\'
inline = { from = "a", "to" = 'b', deep.er = [ ] }
[[network]]
source = "x"
[network.shape]
input = [1, 3,
  224]
[[network.part]]
n = 1
[[network.part]]
n = 2
[[network]]
source = "y"
[[network.part]]
n = 3
[a.d]
empty = {}
'''

LINES = {
    ("top",): 2,
    ("quoted key",): 3,
    ("literal \\ key", "inner"): 4,
    ("a",): 5,
    ("a", "b", "c"): 5,
    ("axes",): 6,
    ("axes", "sram"): 7,
    ("axes", "sram", 0): 8,
    ("axes", "sram", 1): 9,
    ("axes", "sram", 2): 9,
    ("axes", "sram", 3): 10,
    ("axes", "sram", 4): 12,
    ("axes", "sram", 4, 1): 13,
    ("axes", "sram", 5, "y", "z", 0): 13,
    ("axes", "multi"): 15,
    ("axes", "after"): 18,
    ("axes", "inline", "deep", "er"): 20,
    ("network",): 21,
    ("network", 0): 21,
    ("network", 0, "shape", "input", 2): 25,
    ("network", 0, "part", 1, "n"): 29,
    ("network", 1): 30,
    ("network", 1, "part", 0, "n"): 33,
    ("a", "d"): 34,
    ("a", "d", "empty"): 35,
}


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\n", "\r\n"), TEXT.rstrip()], ids=["lf", "crlf", "no last end"])
def test_lines(text: str) -> None:
    lines = lines_of(text)
    assert set(lines) == paths_of(tomllib.loads(text))
    assert {path: lines[path] for path in LINES} == LINES


def test_nothing() -> None:
    assert lines_of("") == lines_of("# nothing\n\n") == {(): 1}


KEYS = st.text("abz09_-.\"'\\ #=[]{}\té", min_size=1, max_size=5)
STRINGS = st.text("ab\"'\\#=[]{},\n é", max_size=8)
SCALARS = st.one_of(st.integers(-99, 99), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), STRINGS)
BLANKS = st.sampled_from(["", " ", "\t"])
ENDS = st.sampled_from(["\n", "\n\n", ' # c ] } , = "\n', "\n# [x]\n  # '''\n"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A TOML text of tables and arrays of tables, however it may be written."""

    def one(forms: list[str]) -> str:
        return draw(st.sampled_from(forms))

    def key(text: str) -> str:
        bare = text.isascii() and all(c.isalnum() or c in "_-" for c in text)
        forms = [json.dumps(text, ensure_ascii=draw(st.booleans()))]
        forms += [text] if bare else []
        forms += [f"'{text}'"] if "'" not in text else []
        return one(forms)

    def string(text: str) -> str:
        forms = [json.dumps(text)]
        if "'" not in text and "\n" not in text:
            forms.append(f"'{text}'")
        if "'''" not in text and not text.endswith("'"):
            forms.append(f"'''\n{text}'''")
        forms.append('"""\n' + text.replace("\\", "\\\\").replace('"""', '""\\"') + '"""')
        return one(forms)

    def value(data: Any) -> str:
        if isinstance(data, bool):
            return str(data).lower()
        if isinstance(data, str):
            return string(data)
        if isinstance(data, list):
            parts = [draw(ENDS) + value(item) + draw(ENDS) for item in data]
            comma = "," if draw(st.booleans()) and parts else ""
            return "[" + ",".join(parts) + comma + draw(ENDS) + "]"
        if isinstance(data, dict):
            return "{" + ",".join(draw(BLANKS) + pair(k, v) + draw(BLANKS) for k, v in data.items()) + "}"
        return repr(data)

    def pair(name: str, data: Any) -> str:
        return key(name) + draw(BLANKS) + "=" + draw(BLANKS) + value(data)

    nested = st.recursive(
        SCALARS, lambda s: st.lists(s, max_size=3) | st.dictionaries(KEYS, s, max_size=3), max_leaves=6
    )
    text = draw(ENDS) if draw(st.booleans()) else ""
    tables: dict[str, Any] = draw(st.dictionaries(KEYS, nested, max_size=3))
    text += "".join(pair(k, v) + draw(ENDS) for k, v in tables.items())
    for name in draw(st.lists(KEYS.filter(lambda k: k not in tables), max_size=3, unique=True)):
        several = draw(st.booleans())
        for _ in range(draw(st.integers(1, 3)) if several else 1):
            text += f"[[{key(name)}]]" if several else f"[{draw(BLANKS)}{key(name)} ]"
            text += draw(ENDS)
            text += "".join(pair(k, v) + draw(ENDS) for k, v in draw(st.dictionaries(KEYS, nested, max_size=2)).items())
    return text


@given(documents())
def test_every_path_has_a_line_and_no_other_has(text: str) -> None:
    assert set(lines_of(text)) == paths_of(tomllib.loads(text))


@given(st.lists(st.lists(st.sampled_from(["{n}", "'[{n}'", '"""\n]{n}"""', "[ {n} ]", "{{ k = {n} }}"]), max_size=4)))
def test_lines_hold_what_stands_there(rows: list[list[str]]) -> None:
    """Elements carry numbers of their own: the line of each, or a later one of the same element, holds its number."""
    count, parts = 100, []
    for row in rows:
        values = []
        for form in row:
            values.append(form.format(n=count))
            count += 1
        parts.append("[" + ",\n".join(values) + "]")
    text = "list = [\n" + ",\n\n".join(parts) + "]\n"
    lines, found, count = lines_of(text), text.split("\n"), 100
    for y, row in enumerate(rows):
        for x, form in enumerate(row):
            line = lines["list", y, x]
            assert str(count) in found[line - 1 + form.count("\n")]
            count += 1
