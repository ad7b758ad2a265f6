"""Choice of a method's constants: each configuration is fitted, and the one that validation likes best is kept.

The rule is that of steps (docs/methods.md §0.20): the smallest negative log-likelihood of the validation answers, each
configuration at the step that it kept itself; the earlier of equal ones. No answer of a test is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.api.early_stopping import best_point
from bench.api.errors import attempted, reason_of
from bench.results.row import Configuration, Tuning
from bench.run.fitting import Fitted, Fitter, Tuned
from bench.run.inputs import Inputs
from bench.run.resolve import ResolvedRun
from bench.signals.split_data import SplitData
from bench.training.trainer import PutOffError


def fit_tuned(fitter: Fitter, name: str, learned: SplitData, validation: SplitData | None) -> Fitted:
    """Fit a method, or load its fits of an earlier run: its own constants, or the best of its configurations.

    Args:
        fitter: of the run.
        name: of the method.
        learned: the split that it learns from.
        validation: the split by which it may choose a step, and by which a configuration is chosen.

    Raises:
        PutOffError: adapters are being trained elsewhere; to be called again when that is over.
        Exception: whatever the method raises with its own constants; with others it is a configuration that failed.
    """
    tried = fitter.resolved.configurations.get(name)
    if tried is None or validation is None:
        return fitter.fit(name, learned, validation)
    fits: list[Fitted | BaseException] = []
    before: dict[str, Fitted | BaseException] = {}
    for k, values in enumerate(tried.values):
        drawn = repr(sorted(values.items()))
        found = before.get(drawn)
        if found is None:
            found = before[drawn] = attempted(fitter.fit, name, learned, validation, k)
        elif isinstance(found, Fitted):
            found = replace(found, seconds=0.0)  # one that was drawn before takes no time
        fits.append(found)
        if k == 0 and isinstance(found, BaseException) and not isinstance(found, PutOffError):
            raise found
    put_off = next((fit for fit in fits if isinstance(fit, PutOffError)), None)
    if put_off is not None:
        raise put_off
    losses = [fit.training.validation_nll if isinstance(fit, Fitted) else None for fit in fits]
    chosen = best_point(losses)
    best, seconds = fits[chosen], [fit.seconds if isinstance(fit, Fitted) else 0.0 for fit in fits]
    assert isinstance(best, Fitted)  # noqa: S101  # a failed one has no loss, and the first one is none of these
    if losses[chosen] is None:
        return replace(best, seconds=sum(seconds))
    account = Tuning(
        n=len(tried),
        searched=tried.searched,
        configurations=tuple(
            Configuration(
                {key: str(value) for key, value in values.items()}, loss, round(taken, 4),
                reason_of(fit) if isinstance(fit, BaseException) else None,
            )
            for values, loss, taken, fit in zip(tried.values, losses, seconds, fits, strict=True)
        ),
        chosen=chosen,
    )  # fmt: skip
    known = tuple(fit for fit in fits if isinstance(fit, Fitted) and fit.training.validation_nll is not None)
    labels = replace(best.labels, validation=max(best.labels.validation, int(validation.usable.sum())))
    return replace(best, labels=labels, seconds=sum(seconds), tuned=Tuned(account, known))


def account_of(resolved: ResolvedRun, name: str, inputs: Inputs) -> Tuning | None:
    """Account of the choice of a cell's constants; None in a run that tunes nothing.

    Args:
        resolved: the run.
        name: of the method.
        inputs: what the cell rests on.
    """
    if resolved.tune is None:
        return None
    if inputs.fitted is not None and inputs.fitted.tuned is not None:
        return inputs.fitted.tuned.account
    reason = nothing_to_tune(resolved, name)
    if reason is None and inputs.learned is not None and inputs.selection is None:
        reason = "there are no validation answers, beside those that it learned from, to choose by"
    elif reason is None and inputs.fitted is None:
        reason = "it was not fitted"
    unsure = "it has no confidences in the validation answers to choose by"
    return Tuning(n=resolved.tune, reason=unsure if reason is None else reason)


def shortfall(tuned: Tuned) -> Iterator[str]:
    """Note for a reader of the numbers, where there were fewer configurations to choose among than were drawn."""
    tried = tuned.account.configurations
    losses = {repr(each.values): each.validation_nll for each in tried}
    lacking = [each.failure for each in tried if each.validation_nll is None]
    again, left = len(tried) - len(losses), sum(loss is not None for loss in losses.values())
    why = [f"{again} had been drawn before"] * bool(again)
    if lacking:
        reason = next(filter(None, lacking), "no confidences in the validation answers")
        why.append(f"{len(losses) - left} failed, the first with: {reason}")
    if why:
        yield f"of {len(tried)} configurations its constants were chosen among {left}: {'; '.join(why)}"


def nothing_to_tune(resolved: ResolvedRun, name: str) -> str | None:
    """Why a method has no configurations; None where it has."""
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
