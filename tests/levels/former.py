"""`python -m tests.levels.former CHECKOUT COMMIT`: power of the statistics as they were before, into `former.json`.

They were means over subjects with bootstrap resamples within them. CHECKOUT is a folder with the code of COMMIT; the
data sets are those of `make simulate`, by seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(checkout: str, commit: str) -> None:
    """Measure and write."""
    sys.path.insert(0, checkout)  # `bench` is the one of that folder
    from tests.levels.populations import POWERED
    from tests.levels.power import power

    found = {cell.name: power(cell, cell.data_sets) for cell in POWERED}
    record = json.dumps({"commit": commit, "found": found}, indent=1)
    Path(__file__).with_suffix(".json").write_text(record + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
