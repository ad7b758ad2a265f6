"""The plan of a run in words, with the time that it will take on this device where that can be said."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bench.api import Adapter, Format, QueryLogits, Signal
from bench.api.protocol import KeptStep
from bench.data.splits import TaskSplit
from bench.model.devices import kind_of, training_budget
from bench.model.memory import give_back
from bench.model.prefix_tree import PrefixTree
from bench.model.specs import label_of
from bench.run import fit_times
from bench.run.fit_times import AdapterTraining, Widths
from bench.run.plan import Adapt, Fit, Read
from bench.run.preparation import Prepared
from bench.run.resolve import ResolvedRun
from bench.run.tuning import nothing_to_tune
from bench.signals.forecast import PassForecast
from bench.signals.grading import Grader
from bench.signals.split_data import SplitData
from bench.store.usage import FITS

_MINUTES, _HOURS = 600, 7200
"""Seconds from which on times are told in minutes, and in hours."""
_BACKWARD = 3.0
"""Time of a forward and a backward pass over that of a forward pass; the frozen weights have no gradient."""
_LAUNCHED = 4.0
"""The same for what a pass costs however few its tokens: the adapter and its optimiser add operations of their own."""
_START = 10.0
"""Seconds in which the process that trains an adapter has loaded libraries and model, roughly."""
_BATCHES = 3
"""Batches of a training whose tokens are counted."""


def duration(seconds: float, sign: str = "about") -> str:
    """A time for people, in one of three units.

    >>> duration(0.2), duration(95), duration(700, "at most"), duration(9_000)
    ('less than 1 s', 'about 95 s', 'at most 12 min', 'about 2.5 h')
    """
    if seconds < 1:
        return "less than 1 s"
    if seconds < _MINUTES:
        return f"{sign} {seconds:,.0f} s"
    return f"{sign} {seconds / 60:,.0f} min" if seconds < _HOURS else f"{sign} {seconds / 3600:,.1f} h"


@dataclass(frozen=True)
class Forecast:
    """Forecast of a run that is prepared."""

    prepared: Prepared
    resolved: ResolvedRun
    grader: Grader
    _forecasts: dict[TaskSplit, PassForecast] = field(default_factory=dict, init=False)

    def lines(self) -> list[str]:
        """The plan in words."""
        steps = self.prepared.steps
        reads = [step for step in steps if isinstance(step, Read)]
        reader, lines = self.grader.reader, []
        for step in reads:
            split_data = self.prepared.data_by_split[step.where]
            signals = ", ".join(sorted(map(repr, step.signals))) or "answers only"
            questions, written, total = len(split_data.questions), len(split_data.rows), len(split_data.shards)
            if any(
                len(shard.rows) == reader.sample for shard in split_data.shards
            ):  # one that was cut can't be looked up
                left = f"{self._reads(step, 1.0)} unless it is stored (from {written:,} of its prompts)"
            elif not (missing := reader.find(split_data, step.signals)):
                left = "all stored"
            elif written < questions:
                share, time = missing / total, self._reads(step, missing / total)
                left = f"about {share:.0%} of its shards to compute, {time} (from {written:,} of its prompts)"
            else:
                left = f"{missing} of {total} shards to compute, {self._reads(step, missing / total)}"
            lines.append(f"read {step.where}: {questions:,} questions; {signals}; {left}")
        for where in (step.where for step in reads):
            split_data, judge = self.prepared.data_by_split[where], self.grader.judge
            if (
                split_data.task.format is Format.OPEN
                and not split_data.graded_elsewhere
                and judge.comparing() is not None
            ):
                calls = f"{len(split_data.questions):,} answers of {where}, and samples that differ from them"
                lines.append(f"ask the judge {judge.name} about up to {calls}: how long that takes is not known here")
        fits = [step for step in steps if isinstance(step, Fit)]
        for where in dict.fromkeys(step.where for step in fits):
            told = []
            for fit in (fit for fit in fits if fit.where == where):
                seconds, n = self.seconds(fit), self._tried(fit)
                sign = "about" if self.resolved.protocol.kept_step is KeptStep.LAST else "at most"
                takes = f"not known: {seconds}" if isinstance(seconds, str) else duration(seconds, sign)
                told.append(f"{fit.method} ({f'{n} configurations, ' * (n > 1)}{takes})")
            lines.append(f"fit on {where}, what is not stored: {', '.join(told)}")
        adapted = [step for step in steps if isinstance(step, Adapt)]
        for where in dict.fromkeys(step.where for step in adapted):  # those of one split take the same time each
            alike = [step for step in adapted if step.where == where]
            names, seconds = ", ".join(step.method for step in alike), self.seconds(alike[0])
            left = f"a time that can't be said, {seconds}" if isinstance(seconds, str) else duration(seconds)
            lines.append(f"read the query of {where} again through the adapters of {names}: {left} each, if not stored")
        if self.resolved.tune is not None:
            spaces: dict[str, list[str]] = {}
            for name, configurations in self.resolved.configurations.items():
                space = "; ".join(f"{constant}: {words}" for constant, words in configurations.searched.items())
                spaces.setdefault(space, []).append(name)
            lines += [
                f"tune {', '.join(methods)}: {self.resolved.tune} configurations each, the first its preset's own;"
                f" validation chooses ({space})"
                for space, methods in spaces.items()
            ]
            fixed = [name for name in self.resolved.methods if name not in self.resolved.configurations]
            reasons = [f"{name} ({nothing_to_tune(self.resolved, name)})" for name in fixed]
            lines += [f"nothing to tune: {', '.join(reasons)}"] * bool(fixed)
        count = Counter(type(step).__name__ for step in steps)
        n_fits = sum(map(self._tried, fits))
        give_back()  # memory of what stood in for model and signals
        again = f", {count['Adapt']} of them after reading the query again through an adapter" * bool(count["Adapt"])
        return [*lines, f"then {n_fits} fits and {count['Predict']} predictions{again}"]

    def seconds(self, step: Read | Fit | Adapt) -> float | str:
        """Seconds of a step from nothing, those of a fit at most, those of reading by one process; or why not."""
        reader, split_data = self.grader.reader, self.prepared.data_by_split[step.where]
        if not isinstance(step, Fit):
            signals = step.signals if isinstance(step, Read) else frozenset({QueryLogits(Adapter.OWN)})
            seconds = reader.estimate(split_data, signals, adapted=isinstance(step, Adapt))
            return str(reader.lm.speed) if seconds is None else seconds
        method = self.resolved.methods[step.method]
        rows = len(split_data.questions) - len(split_data.left_out)
        chosen, lm = self._selection(step), reader.lm
        validation = 0 if chosen is None else len(self.prepared.data_by_split[chosen].questions)
        alike = {
            "method": step.method,
            "params": {name: repr(value) for name, value in method.params().items()},
            "protocol": self.resolved.protocol.digest(),
            "device": kind_of(lm.device),
            "model": label_of(lm.spec),
            "selects": chosen is not None,
        }
        once: float | str | None = fit_times.recorded(self._stored_fits, alike, rows + validation)
        if once is None:
            tokens = self._passes(split_data).answer_tokens, self._passes(split_data).option_tokens
            text = lm.config.get_text_config()
            widths = Widths(int(text.hidden_size), int(text.vocab_size), lm.device, lm.dtype)
            found = fit_times.measured(method, split_data.task.format, tokens, widths, self.resolved.protocol)
            if isinstance(found, AdapterTraining):
                once = self._trained(found, split_data, rows, validation)
            else:
                once = found if isinstance(found, str) else found.seconds(rows + validation)
        return once if isinstance(once, str) else once * self._tried(step)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _reads(self, step: Read, share: float) -> str:
        split_data, seconds = self.prepared.data_by_split[step.where], self.seconds(step)
        if isinstance(seconds, str):
            return f"in a time that can't be said before it is read: {seconds}"
        said = "" if self.grader.reader.engine is None else " by one worker alone"
        if split_data.task.format is Format.OPEN and not split_data.released:
            said += f" if answers take about {self._passes(split_data).answer_tokens:.0f} tokens"
        return f"{duration(seconds * share)}{said}"

    def _passes(self, split_data: SplitData) -> PassForecast:
        """Forecast of reading a split."""
        where, reads = split_data.where, (step for step in self.prepared.steps if isinstance(step, Read))
        if where not in self._forecasts:
            signals = next((step.signals for step in reads if step.where == where), frozenset[Signal]())
            self._forecasts[where] = self.grader.reader.forecast(split_data, signals)
        return self._forecasts[where]

    # --- fits ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _stored_fits(self) -> list[Mapping[str, Any]]:
        return list(self.grader.reader.store.manifests(FITS))

    def _tried(self, step: Fit) -> int:
        """Fits of a step: one, or one for each configuration of which validation chooses."""
        configurations = self.resolved.configurations.get(step.method)
        return 1 if configurations is None or self._selection(step) is None else len(configurations)

    def _selection(self, step: Fit) -> TaskSplit | None:
        method = self.resolved.methods[step.method]
        targets = (target for target in self.resolved.learn_on.values() if target.where(method) == step.where)
        return next((target.selection(method, self.prepared.selecting) for target in targets), None)

    def _trained(self, training: AdapterTraining, split_data: SplitData, rows: int, validation: int) -> float | str:
        """Seconds of training an adapter: each step reads a batch's distinct tokens, forwards and backwards."""
        lm = self.grader.reader.lm
        if isinstance(lm.speed, str):
            return lm.speed
        speed, expected = lm.speed, self._passes(split_data)
        budget = self.resolved.training_budget or training_budget(lm.device)
        own = (len(expected.asking.suffix) + expected.answer_tokens) * (1 + training.frozen)
        prompts = [ids for shard in split_data.shards for ids in shard.prompts[:: max(1, len(shard.prompts) // 64)]]
        size, rng = min(training.batch_size, rows), np.random.default_rng(0)
        trees = [PrefixTree() for _ in range(_BATCHES)]
        for tree in trees:
            for i in rng.choice(len(prompts), min(size, len(prompts)), replace=False):
                tree.add(prompts[i])
        tokens = float(np.mean([tree.nodes for tree in trees])) + own * min(size, len(prompts))
        passes = math.ceil(tokens / budget)
        pairs = tokens * tokens / passes
        step = (
            speed.seconds(_LAUNCHED * passes, _BACKWARD * tokens, _BACKWARD * pairs) + _BACKWARD * size * speed.greedy
        )
        once = speed.seconds(passes, tokens, pairs) / size  # an example that is read without training
        looked_at = training.points * (validation + min(validation, rows)) if validation else 0
        frozen = min(rows, training.steps * size) if training.frozen else 0
        return _START + training.steps * step + (looked_at + frozen) * once
