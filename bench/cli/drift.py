"""`bench drift`: says whether two ways to run one model agree, and if not, why and what a user feels of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bench.api import UserError
from bench.cli import verbosity
from bench.cli.commands import AsJson
from bench.cli.options import MODEL, help_of
from bench.cli.printing import print_json, print_line, print_notes, print_records, print_written
from bench.run.config import RunConfig

Model = Annotated[str, typer.Argument(help="Alias, Hub id, folder, GGUF file or URL.", autocompletion=MODEL)]


def drift(
    a: Model,
    b: Model,
    *,
    task: Annotated[str, typer.Option(help="Task whose test questions both answer.")] = "mmlu-1k-choice",
    limit: Annotated[int, typer.Option(help="Number of questions, spread over subjects.")] = 60,
    served: Annotated[str | None, typer.Option(help="Name of the model on a server. Default: its only one.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Tokenizer of a GGUF file: Hub id or folder.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help=help_of(RunConfig)["data_dir"])] = None,
    out: Annotated[Path | None, typer.Option(help="Picture to write: FILE.svg, .png or .pdf.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two ways to run one model, such as a file and a server that has it: what differs, why, and what of it.

    Compared are, in this order, prompts, token ids, log-probabilities, answers, and confidences of all methods that
    need no labels.

    Example: bench drift smollm2.gguf http://127.0.0.1:8080/v1
    """
    from bench.model.specs import is_gguf, is_url
    from bench.report.figures.drawing import save
    from bench.report.figures.drift import drift_figure
    from bench.results.files import ensure_writable
    from bench.run.drift import compare_sides, read_sides

    if tokenizer is not None and not any(map(is_gguf, (a, b))):
        raise UserError("--tokenizer: expected one of the two to be a GGUF file; leave it out.")
    if served is not None and not any(map(is_url, (a, b))):
        raise UserError("--served: expected one of the two to be a URL; leave it out.")
    if out is not None and out.suffix not in {".svg", ".png", ".pdf"}:
        raise UserError(f"--out {out}: expected a file that ends in .svg, .png or .pdf; name one.")
    ensure_writable(Path() if out is None else out.parent)
    common: dict[str, Any] = {"methods": ("untrained",), "tasks": (task,), "preset": "fixed", "limit": limit}
    runs = [
        RunConfig(
            model=model, served=served if is_url(model) else None, tokenizer=tokenizer if is_gguf(model) else None,
            data_dir=data_dir, **common,
        )
        for model in (a, b)
    ]  # fmt: skip
    found = compare_sides(*read_sides(runs, verbosity.progress()))
    print_notes(f"{name} is left out: {why}" for name, why in found["skipped"].items())
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        save(drift_figure(found), out)
    if as_json:
        print_json(found)
        return
    print_line(f"A  {found['a']}\nB  {found['b']}")
    print_line(f"{found['questions']} questions of {found['test']}; B less A, log-probabilities in nats")
    for step, values in found["steps"].items():
        print_line(f"  {step:13} {', '.join(f'{name} {_text(value)}' for name, value in values.items())}")
    columns = ("method", "mean |d|", "worst", "rank", "crossed")
    rows = [{name: _text(row.get(name)) for name in columns} for row in found["methods"]]
    for shown, row in zip(rows, found["methods"], strict=True):
        for metric in ("Brier", "RMSCE", "AUROC", "above"):
            one, _, difference, half = row.get(metric.lower(), [None] * 4)
            margin = "" if half is None else f"±{100 * half:.1f}"
            shown[f"{metric}, B-A"] = "" if one is None else f"{100 * one:.1f} {100 * difference:+.1f}{margin}"
    print_records(rows)
    causes = [f"{cause}: {why}" for cause, why in found["causes"].items()]
    print_line("\n".join(causes or ["no difference but what float arithmetic makes"]))
    print_written([] if out is None else [out])


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
