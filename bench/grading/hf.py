"""A local model as judge: it answers yes or no by the probability of these words right where its answer begins."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.api.question import Prompt
from bench.grading import prompt
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import VerdictCollector, Verdicts, settled
from bench.model.specs import ModelSpec, model_label
from bench.progress import Progress
from bench.store.folders import key_of

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel, LoadOptions

_SHORT = 8
"""Hex digits of a revision in the judge's name."""


class LocalJudge:
    """Judges with a model of this machine; its weights are in memory only while it judges."""

    def __init__(
        self, spec: ModelSpec, options: LoadOptions, cache: Path, wording: prompt.JudgePrompt = prompt.GRADING
    ) -> None:
        """Nothing is loaded yet.

        Args:
            spec: which model.
            options: where and how to load it.
            cache: verdicts are kept below it.
            wording: what it is asked.
        """
        self.wording = wording
        self.spec = spec
        self.options = options
        self.cache = cache

    @cached_property
    def _files(self) -> LanguageModel:
        """The model's files, configuration and tokenizer; weights are loaded by another one, and forgotten with it."""
        from bench.model.language_model import LanguageModel

        return LanguageModel(self.spec, self.options)

    @cached_property
    def kept(self) -> Verdicts:
        """The verdicts of this model in this arithmetic, with this chat template."""
        lm = self._files
        (example,) = self._prompts(lm, [JudgeCase("question", "gold", "answer")])
        fields = {
            "kind": "hf",
            "model": lm.fingerprint,
            "dtype": str(lm.dtype),
            "template": key_of({"ids": example.tolist()}),
            "prompt": self.wording.id,
            "temperature": 0.0,
        }
        return Verdicts(self.cache, fields)

    @property
    def name(self) -> str:
        """The model with the beginning of its revision or of its weights' digest, and the prompt."""
        revision = self._files.fingerprint.rpartition("@")[2][:_SHORT]
        return f"hf {model_label(self.spec.name)}@{revision}, {self.wording.id}"

    def comparing(self) -> LocalJudge:
        """See `Judge.comparing`; the judge of the same model."""
        return LocalJudge(self.spec, self.options, self.cache, prompt.COMPARING)

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """See `Judge.verdicts`; a prompt that is longer than the model's context gets none."""
        return settled(cases, self.kept, what, progress, self._ask)

    def _ask(self, todo: list[JudgeCase], settling: VerdictCollector) -> None:
        """Each prompt read alone, so that a verdict depends on nothing else."""
        import torch

        from bench.model.language_model import LanguageModel

        lm = LanguageModel(self.spec, self.options)
        try:
            no, yes = (_first_ids(lm, word) for word in ("no", "yes"))
            if no & yes or not no or not yes:
                raise UserError(
                    f"--judge-model {self.spec.name}: expected words yes and no that are one token each where its"
                    " answer begins, got a tokenizer without; name another model."
                )
            for one, ids in zip(todo, self._prompts(lm, todo), strict=True):
                verdict = None
                if len(ids) <= lm.context:
                    verdict = _verdict(_last_logits(lm, ids), sorted(no), sorted(yes))
                if verdict is not None:
                    self.kept.put(one, verdict)
                settling.answered(verdict)
                settling.settle(one)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"--judge-model {self.spec.name} does not fit into memory beside the model of the run. Name a smaller"
                " one, or serve it elsewhere: --judge openai --judge-url URL."
            ) from error
        finally:
            del lm
            gc.collect()  # gives the memory back to the device
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _prompts(self, lm: LanguageModel, cases: Sequence[JudgeCase]) -> list[Any]:
        """Token ids up to where the judge's answer begins."""
        return lm.chat.encode([lm.chat.render(prompt.messages(one, self.wording)) for one in cases])


def _first_ids(lm: LanguageModel, word: str) -> set[int]:
    """The tokens that say this word, however it is written, right where an answer begins."""
    written = [space + form for space in ("", " ") for form in (word, word.capitalize(), word.upper())]
    asking = Prompt(prompt.messages(JudgeCase("?", "?", "?")))
    return {int(ids[0]) for ids in lm.chat.continuations(asking, written) if len(ids) == 1}


def _last_logits(lm: LanguageModel, ids: Any) -> Any:
    """`(V,)` float32 logits of what follows."""
    import torch

    with torch.inference_mode():
        inputs = torch.as_tensor(ids, dtype=torch.long, device=lm.device)[None]
        return lm.model(input_ids=inputs, use_cache=False).logits[0, -1].float()


def _verdict(logits: Any, no: list[int], yes: list[int]) -> bool | None:
    """Verdict whose word has more probability over all its tokens; None where the model's numbers are none."""
    odds = float(logits[yes].logsumexp(0) - logits[no].logsumexp(0))
    return None if math.isnan(odds) else odds > 0
