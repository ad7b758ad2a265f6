"""`python -m bench.training CONFIG.json`: train one adapter, as the configuration beside its examples says."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.api import UserError
from bench.training.loop import main

try:
    main(Path(sys.argv[1]))
except UserError as error:
    sys.exit(f"error: {error}")  # its sentence is enough
