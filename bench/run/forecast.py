"""Format the plan of a run, with the estimated time of each step (reading a split, fitting a method) on this device."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from bench.api import Adapter, Format, QueryLogits, Signal
from bench.api.protocol import KeptStep
from bench.data.splits import TaskSplit
from bench.model.devices import device_class, device_kind, training_budget
from bench.model.forward_checks import ARCHITECTURE_ERRORS
from bench.model.memory import release_free_memory
from bench.model.prefix_tree import PrefixTree
from bench.model.specs import label_of
from bench.model.training_memory import reading_footprint
from bench.progress import format_duration
from bench.report.text import plural
from bench.run import fit_times
from bench.run.fit_times import AdapterTraining, Widths
from bench.run.plan import Adapt, Fit, Predict, Read, Step
from bench.run.preparation import PreparedRun
from bench.run.resolve import ResolvedRun
from bench.run.tuning import reason_untuned
from bench.signals.forecast import PassForecast
from bench.signals.grading import MEASURED, Grader
from bench.signals.split_data import SplitData
from bench.store.disk_cache import key_of
from bench.store.usage import ESTIMATES, FITS, format_size

_LONG = 3600.0
"""Seconds from which on the plan says how a step is left out or shortened."""
_BACKWARD = 3.0
"""Time of a forward and backward pass, as a multiple of a forward pass; the frozen weights need no gradient."""
_LAUNCHED = 4.0
"""Time to launch the operations of a forward and backward pass, as a multiple of the same time for a forward pass."""
_START = 10.0
"""Approximate seconds in which the process that trains an adapter loads libraries and model."""
_PROCESS = 1e9
"""Approximate bytes of memory of a process beyond weights and one pass: libraries and prompts, and no fits."""
_BATCHES = 3
"""Number of training batches that are sampled to estimate the tokens of a training step."""


@dataclass(frozen=True)
class Forecast:
    """Plan and time estimates of a prepared run."""

    prepared: PreparedRun
    resolved: ResolvedRun
    grader: Grader
    _forecasts: dict[TaskSplit, PassForecast] = field(default_factory=dict, init=False)

    def lines(self) -> list[str]:
        """Return the lines that describe the plan for the user."""
        steps = self.prepared.steps
        judge, lines, asked = self.grader.judge, [], []
        for step in (step for step in steps if isinstance(step, Read)):
            split_data = self.prepared.data_by_split[step.where]
            questions, prompted, total = len(split_data.questions), len(split_data.rows), len(split_data.shards)
            missing, time = self._missing[step], self._reading_time(step)
            if missing is None:
                remaining = f"{time} unless it is stored (from {prompted:,} of its prompts)"
            elif not missing:
                remaining = "all stored"
            elif prompted < questions:
                share = missing / total
                remaining = f"about {share:.0%} of its shards to compute, {time} (from {prompted:,} of its prompts)"
            else:
                remaining = f"{missing} of {total} shards to compute, {time}"
            lines.append(f"read {step.where}: {plural(questions, 'question')}; {remaining}")
            if (
                split_data.task.format is Format.OPEN
                and not split_data.has_external_labels
                and judge.pairwise_judge() is not None
            ):
                calls = f"{plural(questions, 'answer')} of {step.where}, and samples that differ from them"
                calls += f", and before that about the options of {MEASURED} questions" * (step.where.split == "test")
                asked.append(f"ask the judge {judge.name} about up to {calls}: how long that takes is not known here")
        lines += asked
        fits = [step for step in steps if isinstance(step, Fit)]
        for where in dict.fromkeys(step.where for step in fits):
            estimates = []
            for fit in (fit for fit in fits if fit.where == where):
                seconds, n = self.times[fit], self._n_configurations(fit)
                time = f"not known: {seconds}" if isinstance(seconds, str) else format_duration(seconds, self._sign)
                estimates.append(f"{fit.method} ({f'{n} configurations, ' * (n > 1)}{time})")
            lines.append(f"fit on {where}, what is not stored: {', '.join(estimates)}")
        adapted = [step for step in steps if isinstance(step, Adapt)]
        for where in dict.fromkeys(step.where for step in adapted):  # each adapter of a split takes the same time
            same_split = [step for step in adapted if step.where == where]
            names, seconds = ", ".join(step.method for step in same_split), self.times[same_split[0]]
            left = f"a time that can't be said, {seconds}" if isinstance(seconds, str) else format_duration(seconds)
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
            reasons = [f"{name} ({reason_untuned(self.resolved, name)})" for name in fixed]
            lines += [f"nothing to tune: {', '.join(reasons)}"] * bool(fixed)
        count = Counter(type(step).__name__ for step in steps)
        n_fits = sum(map(self._n_configurations, fits))
        release_free_memory()  # memory of the synthetic model and signals
        again = f", {count['Adapt']} of them after reading the query again through an adapter" * bool(count["Adapt"])
        sizes = [f"{n} {noun}{'s' * (n != 1)}" for n, noun in ((n_fits, "fit"), (count["Predict"], "prediction"))]
        return [*lines, f"then {' and '.join(sizes)}{again}", *self._total(judged=bool(asked))]

    def _total(self, *, judged: bool) -> list[str]:
        """Return a line with the seconds and the memory of the whole run, and lines on what takes over an hour.

        Args:
            judged: whether a judge is asked, for a time that is not known.
        """
        reader, names = self.grader.reader, {Read: "reading", Fit: "fits", Adapt: "reading through adapters"}
        known, parts = 0.0, []
        unknown = judged or str in map(type, self.times.values())
        for kind, name in names.items():
            times = [time for step, time in self.times.items() if type(step) is kind and not isinstance(time, str)]
            known += sum(times)
            parts += [f"{name} {format_duration(sum(times), self._sign if kind is Fit else 'about')}"] * bool(times)
        fitted = any(isinstance(step, Fit) for step in self.times)
        total = f"in all {'what is not known' if unknown else ''}{', and ' * bool(unknown and parts)}"
        if parts:
            sign = self._sign if fitted else "about"
            total += f"{format_duration(known, sign)}: {', '.join(parts)}{', less what is stored' * fitted}"
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        total += f"; all that while the machine is as busy as now (load {load:.1f}, {cores} cores)" * (load > cores)
        with suppress(*ARCHITECTURE_ERRORS, ImportError):  # AttributeError: a server's model has no configuration here
            footprint = reading_footprint(reader.lm.config, reader.lm.dtype, reader.budget)
            total += f"; at least {format_size(footprint.total + _PROCESS)} of memory"
        long = {step: time for step, time in self.times.items() if not isinstance(time, str) and time > _LONG}
        fits = [
            f"{step.method} on {step.where} ({format_duration(seconds, self._sign)})"
            for step, seconds in long.items()
            if isinstance(step, Fit)
        ]
        advice = [f"over an hour: {', '.join(fits)}; --max-time 1h leaves out such methods"] * bool(fits)
        tests = self.resolved.test_splits
        for step in (step for step in long if isinstance(step, Read)):
            option = "--limit" if step.where in tests else "--train-limit"
            advice.append(f"over an hour: reading {step.where}; {option} N reads N of its questions")
        return [total, *advice]

    @property
    def _sign(self) -> str:
        """Word before the seconds of a fit, which early stopping may shorten."""
        return "about" if self.resolved.protocol.kept_step is KeptStep.LAST else "at most"

    @cached_property
    def _missing(self) -> dict[Read, int | None]:
        """Split to read -> number of its shards that the store lacks; None if a sample stands for a large split."""
        reader, missing = self.grader.reader, {}
        for step in (step for step in self.prepared.steps if isinstance(step, Read)):
            split_data = self.prepared.data_by_split[step.where]
            sampled = any(len(shard.rows) == reader.sample for shard in split_data.shards)  # it has no key in the store
            missing[step] = None if sampled else reader.find(split_data, step.signals)
        return missing

    @cached_property
    def times(self) -> dict[Step, float | str]:
        """Step -> its seconds, less those of stored shards; or a text that says why they are unknown."""
        times: dict[Step, float | str] = {}
        for step in self.prepared.steps:
            if isinstance(step, Predict):
                continue
            missing = self._missing[step] if isinstance(step, Read) else None
            seconds = 0.0 if missing == 0 else self.seconds(step)
            share = 1.0 if missing is None else missing / len(self.prepared.data_by_split[step.where].shards)
            times[step] = seconds if isinstance(seconds, str) else seconds * share
        return times

    def too_long(self, limit: float, text: str, *, dry_run: bool) -> dict[tuple[str, TaskSplit], str]:
        """Return (name of a method, test split) -> reason, where fit and adapted reading take longer than the limit.

        A decision is made once: the seconds are stored, so that a run that goes on leaves out the same methods. A run
        of other numbers of questions decides anew.

        Args:
            limit: largest number of seconds.
            text: the limit as the user gave it.
            dry_run: whether nothing may be stored.
        """
        reasons, lm, store = {}, self.grader.reader.lm, self.grader.reader.store
        for (name, method), test in product(self.resolved.methods.items(), self.resolved.test_splits):
            if (name, test) in self.prepared.infeasible or not method.trains():
                continue
            fit = Fit(name, self.resolved.learn_on[test.task].split_of(method))
            splits = filter(None, (fit.where, self._selection(fit), test))
            seconds = sum(
                time
                for step, time in self.times.items()
                if (step == fit or (isinstance(step, Adapt) and (step.method, step.where) == (name, test)))
                and not isinstance(time, str)
            )
            fields = {
                "method": name, "params": {key: repr(value) for key, value in method.params().items()},
                "protocol": self.resolved.protocol.digest(), "model": lm.label, "dtype": lm.dtype_name,
                "device": device_class(*lm.devices), "test": str(test), "learned": str(fit.where), "limit": limit,
                "rows": [len(self.prepared.data_by_split[where].questions) for where in splits],
                "fits": self._n_configurations(fit), **self.resolved.training_of(name),
            }  # fmt: skip
            entry = store.get(ESTIMATES, key_of(fields))
            if entry is None and not dry_run:
                entry = store.put(ESTIMATES, key_of(fields), fields, lambda _: None, seconds=seconds)
            seconds = seconds if entry is None else float(entry.manifest["seconds"])
            if seconds > limit:
                takes = format_duration(seconds, self._sign)
                reasons[name, test] = f"its fit takes {takes} by the plan, more than --max-time {text}"
        return reasons

    def seconds(self, step: Read | Fit | Adapt) -> float | str:
        """Return the seconds of a step if nothing is stored; if the time is unknown, a text that says why.

        The time of reading a split is that of one process. The time of a fit is that of the most similar stored fit if
        there is one. Otherwise it is an upper bound, as early stopping may end the training earlier.
        """
        reader, split_data = self.grader.reader, self.prepared.data_by_split[step.where]
        if not isinstance(step, Fit):
            signals = step.signals if isinstance(step, Read) else frozenset({QueryLogits(Adapter.OWN)})
            seconds = reader.estimate(split_data, signals, adapted=isinstance(step, Adapt))
            return str(reader.lm.speed) if seconds is None else seconds
        method = self.resolved.methods[step.method]
        rows = len(split_data.questions) - len(split_data.left_out)
        chosen, lm = self._selection(step), reader.lm
        validation = 0 if chosen is None else len(self.prepared.data_by_split[chosen].questions)
        required = {
            "method": step.method,
            "params": {name: repr(value) for name, value in method.params().items()},
            "protocol": self.resolved.protocol.digest(),
            "device": device_kind(lm.device),
            "model": label_of(lm.spec),
            "selects": chosen is not None,
        }
        once: float | str | None = fit_times.recorded_seconds(self._stored_fits, required, rows + validation)
        if once is None:
            tokens = self._forecast(split_data).answer_tokens, self._forecast(split_data).option_tokens
            widths = Widths(lm.facts.hidden_size, lm.facts.vocab_size, lm.device, lm.dtype)
            fit_time = fit_times.measure_fit(method, split_data.task.format, tokens, widths, self.resolved.protocol)
            if isinstance(fit_time, AdapterTraining):
                once = self._training_time(fit_time, split_data, rows, validation)
            else:
                once = fit_time if isinstance(fit_time, str) else fit_time.seconds(rows, validation)
        return once if isinstance(once, str) else once * self._n_configurations(step)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _reading_time(self, step: Read) -> str:
        split_data, seconds = self.prepared.data_by_split[step.where], self.times[step]
        if isinstance(seconds, str):
            return f"in a time that can't be said before it is read: {seconds}"
        condition = "" if self.grader.reader.engine is None else " by one worker alone"
        if split_data.task.format is Format.OPEN and not split_data.released:
            condition += f" if answers take about {self._forecast(split_data).answer_tokens:.0f} tokens"
        return f"{format_duration(seconds)}{condition}"

    def _forecast(self, split_data: SplitData) -> PassForecast:
        """Return the expected forward passes for reading a split; computed once for each split."""
        where, reads = split_data.where, (step for step in self.prepared.steps if isinstance(step, Read))
        if where not in self._forecasts:
            signals = next((step.signals for step in reads if step.where == where), frozenset[Signal]())
            self._forecasts[where] = self.grader.reader.forecast(split_data, signals)
        return self._forecasts[where]

    # --- fits ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _stored_fits(self) -> list[Mapping[str, Any]]:
        return list(self.grader.reader.store.manifests(FITS))

    def _n_configurations(self, step: Fit) -> int:
        """Return the number of fits in a step: one for each configuration if validation chooses among them, else 1."""
        configurations = self.resolved.configurations.get(step.method)
        return 1 if configurations is None or self._selection(step) is None else len(configurations)

    def _selection(self, step: Fit) -> TaskSplit | None:
        method = self.resolved.methods[step.method]
        targets = (target for target in self.resolved.learn_on.values() if target.split_of(method) == step.where)
        return next((target.selection(method, self.prepared.selecting) for target in targets), None)

    def _training_time(
        self, training: AdapterTraining, split_data: SplitData, rows: int, validation: int
    ) -> float | str:
        """Return the seconds of training an adapter; if the time is unknown, a text that says why.

        A training step feeds the distinct token prefixes of a batch, in forward and backward passes.
        """
        lm = self.grader.reader.lm
        if isinstance(lm.speed, str):
            return lm.speed
        speed, expected = lm.speed, self._forecast(split_data)
        budget = self.resolved.training_budget or training_budget(lm.device)
        answer_tokens = (len(expected.prompt_settings.suffix) + expected.answer_tokens) * (1 + training.frozen)
        prompts = [ids for shard in split_data.shards for ids in shard.prompts[:: max(1, len(shard.prompts) // 64)]]
        size, rng = min(training.batch_size, rows), np.random.default_rng(0)
        trees = [PrefixTree() for _ in range(_BATCHES)]
        for tree in trees:
            for i in rng.choice(len(prompts), min(size, len(prompts)), replace=False):
                tree.add(prompts[i])
        tokens = float(np.mean([tree.nodes for tree in trees])) + answer_tokens * min(size, len(prompts))
        passes = math.ceil(tokens / budget)
        pairs = tokens * tokens / passes
        step = (
            speed.seconds(_LAUNCHED * passes, _BACKWARD * tokens, _BACKWARD * pairs) + _BACKWARD * size * speed.greedy
        )
        once = speed.seconds(passes, tokens, pairs) / size  # seconds of a forward pass, for each example
        evaluated = training.points * (validation + min(validation, rows)) if validation else 0
        frozen = min(rows, training.steps * size) if training.frozen else 0
        return _START + training.steps * step + (evaluated + frozen) * once
