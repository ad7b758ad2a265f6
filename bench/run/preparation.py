"""Prepare a run: open model, tasks and store; plan the steps; load the questions and build the prompts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from bench.api import Format, Split, Task, UserError
from bench.api.errors import AbsentError, plugin_errors
from bench.api.protocol import KeptStep
from bench.data.answer_files import AnswerFile, UnansweredError
from bench.data.contamination import contaminated_ids
from bench.data.loading import LoadedSplit, Loader
from bench.data.released import Release
from bench.data.sources import FolderSource, HubSource, open_source
from bench.data.splits import TaskSplit
from bench.engine import engines
from bench.engine.trainings import Trainings
from bench.grading.judges import open_judge
from bench.model.language_model import LanguageModel, LoadOptions
from bench.progress import Progress
from bench.report.text import plural
from bench.results import files
from bench.run.config import RunConfig
from bench.run.feasibility import has_validation, reason_infeasible
from bench.run.plan import Read, RunPlan, Step
from bench.run.resolve import ResolvedRun, judge_options
from bench.servers.readings import Ability
from bench.signals.definition import continuations_of, required_stored_signals
from bench.signals.grading import Grader, PairModels
from bench.signals.reader import Reader
from bench.signals.served_answers import ServedAnswers
from bench.signals.split_data import SplitData, exemplar_notes
from bench.store.disk_cache import Store

Reasons = Mapping[tuple[str, TaskSplit], str]
"""(name of a method, test split) -> why the method can't run there."""
_SAMPLE = 2_500
"""Number of prompts of a large split that a dry run builds; costs of the whole split are estimated from them."""


@dataclass(frozen=True, eq=False)
class Resources:
    """Data source, tasks, model, store and judge of a run."""

    source: FolderSource | HubSource
    """Source from which the tasks load their rows: a folder or the Hub."""
    tasks: Mapping[str, Task]
    """Name -> task, for all tests and training tasks of the run."""
    reader: Reader
    """Reads splits; holds the model and the store."""
    grader: Grader
    """Grades answers; holds the judge."""
    trainings: Trainings | None = None
    """Trains adapters on other machines; None if adapters are trained on this machine."""


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """Plan and prompts of a run, before any computation."""

    steps: list[Step]
    selecting: frozenset[TaskSplit]
    """Validation splits for early stopping."""
    data_by_split: dict[TaskSplit, SplitData]
    """Split -> its questions with prompts, for every split that the run reads."""
    origins: Mapping[TaskSplit, Mapping[str, str]]
    """Split -> source of its questions or released answers -> description of that source, e.g. its revision."""
    notes: tuple[str, ...]
    """Notes for the user, e.g. on the effects of a missing validation split."""
    infeasible: Reasons
    """(name of a method, test split) -> why the method can't run there; e.g. a file of answers lacks those of the
    training split."""


@dataclass(frozen=True, eq=False)
class _LoadedPlan:
    """Steps of a run, and the loaded questions of the splits that they read."""

    steps: list[Step]
    loaded: Mapping[TaskSplit, LoadedSplit]
    selecting: frozenset[TaskSplit]
    infeasible: Reasons
    notes: tuple[str, ...] = ()


@dataclass
class ModelHandle:
    """Holds a loaded model for further runs that differ only in their seed, so that it is loaded once."""

    lm: LanguageModel | None = None
    seeds: tuple[int, ...] = ()
    """Seeds of all these runs."""


