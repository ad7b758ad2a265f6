"""Runs in an environment of its own: one of the other tools on prompts.

Arguments: `lm_eval` or `lm_polygraph`, and a JSON file `{"model": folder, "prompts": [text], "letters": [letter],
"dtype": name, "threads": n, "batch": n}`. Prints JSON: the seconds after a warm-up, what came of it, and versions.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")


def lm_eval(task: dict[str, Any]) -> Callable[[list[str]], object]:
    """Log-likelihoods of the letters as continuations of each prompt."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=task["model"], device="cpu", dtype=task["dtype"], batch_size=task["batch"])
    letters = task["letters"]

    def scored(prompts: list[str]) -> list[list[float]]:
        pairs = [(k, (prompt, letter)) for prompt in prompts for k, letter in enumerate(letters)]
        asked = [Instance("loglikelihood", doc={}, arguments=pair, idx=k) for k, pair in pairs]
        scores = [score for score, _ in model.loglikelihood(asked, disable_tqdm=True)]
        return [scores[i : i + len(letters)] for i in range(0, len(scores), len(letters))]

    return scored


def lm_polygraph(task: dict[str, Any]) -> Callable[[list[str]], object]:
    """P(True) and mean token entropy: the first question's.

    P(True) reads the logit of the first letter in place of that of "True", which must be one token and in a small
    tokenizer is not; the passes are the same.
    """
    from lm_polygraph.defaults.register_default_stat_calculators import register_default_stat_calculators
    from lm_polygraph.estimators import MeanTokenEntropy, PTrue
    from lm_polygraph.stat_calculators.prompt import PromptCalculator
    from lm_polygraph.utils.builder_enviroment_stat_calculator import BuilderEnvironmentStatCalculator
    from lm_polygraph.utils.dataset import Dataset
    from lm_polygraph.utils.manager import UEManager
    from lm_polygraph.utils.model import WhiteboxModel

    model = WhiteboxModel.from_pretrained(task["model"], device_map="cpu", torch_dtype=task["dtype"])
    own = PromptCalculator.__init__

    def read_the_letter(self: PromptCalculator) -> None:
        own(self)
        self.expected = task["letters"][0]

    PromptCalculator.__init__ = read_the_letter

    def estimated(prompts: list[str]) -> dict[str, float]:
        manager = UEManager(
            Dataset(prompts, [""] * len(prompts), batch_size=task["batch"]), model, [PTrue(), MeanTokenEntropy()],
            available_stat_calculators=register_default_stat_calculators("Whitebox"),
            builder_env_stat_calc=BuilderEnvironmentStatCalculator(model), generation_metrics=[], ue_metrics=[],
            processors=[], ignore_exceptions=False, verbose=False, max_new_tokens=1,
        )  # fmt: skip
        manager()
        return {name: float(values[0]) for (_, name), values in manager.estimations.items()}

    return estimated


def main(tool: str, file: str) -> None:
    import torch

    task = json.loads(Path(file).read_text(encoding="utf-8"))
    torch.set_num_threads(task["threads"])
    work = {"lm_eval": lm_eval, "lm_polygraph": lm_polygraph}[tool](task)
    work(task["prompts"][:8])
    start = time.perf_counter()
    found = work(task["prompts"])
    seconds = time.perf_counter() - start
    versions = {name: version(name) for name in (tool.replace("_", "-"), "torch", "transformers")}
    print(json.dumps({"seconds": seconds, "found": found, "versions": versions}))


main(*sys.argv[1:])
