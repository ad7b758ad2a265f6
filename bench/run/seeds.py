"""Run one configuration with several seeds in turn; if the run of one seed fails, the others are still made.

Of the signals of the model without adapters only samples depend on the seed, so that after the first run the others
are in the store. The runs share the loaded model.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.api import ContractError, UserError
from bench.progress import Progress
from bench.run.config import RunConfig
from bench.run.pipeline import RunReport, run
from bench.run.preparation import ModelHandle


def run_seeds(configs: Sequence[RunConfig], progress: Progress) -> RunReport:
    """Run configurations that differ only in their seeds, and return a joint report.

    If there are several, each line of the plan begins with its seed.

    Raises:
        UserError, ContractError: the only run raised it, or all runs raised the same error.
    """
    seeds = tuple(config.seed for config in configs)
    joint, opened, errors = RunReport([]), ModelHandle(seeds=seeds), []
    several = len(configs) > 1
    if several:
        progress.say(
            f"Seeds {', '.join(map(str, seeds))}, one after the other, each with results of its"
            f" own; what the model reads for seed {configs[0].seed} is stored for the others, but for samples"
        )
    for config in configs:
        try:
            report = run(config, progress, opened=opened)
        except (UserError, ContractError) as error:
            if not several:
                raise
            opened = ModelHandle(seeds=seeds)  # a method may have changed its weights
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
