"""Several seeds of one request, one after the other: one that stops costs the others nothing.

What the model reads doesn't depend on the seed, but for samples: it lies in the store after the first one. The loaded
model is handed on as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.api import ContractError, UserError
from bench.progress import Progress
from bench.run.config import RunConfig
from bench.run.pipeline import RunReport, run
from bench.run.preparation import ModelHandle


def run_each(configs: Sequence[RunConfig], progress: Progress) -> RunReport:
    """Run requests that differ in their seeds alone; the joint plan names seeds where there are several.

    Raises:
        UserError, ContractError: of a single request, or of all alike; nothing was computed for it.
    """
    joint, opened, errors = RunReport([]), ModelHandle(), []
    several = len(configs) > 1
    if several:
        progress.say(
            f"Seeds {', '.join(str(config.seed) for config in configs)}, one after the other, each with results of its"
            f" own; what the model reads for seed {configs[0].seed} is stored for the others, but for samples"
        )
    for config in configs:
        try:
            report = run(config, progress, opened=opened)
        except (UserError, ContractError) as error:
            if not several:
                raise
            opened = ModelHandle()  # its weights may not be what they were
            errors.append(error)
            joint.stopped.append(f"seed {config.seed}: {error}")
            progress.say(f"seed {config.seed} stopped: {error}")
            continue
        joint.plan += [f"seed {config.seed}: {line}" if several else line for line in report.plan]
        joint.rows += report.rows
        joint.paths += report.paths
        joint.heads += report.heads
        joint.notes = list(dict.fromkeys(joint.notes + report.notes))
        joint.forward_tokens += report.forward_tokens
    if len(errors) == len(configs) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    return joint
