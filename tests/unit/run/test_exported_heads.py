"""An exported head says of states, by numpy alone, what the head says of answers; what can't be exported is refused."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench import registry
from bench.api import ConfidenceMethod, NumpyFormula, UserError
from bench.run.config import HeadSetting, RunConfig
from bench.run.pipeline import run
from bench.run.scorers import exporting, load_head
from bench.run.scorers.card import write_guard
from bench.run.scorers.scorer import Scorer
from tests.fixtures.whole_run import WholeRun
from tests.kit.command import bench
from tests.unit.run.test_heads import BEES, known  # noqa: F401  # a fixture

EXPORTED = {
    "pik", "saplma-f", "saplma-m", "saplma-um", "logistic-probe", "relative-mahalanobis", "semantic-entropy-probe",
}  # fmt: skip
SERVED = """
import json, sys
for name in ("bench", "methods", "torch", "scipy", "transformers"):
    sys.modules[name] = None  # an import of it fails
sys.path.insert(0, sys.argv[1])
import numpy as np
from confidence import HEAD, LAYER, confidence, rows, trusted
states = np.load(sys.argv[2])
found = []
for i, (prompt, answer) in enumerate(states["lengths"].tolist()):
    chosen = rows(prompt, answer)
    both = [states[f"{name}-{i}-{LAYER}"][chosen] for name in ("normed", "unnormed")]
    found.append([confidence(both[0]), confidence(both[1], unnormed=True), trusted(0.8), trusted(0.6)])
