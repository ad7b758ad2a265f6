"""`bench doctor --model X --task Y`: what a model is and needs. No weights are loaded, and none are fetched.

A server is asked what it has, how its model can be read, and so which methods run.

Of a model on the Hub the small files (configuration, tokenizer) are fetched if the cache lacks them.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from bench import registry, servers
from bench.api import Format, RunFacts, UserError
from bench.api.errors import first_line
from bench.api.signals import reads_trace
from bench.cli.finding import Finding, State, free_memory
from bench.servers.readings import WORDS, Ability, tier
from bench.store.usage import format_size

if TYPE_CHECKING:
    from bench.model.language_model import LanguageModel
    from bench.model.server_model import ServerModel
    from bench.model.specs import ModelSpec

_HUB_S = 5.0
"""Time limit in seconds for the question to the Hub."""
_LABELS = 1_000
"""Labelled answers that a method which learns is taken to get."""
_TOKENS = 1024
"""Tokens of the forward pass whose memory is computed."""


def check_model(
    name: str,
    tokenizer: str | None,
    tasks: Sequence[str],
    served: str | None = None,
    methods: Sequence[str] = (),
) -> Iterator[Finding]:
    """Yield findings on a model: origin, architecture, memory, tokenizer, template; and whether it can answer tasks.

    Args:
        name: alias, Hub id, folder, GGUF file or URL.
        tokenizer: value of `--tokenizer`.
        tasks: names of tasks.
        served: value of `--served`.
        methods: names of methods and groups that a server is to serve, also with commas between them; none for all.
    """
    from bench.model.language_model import LoadOptions
    from bench.model.server_model import ServerModel, open_model
    from bench.model.specs import resolve

    try:
        spec = resolve(name)
        if not spec.local and not spec.is_server:
            yield _check_hub_files(spec)
        lm = open_model(spec, LoadOptions(tokenizer=tokenizer, weights=False), served)
        yield from _describe_server(lm, tasks, methods) if isinstance(lm, ServerModel) else _describe(lm)
        yield from _describe_texts(lm)
        for task in tasks:
            yield _check_task(lm, task)
    except UserError as error:
        yield Finding("model", State.BAD, str(error))


def _check_hub_files(spec: ModelSpec) -> Finding:
    """Return what a run would fetch of a model on the Hub."""
    from huggingface_hub import model_info, try_to_load_from_cache
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    from bench.model.folder import FILES, OTHER_COPIES

    pinned = f"{(spec.revision or '')[:8] or 'main'}{' (pinned)' if spec.revision else ''}"
    try:
        info = model_info(spec.source, revision=spec.revision, files_metadata=True, timeout=_HUB_S)
    except Exception as error:  # noqa: BLE001 - proxies, certificates and the Hub fail in many ways
        what = f"{spec.source} at {pinned}: the Hub can't be asked what a run would fetch ({first_line(error)[:200]})"
        return Finding("files", State.NOTE, what, "connect, and unset HF_HUB_OFFLINE; what lies in its cache is used")
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    needed = list(filter_repo_objects(sizes, allow_patterns=FILES, ignore_patterns=OTHER_COPIES))
    found = {file: try_to_load_from_cache(spec.source, file, revision=info.sha) for file in needed}
    missing = [file for file, path in found.items() if not isinstance(path, str)]
    what = (
        f"{spec.source} at {pinned if spec.revision else f'{(info.sha or str())[:8]} of main'}: {len(needed)} files,"
        f" {format_size(sum(map(sizes.__getitem__, needed)))}; {len(missing)} to fetch,"
        f" {format_size(sum(map(sizes.__getitem__, missing)))}; {'gated' if info.gated else 'not gated'}"
    )
    if not any(file.endswith(".safetensors") for file in needed):
        return Finding("files", State.BAD, f"{what}; without *.safetensors", "name a repository that has them")
    fix = "accept its licence on the Hub and set HF_TOKEN" if info.gated and missing else ""
    return Finding("files", State.NOTE if fix else State.OK, what, fix)


def _describe(lm: LanguageModel) -> Iterator[Finding]:
    from bench.model.training_memory import build_on_meta, reading_footprint

    if description := lm.files.description(lm.dtype_name):
        yield Finding("file", State.OK, description)
    with lm.files.wrap_errors("it can't be built from its config.json"):
        model = build_on_meta(lm.config, lm.dtype)
        footprint = reading_footprint(lm.config, lm.dtype, _TOKENS)
    text = lm.config.get_text_config()
    tied = "tied" if getattr(text, "tie_word_embeddings", False) else "not tied"
    what = (
        f"{type(model).__name__}, {lm.blocks} blocks of width {text.hidden_size:,}, context {lm.context:,},"
        f" {sum(p.numel() for p in model.parameters()):,} weights, embedding and output head {tied}"
    )
    yield Finding("architecture", State.OK, what)
    free = free_memory() if lm.device == "cpu" else None
    fits = free is None or footprint.total < free
    what = (
        f"{lm.dtype_name} on {lm.device}: {format_size(footprint.weights)} of weights, {format_size(footprint.total)}"
        f" with a pass of {_TOKENS:,} tokens"
    )
    fix = f"only {format_size(free or 0)} are free; --dtype bfloat16, a smaller model, or another machine"
    yield Finding("dtype, memory", *((State.OK, what) if fits else (State.NOTE, what, fix)))


def _describe_server(server: ServerModel, tasks: Sequence[str], methods: Sequence[str]) -> Iterator[Finding]:
    """Say what a server has, how its model can be read, and which methods run."""
    from bench.servers.dialect import UNKNOWN
    from bench.signals.definition import definition

    dialect = server.dialect
    what = (
        f"{dialect.name} with {server.label}, {server.dtype_name}, {dialect.slots} at once, context"
        f" {dialect.context:,}{' or less' * (dialect.context == UNKNOWN)}"
    )
    yield Finding("server", State.OK, what)
    offered = [words for ability, words in WORDS.items() if ability in dialect.abilities]
    state = State.NOTE if dialect.notes else State.OK
    yield Finding("read by", state, f"tier {tier(dialect.abilities)}: {', '.join(offered)}", "; ".join(dialect.notes))
    asked = {registry.tasks().get(name).format: name for name in tasks} or {fmt: fmt.value for fmt in Format}
    known = registry.methods()
    names = [name for each in methods or ("all",) for name in each.split(",")]
    made = [cls(**cls.presets.get("fixed", {})) for cls in map(known.get, registry.expand_groups(names, known))]
    signals_of = {method.name: sorted(method.reads().fit | method.reads().predict, key=repr) for method in made}
    specs_of = {name: list(map(definition, signals)) for name, signals in signals_of.items()}
    if dialect.name == "vLLM":
        depths = {depth for specs in specs_of.values() for spec in specs for depth in spec.depths}
        yield _describe_states(server, depths)
    for fmt, task in sorted(asked.items(), key=str):
        runs, named = list[str](), defaultdict[str, list[str]](list)
        for method in made:
            specs = specs_of[method.name]
            lacking = (server.missing(spec.needs(fmt), spec.depths) or spec.unsupported(fmt) for spec in specs)
            facts = RunFacts(server.facts, task, fmt, _LABELS * method.trains())
            reason = next(filter(None, lacking), None) or method.skip(facts)
            bounded = any(Ability.CHOSEN in spec.prefers(fmt) & ~dialect.abilities for spec in specs)
            if reason:
                named[reason].append(method.name)
            else:
                traced = any(reads_trace(spec.signal) for spec in specs)
                runs.append(method.name + " (of traces)" * traced + " (by bounds)" * bounded)
        yield Finding(f"{fmt.value} tasks", State.OK, ", ".join(runs))
        for why, skipped in named.items():
            each = why if len(skipped) == 1 else f"each {why.removeprefix('it ')}"
            yield Finding("left out", State.NOTE, f"{', '.join(skipped)}: {each}")


def _describe_states(server: ServerModel, depths: set[float]) -> Finding:
    """Say which hidden states a server writes; and how vLLM is started to write those at some depths."""
    from bench.model.served_head import find_files

    dialect = server.dialect
    try:
        blocks = int(find_files(dialect.root).config().get_text_config().num_hidden_layers)
    except UserError as error:
        fix = "show this machine the model's files, by the same path or in the Hub's cache"
        what = f"none, as the output head is read from the model's files: {error}"
        return Finding("hidden states", State.NOTE, what, fix)
    layers = sorted({blocks, *(max(1, int(depth * blocks)) for depth in depths)})
    written = f"of layers {', '.join(map(str, dialect.layers))}" if dialect.layers else "none are written"
    if Ability.STATES in dialect.abilities and {*layers} <= {*dialect.layers}:
        return Finding("hidden states", State.OK, written)
    draft = {"hf_config": {"eagle_aux_hidden_state_layer_ids": layers}}
    speculative = {"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": draft}
    folder = Path("/dev/shm" if Path("/dev/shm").is_dir() else gettempdir(), "confbench-states")  # noqa: S108
    transfer = {
        "kv_connector": "ConfbenchStates", "kv_connector_module_path": "confbench_states", "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(folder)},
    }  # fmt: skip
    words = ["vllm", "serve", dialect.root, "--served-model-name", dialect.model]
    words += ["--speculative-config", json.dumps(speculative), "--kv-transfer-config", json.dumps(transfer)]
    path = shlex.quote(str(Path(servers.__file__).parent / "connector"))
    what = f"{written}; methods read those of {', '.join(map(str, layers))}"
    return Finding("hidden states", State.NOTE, what, f"start it so: PYTHONPATH={path} {shlex.join(words)}")


def _describe_texts(lm: LanguageModel) -> Iterator[Finding]:
    """Say what tokenizer and template a model has."""
    origin = "named by --tokenizer" if lm.files.given_tokenizer else "the model's own"
    origin = "the server's" if lm.spec.is_server else origin
    yield Finding("tokenizer", State.OK, f"{len(lm.chat.tokenizer):,} tokens, {origin}")
    notes = lm.chat.notes
    yield Finding("template", State.NOTE if notes else State.OK, "; ".join(notes) or "the model's own, without a trace")


def _check_task(lm: LanguageModel, name: str) -> Finding:
    """Return whether the model can answer a task: letters of one token, and no trace before them."""
    from bench.api.protocol import FIXED
    from bench.prompts.shards import PromptTokeniser

    task = registry.tasks().get(name)
    sizes = ", ".join(f"{split} {size:,}" for split, size in task.card.sizes.items())
    if task.format is not Format.CHOICE:
        return Finding("task", State.OK, f"{name}: {sizes}; open answers")
    letters, prompts = FIXED.letters[: task.card.options[1]], PromptTokeniser(lm.chat, lm.context, FIXED)
    try:
        lm.chat.letters(prompts.placeholder_prompt(task), letters)  # type: ignore[arg-type]
    except UserError as error:
        return Finding("task", State.BAD, f"{name}: {error}")
    return Finding("task", State.OK, f"{name}: {sizes}; {', '.join(letters)} are one token each")
