"""Contract checks for methods, on synthetic signals with known labels: each small function checks one rule."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.api import Batch, ConfidenceMethod, ContractError, Format, Needs, RunFacts, Signal, UserError
from bench.api.confidence import as_float64
from bench.api.configurations import configuration_values, refuse_search, search_fields
from bench.api.hyperparameters import sources
from bench.api.methods import outputs_of, refuse_gold, refuse_output
from bench.signals.synthetic import MODEL
from bench.testing import observing
from bench.testing.adapters import context
from bench.testing.check import Check, MakeMethod, check_docstring

TOLERANCE = 1e-5
"""Largest allowed difference of a confidence between batches; float32 sums depend on the shape of the batch."""
_CONFIGURATIONS = 33
"""Number of configurations of a method's search space (`--tune`) that are tried; the first is the preset itself."""
_ORIENTATION = 0.7
"""AUROC that a method must exceed on the synthetic data; the best possible AUROC there is about 0.95."""


def _close(make: MakeMethod, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Return whether confidences `a` and `b` agree up to a tolerance.

    For unbounded scores, the tolerance is relative to the largest score in `b`.
    """
    size = float(np.abs(b).max(initial=0.0)) if make.plugin.output == "score" else 1.0
    return bool(np.allclose(a, b, rtol=0.0, atol=TOLERANCE * size))


def _predict(method: ConfidenceMethod, batch: Batch) -> npt.NDArray[np.float64]:
    """Return a method's predictions as float64, without a check of shape and range; `check_values` checks both."""
    return as_float64(f"{method.name}.predict", method.predict(batch.own()))


def _worst(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> str:
    return f"they differ by up to {np.abs(np.asarray(a) - np.asarray(b)).max():.2g}"


# --- declarations -----------------------------------------------------------------------------------------------------


def check_runs_somewhere(make: MakeMethod) -> None:
    """The method does not skip every format.

    The formats are multiple choice and open questions; `skip` returns a reason for those that a method can't run on.
    """
    facts = [RunFacts(MODEL, "planted", fmt, observing.TRAIN) for fmt in Format]
    reasons = [make().skip(run_facts) for run_facts in facts]
    assert None in reasons, f"it skips choice questions ({reasons[0]}) and open ones ({reasons[1]})"


def check_reference(make: MakeMethod) -> str | None:
    """`reference`, where there is one, has the form of an arXiv id or a DOI."""
    reference = make.plugin.reference
    if reference == ConfidenceMethod.reference:
        return "unpublished: it has no reference"
    pattern = r"arXiv:\d{4}\.\d{4,5}(v\d+)?|doi:10\.\d{4,9}/\S+"
    assert re.fullmatch(pattern, reference), f"expected arXiv:1234.56789, doi:10.1234/name or none, got {reference!r}"
    return None


def check_declarations(make: MakeMethod) -> None:
    """`needs` holds signals, `expected_failures` names checks, `output` is an allowed value."""
    refuse_output(make.plugin.name, make.plugin)
    for name, needs in (("needs", make.plugin.needs), ("reads()", make.reads)):
        assert isinstance(needs, Needs), f"{name}: expected Needs(...), got {needs!r}"
        wrong = [signal for signal in needs.fit | needs.predict if not isinstance(signal, Signal)]
        assert not wrong, f"{name} holds {wrong}; expected signals, e.g. Hidden()"
    known = {Check(body).__name__ for body in METHOD_CHECKS + METHOD_DATA_CHECKS}
    unknown = sorted(set(make.plugin.expected_failures) - known)
    assert not unknown, f"expected_failures names {unknown}; the checks are {sorted(known)}"


def check_no_gold_in_predict(make: MakeMethod) -> None:
    """`predict` reads no signal that reveals the right answer, under any preset; `fit` may.

    The signals that the method declares to read are checked.
    """
    made = [make.plugin(**arguments) for arguments in make.plugin.presets.values()] or [make()]
    for needs in (make.plugin.needs, *(method.reads() for method in made)):
        refuse_gold(make.plugin.name, needs, make.plugin.fit_on)


def check_init_only_stores(make: MakeMethod) -> None:
    """`__init__` stores its arguments under their names and does nothing else."""
    arguments = make.arguments()
    method = make.plugin(**arguments)
    changed = [name for name, value in arguments.items() if getattr(method, name, None) is not value]
    assert not changed, (
        f"expected the arguments {changed} to be stored as they are, under their own names, as"
        " @dataclass(kw_only=True, eq=False) does"
    )
    extra = sorted(set(vars(method)) - set(arguments))
    assert not extra, f"__init__ also sets {extra}; what is computed belongs into fit or predict"


def check_presets(make: MakeMethod) -> None:
    """Presets and `small` hold arguments of `__init__`; `not_reproduced` names presets.

    `small` are arguments of a fast fit for these checks. `not_reproduced` lists differences from the paper by preset.
    """
    strange = sorted(set(make.plugin.not_reproduced) - set(make.plugin.presets))
    assert not strange, f"not_reproduced names {strange}; the presets are {sorted(make.plugin.presets)}"
    known = set(inspect.signature(make.plugin).parameters)
    given_by = {f"preset {preset!r}": arguments for preset, arguments in make.plugin.presets.items()}
    for what, arguments in (given_by | {"small": make.plugin.small}).items():
        unknown = sorted(set(arguments) - known)
        assert not unknown, f"{what} gives {unknown}, which __init__ does not take"
    for arguments in make.plugin.presets.values():
        make.plugin(**arguments)


def check_search(make: MakeMethod) -> None:
    """Every configuration of `search` can be built in every preset and reads the same signals as the preset.

    `search` is the search space of `--tune`; the first 33 configurations are tried.
    """
    refuse_search(make.plugin.name, make.plugin)
    for preset, arguments in (make.plugin.presets or {"defaults": {}}).items():
        method = make.plugin(**arguments)
        fields = search_fields(method, {})
        for k in range(1, _CONFIGURATIONS):
            values = configuration_values(method, fields, 0, k)
            try:
                reads = make.plugin(**{**method.params(), **values}).reads()
            except Exception as error:
                raise AssertionError(
                    f"preset {preset!r} can't be made with {values}, which search allows: {type(error).__name__}:"
                    f" {error}; narrow the range"
                ) from error
            assert reads == method.reads(), (
                f"preset {preset!r} with {values} reads other signals than without; search constants of training alone"
            )


def check_constants_have_sources(make: MakeMethod) -> None:
    """Every dataclass field of a method, inherited ones included, names its source in the docstring below it."""
    source = re.compile(r"paper|§|section|table|appendix|arxiv|doi|official|readme|chosen", re.IGNORECASE)
    plugin = make.plugin
    arguments, sources_of = inspect.signature(plugin).parameters, sources(plugin)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(plugin) if dataclasses.is_dataclass(plugin) else ()
    for field in fields:
        line = sources_of.get(field.name, "")
        assert field.name not in arguments or source.search(line), (
            f"{plugin.__name__}.{field.name} has no source below it: expected a docstring that names the paper and its"
            f" section, or says CHOSEN and why, got {line!r}; what is no constant is annotated as ClassVar"
        )


# --- behaviour --------------------------------------------------------------------------------------------------------


def check_values(make: MakeMethod) -> None:
    """Confidences are numbers of shape (n,) within [0, 1], scores finite ones, for 1, 2 and 50 questions.

    A method with `output = "score"` returns scores, which may be any finite numbers.
    """
    for n in (1, 2, 50):
        outputs_of(observing.observed_fit(make).method, observing.held_out(make, n)[0])


def check_subset_invariance(make: MakeMethod) -> None:
    """An answer's confidence does not depend on the others in the batch, nor on earlier batches."""
    method, (batch, _) = observing.observed_fit(make).method, observing.held_out(make, 50)
    whole = _predict(method, batch)
    for rows in (np.arange(0, 50, 7), np.array([3]), np.array([49])):
        part = _predict(method, batch.take(rows))
        assert _close(make, part, whole[rows]), f"{len(rows)} of 50 questions alone: {_worst(part, whole[rows])}"
    again = _predict(method, batch)
    assert _close(make, again, whole), f"the same batch a second time: {_worst(again, whole)}"


def check_order_invariance(make: MakeMethod) -> None:
    """Reordering the questions reorders the confidences and changes nothing else."""
    method, (batch, _) = observing.observed_fit(make).method, observing.held_out(make, 50)
    order = np.random.default_rng(3).permutation(50)
    reordered, expected = _predict(method, batch.take(order)), _predict(method, batch)[order]
    assert _close(make, reordered, expected), _worst(reordered, expected)


def check_orientation(make: MakeMethod) -> None:
    """Higher means more confident: right answers rank above wrong ones on synthetic data."""
    batch, correct = observing.held_out(make, observing.HELD_OUT)
    # share of (right, wrong) pairs in which the right one has the higher value; ties count half
    confidence = _predict(observing.observed_fit(make).method, batch)
    correct_scores, wrong_scores = confidence[correct][:, None], confidence[~correct][None, :]
    area = float(((correct_scores > wrong_scores) + 0.5 * (correct_scores == wrong_scores)).mean())
    assert area > _ORIENTATION, f"expected an AUROC above {_ORIENTATION} on held-out questions, got {area:.3f}"


def check_reproducible(make: MakeMethod) -> None:
    """Two fits with one seed agree; randomness comes from `ctx.rng` or `ctx.seed` alone."""
    batch, _ = observing.held_out(make, 50)
    with observing.preserve_global_states():
        observing.seed_globally(11)
        second = _predict(make().fit(observing.train_batch(make), context(make)), batch)
    first = _predict(observing.observed_fit(make).method, batch)
    assert np.array_equal(first, second), f"two fits with the same ctx.seed: {_worst(first, second)}"


def check_global_randomness(make: MakeMethod) -> None:
    """The global random states of numpy, torch and `random` stay unchanged."""
    fitted, (batch, _) = observing.observed_fit(make), observing.held_out(make, 50)
    with observing.preserve_global_states():
        observing.seed_globally(13)
        before = observing.global_states()
        fitted.method.predict(batch)
        changed = sorted({*fitted.changed, *observing.changed_states(before)})
    assert not changed, f"the global state of {', '.join(changed)} was changed; use ctx.rng or a generator of your own"


def check_declared_reads(make: MakeMethod) -> None:
    """`fit` and `predict` read only the signals that `reads()` returns, which are `needs` by default.

    `needs` and `reads()` list signals separately for `fit` and for `predict`.
    """
    fitted, batch = observing.observed_fit(make), observing.RecordingBatch(observing.held_out(make, 50)[0]).own()
    with contextlib.suppress(ContractError):
        fitted.method.predict(batch)
    declared = "needs" if make.plugin.reads is ConfidenceMethod.reads else "reads()"
    for verb, undeclared in (("fit", fitted.train.undeclared), ("predict", batch.undeclared)):
        assert not undeclared, f"{verb} read {undeclared[0]!r}, which {declared} does not declare for it"


def check_no_labels_in_predict(make: MakeMethod) -> None:
    """`predict` does not read labels."""
    method, batch = observing.observed_fit(make).method, observing.RecordingBatch(observing.held_out(make, 50)[0]).own()
    with contextlib.suppress(ContractError):
        method.predict(batch)
    assert not batch.labels_read, "predict read batch.correct; labels exist only in fit"


def check_inputs_not_written(make: MakeMethod) -> None:
    """Arrays of a batch are not modified."""
    batch, _ = observing.held_out(make, 50)
    before = observing.contents(batch)
    fitted = observing.observed_fit(make)
    fitted.method.predict(batch)
    changed = [
        signal
        for old, new in ((fitted.before, observing.contents(fitted.train)), (before, observing.contents(batch)))
        for signal in old
        if old[signal] != new[signal]
    ]
    assert not changed, f"{changed[0]!r} was written to; copy it first"


def check_unfitted_raises(make: MakeMethod) -> None:
    """A trained method raises if it predicts before it was fitted."""
    if not make.plugin.trains():
        return
    try:
        make().predict(observing.held_out(make, 2)[0])
    except Exception:  # noqa: BLE001  (an AttributeError of `self.weights_` counts)
        return
    raise AssertionError("predict gave values without fit")


def check_parameters_unchanged(make: MakeMethod) -> None:
    """`fit` returns self; neither `fit` nor `predict` changes the arguments of `__init__`."""
    fitted = observing.observed_fit(make)
    assert fitted.returned is fitted.method, f"expected fit to return self, got {type(fitted.returned).__name__}"
    fitted.method.predict(observing.held_out(make, 50)[0])
    changed = [name for name, value in fitted.method.params().items() if value != fitted.arguments[name]]
    assert not changed, f"the arguments {changed} have changed; keep what is learned in names that end in _"


def check_save_load(make: MakeMethod) -> None:
    """A fitted method predicts exactly the same after save and load."""
    method, (batch, _) = observing.observed_fit(make).method, observing.held_out(make, 50)
    with tempfile.TemporaryDirectory() as folder:
        method.save(Path(folder))
        loaded = make().load(Path(folder))
    try:
        after = _predict(loaded, batch)
    except Exception as error:
        raise AssertionError(
            f"after load, predict raised {type(error).__name__}: {error}; keep what is learned in names that end in _"
        ) from error
    before = _predict(method, batch)
    assert np.array_equal(after, before), _worst(after, before)


def check_one_class(make: MakeMethod) -> None:
    """With `takes_one_class`: `fit` raises a UserError, or the confidences are constant or all on that label's side.

    `takes_one_class` declares that `fit` can learn from answers that are all right, or all wrong. Confidences are on
    the label's side if they are at least 0.5 after a fit to right answers, or below 0.5 after a fit to wrong ones.
    """
    if not make.plugin.takes_one_class:
        return  # the harness does not fit such a method on one class
    batch, _ = observing.held_out(make, 50)
    for label in (True, False):
        train = observing.train_batch(make, observing.ONE_CLASS, np.full(observing.ONE_CLASS, label))
        try:
            p = _predict(observing.fit(make, train, label=label), batch)
        except UserError:
            continue
        assert np.isfinite(p).all(), "the confidences are not finite"
        one_sided = np.ptp(p) < TOLERANCE or ((p >= 0.5) == label).all()
        assert one_sided, f"all labels {label}, yet the confidences lie between {p.min():.3g} and {p.max():.3g}"


METHOD_CHECKS: tuple[Callable[[Any], str | None], ...] = (
    check_docstring,
    check_reference,
    check_runs_somewhere,
    check_declarations,
    check_no_gold_in_predict,
    check_init_only_stores,
    check_presets,
    check_search,
    check_constants_have_sources,
)
METHOD_DATA_CHECKS: tuple[Callable[[Any], str | None], ...] = (
    check_values,
    check_subset_invariance,
    check_order_invariance,
    check_orientation,
    check_reproducible,
    check_global_randomness,
    check_declared_reads,
    check_no_labels_in_predict,
    check_inputs_not_written,
    check_unfitted_raises,
    check_parameters_unchanged,
    check_save_load,
    check_one_class,
)
