"""A headless Chromium, and a comparison in which everything that can be odd is.

Without Chromium or Playwright these tests are skipped with the reason; with CONFBENCH_REQUIRE_BROWSER=1 they fail.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bench.report import page as report
from bench.report.selection import Selection
from bench.report.tables.model import Table
from bench.report.tables.request import tables_of
from bench.results import files, question_texts
from tests.fixtures import compared, large_page
from tests.kit.world import write_failure

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SCRIPT = "<script>alert(1)</script>"
TEXTS = (
    SCRIPT, "</style></script><h1>big</h1>", "שלום (b) עולם.",
    "".join(f"word{i:04} " for i in range(1_112))[:10_000], "W" * 10_000,
    "\u202etxet desrever\u202c </style> <img src=x onerror=alert(2)>",
)  # fmt: skip
"""Texts and answers of the first mistakes in the first table."""
MARKUP = "<b>moss</b>"
"""A subject."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of this folder next to each other, so that one Chromium serves them."""
    items.sort(key=lambda item: "browser" not in item.path.parts)


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three tables; on `beta` and `atlas-choice` a method failed."""
    out = tmp_path_factory.mktemp("results")
    compared.write_all(out)
    write_failure(out, "lts", f"{SCRIPT} was NaN", model="beta", task="atlas-choice")
    return out


@pytest.fixture(scope="package")
def tables(folder: Path) -> list[Table]:
    return tables_of(Selection(folder), None)


@pytest.fixture(scope="package")
def payload(folder: Path, tables: list[Table]) -> dict[str, Any]:
    """What the page is written from; its first table has a subject and questions that are markup, or odd."""
    built = copy.deepcopy(report.payload(
        tables,
        lambda row: files.read_records(files.stored_path(row, folder)),
        lambda task, version: question_texts.read(folder, task, version),
    ))  # fmt: skip
    block = built["blocks"][0]
    block["subjects"][1] = MARKUP
    questions = block["questions"]
    for row, text in zip(questions["groups"]["mistakes"], TEXTS, strict=False):
        questions["asked"][row] = len(built["asked"])
        questions["answer"][row], questions["letter"][row] = text, None
        built["asked"].append([text, [], text])
    return built


@pytest.fixture(scope="package")
def file(folder: Path, tables: list[Table], payload: dict[str, Any], tmp_path_factory: Any) -> Path:
    """The page on disk."""
    pictures = report.pictures(tables, lambda row: files.read_records(files.stored_path(row, folder)))
    return report.write(tmp_path_factory.mktemp("page") / "page.html", payload, pictures)


@pytest.fixture(scope="package")
def big(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of the large page: four models on five benchmarks."""
    return report.write(tmp_path_factory.mktemp("big") / "report.html", large_page.payload()).as_uri()


def unavailable(reason: str) -> NoReturn:
    """Skip, or fail where a browser is required."""
    if os.environ.get("CONFBENCH_REQUIRE_BROWSER") == "1":
        pytest.fail(f"CONFBENCH_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """A running headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("Playwright is missing: pip install playwright")
    found = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if found is None:
        unavailable(f"Chromium is missing: none of {', '.join(CHROMIUMS)} is on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page of the browser, with what it did besides showing itself."""

    def __init__(self, browser: Any, before: str | None = None) -> None:
        self.context = browser.new_context()
        self.context.set_default_timeout(10_000)
        if before is not None:
            self.context.add_init_script(before)
        self.page = self.context.new_page()
        self.noise: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.noise.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.noise.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.requests.append(request.url.partition("#")[0]))

    def _dialog(self, dialog: Any) -> None:
        self.noise.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, address: str, width: int, height: int, scheme: str) -> Any:
        """Show a page."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(media="screen", forced_colors="none", color_scheme=scheme)
        self.page.goto(address)
        return self.page

    def leave(self, *addresses: str) -> None:
        """Go back to nothing, and check that the pages were silent and asked for nothing but themselves."""
        self.page.evaluate("() => { try { localStorage.clear() } catch { } }")
        self.page.goto("about:blank")
        noise, requests = self.noise.copy(), set(self.requests)
        self.noise.clear()
        self.requests.clear()
        assert noise == []
        assert requests <= {"about:blank", "data:,", *(address.partition("#")[0] for address in addresses)}


@pytest.fixture(scope="package")
def tabs() -> list[Tab]:
    """Tabs that are used again, because opening one takes longer than the page."""
    return []


@pytest.fixture
def visit(chromium: Any, tabs: list[Tab], file: Path) -> Iterator[Callable[..., Any]]:
    """`visit(url, width, height, scheme=, before=)` opens a page; afterwards it must have been silent.

    `before` is a script that runs before the page's own.
    """
    opened: list[tuple[Tab, str]] = []

    def open_page(
        url: str | None = None, width: int = 1600, height: int = 1000, *, scheme: str = "light",
        before: str | None = None,
    ) -> Any:  # fmt: skip
        address = url or file.as_uri()
        idle = [tab for tab in tabs if all(tab is not used for used, _ in opened)]
        tab = idle[0] if idle and before is None else Tab(chromium, before)
        if before is None and not idle:
            tabs.append(tab)
        opened.append((tab, address))
        return tab.open(address, width, height, scheme)

    yield open_page
    for tab, address in opened:
        tab.leave(address)


@pytest.fixture(scope="package")
def plain(chromium: Any) -> Iterator[Any]:
    """A page of a browser that runs no scripts."""
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 800})
    yield context.new_page()
    context.close()
