"""A local model as judge: its verdict is the likelier of yes and no as the first token of its answer."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.api import UserError
from bench.grading import prompt
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import VerdictCache, VerdictCollector, judge_all
from bench.model.specs import ModelSpec, label_of, model_label
from bench.progress import Progress
from bench.store.disk_cache import key_of
from bench.store.locks import mark_in_use

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel, LoadOptions

_REVISION_DIGITS = 8
"""Number of hex digits of the model's revision in the judge's name."""


@dataclass(eq=False)
class LocalJudge:
    """Judge that runs a model on this machine; its weights are in memory only while it judges."""

    spec: ModelSpec
    options: LoadOptions
    """Device and dtype to load the model with."""
    cache: Path
    """The cache folder, for verdicts."""
    wording: prompt.JudgePrompt = prompt.GRADING

    @cached_property
    def _tokenizer_only(self) -> LanguageModel:
        """The model with its configuration and tokenizer but without weights; `_ask` loads and frees the weights."""
        from bench.model.gguf import UnknownSplittingError
        from bench.model.language_model import LanguageModel

        try:
            return LanguageModel(self.spec, self.options)
        except UnknownSplittingError as error:
            raise UserError(
                f"--judge-model {self.spec.name}: its tokenizer splits words in a way that is unknown here; name"
                " another model, or serve the file with llama.cpp: --judge openai --judge-url URL."
            ) from error

    @cached_property
    def cached(self) -> VerdictCache:
        """Stored verdicts that this model gave with this dtype, chat template and prompt."""
        lm = self._tokenizer_only
        (example,) = self._prompts(lm, [JudgeCase("question", "gold", "answer")])
        fields = {
            "kind": "hf",
            "model": lm.fingerprint,
            "dtype": str(lm.dtype),
            "template": key_of({"ids": example.tolist()}),
            "prompt": self.wording.id,
            "temperature": 0.0,
        }
        return VerdictCache(self.cache, fields)

    @property
    def name(self) -> str:
        """Name of the judge: the model, its shortened revision (or a digest of its files), and the prompt."""
        revision = self._tokenizer_only.fingerprint.rpartition("@")[2][:_REVISION_DIGITS]
        return f"hf {model_label(self.spec.name)}@{revision}, {self.wording.id}"

    def pairwise_judge(self) -> LocalJudge:
        """Return the judge that compares two answers (see `Judge.pairwise_judge`), with the same model."""
        return LocalJudge(self.spec, self.options, self.cache, prompt.COMPARING)

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """Return one verdict for each case, in order; None where the judge reached none.

        An answer whose prompt is longer than the model's context gets no verdict. Arguments as in `Judge.verdicts`.
        """
        with mark_in_use(self.cache, label_of(self.spec)):  # a converted GGUF file isn't pruned meanwhile
            return judge_all(cases, self.cached, what, progress, self._ask)

    def _ask(self, todo: list[JudgeCase], collector: VerdictCollector) -> None:
        """Judge the cases in `todo`, each in a forward pass of its own, so that no verdict depends on a batch."""
        import torch

        from bench.model.language_model import LanguageModel

        lm = LanguageModel(self.spec, self.options)
        try:
            if lm.chat.no_letters_reason is not None:
                raise UserError(f"--judge-model {self.spec.name}: {lm.chat.no_letters_reason}.")
            no, yes = (_first_ids(lm, word) for word in ("no", "yes"))
            if no & yes or not no or not yes:
                raise UserError(
                    f"--judge-model {self.spec.name}: expected words yes and no that are one token each where its"
                    " answer begins, got a tokenizer without; name another model."
                )
            for case, ids in zip(todo, self._prompts(lm, todo), strict=True):
                verdict = None
                if len(ids) <= lm.context:
                    verdict = _verdict(_last_logits(lm, ids), sorted(no), sorted(yes))
                if verdict is not None:
                    self.cached.put(case, verdict)
                collector.count_answer(verdict)
                collector.finish(case)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"--judge-model {self.spec.name} does not fit into memory beside the model of the run. Name a smaller"
                " one, or serve it elsewhere: --judge openai --judge-url URL."
            ) from error
        finally:
            del lm
            gc.collect()  # frees the weights
            torch.cuda.empty_cache()

    def _prompts(self, lm: LanguageModel, cases: Sequence[JudgeCase]) -> list[Any]:
        """Return the token ids of each judge prompt, up to the first token of the judge's answer."""
        return lm.chat.encode([lm.chat.render(prompt.messages(case, self.wording)) for case in cases])


def _first_ids(lm: LanguageModel, word: str) -> set[int]:
    """Return the ids of all tokens that spell a word at the start of an answer, in any case, with or without a blank.

    Spellings of more than one token are left out.
    """
    spellings = [space + spelling for space in ("", " ") for spelling in (word, word.capitalize(), word.upper())]
    asked = lm.chat.render(prompt.messages(JudgeCase("?", "?", "?")))
    return {int(ids[0]) for ids in (lm.chat.following(asked, each) for each in spellings) if len(ids) == 1}


def _last_logits(lm: LanguageModel, ids: Any) -> Any:
    """Return the model's float32 logits `(v,)` for the token that follows `ids`."""
    import torch

    with torch.inference_mode():
        inputs = torch.as_tensor(ids, dtype=torch.long, device=lm.device)[None]
        return lm.model(input_ids=inputs, use_cache=False).logits[0, -1].float()


def _verdict(logits: Any, no: list[int], yes: list[int]) -> bool | None:
    """Return whether "yes" is likelier than "no" as the next token; None if the logits are NaN.

    `no` and `yes` are the token ids that spell each word; their probabilities are summed.
    """
    log_odds = float(logits[yes].logsumexp(0) - logits[no].logsumexp(0))
    return None if math.isnan(log_odds) else log_odds > 0
