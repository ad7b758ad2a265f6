"""Digests of source code change with whatever the code in their scope may compute otherwise, and with nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import methods
from bench.run.isolation.methods import isolated_class
from bench.run.isolation.sandbox import Isolation
from bench.store import sources
from bench.store.sources import plugin_digest, source_digest
from methods.ccps.method import Ccps
from methods.ptrue import PTrue
from tests.fixtures.cells import Notebook

CELL = """
from bench.api import ConfidenceMethod, method

@method("typed-in")
class TypedIn(ConfidenceMethod):
    reference = "none"
"""


def test_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    def digest(folder: str, files: dict[str, str]) -> str:
        for name, text in files.items():
            path = tmp_path / folder / "package" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return source_digest([tmp_path / folder / "package"])

    before = digest("a", {"x.py": "x = 1", "deep/y.py": "y = 1", "data.txt": "1"})
    assert digest("b", {"x.py": "x = 1", "deep/y.py": "y = 1"}) == before
    assert digest("c", {"x.py": "x = 2", "deep/y.py": "y = 1"}) != before
    assert digest("d", {"z.py": "x = 1", "deep/y.py": "y = 1"}) != before
    assert digest("e", {"x.py": "x = 1y = 1", "deep/y.py": ""}) != before


@pytest.mark.parametrize(("plugin", "own"), [(PTrue, "ptrue.py"), (Ccps, "ccps")])
def test_digest_of_built_in_methods_has_shared_files(monkeypatch: pytest.MonkeyPatch, plugin: type, own: str) -> None:
    scopes: list[list[Path]] = []

    def seen(paths: Iterable[Path]) -> str:
        scopes.append(list(paths))
        return ""

    monkeypatch.setattr(sources, "source_digest", seen)
    plugin_digest(plugin)
    root = Path(methods.__path__[0])
    assert scopes == [[root / own, root / "_shared"]]


def test_digest_of_methods_needs_a_file() -> None:
    with Notebook() as notebook:
        assert plugin_digest(notebook.cell(CELL)["TypedIn"]) is None
    assert plugin_digest(isolated_class(PTrue, Isolation(), None)) == plugin_digest(PTrue)


def module(name: str, body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    for parent in path.relative_to(folder).parents:
        if str(parent) != ".":
            (folder / parent / "__init__.py").touch()
    path.write_text(body, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_digest_of_a_package_has_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = module("digestpack.inner.method", "class A: pass\n", tmp_path, monkeypatch)
    before = plugin_digest(own.A)
    assert plugin_digest(own.A) == before
    (tmp_path / "digestpack" / "features.py").write_text("x = 1\n", encoding="utf-8")
    assert plugin_digest(own.A) != before


def test_digest_of_a_file_has_its_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digesthelp").mkdir()
    for helper in ("digesthelp/__init__.py", "digesthelp/deep.py", "digestmore.py"):
        (tmp_path / helper).write_text("import digestuser\nx = 1\n", encoding="utf-8")
    body = "import numpy\nimport digestmore\nclass A:\n    def fit(self):\n        from digesthelp.deep import x\n"
    own = module("digestuser", body, tmp_path, monkeypatch)
    seen = [plugin_digest(own.A)]
    (tmp_path / "neighbour.py").write_text("x = 1\n", encoding="utf-8")
    assert plugin_digest(own.A) == seen[0]
    for helper in ("digesthelp/deep.py", "digestmore.py", "digestuser.py"):
        with (tmp_path / helper).open("a", encoding="utf-8") as file:
            file.write("y = 2\n")
        seen.append(plugin_digest(own.A))
    assert len(set(seen)) == len(seen)


def write_all(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_digest_follows_folders_without_an_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what can be imported by the names in use, relative ones too, and no folder that nothing names."""
    texts = {
        "digestfolder/first.py": "x = 1\n", "digestfolder/deep/second.py": "from .third import x\n",
        "digestfolder/deep/third.py": "x = 1\n", "digestfolder/deep/lower/none.py": "x = 1\n",
        "digestfolder/other/none.py": "x = 1\n",
    }  # fmt: skip
    write_all(tmp_path, texts)
    body = "import digestfolder.deep.second, digestlost.deep\nclass A:\n    from digestfolder import first\n"
    own = module("digestfolderuser", body.replace(", digestlost.deep", ""), tmp_path, monkeypatch)
    Path(own.__file__).write_text(body, encoding="utf-8")
    files = [str(file.relative_to(tmp_path)) for file in sources.imported_files(Path(own.__file__))]
    assert files == sorted(["digestfolderuser.py", *[name for name in texts if "none" not in name]])
    before = plugin_digest(own.A)
    (tmp_path / "digestfolder" / "first.py").write_text("x = 2\n", encoding="utf-8")
    assert plugin_digest(own.A) != before


def test_digest_follows_relative_imports_and_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a package without an `__init__.py` doesn't have leave it alone."""
    texts = {
        "digestspace/a.py": "from .sub.c import y\nfrom . import b, lost\n", "digestspace/b.py": "",
        "digestspace/sub/c.py": "from ..deep.pack import x\nfrom ........ import far\n", "digestspace/none.py": "",
        "digestspace/deep/pack/__init__.py": "", "digestspace/deep/pack/json.py": "from ...sub import d\n",
        "digestspace/sub/d.py": "from .json import z\n", "digestspace/sub/json.py": "",
        "digestuser.py": "import digestspace.a\nfrom digestspace import VALUE\n",
    }  # fmt: skip
    write_all(tmp_path, texts)
    monkeypatch.syspath_prepend(str(tmp_path))
    files = [str(file.relative_to(tmp_path)) for file in sources.imported_files(tmp_path / "digestuser.py")]
    assert files == sorted(name for name in texts if "none" not in name)
    assert "digestspace" not in sys.modules
