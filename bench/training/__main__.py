"""`python -m bench.training CONFIG.json [PROCESSES]`: train one adapter, as the configuration beside its examples says.

With more than one process it starts them, each as `python -m bench.training CONFIG.json`.
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
    gc.disable()  # a quarter of the time in which libraries load would go into looking for garbage; `main` enables it
    from bench.api import UserError
    from bench.store.locks import file_lock
    from bench.training.loop import main

    try:
        # one that has lost its parent and still lives is waited for, so that no two write here
        lock = config.parent / f"rank{os.environ.get('RANK', '0')}.lock"
        with file_lock(lock, lambda whom: print(f"waiting for {whom}", flush=True)):  # noqa: T201  (the parent keeps it)
            main(config)
    except UserError as error:
        sys.exit(f"error: {error}")  # its sentence is enough
# Everything is written. Threads of torch's process groups can outlive the group and abort an orderly exit (SIGABRT, now
# and then on a busy machine), which would turn a finished training into a failed one.
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
