"""The house in numbers: rooms, floors and arrows as imports draw them, and the size of files.

`make house` prints them and fails where a limit of `bench/DESIGN.md`, 7, is broken. A room is a package or module right
below `bench`, or a package of plugins; an arrow leads from a room to another one that it imports; a room's floor is the
number of rooms on the longest way down from it. Imports for type checkers don't count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
HARNESS = "bench"
PLUGINS = ("methods", "tasks")
LIMITS = {
    "rooms": 20,
    "floors": 8,
    "arrows": 75,
    "arrows upward": 0,
    "circles": 0,
    "lines of the longest file": 400,
    "lines of bench/cli/app.py": 299,
}
LONGEST = 5
"""Files that are printed, the longest ones."""
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Imports = Mapping[str, set[str]]
"""Importer -> what it imports."""


def modules() -> Imports:
    """Imports of each module by another one of the harness or of the plugins."""
    graph = grimp.build_graph(HARNESS, *PLUGINS, exclude_type_checking_imports=True)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def room_of(module: str) -> str:
    """Name of the room that a module is in, without `bench.`.

    >>> room_of("bench.api.batch"), room_of("bench.store"), room_of("methods.ccps.method")
    ('api', 'store', 'methods')
    """
    top, _, below = module.partition(".")
    return below.partition(".")[0] if top == HARNESS else top


def rooms(imports: Imports) -> Imports:
    """Imports of each room by another one; the bare package `bench` is none."""
    found: dict[str, set[str]] = {}
    for importer, imported in imports.items():
        room = room_of(importer)
        if room:
            found.setdefault(room, set()).update(other for other in map(room_of, imported) if other not in {room, ""})
    return found


def circle(imports: Imports) -> list[str]:
    """One circle of imports; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def floors(imports: Imports) -> dict[str, int]:
    """Room -> its floor, from 1; the imports have no circle."""

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(other) for other in imports[room]), default=0)

    return {room: floor(room) for room in imports}


def layers() -> dict[str, int]:
    """Room -> its line in the layers of `pyproject.toml`, counted from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    return {room.strip(): line for line, text in enumerate(contract["layers"]) for room in text.split("|")}


def upward(imports: Imports, line_of: Mapping[str, int]) -> list[str]:
    """Arrows between rooms of the harness that lead to the same layer or a higher one."""
    return [
        f"{room} -> {other}"
        for room, others in imports.items()
        for other in sorted(others)
        if room in line_of and line_of.get(other, -1) <= line_of[room]
    ]


def code_lines(source: str) -> int:
    """Lines that are neither blank nor comment nor docstring.

    >>> code_lines("x = 1  # one\\n# two\\n\\nclass A:\\n    '''Three.'''\\n    y: int = (\\n        2)\\n")
    4
    """
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {n for t in tokens if t.type not in LAYOUT for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def code(paths: Iterable[Path]) -> dict[str, int]:
    """Lines of code in the harness and in each package of plugins."""
    found = dict.fromkeys((HARNESS, *PLUGINS), 0)
    for path in paths:
        found[path.parts[0]] += code_lines((ROOT / path).read_text(encoding="utf-8"))
    return found


def drawing(imports: Imports) -> Iterator[str]:
    """Text of the house, a line for each room, the top floor first."""
    on = floors(imports)
    for room in sorted(imports, key=lambda room: (-on[room], room)):
        below = sorted(imports[room], key=lambda other: (-on[other], other))
        yield f"{on[room]}  {room:<10}" + (f" -> {', '.join(below)}" if below else "")


def sizes() -> dict[Path, int]:
    """Lines of each Python file of the harness and of the plugins, the longest first; paths relative to the root."""
    paths = [path for top in (HARNESS, *PLUGINS) for path in (ROOT / top).rglob("*.py")]
    lines = {path.relative_to(ROOT): path.read_text(encoding="utf-8").count("\n") for path in paths}
    return dict(sorted(lines.items(), key=lambda item: (-item[1], item[0])))


def main() -> int:
    """Print the house; returns 1 where a limit is broken."""
    between_modules, lines = modules(), sizes()
    between_rooms = rooms(between_modules)
    circles = [found for found in (circle(between_rooms), circle(between_modules)) if found]
    climbing = upward(between_rooms, layers())
    measured = {
        "rooms": len(between_rooms),
        "floors": 0 if circles else max(floors(between_rooms).values()),
        "arrows": sum(map(len, between_rooms.values())),
        "arrows upward": len(climbing),
        "circles": len(circles),
        "lines of the longest file": max(lines.values()),
        "lines of bench/cli/app.py": lines[Path("bench/cli/app.py")],
    }
    most = LIMITS["lines of the longest file"]
    out = [
        *(drawing(between_rooms) if not circles else ()),
        *("circle: " + " -> ".join(found) for found in circles),
        *("upward: " + arrow for arrow in climbing),
        *(f"{n:>6,} lines of code in {top}" for top, n in code(lines).items()),
        *(f"{n:>6} lines in {path}" for i, (path, n) in enumerate(lines.items()) if n > most or i < LONGEST),
        *(
            f"{measured[name]:>6} {name}, at most {limit}" + " BROKEN" * (measured[name] > limit)
            for name, limit in LIMITS.items()
        ),
    ]
    sys.stdout.write("\n".join(out) + "\n")
    return int(any(measured[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
