"""`python -m bench.training CONFIG.json [PROCESSES]`: train the adapter that a configuration file describes.

If PROCESSES is more than one, as many processes train together; each runs this command without PROCESSES.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from bench.training.child import end_with_parent, train_together

end_with_parent()
config, processes = Path(sys.argv[1]), int(*sys.argv[2:3] or "1")
if processes > 1:
    train_together(config, processes)
else:
    gc.disable()  # garbage collection takes a quarter of the time that libraries load; `main` enables it
    from bench.api import UserError
    from bench.store.locks import file_lock
    from bench.training.loop import main

    try:
        # wait for an orphaned process of an earlier run, so that no two processes write into the folder
        lock = config.parent / f"rank{os.environ.get('RANK', '0')}.lock"
        with file_lock(lock, lambda whom: print(f"waiting for {whom}", flush=True)):  # noqa: T201  (to the parent's log)
            main(config)
    except UserError as error:
        sys.exit(f"error: {error}")  # without a traceback
# All files are written. Threads of torch's process groups can outlive the group and abort a normal exit (SIGABRT, on a
# busy machine), which would turn a finished training into a failed one.
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
