"""`--judge`, `--judge-model` and `--judge-url` are checked before anything is computed, loaded or called."""

from __future__ import annotations

from pathlib import Path

import pytest

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