print(json.dumps(found))
"""


def read_states(head: Scorer, pairs: list[tuple[Any, Any]], path: Path) -> None:
    """Write the states of all tokens of prompts and answers as transformers gives them, and before the final norm."""
    lm = head.reader.lm
    unnormed = copy.deepcopy(lm.model.base_model)
    unnormed.norm = torch.nn.Identity()
    arrays: dict[str, Any] = {"lengths": np.array([(len(prompt), len(answer)) for prompt, answer in pairs])}
    for i, pair in enumerate(pairs):
        ids = torch.tensor(np.concatenate(pair))[None]
        for name, model in (("normed", lm.model.base_model), ("unnormed", unnormed)):
            with torch.inference_mode():
                states = model(ids, output_hidden_states=True).hidden_states
            arrays |= {f"{name}-{i}-{layer}": each[0].numpy() for layer, each in enumerate(states)}
    np.savez(path, **arrays)


def served(folder: Path, states: Path) -> list[Any]:
    """What the page of an exported head says, in an interpreter without our packages and torch."""
    words = [sys.executable, "-W", "error", "-c", SERVED, str(folder), str(states)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def compare(heads: list[Path], questions: list[Any], scratch: Path) -> None:
    """Compare pages with heads, on questions that the model answers."""
    for i, folder in enumerate(heads):
        out = scratch / f"exported-{i}"
        shown = exporting.export(folder, out, HeadSetting(None, "cpu"))
        assert "the page differs from the head by" in shown["checked"]
        head = load_head(folder, device="cpu")
        (split,) = head.score_questions(questions, {}).data_by_split
        if not i:
            pairs = list(split.pairs())
            read_states(head, [pairs[k] for k in split.order], scratch / "states.npz")
        found = served(out, scratch / "states.npz")
        expected = head.score(questions)
        allowed = 1e-4 if "isotonic" in folder.name else 1e-6  # a steep step enlarges last digits
        np.testing.assert_allclose([row[0] for row in found], expected, atol=allowed, rtol=0, err_msg=folder.name)
        np.testing.assert_allclose([row[1] for row in found], expected, atol=allowed, rtol=0, err_msg=folder.name)
        assert found[0][2:] == [None, None]


def test_page_says_what_the_head_says(
    whole_run: WholeRun, known: dict[str, Any], tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    names = ("pik--demo--s0", "logistic-probe+temperature--demo--s0", "saplma-m+isotonic--demo--s0")
    compare([whole_run.head(name) for name in names], [*known.values()][:6], tmp_path)


@pytest.mark.slow
def test_page_of_every_method_says_the_same(
    whole_run: WholeRun, known: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    methods = registry.methods()
    assert {n for n in methods.names() if methods.get(n).export is not ConfidenceMethod.export} == EXPORTED
    for name in ("pik", "saplma-f", "saplma-m", "saplma-um"):
        monkeypatch.setattr(methods.get(name), "presets", {"demo": methods.get(name).small})
    report = run(
        RunConfig(
            tuple(sorted(EXPORTED)), "tiny", device="cpu", task_files=(whole_run.file,), out=tmp_path / "out",
            save_heads=tmp_path / "heads", cache=Path(shutil.copytree(whole_run.cache, tmp_path / "cache")),
            recalibrate=("beta", "platt"),
        )
    )  # fmt: skip
    assert len(report.heads) == 3 * len(EXPORTED)
    compare(list(report.heads), [*known.values()][:6], tmp_path)


@pytest.fixture
def head(whole_run: WholeRun, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole_run.head("logistic-probe--demo--s0"), tmp_path / "head"))


def test_exported_head_has_what_a_server_must_know(head: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "exported"
    write_guard(head, BEES)
    done = bench("head", "export", head, out)
    assert done.returncode == 0, done.stderr
    assert "layer 4 of 4 at the answer's last token" in done.stdout
    assert "confidence of 0.7 or more" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["confidence.py", "head.json", "head.safetensors"]
    values = json.loads((out / "head.json").read_text(encoding="utf-8"))
    assert values["reads"] | {"width": 0} == {
        "layer": 4, "layers": 4, "at": "answer_end", "pool": None, "width": 0, "dtype": "float32",
        "after_final_norm": True,
    }  # fmt: skip
    assert values["arrays"]["method/weight"] == {"dtype": "float64", "shape": [values["reads"]["width"]]}
    assert values["model"]["model"] == "tiny"
    assert values["guard"]["threshold"] == 0.7
    example = values["example"]
    assert example["prompt"].count("Answer") > 1
    assert len(example["answer_token_ids"]) == 1
    assert 0 <= example["confidence"] <= 1
    page = (out / "confidence.py").read_text(encoding="utf-8")
    assert max(map(len, page.splitlines())) <= 120
    assert len(page.splitlines()) < 130
    again = bench("head", "export", head, out, "--json")
    assert json.loads(again.stdout)["folder"] == str(out), again.stderr
    (out / "head.safetensors").write_bytes(b"another")
    with pytest.raises(AssertionError, match=r"head\.safetensors is not the file that head\.json names"):
        served(out, out)


@pytest.mark.parametrize("name", ["lts--demo--s0", "ptrue--demo--s0"])
def test_method_of_other_signals_is_not_exported(whole_run: WholeRun, tmp_path: Path, name: str) -> None:
    done = bench("head", "export", whole_run.head(name), tmp_path / "out")
    assert done.returncode == 2
    assert "can't be exported: it doesn't compute a confidence from one hidden state" in done.stderr
    assert f"these can be exported: {', '.join(sorted(EXPORTED))}." in done.stderr
    assert not (tmp_path / "out").exists()


def test_export_overwrites_nothing_but_exported_heads(head: Path, tmp_path: Path, small_model: Path) -> None:
    mine, inside, file = tmp_path / "mine", head / "exported", tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    mine.mkdir()  # empty
    assert bench("head", "export", head, mine).returncode == 0
    (mine / "server.py").write_text("mine", encoding="utf-8")
    for out, words, told in (
        (mine, (), "it holds other things than an exported head, which stay"),
        (head, (), "it holds other things than an exported head, which stay"),
        (inside, (), "it is inside the head"),
        (file, (), "Not a directory"),
        (tmp_path / "out", ("--model", small_model), "belongs to 'tiny'"),
    ):
        done = bench("head", "export", head, out, *words)
        assert done.returncode == 2
        assert told in done.stderr
    assert bench("head", "export", tmp_path / "none", tmp_path / "out").returncode == 2
    assert bench("head", "export", mine, tmp_path / "out").returncode == 2  # an exported head is no head
    assert (mine / "server.py").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "out").exists()
    assert bench("head", "show", head).returncode == 0


def half(arrays: Any, states: Any) -> Any:
    return np.full(len(states), 0.5)


def unknown_names(arrays: Any, states: Any) -> Any:
    return np.full(len(states), 0.5 * len(EXPORTED) / 7)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (half, "its export must give the confidences of predict, but they differ by up to 0."),
        (unknown_names, "the page of its export: NameError: name 'EXPORTED' is not defined"),
        (3, "export: TypeError"),
    ],
)
def test_export_that_is_not_the_method_is_refused(
    head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any, told: str
) -> None:
    probe = registry.methods().get("logistic-probe")
    monkeypatch.setattr(probe, "export", lambda self: NumpyFormula((function,), self.weights_))
    with pytest.raises(UserError) as raised:
        exporting.export(head, tmp_path / "out", HeadSetting(None, "cpu"))
    assert told in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["head"]  # nor half of a folder


def test_page_refuses_what_is_no_state(head: Path, tmp_path: Path) -> None:
    import runpy

    exporting.export(head, tmp_path / "out", HeadSetting(None, "cpu"))
    page = runpy.run_path(str(tmp_path / "out" / "confidence.py"))
    width = page["HEAD"]["reads"]["width"]
    for states in (np.zeros(width), np.zeros((0, width)), np.zeros((1, width + 1)), np.full((1, width), np.nan)):
        with pytest.raises(ValueError, match="expected finite states"):
            page["confidence"](states)
    with pytest.raises(ValueError, match="an answer without text has the confidence 0"):
        page["rows"](12, 0)
    assert page["rows"](12, 3) == [14]
