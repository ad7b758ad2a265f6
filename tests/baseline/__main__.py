"""`python -m tests.baseline [PART ...]`: record the baseline, or some of its parts."""

import sys

from tests.baseline import HERE, PARTS

for name in sys.argv[1:] or PARTS:
    (HERE / f"{name}.txt").write_text("\n".join(PARTS[name]()) + "\n", encoding="utf-8")
