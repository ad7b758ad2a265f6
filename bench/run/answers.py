"""Consequences of a file of answers for a run: methods that it leaves nothing to learn from, or no samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.api import Format, UserError
from bench.data.answer_files import AnswerFile, UnansweredError
from bench.data.loading import Loaded
from bench.data.splits import TaskSplit
from bench.run.resolve import ResolvedRun
from bench.signals.definition import growth_of, stored

Reasons = Mapping[tuple[str, TaskSplit], str]
"""Method and test -> why the method can't run there."""


def untaught(resolved: ResolvedRun, where: TaskSplit, error: UserError, infeasible: Reasons) -> Reasons:
    """Methods that learn on a split to whose questions a file has no answers, by test.

    Args:
        resolved: the run.
        where: the split.
        error: why it can't be had.
        infeasible: what can't run anyway.
    """
    if not isinstance(error, UnansweredError) or where in resolved.test_splits:
        return {}
    return {
        (name, test): f"it learns, and the answers' file lacks those to questions of {where}; add them"
        for name, method in resolved.methods.items()
        for test in resolved.test_splits
        if (name, test) not in infeasible and method.trains() and resolved.learn_on[test.task].where(method) == where
    }


def without_samples(resolved: ResolvedRun, loaded: Mapping[TaskSplit, Loaded], infeasible: Reasons) -> Reasons:
    """Methods that read more samples than a file has, by test."""
    release = resolved.release
    if not isinstance(release, AnswerFile):
        return {}
    reasons = {}
    for name, test in ((name, test) for name in resolved.methods for test in resolved.test_splits):
        method, train_on = resolved.methods[name], resolved.learn_on[test.task]
        reads = [(test, method.reads().predict)]
        if method.trains():
            reads.append((train_on.where(method), method.reads().fit))
        for where, signals in reads:
            # as of an open task: those of a choice task are read off a state, which names no samples
            n = max((sampling.n for sampling in growth_of(stored(signals, Format.OPEN, 2)).samples), default=0)
            if not n or where not in loaded or (name, test) in infeasible:
                continue
            given = min(len(answer.samples or ()) for answer in loaded[where].released.values())
            if given < n:
                reasons[name, test] = (
                    f"it reads {n} samples, and {release.name} has {given or 'none'} of each question of {where};"
                    " add them, or ask for fewer with --set"
                )
    return reasons


def passed_over(resolved: ResolvedRun, loaded: Mapping[TaskSplit, Loaded]) -> Iterator[str]:
    """Notes for the user on answers to questions that a run does not ask.

    Raises:
        UserError: two tasks have a question of one id, so that nobody knows which of them an answer is to.
    """
    release = resolved.release
    if not isinstance(release, AnswerFile):
        return
    owners: dict[str, str] = {}
    for where, split in loaded.items():
        for question in split.whole:
            if owners.setdefault(question.id, where.task) != where.task:
                raise UserError(
                    f"--answers {release.name}: the id {question.id!r} is that of a question of"
                    f" {owners[question.id]} and of one of {where.task}; run one task at a time."
                )
    others = [key for key in release.answers if key not in owners]
    if others:
        yield f"{release.name}: {len(others):,} answers are to no question that this run reads, e.g. {others[0]!r}"