def open_resources(
    config: RunConfig, resolved: ResolvedRun, progress: Progress, opened: ModelHandle | None = None
) -> Resources:
    """Open the model without its weights, build the tasks, and open store and judge.

    Unless this is a dry run, check that the folders of results and of the store can be written.

    Raises:
        UserError: model, task, judge or folder is invalid.
    """
    from bench.model.devices import default_budget
    from bench.model.server_model import ServerModel, open_model
    from bench.model.specs import is_url, resolve
    from bench.run.scorers.reference_questions import DEPTHS

    if resolved.model.is_server:
        _refuse_with_server(config)
    request = engines.EngineOptions(config.engine, config.workers, config.address, split=bool(config.devices))
    if not config.dry_run:
        for folder in filter(None, (config.out, config.save_heads)):
            files.ensure_writable(folder)
    source = open_source(config.data_dir)
    tasks: dict[str, Task] = {}
    for name, task in resolved.tasks.items():
        with plugin_errors(f"task {name!r}"):
            tasks[name] = task(source, resolved.protocol)
    options = LoadOptions(
        config.device, config.dtype, config.trust_remote_code, config.devices,
        tokenizer=config.tokenizer, cache=str(resolved.cache),
    )  # fmt: skip
    opened, by_server = opened or ModelHandle(), is_url(config.answers)
    if opened.lm is None:
        of_server = (config.served, config.parallel)
        opened.lm = open_model(resolved.model, options, *of_server if resolved.model.is_server or not by_server else ())
    lm = opened.lm
    if config.save_heads and (reason := lm.missing(Ability.STATES, DEPTHS)):
        raise UserError(
            "--save-heads: expected a model whose hidden states a head can keep, of the middle and the last layer;"
            f" {reason}. Leave it out."
        )
    server = None
    if by_server:
        server = ServerModel(resolve(config.answers), LoadOptions(config.device), config.served, config.parallel)
    if config.think_budget is not None and (reason := (server or lm).missing(Ability.TRACES)):
        raise UserError(
            f"--think-budget: expected a model whose answers are read behind their traces; {reason}, as it takes no"
            " token ids. Serve the model with llama.cpp or vLLM, or leave the option out."
        )
    if config.think_budget is not None and lm.chat.thinking is None:
        lm.chat.think(config.think_budget, lm.context)
    choice = [name for name in resolved.tests if tasks[name].format is Format.CHOICE]
    if choice and (reason := lm.chat.no_letters_reason):
        raise UserError(f"{', '.join(choice)}: expected a model that answers with a letter; {reason}, or open tasks.")
    store = Store(resolved.cache, keep_damaged=config.dry_run)
    judge = open_judge(judge_options(config), resolved.cache)
    if not config.dry_run:
        store.prepare()
    lm.check_identity(store, dry_run=config.dry_run)
    sample = _SAMPLE if config.dry_run else None
    budget = config.token_budget or default_budget(*lm.devices)
    relating = open_pair_models(config, lm.device)
    engine = engines.build_engines(request, lm, store)
    release = resolved.release
    traces = isinstance(release, AnswerFile) and any(answer.trace for answer in release.answers.values())
    reader = Reader(lm, store, resolved.protocol, budget, progress, config.seed, sample, engine.readers, traces)
    if server is not None:
        server.check_identity(store, dry_run=config.dry_run)
        progress.say(f"{server.label} writes the answers, in a time that the plan doesn't know")
        reader.served_answers, reader.reasons = ServedAnswers(server), False
    return Resources(source, tasks, reader, Grader(reader, judge, relating), engine.trainings)


def _refuse_with_server(config: RunConfig) -> None:
    """Refuse options that say how a model is loaded or run here.

    Raises:
        UserError: one of them is used.
    """
    defaults = RunConfig((), "")
    names = ("devices", "dtype", "tokenizer", "token_budget", "engine", "workers", "address", "trust_remote_code")
    used = [name for name in names if getattr(config, name) != getattr(defaults, name)]
    if used:
        raise UserError(
            f"--{used[0].replace('_', '-')}: expected a model that is loaded here, got a server's as --model, which"
            " loads it itself; leave the option out."
        )


def find_infeasible(resolved: ResolvedRun, resources: Resources) -> dict[tuple[str, TaskSplit], str]:
    """Return (name of a method, test split) -> why the method can't run there; pairs that can run are omitted."""
    tasks, reader = resources.tasks, resources.reader
    reasons = {
        (name, test): reason_infeasible(method, test, tasks, resolved.learn_on[test.task], reader.prompts, reader.lm)
        for name, method in resolved.methods.items()
        for test in resolved.test_splits
    }
    return {pair: reason for pair, reason in reasons.items() if reason is not None}


def open_pair_models(config: RunConfig, device: str) -> PairModels:
    """Open the models that compare samples with each other (`--nli`, `--similarity`), without loading their weights.

    Raises:
        UserError: a model is missing, or was trained for another purpose.
    """
    if not config.nli and not config.similarity:
        return PairModels()
    from bench.model.text_pairs import PairModel

    options = (("--nli", config.nli), ("--similarity", config.similarity))
    models = [PairModel(option, name, device, config.trust_remote_code) if name else None for option, name in options]
    for pair_model in models:
        if pair_model is not None:
            pair_model.check()
    return PairModels(*models)


