"""`--judge`, `--judge-model` and `--judge-url` are checked before anything is computed, loaded or called."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.api import UserError
from bench.grading.grade import MatchJudge
from bench.grading.judges import KINDS, JudgeOptions, open_judge, public_options

URL = "http://127.0.0.1:1/v1"


def test_judge_opens_without_touching_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    opened = {
        "match": open_judge(JudgeOptions("match"), tmp_path),
        "openai": open_judge(JudgeOptions("openai"), tmp_path),
        "hf": open_judge(JudgeOptions("hf", "tiny"), tmp_path),
    }
    assert tuple(opened) == KINDS
    assert isinstance(opened["match"], MatchJudge)
    own = open_judge(JudgeOptions("openai", "m", URL), tmp_path)
    assert own.name == f"openai m at {URL}, judge/1"
    assert opened["openai"].name == "openai gpt-4o-mini at https://api.openai.com/v1, judge/1"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (JudgeOptions("opnai"), r"Unknown judge 'opnai': expected one of match, openai, hf\. Did you mean 'openai'\?"),
        (JudgeOptions("human"), r"Unknown judge 'human': expected one of match, openai, hf\.$"),
        (JudgeOptions(""), "Unknown judge ''"),
        (JudgeOptions("match", model="tiny"), "--judge-model has no use with --judge match"),
        (JudgeOptions("match", url=URL), "--judge-url has no use with --judge match"),
        (JudgeOptions("hf", model="tiny", url=URL), "--judge-url has no use with --judge hf"),
        (JudgeOptions("hf"), "--judge hf: expected a model, got none; name one with --judge-model"),
        (JudgeOptions("hf", model="tinny"), "Unknown model 'tinny'.*Did you mean 'tiny'"),
        (JudgeOptions("openai", url="127.0.0.1:8000"), "--judge-url: expected the base URL of a server"),
        (JudgeOptions("openai"), "expected a key in the environment variable OPENAI_API_KEY, found none"),
    ],
)
def test_judge_options_that_do_not_fit_are_refused(tmp_path: Path, asked: JudgeOptions, said: str) -> None:
    with pytest.raises(UserError, match=said):
        open_judge(asked, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["openai", "hf"])
@pytest.mark.parametrize("name", ["", " ", "m\ud800", "m\x1b[2J", "m\u202ex", "a\nb", "x" * 10_000])
def test_judge_model_has_a_printable_name(kind: str, name: str) -> None:
    with pytest.raises(UserError, match="--judge-model: expected a name of 1 to 255 printable characters") as refused:
        JudgeOptions(kind, name)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 250


def test_judge_options_are_shown_without_secrets() -> None:
    assert public_options(JudgeOptions("match")) == {"judge_model": None, "judge_url": None}
    assert public_options(JudgeOptions("openai", "m", "http://me:pw@host/v1?key=k")) == {
        "judge_model": "m",
        "judge_url": "http://host/v1",
    }
    for judge in ("hf", "openai"):
        shown = public_options(JudgeOptions(judge, "/home/me/models/tiny"))["judge_model"]
        assert shown is not None
        assert shown.startswith("tiny-")
        assert "/" not in shown
    assert public_options(JudgeOptions("hf", "org/model"))["judge_model"] == "org/model"
