"""`python -m bench.training CONFIG.json`: train one adapter, as the configuration beside its examples says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.api import UserError
from bench.training.loop import main

try:
    main(Path(sys.argv[1]))
except UserError as error:
    sys.exit(f"error: {error}")  # its sentence is enough
# Everything is written. Threads of torch's process groups can outlive the group and abort an orderly exit (SIGABRT, now
# and then on a busy machine), which would turn a finished training into a failed one.
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
