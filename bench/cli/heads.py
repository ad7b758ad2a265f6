"""`bench score` and `bench head`: apply saved scorers (heads) to new questions and answers, show and check them."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.api import UserError
from bench.cli import verbosity
from bench.cli.commands import AsJson, Commands
from bench.cli.options import options_from
from bench.cli.printing import print_fields, print_json, print_line, print_notes
from bench.progress import visible_json
from bench.run.config import HeadSetting

app = Commands(
    help="Look at heads that bench run --save-heads kept, and check them.", no_args_is_help=True, rich_markup_mode=None
)
_FOLDER = "Folder of a head, which bench run --save-heads wrote."
Folder = Annotated[Path, typer.Argument(help=_FOLDER)]


@options_from(HeadSetting, without=("attention", "plain"))
def score(
    setting: HeadSetting,
    *,
    questions: Annotated[
        Path,
        typer.Argument(
            help="Questions as JSON Lines, CSV or Parquet, with the columns of bench run --task-file, without rows of"
            " train or validation; no right answers are needed. Column 'given' may hold the answers to score. - reads"
            " JSON Lines from standard input."
        ),
    ],
    head: Annotated[Path, typer.Option(help=_FOLDER)],
    answers: Annotated[
        Path | None, typer.Option(help="File of answers to score (.jsonl, .parquet), with columns 'id' and 'text'.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write; - is standard output.")] = Path("-"),
) -> None:
    """Say how sure a method is of your own answers: one line of JSON for each question.

    Where a question has no answer, the model answers it. Each line has the question's id, the answer, the confidence
    that it is right (0 to 1, or null where there is none) and the head's name; what was left out or is odd is counted
    on standard error. After bench guard --head, each line also says whether the answer is trusted, and by which guard;
    trusted is null for answers that you give.

    Example: bench score --model tiny --head heads/lts questions.jsonl
    """
    from bench.run.scorers.score_file import score as score_questions

    inputs = [path for path in (questions, answers) if path is not None]
    if any(path.exists() and out.exists() and path.samefile(out) for path in inputs):
        raise UserError(f"--out {out}: it is one of the files that are read; name another one.")
    if str(out) != "-" and not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; make it first.")
    report = score_questions(questions, head, answers, setting, verbosity.progress())
    text = "".join(f"{line}\n" for line in report.lines)
    if str(out) == "-":
        sys.stdout.write(visible_json(text))
    else:
        from bench.store.files import named_errors, write_atomic

        with named_errors(f"--out {out}: it can't be written", "; name another file."):
            write_atomic(out, text.encode())
    print_notes(report.notes)


@app.command()
def show(folder: Folder, *, as_json: AsJson = False) -> None:
    """Show a head's card: its model, method, constants, what it learned from, and its test numbers."""
    from bench.run.scorers.card import read_card

    card = asdict(read_card(folder))
    if as_json:
        print_json(card)
        return
    # without provenance and empty fields
    constants = [{"constant": name, "value": value} for name, value in card["method"].pop("constants").items()]
    metrics = {}
    for name, metric in card["test"].pop("metrics").items():
        value, low, high = metric["value"], metric["low"], metric["high"]
        if value is not None:
            interval = "" if low is None or high is None else f" (95 % interval {low:.4f} to {high:.4f})"
            metrics[name] = f"{value:.4f}{interval}"
    card["asked"].pop("protocol")
    card.pop("provenance", None)
    fields: dict[str, Any] = {}
    for part, values in card.items():
        if isinstance(values, dict):
            fields[part] = {
                name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
                for name, value in values.items()
                if value not in (None, "", [], {}, ())
            }
        elif values is not None:
            fields[part] = values
    print_fields({**fields, "metrics": metrics, "constants": constants})


@app.command()
@options_from(HeadSetting)
def check(
    setting: HeadSetting,
    *,
    folder: Folder,
    tolerance: Annotated[float, typer.Option(help="Largest difference of a confidence that passes.")] = 0.02,
    state_tolerance: Annotated[
        float, typer.Option(help="Largest mean relative difference of hidden states that passes.")
    ] = 0.02,
    as_json: AsJson = False,
) -> None:
    """Check whether a model, in the setting that you name, still says what it said when the head was made.

    The head keeps up to 64 test questions with the model's answers, hidden states and confidences. The model reads
    these questions again. The check prints how far the numbers moved, and ends with exit code 1 if one moved by more
    than its tolerance.

    Example: bench head check heads/lts --dtype bfloat16
    """
    from bench.run.scorers import checking

    report = checking.check(folder, setting, verbosity.progress(), tolerance=tolerance, state_tolerance=state_tolerance)
    if as_json:
        print_json(checking.as_record(report))
    else:
        for line in report.lines():
            print_line(line)
    raise typer.Exit(0 if report.passed else 1)


@app.command()
@options_from(HeadSetting, without=("device", "dtype", "attention", "token_budget", "plain", "trust_remote_code"))
def export(
    setting: HeadSetting,
    *,
    folder: Folder,
    out: Annotated[Path, typer.Argument(help="Folder to write; an exported head there is replaced.")],
    as_json: AsJson = False,
) -> None:
    """Write what a server needs to compute the confidence beside each answer, without confbench.

    The folder gets head.safetensors (all arrays), head.json (which hidden states of which model are read, and how its
    prompts looked) and confidence.py, one page that needs numpy and safetensors alone. Only methods whose confidence is
    a function of one hidden state have such a page. docs/vllm.md shows a server that uses it.

    Example: bench head export heads/pik exported
    """
    from bench.run.scorers.exporting import export as export_head

    (print_json if as_json else print_fields)(export_head(folder, out, replace(setting, device="cpu")))
