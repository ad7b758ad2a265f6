"""`python -m tests.baseline [PART ...]`: record the baseline, or some of its parts."""

import sys

from tests.baseline import HERE, PARTS

if unknown := sorted({*sys.argv[1:]} - {*PARTS}):
    sys.exit(f"Expected parts of {', '.join(PARTS)}, got {unknown[0]!r}")
for name in sys.argv[1:] or PARTS:
    (HERE / f"{name}.txt").write_text("\n".join(PARTS[name]()) + "\n", encoding="utf-8")
