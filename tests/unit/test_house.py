"""Numbers of `make house`, on code written down by hand."""

from __future__ import annotations

from tests.house import Source, circle, code_lines, twice

CODE = '''"""One."""

# two
x = 1  # three

class A:
    """Four
    five."""
    y: int = (
        2)
    def _used(self):
        return """not
        a docstring"""

def _helper():
    return A()._used()

def asked():
    return _helper() + _twice() + _twice()

def _twice():
    return 1
'''


def test_code_lines_are_neither_blank_nor_comment_nor_docstring() -> None:
    assert code_lines([Source("a.py", CODE)]) == 13
    assert code_lines([Source("a.py", "")]) == 0


def test_private_functions_called_once_are_counted() -> None:
    assert Source("a.py", CODE).called_once() == ["_helper", "_used"]


def test_class_names_that_stand_twice_are_found() -> None:
    files = [Source(name, CODE) for name in ("a.py", "b.py", "bench/cli/templates/method.py")]
    assert twice(files) == {"A": 2}
    assert twice(files[1:]) == {}


def test_circle_of_imports_is_found() -> None:
    imports = {"cli": {"run", "api"}, "run": {"api"}, "api": set()}
    assert circle(imports) == []
    assert set(circle({**imports, "api": {"cli"}})) >= {"api", "cli"}
