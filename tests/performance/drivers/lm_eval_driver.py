"""Runs in an environment of its own: lm-evaluation-harness scores letters as continuations of prompts.

Arguments: a JSON file `{"model": folder, "prompts": [text], "letters": [letter], "threads": n, "batch": n}`, and how
many times to repeat after a warm-up. Prints JSON: the seconds of each repetition, the chosen letters, and versions.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from importlib.metadata import version
from pathlib import Path

logging.disable(logging.WARNING)


def main() -> None:
    import torch
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(task["threads"])
    model = HFLM(pretrained=task["model"], device="cpu", dtype="float32", batch_size=task["batch"])
    letters = task["letters"]

    def requests(prompts: list[str]) -> list[Instance]:
        return [
            Instance("loglikelihood", doc={}, arguments=(prompt, letter), idx=k)
            for prompt in prompts
            for k, letter in enumerate(letters)
        ]

    model.loglikelihood(requests(task["prompts"][:8]), disable_tqdm=True)
    seconds, scores = [], []
    for _ in range(int(sys.argv[2])):
        start = time.perf_counter()
        scores = model.loglikelihood(requests(task["prompts"]), disable_tqdm=True)
        seconds.append(time.perf_counter() - start)
    rows = [scores[i : i + len(letters)] for i in range(0, len(scores), len(letters))]
    said = "".join(letters[max(range(len(row)), key=lambda k: row[k][0])] for row in rows)
    versions = {name: version(name) for name in ("lm-eval", "torch", "transformers")}
    sys.stdout.write(json.dumps({"seconds": seconds, "said": said, "versions": versions}) + "\n")


main()
