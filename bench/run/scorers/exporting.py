"""`bench head export`: a head as arrays and one page of numpy, by which a server computes confidences beside answers.

The page holds the source of the method's own functions (`ConfidenceMethod.export`), so that both can't drift apart.
Before a folder is written, the page's confidences are compared with the method's.
"""

from __future__ import annotations

import inspect
import json
import runpy
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import registry
from bench.api import At, Batch, ConfidenceMethod, Hidden, UserError
from bench.api.errors import plugin_errors
from bench.api.methods import outputs_of
from bench.metrics.recalibration import sigmoid
from bench.model.language_model import block_number
from bench.run.config import HeadSetting
from bench.run.scorers import reference_questions
from bench.run.scorers.card import CARD, is_head
from bench.run.scorers.scorer import Scorer, open_head
from bench.store.disk_cache import digest_file, with_digest
from bench.store.files import named_errors, write_folder_atomic, write_json

KIND, FORMAT = "confbench exported head", 1
ARRAYS, PAGE = "head.safetensors", "confidence.py"
TEMPLATE = Path(__file__).with_name("confidence.py.txt")
_ROWS: Mapping[tuple[At, str | None], tuple[str, str]] = {
    (At.PROMPT_END, None): ("at the prompt's last token", "prompt - 1, prompt"),
    (At.ANSWER_END, None): ("at the answer's last token", "prompt + answer - 1, prompt + answer"),
    (At.ANSWER_PREDICTING, "mean"): ("as mean before each token of the answer", "prompt - 1, prompt + answer - 1"),
    (At.ANSWER_END, "mean"): ("as mean over the answer's tokens", "prompt, prompt + answer"),
}
"""Position and pooling of a state -> the position in words, and the range of its rows on the page."""
_CLOSE = 1e-5
"""Largest difference between a confidence of the page and of the method."""
_RECALIBRATE = '''def recalibrated(p: FloatArray) -> FloatArray:
    """Map confidences `(n,)` as the recalibrator does that was fitted on validation answers."""
    fitted = ARRAYS["recalibration"]
    log_p, log_rest = (np.log(np.clip(part, 2.0**-24, 1 - 2.0**-24)) for part in (p, 1 - p))
    return np.asarray({formula})
'''


def export(folder: Path, out: Path, setting: HeadSetting) -> dict[str, Any]:
    """Write a head as `head.json`, arrays and a page of numpy, with at most the final norm of the model's weights.

    Args:
        folder: folder of the head.
        out: folder to write; an exported head there is replaced.
        setting: the head's model, and plugin files.

    Returns:
        What was written, as JSON values, in the order in which a user reads it.

    Raises:
        UserError: the head can't be read or belongs to another model, its method has no such form, or `out` holds
            something else or can't be written.
    """
    with named_errors(f"{out}: it can't be written", ". Name another folder."):
        there = {path.name for path in out.iterdir()} - {"__pycache__"} if out.exists() else set()
        if there and not (there <= {CARD, ARRAYS, PAGE} and is_head(out, KIND)):
            raise UserError(f"{out}: it holds other things than an exported head, which stay. Name another folder.")
        if folder.resolve() in out.resolve().parents:
            raise UserError(f"{out}: it is inside the head, which may hold no other files. Name another folder.")
        with tempfile.TemporaryDirectory(prefix="confbench-export-") as cache:
            return _export(open_head(folder, setting, Path(cache)), reference_questions.read(folder), out)