def prepare(resolved: ResolvedRun, resources: Resources, infeasible: Reasons, limit: int | None) -> PreparedRun:
    """Plan the steps of a run, load the questions of all splits, and build the prompts.

    Args:
        resolved: the run with its names looked up.
        resources: model, store, tasks and judge of the run.
        infeasible: (name of a method, test split) -> why the method can't run there.
        limit: largest number of test questions; None: all of them.

    Raises:
        UserError: a task lacks a split, or its rows are missing or invalid.
    """
    targets = [target for target in resolved.learn_on.values() if target.task in resources.tasks]
    validation = frozenset(target.validation for target in targets if has_validation(resources.tasks[target.task]))
    planned = _load_plan(resolved, resources.tasks, infeasible, validation, limit)
    data_by_split: dict[TaskSplit, SplitData] = {}
    origins: dict[TaskSplit, dict[str, str]] = {}
    for where, loaded in planned.loaded.items():
        task = resources.tasks[where.task]
        split_data = resources.reader.open(where, task, loaded.questions, loaded.released)
        lacking = {"questions that the answers' file lacks, left out": loaded.unanswered} if loaded.unanswered else {}
        split_data = replace(split_data, counts={**split_data.counts, **lacking})
        tests = [test for test in resolved.test_splits if resolved.learn_on[test.task].task == where.task]
        chosen_by = planned.selecting & ({TaskSplit(where.task, "validation")} - {where})
        for other in (*tests, *chosen_by) if where not in resolved.test_splits else ():
            # what this run also tests or chooses a step by is excluded (docs/methods.md §0.18), or only counted
            overlap = contaminated_ids(split_data.questions, planned.loaded[other].whole)
            if overlap:
                dropped = resolved.protocol.drop_contaminated
                what = f"questions that are also in {other}, {'left out' if dropped else 'kept'}"
                left_out = split_data.left_out | (overlap if dropped else frozenset())
                split_data = replace(split_data, counts={**split_data.counts, what: len(overlap)}, left_out=left_out)
        data_by_split[where] = split_data
        if isinstance(resolved.release, Release):
            description = _format_mapping(resolved.release.describe(task, where.split))
            origins[where] = {f"released {resolved.release.folder_of(task)} {where.split}": description}
            continue
        with plugin_errors(
            f"task {where.task!r}, provenance and origins of {where.split}"
        ):  # fails before any computation
            split: Split = where.split if where.split in task.card.splits else "train"  # source of a held-out split
            origins[where] = {str(key): str(value) for key, value in task.provenance(split).items()}
            if isinstance(resolved.release, AnswerFile):
                origins[where][f"answers {resolved.release.name}"] = f"sha256 {resolved.release.sha256}"
            for card, source_split in task.origins(split):
                name = " ".join(filter(None, [card.hub, card.config, card.splits[source_split]]))
                origins[where][name] = _format_mapping(resources.source.describe(card, source_split))
    notes, release = list(planned.notes), resolved.release
    if isinstance(release, AnswerFile):
        owners: dict[str, str] = {}
        for where, loaded in planned.loaded.items():
            for question in loaded.whole:
                if owners.setdefault(question.id, where.task) != where.task:
                    raise UserError(
                        f"--answers {release.name}: the id {question.id!r} is that of a question of"
                        f" {owners[question.id]} and of one of {where.task}; run one task at a time."
                    )
        others = [key for key in release.answers if key not in owners]
        if others:
            what = plural(len(others), "answer")
            notes.append(f"{release.name}: left out: {what} to no question that this run reads, e.g. {others[0]!r}")
    for where, split_data in data_by_split.items():
        if short := sum(shard.short for shard in split_data.shards):
            notes.append(
                f"{where}: {short:,} of {plural(len(split_data.rows), 'question')} asked with fewer than"
                f" {resolved.protocol.shots} exemplars, as their subjects have no more"
            )
    for test in resolved.test_splits:
        source = resolved.learn_on[test.task].task
        learned = [where for where in data_by_split if where.task == source and where not in resolved.test_splits]
        notes += exemplar_notes([data_by_split[where] for where in (test, *learned)], resolved.protocol.shots)
    return PreparedRun(planned.steps, planned.selecting, data_by_split, origins, tuple(notes), planned.infeasible)


