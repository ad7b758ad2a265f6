"""Runs in an environment of its own: LM-Polygraph computes P(True) and mean token entropy of prompts.

Arguments and output as in `lm_eval_driver.py`; `values` are the first question's two numbers. P(True) reads the logit
of the first letter in place of that of "True", which must be one token and in a small tokenizer is not; the passes are
the same.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")


def main() -> None:
    import torch
    from lm_polygraph.defaults.register_default_stat_calculators import register_default_stat_calculators
    from lm_polygraph.estimators import MeanTokenEntropy, PTrue
    from lm_polygraph.stat_calculators.prompt import PromptCalculator
    from lm_polygraph.utils.builder_enviroment_stat_calculator import BuilderEnvironmentStatCalculator
    from lm_polygraph.utils.dataset import Dataset
    from lm_polygraph.utils.manager import UEManager
    from lm_polygraph.utils.model import WhiteboxModel

    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(task["threads"])
    model = WhiteboxModel.from_pretrained(task["model"], device_map="cpu")

    own = PromptCalculator.__init__

    def read_the_letter(self: PromptCalculator) -> None:
        own(self)
        self.expected = task["letters"][0]

    PromptCalculator.__init__ = read_the_letter

    def estimate(prompts: list[str]) -> dict[str, list[float]]:
        manager = UEManager(
            Dataset(prompts, [""] * len(prompts), batch_size=task["batch"]),
            model,
            [PTrue(), MeanTokenEntropy()],
            available_stat_calculators=register_default_stat_calculators("Whitebox"),
            builder_env_stat_calc=BuilderEnvironmentStatCalculator(model),
            generation_metrics=[],
            ue_metrics=[],
            processors=[],
            ignore_exceptions=False,
            verbose=False,
            max_new_tokens=task["new_tokens"],
        )
        manager()
        return {name: list(map(float, values)) for (_, name), values in manager.estimations.items()}

    estimate(task["prompts"][:4])
    seconds, values = [], {}
    for _ in range(int(sys.argv[2])):
        start = time.perf_counter()
        values = estimate(task["prompts"])
        seconds.append(time.perf_counter() - start)
    versions = {name: version(name) for name in ("lm-polygraph", "torch", "transformers")}
    first = {name: numbers[0] for name, numbers in values.items()}
    sys.stdout.write(json.dumps({"seconds": seconds, "values": first, "versions": versions}) + "\n")


main()
