"""What is loaded from the Hub is pinned, to commits that were seen in public records."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from bench import registry
from bench.data.sources import HubSource
from bench.model.specs import aliases

ROOT = Path(__file__).parents[2]

with (ROOT / "tests" / "golden" / "revisions.csv").open(encoding="utf-8", newline="") as table:
    RECORDED = list(csv.DictReader(table))
"""Commits with their branch and the number of public records of each; `use` is `loaded`, or `named` in a text."""
CONVERTED = "refs/convert/parquet"


def test_pins_are_commits_of_public_records() -> None:
    tasks = [registry.tasks().get(name)(HubSource()) for name in registry.tasks().names()]
    cards = [card for task in tasks for split in task.card.splits for card, _ in task.origins(split)]
    models = [spec for spec in aliases().values() if not spec.local]
    pinned = {("dataset", card.hub, card.config or "default", card.revision, card.files) for card in cards}
    pinned |= {("model", spec.source, "", spec.revision, "") for spec in models}
    assert pinned == {
        (
            row["kind"], row["hub"], row["config"], row["revision"],
            f"{row['config']}/{{split}}/0000.parquet" if row["branch"] == CONVERTED else "",
        )
        for row in RECORDED if row["use"] == "loaded"
    }  # fmt: skip
    assert all(int(row["records"]) >= 2 for row in RECORDED)


def test_sources_name_no_other_commits() -> None:
    paths = [path for top in ("bench", "methods", "tasks") for path in (ROOT / top).rglob("*")]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix in {".py", ".toml"}]
    assert set(re.findall(r"\b[0-9a-f]{40}\b", "\n".join(texts))) == {row["revision"] for row in RECORDED}