def _load_plan(
    resolved: ResolvedRun,
    tasks: Mapping[str, Task],
    infeasible: Reasons,
    validation: frozenset[TaskSplit],
    limit: int | None,
) -> _LoadedPlan:
    """Plan the steps of a run and load the questions of its splits.

    If a validation split is absent, there is no early stopping and scaling on this split. With recalibration, which
    needs the split, this is an error. A method is infeasible if a file of answers lacks answers or samples that
    the method needs.
    """
    tests = resolved.test_splits
    selecting = frozenset() if resolved.protocol.kept_step is KeptStep.LAST else validation
    steps = plan_of(resolved, infeasible, validation, selecting).steps()
    reads = [step.where for step in steps if isinstance(step, Read)]
    learned = {target.task: TaskSplit(target.task, target.split) for target in resolved.learn_on.values()}
    loader = Loader(tasks, tests, resolved.protocol, limit, resolved.release, resolved.train_limit, learned)
    loaded = {}
    for where in reads:
        try:
            loaded[where] = loader.load(where)
        except UserError as error:
            if where not in validation:
                unanswered = {
                    (name, test): f"it learns, and the answers' file lacks those to questions of {where}; add them"
                    for name, method in resolved.methods.items()
                    for test in tests
                    if method.trains() and resolved.learn_on[test.task].split_of(method) == where
                }
                new = unanswered.keys() - infeasible.keys()
                if not new or not isinstance(error, UnansweredError) or where in tests:
                    raise
                return _load_plan(resolved, tasks, {**unanswered, **infeasible}, validation, limit)
            if not isinstance(error, AbsentError):
                raise
            effects = []
            if where in selecting and any(method.trains() for method in resolved.methods.values()):
                effects.append(f"no step is chosen by {where}, the last one is kept")
            if any(method.output == "score" for method in resolved.methods.values()):
                effects.append(f"no scores are scaled on {where}, they have metrics of order alone")
            reduced = _load_plan(resolved, tasks, infeasible, validation - {where}, limit)
            return replace(reduced, notes=(f"{'; '.join(effects)}: {error}", *reduced.notes))
    without = _without_samples(resolved, loaded, infeasible)
    if without:
        return _load_plan(resolved, tasks, {**infeasible, **without}, validation, limit)
    notes = []
    for where, split in loaded.items():
        if resolved.train_limit is not None and where not in tests:
            kept, whole = ({question.subject for question in questions} for questions in (split.questions, split.whole))
            spread = f", of {len(kept)} of {len(whole)} subjects" if len(kept) < len(whole) else ""
            notes.append(
                f"{where}: {len(split.questions):,} of {len(split.whole):,} questions are learned from{spread}"
                f" (--train-limit {resolved.train_limit})"
            )
    return _LoadedPlan(steps, loaded, selecting, infeasible, tuple(notes))


def plan_of(
    resolved: ResolvedRun, infeasible: Reasons, validation: Collection[TaskSplit], selecting: Collection[TaskSplit]
) -> RunPlan:
    """Return the plan of a run, by which methods are also recalibrated or scaled on validation splits.

    Args:
        resolved: the run with its names looked up.
        infeasible: (name of a method, test split) -> why the method can't run there.
        validation: validation splits on which scores can be scaled.
        selecting: validation splits that choose training steps.
    """
    validated = {
        (name, target.validation)
        for name, method in resolved.methods.items()
        for target in resolved.learn_on.values()
        if resolved.recalibrate or (method.output == "score" and target.validation in validation)
    }
    return RunPlan(resolved.methods, resolved.test_splits, resolved.learn_on, infeasible, validated, selecting)


def _format_mapping(about: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in about.items())


# --- files of answers -------------------------------------------------------------------------------------------------


def _without_samples(resolved: ResolvedRun, loaded: Mapping[TaskSplit, LoadedSplit], infeasible: Reasons) -> Reasons:
    """Return (name of a method, test split) -> reason, where a method needs more samples than a file of answers has."""
    release = resolved.release
    if not isinstance(release, AnswerFile):
        return {}
    reasons = {}
    for name, test in ((name, test) for name in resolved.methods for test in resolved.test_splits):
        method, train_on = resolved.methods[name], resolved.learn_on[test.task]
        reads = [(test, method.reads().predict)]
        if method.trains():
            reads.append((train_on.split_of(method), method.reads().fit))
        for where, signals in reads:
            # as for an open task: a choice task samples letters from logits, and stores no samples
            n = max(
                (sampling.n for sampling in continuations_of(required_stored_signals(signals, Format.OPEN, 2)).samples),
                default=0,
            )
            if not n or where not in loaded or (name, test) in infeasible:
                continue
            available = min(len(answer.samples or ()) for answer in loaded[where].released.values())
            if available < n:
                reasons[name, test] = (
                    f"it reads {n} samples, and {release.name} has {available or 'none'} of each question of {where};"
                    " add them, or ask for fewer with --set"
                )
    return reasons
