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
from bench.backbone.models import ModelSpec, model_label
from bench.grading import prompt
from bench.grading.grade import JudgeCase
from bench.grading.verdicts import Settling, Verdicts, settled
from bench.progress import Progress
from bench.store.folders import key_of

if TYPE_CHECKING:
    from bench.backbone.model import Backbone, LoadOptions

_SHORT = 8
"""Hex digits of a revision in the judge's name."""


class Local:
    """Judges with a model of this machine; its weights are in memory only while it judges."""

    def __init__(
        self, spec: ModelSpec, options: LoadOptions, cache: Path, wording: prompt.Wording = prompt.GRADING
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
    def _files(self) -> Backbone:
        """The model's files, configuration and tokenizer; weights are loaded by another one, and forgotten with it."""
        from bench.backbone.model import Backbone

        return Backbone(self.spec, self.options)

    @cached_property
    def kept(self) -> Verdicts:
        """The verdicts of this model in this arithmetic, with this chat template."""
        backbone = self._files
        (example,) = self._prompts(backbone, [JudgeCase("question", "gold", "answer")])
        fields = {
            "kind": "hf",
            "model": backbone.fingerprint,
            "dtype": str(backbone.dtype),
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

    def comparing(self) -> Local:
        """See `Judge.comparing`; the judge of the same model."""
        return Local(self.spec, self.options, self.cache, prompt.COMPARING)

    def verdicts(self, cases: Sequence[JudgeCase], what: str, progress: Progress) -> Sequence[bool | None]:
        """See `Judge.verdicts`; a prompt that is longer than the model's context gets none."""
        return settled(cases, self.kept, what, progress, self._ask)

    def _ask(self, todo: list[JudgeCase], settling: Settling) -> None:
        """Each prompt read alone, so that a verdict depends on nothing else."""
        import torch

        from bench.backbone.model import Backbone

        backbone = Backbone(self.spec, self.options)
        try:
            no, yes = (_first_ids(backbone, word) for word in ("no", "yes"))
            if no & yes or not no or not yes:
                raise UserError(
                    f"--judge-model {self.spec.name}: expected words yes and no that are one token each where its"
                    " answer begins, got a tokenizer without; name another model."
                )
            for one, ids in zip(todo, self._prompts(backbone, todo), strict=True):
                verdict = None
                if len(ids) <= backbone.context:
                    verdict = _verdict(_last_logits(backbone, ids), sorted(no), sorted(yes))
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
            del backbone
            gc.collect()  # gives the memory back to the device
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _prompts(self, backbone: Backbone, cases: Sequence[JudgeCase]) -> list[Any]:
        """Token ids up to where the judge's answer begins."""
        return backbone.chat.encode([backbone.chat.render(prompt.messages(one, self.wording)) for one in cases])


def _first_ids(backbone: Backbone, word: str) -> set[int]:
    """The tokens that say this word, however it is written, right where an answer begins."""
    written = [space + form for space in ("", " ") for form in (word, word.capitalize(), word.upper())]
    asking = Prompt(prompt.messages(JudgeCase("?", "?", "?")))
    return {int(ids[0]) for ids in backbone.chat.continuations(asking, written) if len(ids) == 1}


def _last_logits(backbone: Backbone, ids: Any) -> Any:
    """`(V,)` float32 logits of what follows."""
    import torch

    with torch.inference_mode():
        inputs = torch.as_tensor(ids, dtype=torch.long, device=backbone.device)[None]
        return backbone.model(input_ids=inputs, use_cache=False).logits[0, -1].float()


def _verdict(logits: Any, no: list[int], yes: list[int]) -> bool | None:
    """Verdict whose word has more probability over all its tokens; None where the model's numbers are none."""
    odds = float(logits[yes].logsumexp(0) - logits[no].logsumexp(0))
    return None if math.isnan(odds) else odds > 0
