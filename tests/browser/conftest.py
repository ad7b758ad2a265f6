"""A headless Chromium, and a small comparison in which everything that can be odd is.

Without Chromium or Playwright these tests are skipped with the reason; with CONFBENCH_REQUIRE_BROWSER=1 they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api.protocol import Protocol
from bench.metrics import summarise
from bench.report import page as report
from bench.report.tables.build import build
from bench.report.tables.model import Table
from bench.results.question_records import QuestionRecords
from bench.results.question_texts import QuestionText
from bench.results.row import LabelsSeen, ResultRow

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SCRIPT = "<script>alert(1)</script>"
HEBREW = "שלום (b) עולם."
OVERRIDE = "\u202etxet desrever\u202c </style> <img src=x onerror=alert(2)>"
LONG = "".join(f"word{i:04} " for i in range(1_112))[:10_000]
UNBROKEN = "W" * 10_000
SUBJECTS = ("bells", "<b>moss</b>", "stars")
TEXTS = {0: SCRIPT, 1: "</style></script><h1>big</h1>", 2: HEBREW, 3: LONG, 4: UNBROKEN, 5: OVERRIDE}
N = 80
"""Few enough that all questions are among those shown."""
MODELS = ("org/alpha", "beta")
TASKS = ("rivers", "hills-oe")
METHODS = ("ccps", "lts", "ptrue")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of this folder next to each other, so that one Chromium serves them."""
    items.sort(key=lambda item: "browser" not in item.path.parts)


# --- the comparison ---------------------------------------------------------------------------------------------------


def records_of(row: ResultRow) -> QuestionRecords:
    """Confidences of a row; the answers are the same for all methods."""
    told = np.random.default_rng([MODELS.index(row.model), TASKS.index(row.task)])
    correct = told.random(N) < 0.6
    noise = np.random.default_rng([sum(map(ord, row.method)), row.seed, TASKS.index(row.task)]).normal(0, 0.2, N)
    answers = (
        [TEXTS.get(i, "ab"[i % 2]) for i in range(N)] if row.task == "hills-oe" else ["ab"[i % 2] for i in range(N)]
    )
    return QuestionRecords(
        id=[f"{row.task}/test/{i}" for i in range(N)],
        subject=[SUBJECTS[i % 3] for i in range(N)],
        correct=correct,
        confidence=np.clip(0.45 + 0.25 * correct + noise, 0, 1),
        answer=answers,
        parsed=np.ones(N, dtype=np.bool_),
    )


def asked(task: str, version: int) -> dict[str, QuestionText]:
    """The questions; the first few are odd ones."""
    found = {}
    for i in range(N):
        key = f"{task}/test/{i}"
        text = TEXTS.get(i, f"Which bell rings {i} times?")
        shown = "  (a): tin\n  (b): bronze <i>alloy</i>"
        opened = QuestionText(key, SUBJECTS[i % 3], text, (), HEBREW if i == 2 else "bronze")
        lettered = QuestionText(key, SUBJECTS[i % 3], f"{text}\n\n{shown}", ("tin", "bronze <i>alloy</i>"), "ba"[i % 2])
        found[key] = opened if task == "hills-oe" else lettered
    return found


def scored(row: ResultRow) -> ResultRow:
    records = records_of(row)
    scores = summarise(records.confidence, records.correct, records.subject, Protocol())
    return replace(row, metrics=scores.metrics, per_subject=scores.per_subject)


def rows() -> list[ResultRow]:
    """Three methods on two models and two benchmarks, one with two seeds; one skipped, one failed, one missing."""
    common = {
        "preset": "demo", "protocol": "0123456789abcdef", "task_version": 1, "n": N, "n_unparsed": 0, "n_empty": 0,
        "llm_accuracy": 0.6, "n_parameters": 9542, "timings": {"fit": 2.0}, "labels_seen": LabelsSeen(320, 40),
        "forward_tokens_alone": 27_438, "train_on": "rivers/train", "n_shots_dropped": 0,
        "provenance": {"code": {"git_sha": "a" * 40, "dirty": False}},
    }  # fmt: skip
    made = [
        scored(ResultRow(method=method, model=model, task=task, seed=seed, status="ok", **common))
        for method in METHODS
        for model in MODELS
        for task in TASKS
        for seed in ((0, 1) if method == "ccps" else (0,))
    ]
    made = [row for row in made if (row.method, row.model) != ("lts", "beta")]
    absent = {**common, "n": None, "llm_accuracy": None, "n_parameters": None, "timings": {}, "cost": {}}
    for model, status, reason in (("org/alpha", "failed", f"{SCRIPT} was NaN"), ("beta", "skipped", "no train split")):
        made.append(ResultRow(method="pik", model=model, task="rivers", seed=0, status=status, reason=reason, **absent))
    return made


@pytest.fixture(scope="package")
def results() -> list[ResultRow]:
    """What the page is made of."""
    return rows()


def tables(rows: list[ResultRow], **options: Any) -> list[Table]:
    """The tables of all rows."""
    return build(rows, deviations=True, partial=True, **options)


@pytest.fixture(scope="package")
def usual(results) -> dict[str, Any]:
    """What the page is written from."""
    return report.payload(tables(results), records_of, asked)


@pytest.fixture(scope="package")
def drawn(results) -> list[report.Pictures]:
    """Its figures, which take longer than all else."""
    return report.pictures(tables(results), records_of)


@pytest.fixture(scope="module")
def payload(usual) -> dict[str, Any]:
    """What the page is written from; files that compare something else have their own."""
    return usual


@pytest.fixture(scope="module")
def pictures(drawn) -> list[report.Pictures]:
    """The same for its figures."""
    return drawn


@pytest.fixture(scope="module")
def file(payload, pictures, tmp_path_factory) -> Path:
    """The page on disk."""
    return report.write(tmp_path_factory.mktemp("page") / "page.html", payload, pictures)


@pytest.fixture
def other(results, tmp_path) -> Callable[..., str]:
    """`other(standings_of=...)`: the address of the same comparison without texts, with these standings."""

    def write(**options: Any) -> str:
        built = report.payload(tables(results, **options), records_of, lambda task, version: {})
        return report.write(tmp_path / "other.html", built).as_uri()

    return write


# --- the browser ------------------------------------------------------------------------------------------------------


def unavailable(reason: str) -> None:
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

    def open(self, address: str, width: int, scheme: str) -> Any:
        """Show a page."""
        self.page.set_viewport_size({"width": width, "height": 1000})
        self.page.emulate_media(color_scheme=scheme)
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
def tabs(chromium) -> list[Tab]:
    """Tabs that are used again, because opening one takes longer than the page."""
    return []


@pytest.fixture
def visit(chromium, tabs, file) -> Iterator[Callable[..., Any]]:
    """`visit(url, width=, scheme=, before=)` opens a page; afterwards it must have been silent.

    `before` is a script that runs before the page's own.
    """
    opened: list[tuple[Tab, str]] = []

    def open_page(
        url: str | None = None, *, width: int = 1600, scheme: str = "light", before: str | None = None
    ) -> Any:
        address = url or file.as_uri()
        idle = [tab for tab in tabs if all(tab is not used for used, _ in opened)]
        tab = idle[0] if idle and before is None else Tab(chromium, before)
        if before is None and not idle:
            tabs.append(tab)
        opened.append((tab, address))
        return tab.open(address, width, scheme)

    yield open_page
    for tab, address in opened:
        tab.leave(address)
