"""A judge behind a server: paid for once, whatever the server does, and silent about keys and passwords."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from bench.api import UserError
from bench.grading import prompt
from bench.grading.grade import JudgeCase
from bench.grading.openai import OpenAIJudge
from bench.grading.verdicts import MAX_UNDECIDED
from bench.progress import Progress, Silent
from bench.servers.address import Address
from tests.kit.servers import NEWER, Call, JudgeServer, Reply

RIVERS = [JudgeCase(f"Where does river {i} end?", f"Gold {i}", f"Answer {i}") for i in range(12)]
"""Twelve different answers."""

QUICK = {"retry-after-ms": "1"}
"""So that the client tries again at once."""


def judge(server: JudgeServer, cache: Path, **options: Any) -> OpenAIJudge:
    return quick(server.url, cache, **{"timeout_s": 5.0, **options})


def quick(url: str, cache: Path, **options: Any) -> OpenAIJudge:
    """A judge with other limits than its own."""
    one = OpenAIJudge(Address.of(url), "judge", cache)
    for name, value in options.items():
        setattr(one, name, value)
    return one


def ask(one: OpenAIJudge, asked: list[JudgeCase] | None = None, heard: Progress | None = None) -> list[bool | None]:
    return list(one.verdicts(RIVERS if asked is None else asked, "judge rivers/test", heard or Silent()))


def even_rivers(call: Call, _n: int) -> Reply:
    number = re.search(r"river (\d+)", call.text)
    assert number is not None
    return Reply("Yes." if int(number[1]) % 2 == 0 else "No", seconds=0.002 * (12 - int(number[1])))


EVEN = [i % 2 == 0 for i in range(12)]


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_verdicts_come_in_order_and_are_kept(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
    server.script = even_rivers
    first = judge(server, tmp_path)
    assert ask(first, heard=heard) == EVEN
    assert len(server.calls) == 12
    again = judge(server, tmp_path)
    assert ask(again) == EVEN
    assert len(server.calls) == 12
    assert first.name == again.name == f"openai judge-2024-07-18 at {server.url}, judge/1"
    assert heard.stages == [("judge rivers/test", 12)]
    assert heard.done == 12


def test_call_is_the_prompt_at_temperature_zero(server: JudgeServer, tmp_path: Path) -> None:
    ask(judge(server, tmp_path), RIVERS[:1])
    (call,) = server.calls
    assert call.path == "/v1/chat/completions"
    assert call.headers["authorization"] == "Bearer none"
    expected = [{"role": m.role, "content": m.content} for m in prompt.messages(RIVERS[0])]
    assert call.body == {"model": "judge", "messages": expected, "temperature": 0.0, "max_tokens": 8}


def test_limit_of_tokens_is_named_as_the_server_wants(server: JudgeServer, tmp_path: Path) -> None:
    def script(call: Call, _n: int) -> Reply:
        refusal = json.dumps({"error": {"message": NEWER}}).encode()
        return Reply(status=400, body=refusal) if "max_tokens" in call.body else Reply()

    server.script = script
    ask(judge(server, tmp_path), RIVERS[:3])
    limits = [(call.body.get("max_tokens"), call.body.get("max_completion_tokens")) for call in server.calls]
    assert limits == [(8, None), *[(None, 8)] * 3]


def test_limit_that_is_too_large_keeps_its_name(server: JudgeServer, tmp_path: Path) -> None:
    """vLLM names both names where prompt and limit exceed the context, and knows only one for plain completions."""
    told = "'max_tokens' or 'max_completion_tokens' is too large: 8. This model's maximum context length is 64 tokens"
    refusal = json.dumps({"error": {"message": told}}).encode()
    server.script = lambda call, _n: Reply(status=400, body=refusal) if "river 0" in str(call.body) else Reply()
    ask(judge(server, tmp_path), RIVERS)
    assert [call.body.get("max_tokens") for call in server.calls] == [8] * len(RIVERS)


def test_pairs_are_compared_in_other_words_and_kept_apart(server: JudgeServer, tmp_path: Path) -> None:
    grading = judge(server, tmp_path)
    ask(grading, RIVERS[:1])
    pairwise_judge = grading.pairwise_judge()
    assert ask(pairwise_judge, RIVERS[:2]) == ask(grading.pairwise_judge(), RIVERS[:2]) == [True, True]
    contents = [call.body["messages"][1]["content"] for call in server.calls]
    assert contents[0] == prompt.messages(RIVERS[0])[1].content
    assert sorted(contents[1:]) == [prompt.messages(one, prompt.COMPARING)[1].content for one in RIVERS[:2]]
    assert (len(grading.cached), len(pairwise_judge.cached)) == (1, 2)


def test_empty_answers_are_wrong_and_equal_ones_asked_once(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
    empty = JudgeCase("Where?", "gold", "")
    one = judge(server, tmp_path)
    assert ask(one, []) == []
    assert ask(one, [empty], heard) == [False]
    assert (server.calls, heard.said, one.name) == ([], [], f"openai judge at {server.url}, judge/1")
    asked = [RIVERS[0], empty, RIVERS[1], RIVERS[0], JudgeCase("Where?", "gold", " "), RIVERS[0]]
    assert ask(one, asked, heard) == [True, False, True, True, False, True]
    assert len(server.calls) == 2
    assert heard.done == 7


def test_calls_at_once_are_limited(server: JudgeServer, tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def script(_call: Call, n: int) -> Reply:
        if n > 1:  # the first one goes alone, to learn which model it is
            together.wait(10)
        return Reply()

    server.script = script
    ask(judge(server, tmp_path, concurrency=3), RIVERS[:10])
    assert len(server.calls) == 10
    assert server.busiest == 3


def test_cost_is_said_before_the_first_call(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
    said_by_then: list[int] = []

    def script(_call: Call, _n: int) -> Reply:
        said_by_then.append(len(heard.said))
        return Reply()

    server.script = script
    ask(judge(server, tmp_path), [*RIVERS, RIVERS[0]], heard)
    characters = sum(len(m.content) for asked in RIVERS for m in prompt.messages(asked))
    calls = f"judge rivers/test: 12 calls to openai judge at {server.url}, judge/1"
    assert heard.said == [f"{calls}, about {characters // 4:,} tokens to read"]
    assert said_by_then == [1] * 12


def test_judge_works_where_a_loop_is_running(server: JudgeServer, tmp_path: Path) -> None:
    server.script = even_rivers

    async def cell() -> list[bool | None]:
        return ask(judge(server, tmp_path))

    assert asyncio.run(cell()) == EVEN


# --- keys, passwords, addresses ---------------------------------------------------------------------------------------


def test_openai_without_a_key_gives_kept_verdicts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="OPENAI_API_KEY, found none"):
        OpenAIJudge(Address.of(None), "gpt-4o-mini", tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    OpenAIJudge(Address.of(None), "gpt-4o-mini", tmp_path).cached.put(RIVERS[0], True, "gpt-4o-mini-2024-07-18")
    monkeypatch.delenv("OPENAI_API_KEY")
    later = OpenAIJudge(Address.of(None), "gpt-4o-mini", tmp_path)
    assert ask(later, RIVERS[:1]) == [True]
    assert later.name == "openai gpt-4o-mini-2024-07-18 at https://api.openai.com/v1, judge/1"
    with pytest.raises(UserError, match="found none"):
        ask(later)


def test_key_is_sent_and_shown_nowhere(
    server: JudgeServer, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret")
    one = judge(server, tmp_path)
    ask(one, heard=heard)
    assert {call.headers["authorization"] for call in server.calls} == {"Bearer sk-verysecret"}
    server.script = lambda _call, _n: Reply("Incorrect API key provided: sk-verysecret.", status=401)
    with pytest.raises(UserError) as refused:
        ask(one, [JudgeCase("q", "g", "new")], heard)
    shown = [one.name, str(refused.value), *heard.said, one.cached.path.read_text()]
    assert not [text for text in shown if "verysecret" in text]
    assert "Incorrect API key provided: ***." in str(refused.value)


def test_password_and_query_reach_the_server_alone(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
    url = server.url.replace("http://", "http://me:pass%20word@") + "?token=s3cret!&v=1"
    one = OpenAIJudge(Address.of(url), "judge", tmp_path)
    ask(one, RIVERS[:2], heard)
    assert {call.path for call in server.calls} == {"/v1/chat/completions?token=s3cret%21&v=1"}
    assert {call.headers["authorization"] for call in server.calls} == {"Basic bWU6cGFzcyB3b3Jk"}  # me:pass word
    server.script = lambda _call, _n: Reply("no pass word, pass%20word or s3cret!", status=403)
    with pytest.raises(UserError) as refused:
        ask(one, heard=heard)
    for text in (one.name, str(refused.value), *heard.said, one.cached.path.read_text()):
        assert not re.search(r"pass(%20| )word|s3cret|me:", text)
    assert judge(server, tmp_path).cached.get(RIVERS[0]) is None  # another query may be another deployment


# --- a server with troubles -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "wait"),
    [(429, QUICK), (500, QUICK), (503, QUICK), pytest.param(429, {"Retry-After": "0"}, marks=pytest.mark.slow)],
)
def test_troubles_that_pass_are_waited_for(
    server: JudgeServer, tmp_path: Path, status: int, wait: dict[str, str]
) -> None:
    server.script = lambda call, n: Reply("slow down", status, wait) if len(server.calls) < 3 else even_rivers(call, n)
    assert ask(judge(server, tmp_path, concurrency=1)) == EVEN
    assert len(server.calls) == 12 + 2


@pytest.mark.parametrize(
    ("status", "calls", "said"),
    [
        (429, 3, r"turned the call away in 3 tries \(429: nothing doing\)\. Wait, or see the account's limits"),
        (500, 3, r"failed in 3 tries \(500: nothing doing\)\. Wait, or see whether it is well"),
        (401, 1, r"refuses the key \(401: nothing doing\)\. Set OPENAI_API_KEY"),
        (404, 1, r"has no such address or model \(404: nothing doing\)\. Correct --judge-url \(most end in /v1\)"),
        (400, 1, r"refused the call \(400: nothing doing\)\. Correct --judge-model"),
    ],
)
def test_troubles_that_stay_end_the_run(
    server: JudgeServer, tmp_path: Path, status: int, calls: int, said: str
) -> None:
    server.script = lambda _call, _n: Reply("nothing\n doing", status, QUICK)
    with pytest.raises(UserError, match=said) as refused:
        ask(judge(server, tmp_path, retries=2))
    assert len(server.calls) == calls
    assert server.url in str(refused.value)
    assert "\n" not in str(refused.value)


def test_wait_that_is_too_long_is_told(server: JudgeServer, tmp_path: Path) -> None:
    server.script = lambda _call, _n: Reply("slow down", 429, {"Retry-After": "300"})
    with pytest.raises(UserError, match=r"turned the call away \(429, again in 300 s: slow down\)\. Wait"):
        ask(judge(server, tmp_path, concurrency=1))
    assert len(server.calls) == 1


def test_server_that_dies_loses_no_paid_verdict(server: JudgeServer, tmp_path: Path) -> None:
    server.script = lambda call, n: even_rivers(call, n) if n <= 5 else Reply("dead", 500, QUICK)
    with pytest.raises(UserError, match="goes on from the 5 verdicts that are kept"):
        ask(judge(server, tmp_path, retries=1))
    server.calls.clear()
    server.script = even_rivers
    assert ask(judge(server, tmp_path)) == EVEN
    assert len(server.calls) == 12 - 5


def test_calls_under_way_are_waited_for(server: JudgeServer, tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def script(_call: Call, n: int) -> Reply:
        if n > 1:
            together.wait(10)
        return Reply("no key", 401) if n == 2 else Reply(seconds=0.2 if n > 1 else 0)

    server.script = script
    with pytest.raises(UserError, match="401"):
        ask(judge(server, tmp_path, concurrency=4))
    assert len(server.calls) == 5
    assert len(judge(server, tmp_path).cached) == 4


def test_server_that_never_answers_is_given_up(server: JudgeServer, tmp_path: Path) -> None:
    server.script = lambda _call, _n: Reply(status=0)
    with pytest.raises(UserError, match=r"gave no whole answer within 0\.5 s in 2 tries"):
        ask(judge(server, tmp_path, timeout_s=0.5, retries=1))
    assert len(server.calls) == 2


def test_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    with pytest.raises(UserError, match=rf"server {url} can't be reached in 2 tries \(.+\)\. Start it") as refused:
        ask(quick(url, tmp_path, retries=1))
    assert str(refused.value).endswith("correct --judge-url.")


COMPLETION = json.loads(Reply("yes").encoded())
BODIES: dict[str, bytes | dict[str, Any]] = {
    "page": b"<html>Welcome to nginx</html>", "broken": b"{broken", "nothing": b"", "no UTF-8": b"\xff\xfe\x00",
    "object": b"{}", "list": b"[]", "number": b"3", "text": b'"yes"', "null": b"null", "deep": b"[" * 100_000,
    "deep choices": b'{"choices":' + b"[" * 900 + b"]" * 900 + b"}",
    "huge": json.dumps({**COMPLETION, "created": "huge"}).replace('"huge"', "9" * 5000).encode(),
    "1e999": json.dumps({**COMPLETION, "choices": [{"message": {"content": 7}}]}).replace("7", "1e999").encode(),
    "no choices": {"choices": []}, "null choices": {"choices": None}, "choices in an object": {"choices": {"0": "yes"}},
    "no message": {"choices": [{"text": "yes"}]}, "number as content": {"choices": [{"message": {"content": 3}}]},
    "number as model": {"model": 1}, "object as model": {"model": {"a": [1]}},
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_no_chat_completion_end_the_run(server: JudgeServer, tmp_path: Path, name: str) -> None:
    body = BODIES[name]
    whole = body if isinstance(body, bytes) else json.dumps({**COMPLETION, **body}).encode()
    kind = {"Content-Type": "text/html"} if name == "page" else {}
    server.script = lambda _call, _n: Reply(body=whole, headers=kind)
    with pytest.raises(UserError, match="answered no chat completion") as refused:
        ask(judge(server, tmp_path))
    assert len(server.calls) == 1
    assert len(str(refused.value)) < 500


# --- judges that decide nothing ---------------------------------------------------------------------------------------


def test_undecided_verdict_is_asked_again(server: JudgeServer, tmp_path: Path) -> None:
    server.script = lambda _call, n: Reply("Hm" if n < 3 else "no")
    assert ask(judge(server, tmp_path), RIVERS[:1]) == [False]
    assert len(server.calls) == 3
    assert len({call.text for call in server.calls}) == 1


@pytest.mark.parametrize("said", ["The student is right", "", None])
def test_undecided_verdict_is_asked_in_the_next_run(server: JudgeServer, tmp_path: Path, said: str | None) -> None:
    server.script = lambda call, n: Reply(said) if "river 3 " in call.text else even_rivers(call, n)
    assert ask(judge(server, tmp_path)) == [*EVEN[:3], None, *EVEN[4:]]
    assert len(server.calls) == 11 + 3
    server.calls.clear()
    server.script = even_rivers
    assert ask(judge(server, tmp_path)) == EVEN
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"message": "filtered", "code": "content_filter"},
        {"message": "This model's maximum context length is 8192 tokens.", "code": 400},
        {"message": "too long", "type": "exceed_context_size_error", "code": 400},
    ],
    ids=["filtered", "too long for vLLM", "too long for llama.cpp"],
)
def test_refused_question_has_no_verdict(server: JudgeServer, tmp_path: Path, error: dict[str, Any]) -> None:
    refusal = json.dumps({"error": error}).encode()
    server.script = lambda call, n: Reply(status=400, body=refusal) if "river 0 " in call.text else even_rivers(call, n)
    assert ask(judge(server, tmp_path)) == [None, *EVEN[1:]]
    assert len(server.calls) == 12


def test_judge_that_never_decides_is_given_up_early(server: JudgeServer, tmp_path: Path) -> None:
    server.script = lambda _call, _n: Reply("a")
    many = [JudgeCase("q", "gold", str(i)) for i in range(1000)]
    with pytest.raises(UserError, match=f"neither yes nor no in {MAX_UNDECIDED} answers"):
        ask(judge(server, tmp_path, concurrency=4), many)
    assert len(server.calls) <= MAX_UNDECIDED + 3
    with pytest.raises(UserError, match="neither yes nor no in 3 answers"):
        ask(judge(server, tmp_path), many[:1])


# --- which model it is ------------------------------------------------------------------------------------------------


def test_model_that_changes_during_the_run_ends_it(server: JudgeServer, tmp_path: Path) -> None:
    server.script = lambda _call, n: Reply(reported="new" if n == 6 else "old")
    with pytest.raises(UserError, match="judge changed during the run: the server said 'old', and now 'new'"):
        ask(judge(server, tmp_path, concurrency=1))
    assert len(server.calls) == 6
    server.calls.clear()
    server.script = lambda _call, _n: Reply(reported="new")
    later = judge(server, tmp_path)
    assert ask(later) == [True] * 12
    assert len(server.calls) == 11  # what the new one has judged already is kept, what the old one has is not used
    assert "openai new at" in later.name


def test_model_that_changed_judges_everything_again(server: JudgeServer, tmp_path: Path, heard: Any) -> None:
    server.script = lambda _call, _n: Reply("yes", reported="old")
    ask(judge(server, tmp_path), RIVERS[:10])
    server.calls.clear()
    server.script = lambda _call, _n: Reply("no", reported="new")
    later = judge(server, tmp_path)
    assert ask(later, heard=heard) == [False] * 12
    assert len(server.calls) == 12
    assert [line.partition(" calls")[0] for line in heard.said] == [
        "judge rivers/test: 2",
        "judge rivers/test: the server's model was old; its verdicts aren't used",
        "judge rivers/test: 11",
    ]


def test_verdicts_of_two_models_are_not_mixed(server: JudgeServer, tmp_path: Path) -> None:
    server.script = lambda _call, _n: Reply(reported="old")
    ask(judge(server, tmp_path), RIVERS[:5])
    server.script = lambda _call, _n: Reply(reported="new")
    later = judge(server, tmp_path)
    assert ask(later, RIVERS[:5]) == [True] * 5
    with pytest.raises(UserError, match="judge changed during the run"):
        ask(later)
    again = judge(server, tmp_path)  # and the next run goes on with the new one alone
    assert ask(again, RIVERS[:5]) == [True] * 5
    assert ask(again) == [True] * 12
    assert "openai new at" in again.name


@pytest.mark.parametrize(
    ("reported", "name"),
    [(None, "judge at "), ("", "judge at "), ("/home/somebody/models/tiny", "tiny-[0-9a-f]{8} at ")],
)
def test_model_is_shown_as_asked_for_or_without_its_folder(
    server: JudgeServer, tmp_path: Path, reported: str | None, name: str
) -> None:
    server.script = lambda _call, _n: Reply(reported=reported)
    one = judge(server, tmp_path)
    ask(one)
    assert re.match(f"openai {name}http", one.name)
