"""Decisions of a run that nobody asked it for, told to the log `DECISIONS` (`--verbose`) alone."""

from __future__ import annotations

import logging

from bench.backbone.devices import training_budget
from bench.progress import DECISIONS
from bench.run.config import RunConfig
from bench.run.plan import Read
from bench.run.preparation import Prepared, Resources
from bench.run.resolve import ResolvedRun


def tell(config: RunConfig, resolved: ResolvedRun, resources: Resources, prepared: Prepared) -> None:
    """Tell revisions, where and how the model is computed, where things are kept, and what is stored already."""
    if not DECISIONS.isEnabledFor(logging.INFO):
        return
    reader = resources.reader
    backbone = reader.backbone
    commit = f"commit {backbone.files.commit}" if backbone.files.commit else f"weights {backbone.files.weights[:12]}"
    DECISIONS.info("model %s, %s", backbone.spec.name, commit)
    devices = ", ".join(backbone.devices)
    DECISIONS.info("device %s, dtype %s, attention %s", devices, backbone.dtype_name, backbone.attention)
    budget = resolved.training_budget or training_budget(backbone.device)
    DECISIONS.info("token budget %s, of training an adapter %s", f"{reader.budget:,}", f"{budget:,}")
    workers = "" if config.workers is None else f", {config.workers} workers"
    DECISIONS.info("engine %s%s; seed %d; preset %s", config.engine, workers, config.seed, resolved.preset)
    DECISIONS.info("cache %s; results %s", resolved.cache, config.out)
    for where, told in prepared.origins.items():
        for name, revision in told.items():
            DECISIONS.info("data of %s: %s %s", where, name, revision)
    for step in prepared.steps:
        if isinstance(step, Read) and reader.sample is None:  # a plan says it itself
            reading = prepared.readings[step.where]
            total = len(reading.shards)
            stored = total - reader.find(reading, step.signals)
            DECISIONS.info("%s: %d of %d shards are taken from the store", step.where, stored, total)
