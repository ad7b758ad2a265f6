"""`python -m bench.launch CONFIG.json`: train one adapter, as the configuration beside its examples says."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.launch.training import main

main(Path(sys.argv[1]))
