"""Tune a method's constants: fit each configuration, and choose the fit with the smallest validation loss.

The loss is the negative log-likelihood of the validation labels, at each configuration's best training step, as in
early stopping (docs/methods.md §0.20). Among equal losses, the earlier configuration is chosen. Test answers are never
used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from bench.api.early_stopping import best_point
from bench.api.errors import DiskError, capture, reason_of
from bench.model.memory import is_out_of_memory
from bench.results.row import Configuration, Tuning
from bench.run.fitting import Fitted, Fitter, Tuned
from bench.run.inputs import Inputs
from bench.run.plan import uses_trained_adapter
from bench.run.resolve import ResolvedRun
from bench.signals.split_data import SplitData
from bench.training.trainer import DeferredTrainingError

_ACCIDENT = re.compile(r"ended by SIG(KILL|TERM)|\(SIGKILL\) received|with its machine|No space left|quota exceeded")
"""Pattern of the messages of a training or plugin whose process ended for no fault of its configuration."""


def fit_tuned(fitter: Fitter, name: str, learned: SplitData, validation: SplitData | None) -> Fitted:
    """Fit a method with its preset's constants; if it is tuned, fit each configuration and return the best fit.

    Args:
        fitter: fits the methods of the run.
        name: name of the method.
        learned: training split.
        validation: validation split for early stopping and for the choice among configurations.

    Raises:
        DeferredTrainingError: adapters are being trained elsewhere; call again once that is done.
        Exception: the fit with the preset's constants raised it, or disk or memory failed. If another configuration
            raises for another reason, it counts as failed.
    """
    configurations = fitter.resolved.configurations.get(name)
    if configurations is None or validation is None:
        return fitter.fit(name, learned, validation)
    fits: list[Fitted | BaseException] = []
    losses: list[float | None] = []
    firsts: dict[str, int] = {}  # values -> the first configuration that has them
    chosen, adapts = 0, uses_trained_adapter(fitter.resolved.methods[name])
    for k, values in enumerate(configurations.values):
        first = firsts.setdefault(repr(sorted(values.items())), k)
        fit = capture(fitter.fit, name, learned, validation, k) if first == k else fits[first]
        if first < k and isinstance(fit, Fitted):
            fit = replace(fit, seconds=0.0)  # a duplicate takes no time
        fits.append(fit)
        losses.append(fit.training.validation_nll if isinstance(fit, Fitted) else None)
        if isinstance(fit, BaseException) and not isinstance(fit, DeferredTrainingError):
            accident = isinstance(fit, DiskError) or is_out_of_memory(fit) or _ACCIDENT.search(str(fit))
            if k == 0 or accident:
                raise fit
        former, chosen = chosen, best_point(losses)
        loser = former if chosen == k else k
        fit = fits[loser]
        if k and isinstance(fit, Fitted) and fit.curve is not None and not adapts:
            # weights of each would fill the memory (2.1 GB for LitCab at 8B); its curve and losses are all that is read
            fit = fits[loser] = replace(fit, method=fitter.resolved.methods[name])
    deferred = next((fit for fit in fits if isinstance(fit, DeferredTrainingError)), None)
    if deferred is not None:
        raise deferred
    best, seconds = fits[chosen], [fit.seconds if isinstance(fit, Fitted) else 0.0 for fit in fits]
    assert isinstance(best, Fitted)  # noqa: S101  # a failed fit has no loss, and the first one did not fail
    if losses[chosen] is None:
        return replace(best, seconds=sum(seconds))
    account = Tuning(
        n=len(configurations),
        searched=configurations.searched,
        configurations=tuple(
            Configuration(
                {key: str(value) for key, value in values.items()}, loss, round(time, 4),
                reason_of(fit) if isinstance(fit, BaseException) else None,
            )
            for values, loss, time, fit in zip(configurations.values, losses, seconds, fits, strict=True)
        ),
        chosen=chosen,
    )  # fmt: skip
    usable = tuple(fit for fit in fits if isinstance(fit, Fitted) and fit.training.validation_nll is not None)
    labels = replace(best.labels, validation=max(best.labels.validation, int(validation.usable.sum())))
    return replace(best, labels=labels, seconds=sum(seconds), tuned=Tuned(account, usable))


def tuning_account(resolved: ResolvedRun, name: str, inputs: Inputs) -> Tuning | None:
    """Return how a cell's method was tuned, or why it was not tuned; None in a run without `--tune`.

    Args:
        resolved: the run.
        name: name of the method.
        inputs: splits and fitted method of the cell.
    """
    if resolved.tune is None:
        return None
    if inputs.fitted is not None and inputs.fitted.tuned is not None:
        return inputs.fitted.tuned.account
    reason = reason_untuned(resolved, name)
    if reason is None and inputs.learned is not None and inputs.selection is None:
        reason = "there are no validation answers, beside those that it learned from, to choose by"
    elif reason is None and inputs.fitted is None:
        reason = "it was not fitted"
    no_confidence = "it has no confidences in the validation answers to choose by"
    return Tuning(n=resolved.tune, reason=no_confidence if reason is None else reason)


def tuning_notes(tuned: Tuned) -> Iterator[str]:
    """Yield one note for readers if some configurations were duplicates or failed; else nothing."""
    configurations = tuned.account.configurations
    losses = {repr(c.values): c.validation_nll for c in configurations}
    failures = [c.failure for c in configurations if c.validation_nll is None]
    duplicates, usable = len(configurations) - len(losses), sum(loss is not None for loss in losses.values())
    why = [f"{duplicates} had been drawn before"] * bool(duplicates)
    if failures:
        reason = next(filter(None, failures), "no confidences in the validation answers")
        why.append(f"{len(losses) - usable} failed, the first with: {reason}")
    if why:
        yield f"of {len(configurations)} configurations its constants were chosen among {usable}: {'; '.join(why)}"


def reason_untuned(resolved: ResolvedRun, name: str) -> str | None:
    """Return why a method is not tuned; None if it has configurations to choose among."""
    method = resolved.methods[name]
    if name in resolved.configurations:
        return None
    if not method.trains():
        return "it learns nothing"
    searched = type(method).search.keys()
    if not searched:
        return "it declares no search space"
    if searched <= resolved.deviations.get(name, {}).keys():
        return "all that it searches was set by hand"
    return "all that it searches is 0, or was set by hand, and 0 times a factor is 0"
