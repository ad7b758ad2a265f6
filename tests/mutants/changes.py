"""Single-line changes of the source: drawn from the syntax tree by a seed, or kept in a file.

A kept change is found again by its function and the text of its line, so it survives a move to another file. One whose
line is gone is replaced by a change of the same kind, drawn by its name.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("bench", "methods", "tasks")
NOT_DRAWN = ("bench/cli/templates/",)
"""Files of users that are written by `bench new`, and the training of the embedded model, which no user runs."""
COMPARED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: (" in ", " not in "), ast.NotIn: (" not in ", " in "),
    ast.Is: (" is ", " is not "), ast.IsNot: (" is not ", " is "),
}  # fmt: skip
CALCULATED = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"), ast.Pow: ("**", "*"),
}  # fmt: skip
KINDS = ("argument", "arithmetic", "call", "comparison", "condition", "constant", "return")


@dataclass(frozen=True, order=True)
class Change:
    file: str
    """Path from the root of the repository."""
    function: str
    """Qualified name of the innermost function or class around the line; empty at the top of a module."""
    old: str
    """Text that is replaced: a whole line, or whatever stands in it once."""
    new: str
    kind: str = "by hand"
    name: str = ""
    line: int = 0
    """Line of the file, from 1, where the text is now; 0 while unknown."""
    tests: tuple[str, ...] = ()
    """Test files, or how names of tests begin, to run where coverage can't tell, as for data."""
    replaces: str = ""
    """Name of the kept change whose line is gone."""
    equivalent: str = ""
    """Why no test can notice it, if so."""
    by: str = ""
    """Test that noticed it last, which is run before all others."""

    @property
    def source(self) -> Path:
        return ROOT / self.file

    def applied(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        before = "".join(lines[: self.line - 1])
        return before + text[len(before) :].replace(self.old, self.new, 1)


def drawn(seed: int, n: int) -> list[Change]:
    """Draw changes, as many of each kind as there is room for."""
    rng = random.Random(seed)
    pools = {kind: [change for change in _candidates() if change.kind == kind] for kind in KINDS}
    found: dict[Change, None] = {}
    while len(found) < n:
        change = rng.choice(pools[KINDS[len(found) % len(KINDS)]])
        if _is_python(change):
            found[change] = None
    return [replace(change, name=f"{seed}-{i:02}") for i, change in enumerate(found)]


@cache
def _candidates() -> tuple[Change, ...]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    files = [path.relative_to(ROOT).as_posix() for path in paths]
    return tuple(change for file in files if not file.startswith(NOT_DRAWN) for change in changes_of(file))


def _is_python(change: Change) -> bool:
    try:
        ast.parse(change.applied(change.source.read_text(encoding="utf-8")))
    except SyntaxError:
        return False
    return True


def changes_of(file: str) -> Iterator[Change]:
    """Changes of single lines of a file; of some the line is no longer Python."""
    text = (ROOT / file).read_text(encoding="utf-8")
    lines = [line.encode() for line in text.splitlines()]  # `ast` counts columns in bytes
    for kind, node, start, end, new in _edits(ast.parse(text), lines):
        if start[0] == end[0] == node.lineno:
            line = lines[node.lineno - 1]
            changed = line[: start[1]] + new.encode() + line[end[1] :]
            function = function_at(file, node.lineno)
            yield Change(file, function, line.decode(), changed.decode(), kind, "", node.lineno)


Node = ast.expr | ast.stmt | ast.keyword
Place = tuple[int, int]
"""Line from 1, and column."""
Edit = tuple[str, Node, Place, Place, str]
"""Kind, node whose first line is changed, start and end of the text that is replaced, and what replaces it."""


def _edits(tree: ast.Module, lines: list[bytes]) -> Iterator[Edit]:
    for node in _executed(tree):
        match node:
            case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in COMPARED:
                yield from _between(lines, "comparison", node, left, right, *COMPARED[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in CALCULATED and not _is_text(left, right):
                yield from _between(lines, "arithmetic", node, left, right, *CALCULATED[type(op)])
            case ast.BoolOp(op=op, values=[left, right, *_]):
                words = (" and ", " or ") if isinstance(op, ast.And) else (" or ", " and ")
                yield from _between(lines, "condition", node, left, right, *words)
            case ast.If(test=test) | ast.IfExp(test=test) if test.lineno == test.end_lineno:
                said = lines[test.lineno - 1][test.col_offset : test.end_col_offset].decode()
                yield "condition", test, _start(test), _end(test), f"not ({said})"
            case ast.Constant(value=bool() | int() | float() as value):
                more = (
                    not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value or 0.5
                )
                yield "constant", node, _start(node), _end(node), repr(more)
            case ast.Call(args=args, keywords=keywords) if keywords:
                given: list[Node] = [*args, *keywords]
                for each, end in zip(given, [*map(_start, given[1:]), _end(given[-1])], strict=True):
                    if isinstance(each, ast.keyword) and each.arg not in {None, "strict"}:  # zip's is a safeguard
                        yield "argument", each, _start(each), end, ""
            case ast.Expr(value=ast.Call()) if node.lineno == node.end_lineno:
                yield "call", node, _start(node), _end(node), "pass"
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                if node.lineno == node.end_lineno:
                    yield "return", node, _start(value), _end(value), "None"


def _start(node: Node) -> Place:
    return node.lineno, node.col_offset


def _end(node: Node) -> Place:
    return node.end_lineno or 0, node.end_col_offset or 0


def _between(lines: list[bytes], kind: str, node: Node, left: Node, right: Node, old: str, new: str) -> Iterator[Edit]:
    """The operator between two operands, where it stands between them once and on one line."""
    (line, start), (other, end) = _end(left), _start(right)
    if line == other and lines[line - 1].count(old.encode(), start, end) == 1:
        found = lines[line - 1].index(old.encode(), start, end)
        yield kind, node, (line, found), (line, found + len(old)), new


def _is_text(*operands: ast.expr) -> bool:
    """Whether one of the operands is plainly no number."""
    plain = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Dict)
    return any(isinstance(e, plain) or (isinstance(e, ast.Constant) and isinstance(e.value, str)) for e in operands)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes below one, without annotations and what only type checkers read."""
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns"} or (isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.dump(tree.test)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from _executed(child)


def kept(path: Path) -> list[Change]:
    """Read the changes of a file, each at the line where it is now, or one of the same kind in its place."""
    records = json.loads(path.read_text(encoding="utf-8"))
    return [_placed(Change(**{**record, "tests": tuple(record.get("tests", ()))})) for record in records]


def keep(path: Path, changes: Sequence[Change]) -> None:
    """Write changes, one a line, without line numbers, which move."""
    usual = {field.name: field.default for field in fields(Change)}
    records = [{k: v for k, v in asdict(each).items() if k != "line" and v != usual[k]} for each in changes]
    path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n", encoding="utf-8")


def _placed(change: Change) -> Change:
    others = [file for file in _files(change.source.suffix) if file != change.file]
    for file in [change.file, *others] if change.function else [change.file]:
        line = _line_of(file, change.function, change.old)
        if line:
            return replace(change, file=file, line=line)
    pool = [each for each in _candidates() if change.kind in {each.kind, "by hand"}]
    rng = random.Random(change.name)
    while not _is_python(chosen := rng.choice(pool)):
        pass
    return replace(chosen, name=f"{change.name}'", replaces=change.name)


@cache
def _files(suffix: str) -> tuple[str, ...]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob(f"*{suffix}"))]
    return tuple(path.relative_to(ROOT).as_posix() for path in paths)


def _line_of(file: str, function: str, old: str) -> int:
    path = ROOT / file
    if not path.is_file():
        return 0
    text, start = path.read_text(encoding="utf-8"), -1
    while (start := text.find(old, start + 1)) >= 0:
        line = text.count("\n", 0, start) + 1
        if path.suffix != ".py" or function_at(file, line) == function:
            return line
    return 0


def function_at(file: str, line: int) -> str:
    """Qualified name of the innermost function or class around a line of a Python file."""
    around = [(node.lineno, name) for node, name in definitions(file) if node.lineno <= line <= (node.end_lineno or 0)]
    return max(around)[1] if around else ""


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def definitions(file: str) -> tuple[tuple[Definition, str], ...]:
    def below(node: ast.AST, prefix: str) -> Iterator[tuple[Definition, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Definition):
                yield child, prefix + child.name
                yield from below(child, f"{prefix}{child.name}.")
            else:
                yield from below(child, prefix)

    return tuple(below(ast.parse((ROOT / file).read_text(encoding="utf-8")), ""))