def _export(scorer: Scorer, references: reference_questions.ReferenceQuestions, out: Path) -> dict[str, Any]:
    from safetensors.numpy import save

    card, method, output, lm = scorer.card, scorer.method, scorer.output, scorer.reader.lm
    signals = method.reads().predict
    with plugin_errors(f"method {method.name!r}, export"):
        formula = method.export()
        functions = [] if formula is None else list(map(inspect.getsource, formula.functions))
    (signal,) = signals if len(signals) == 1 else (None,)
    if formula is None or not isinstance(signal, Hidden) or (signal.at, signal.pool) not in _ROWS or output.scale:
        methods = registry.methods()
        able = [name for name in methods.names() if methods.get(name).export is not ConfidenceMethod.export]
        raise UserError(
            f"head {card.name}: its method can't be exported: it doesn't compute a confidence from one hidden state at"
            f" the prompt's end or in the answer, but reads {', '.join(sorted(map(repr, signals)))}. Use it by bench"
            f" score or load_head; these can be exported: {', '.join(able)}."
        )
    place, rows = _ROWS[signal.at, signal.pool]
    layer, width, norm = block_number(signal.depth, lm.blocks), lm.facts.hidden_size, None
    arrays: dict[str, Any] = {"method": formula.arrays}
    if layer == lm.blocks:
        from bench.model.served_head import read_head

        norm = lm.norm if lm.spec.is_server else read_head(lm.files, lm.dtype, "cpu")[1].norm
    if norm is not None:
        gain = norm.gain.cpu().numpy()
        arrays["norm"] = {"gain": gain, "shift": 0 * gain if norm.shift is None else norm.shift.cpu().numpy()}
    if output.recalibrator is not None:
        arrays["recalibration"] = vars(output.recalibrator)
        functions += [inspect.getsource(sigmoid), _RECALIBRATE.format(formula=output.recalibrator.formula)]
    stored = dict(_flat(arrays))
    page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        method=card.method.name, model=card.backbone.model, name=card.name, layer=layer, layers=lm.blocks, place=place,
        width=width, rows=rows, functions="\n\n".join(functions).strip(), function=formula.functions[-1].__name__,
        value="p" if output.recalibrator is None else "recalibrated(p)",
    )  # fmt: skip
    prompt, answer = references.prompts[0].tolist(), references.answers[0].tolist()
    text = None if lm.spec.is_server else lm.chat.tokenizer.decode(prompt)  # a server leaves special tokens out
    values = {
        "kind": KIND, "format": FORMAT, "head": card.name,
        "reads": {
            "layer": layer, "layers": lm.blocks, "at": signal.at.value, "pool": signal.pool, "width": width,
            "dtype": card.backbone.dtype, "after_final_norm": layer == lm.blocks,
        },
        "norm": None if norm is None else {"eps": norm.eps, "centred": norm.centred},
        "empty": output.empty, "guard": None if card.guard is None else asdict(card.guard),
        "example": {
            "prompt": text, "prompt_token_ids": prompt, "answer_token_ids": answer,
            "confidence": float(references.confidence[0]),
        },
        "model": asdict(card.backbone), "servers": [asdict(server) for server in card.servers],
        "method": asdict(card.method), "prompts": asdict(card.asked),
        "test": {"n": card.test.n, **{name: metric.value for name, metric in card.test.metrics.items()}},
        "arrays": {name: {"dtype": str(array.dtype), "shape": array.shape} for name, array in stored.items()},
    }  # fmt: skip
    states = next(iter(references.states.values()))
    differences: list[float] = []

    def fill(folder: Path) -> None:
        (folder / ARRAYS).write_bytes(save(stored))  # readable as other files are, unlike those of save_file
        (folder / PAGE).write_text(page, encoding="utf-8")
        files = {name: digest_file(folder / name) for name in (ARRAYS, PAGE)}
        write_json(folder / CARD, with_digest(json.loads(json.dumps({**values, "files": files}))))
        batch = Batch.of_own(list(map(str, range(len(states)))), {signal: states.copy()})
        with plugin_errors(f"method {method.name!r}, the page of its export"):
            expected = output.confidence(outputs_of(method, batch))
            confidence = runpy.run_path(str(folder / PAGE))["confidence"]
            differences.extend(abs(confidence(row[None]) - value) for row, value in zip(states, expected, strict=True))
        if not max(differences) <= _CLOSE:
            raise UserError(
                f"method {method.name!r}: its export must give the confidences of predict, but they differ by up to"
                f" {max(differences):.2g}; correct its export. Nothing was written."
            )

    write_folder_atomic(out, fill)
    return {
        "folder": str(out), "head": card.name, "reads": f"the state of layer {layer} of {lm.blocks} {place}",
        "checked": f"on {len(states)} states: the page differs from the head by {max(differences):.1g} at most",
        "guard": "none" if card.guard is None else card.guard.terms,
    }  # fmt: skip


def _flat(arrays: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield nested arrays with names such as `method/map/weight`."""
    for name, value in arrays.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", np.array(value, order="C")
