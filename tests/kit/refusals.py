"""The golden file of refusals: for each reader a section with damaged inputs and what is said of them.

`UPDATE_GOLDEN=1 pytest -n 0 tests/unit/data/test_refusals.py tests/unit/results/test_submissions.py` rewrites it; read
the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden/refusals.md"
UPDATING = bool(os.environ.get("UPDATE_GOLDEN"))
LIBRARY = re.compile(r"""(be read|damaged|be unpacked|something else|got '[^']*'|got "[^"]*") \((.+?)\)(?=;|$)""")
"""What a library said of a damaged file, which differs from version to version, as do these."""
JSON = re.compile(r"(?<=json: )(Expecting|'utf-8')[^;]+")
DIGEST = re.compile(r"\b(?:[0-9a-f]{16}|[0-9a-f]{40}|[0-9a-f]{64})\b")
NUMBER = re.compile(r"\d+\.\d{5,}(e-\d+)?")


def stable(sentence: str, folder: Path) -> str:
    """A sentence without what differs from machine to machine and between versions of libraries."""
    said = LIBRARY.sub(
        lambda found: f"{found[1]} ({'… FOLDER …' if 'FOLDER' in found[2] else '…'})",
        sentence.replace(str(folder), "FOLDER"),
    )
    return DIGEST.sub("…", NUMBER.sub(lambda number: f"{float(number[0]):.4g}", JSON.sub("…", said)))


def golden(section: str) -> list[str]:
    """Lines of a section."""
    text = GOLDEN.read_text(encoding="utf-8")
    return [line for line in text.partition(f"\n## {section}\n")[2].partition("\n## ")[0].splitlines() if line]


def rewrite(section: str, lines: list[str]) -> None:
    """Give a section other lines."""
    text = GOLDEN.read_text(encoding="utf-8")
    before, _, rest = text.partition(f"\n## {section}\n")
    after = rest.partition("\n## ")[2]
    whole = "\n".join([before.rstrip("\n"), "", f"## {section}", "", *lines, *(["", f"## {after}"] if after else [])])
    GOLDEN.write_text(whole.rstrip("\n") + "\n", encoding="utf-8", newline="\n")
