"""What the log of a part says: of pytest its counts, failures and skips, of other programs their last line."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_FOLDERS = re.compile(r"(?<![\w.:/])(?:/[\w.@+-]+)+/(?=[\w.@+-])")
_COUNTS = re.compile(r"=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")
_FAILED = re.compile(r"(?:FAILED|ERROR) (.+?)(?: - .*)?$")
_SKIPPED = re.compile(r"SKIPPED \[(\d+)\] \S+: (.+)$")
_LAST = 10
"""Lines that stand for a failure which nothing names."""


@dataclass(frozen=True)
class Log:
    """What a part printed, without folders of the machine."""

    text: str
    root: Path

    @cached_property
    def lines(self) -> list[str]:
        text = _COLOURS.sub("", self.text).replace(f"{self.root}/", "")
        return [_FOLDERS.sub(".../", line.rstrip()) for line in text.splitlines() if line.strip()]

    @cached_property
    def counts(self) -> list[str]:
        found = next(filter(None, map(_COUNTS.match, reversed(self.lines))), None)
        counts = found[1].split(", ") if found else []
        return [count for count in counts if not count.endswith(("deselected", "warning", "warnings"))]

    @property
    def said(self) -> str:
        return ", ".join(self.counts) or (self.lines or ["nothing was printed"])[-1]

    @property
    def nothing_passed(self) -> bool:
        return bool(self.counts) and not any(count.endswith("passed") for count in self.counts)

    @property
    def failures(self) -> list[str]:
        """Names of what failed; where nothing is named, the last lines."""
        named = [found[1] for found in map(_FAILED.match, self._summary) if found]
        return list(dict.fromkeys(named)) or self.lines[-_LAST:]

    @property
    def skips(self) -> dict[str, int]:
        """Reason -> skipped tests, the most frequent first."""
        reasons = Counter[str]()
        for found in filter(None, map(_SKIPPED.match, self._summary)):
            reasons[found[2]] += int(found[1])
        return dict(reasons.most_common())

    @property
    def _summary(self) -> list[str]:
        heads = [i for i, line in enumerate(self.lines) if "short test summary info" in line]
        return self.lines[heads[-1] :] if heads else self.lines
