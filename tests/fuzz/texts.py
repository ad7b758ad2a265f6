"""Parsers of short texts: answers of models and judges, options of the command line, names, and what a page shows."""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from bench.data.released import requested_revision
from bench.grading import prompt
from bench.grading.grade import JudgeCase, normalise_text, parse_letter, same_text, substring_rule
from bench.grading.openai import OpenAIJudge
from bench.model.specs import model_label, resolve
from bench.progress import Silent
from bench.report import style
from bench.report.text import plain
from bench.results.files import model_folder, path_of
from bench.run.method_factory import convert, parse_overrides, protocol_with
from bench.servers.address import Address
from tests.fuzz.inputs import EDITS, RAW, Target, document, edited, simple, text
from tests.kit.world import result_row

STATUSES = (200, 200, 200, 200, 201, 204, 307, 400, 401, 404, 413, 429, 500, 503)
COMPLETION: dict[str, Any] = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "judge-1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip
FIELDS = {"steps": 10_000, "deepspeed": True, "divergence": "jsd", "learning_rate": 1e-4, "unflipped": None}
STYLE = b"[mine]\ncolour = '#1963de'\nmarker = 'o'\ndash = 'solid'\n"


def letter(data: bytes) -> None:
    said = text(data)
    found = parse_letter(said, "abcdefghij")
    assert found is None or found in "abcdefghij"
    substring_rule(said, "a")


def normalised(data: bytes) -> None:
    said = text(data)
    normalise_text(said)
    assert same_text(said, said)
    same_text(said, "1/2 cup")


def shown(data: bytes) -> None:
    left = plain(text(data))
    assert not [c for c in left if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


def address(data: bytes) -> None:
    found = Address.of(text(data))
    found.redact("a reply with " + found.base)
    assert "@" not in found.public.partition("//")[2].partition("/")[0]


def model(data: bytes) -> None:
    name = text(data)
    assert "\0" not in model_label(name)
    assert "/" not in model_folder(name)
    resolve(name)


def path(data: bytes) -> None:
    method, preset, task, *_ = [*text(data).split("\n"), "", "", ""]
    found = path_of(result_row(method, task=task, preset=preset, status="skipped"), Path("out"))
    assert found.resolve().is_relative_to(Path("out").resolve())


def overrides(data: bytes) -> None:
    parsed = parse_overrides([text(data)], ["ccps"])
    for owner, fields in parsed.items():
        if owner == "protocol":
            protocol_with("fixed", fields)[0].digest()
        for key, value in fields.items():
            convert(owner, key, value, FIELDS)


def styles(folder: Path) -> Callable[[bytes], object]:
    def call(data: bytes) -> None:
        (folder / style.FILE).write_bytes(data)
        style.read(folder)

    return call


def openai(folder: Path) -> Callable[[bytes], object]:
    from openai import DefaultAsyncHttpxClient

    http: Any = importlib.import_module(DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])  # by any name
    reply = SimpleNamespace(status=200, body=b"", count=0, kind="application/json")

    async def answer(_client: object, request: object, **_options: object) -> object:
        headers = {"content-type": reply.kind}
        return http.Response(reply.status, content=reply.body, headers=headers, request=request)

    def call(data: bytes) -> None:
        reply.status = STATUSES[data[0] % len(STATUSES)] if data else 200
        reply.kind = "text/html" if data and data[0] > 250 else "application/json"
        reply.body, reply.count = document(data[1:], COMPLETION), reply.count + 1
        if reply.status == 204:
            reply.body = b""
        judge = OpenAIJudge(Address.of("http://127.0.0.1:1/v1"), "judge", folder / str(reply.count))
        judge.retries, judge.timeout_s = 0, 5.0
        with mock.patch.object(DefaultAsyncHttpxClient, "send", answer):
            judge.verdicts([JudgeCase("Where?", "here", "there")], "judging", Silent())

    return call


def overridden(data: bytes) -> None:
    from bench.api.protocol import with_fields

    valid = {"shots": 5, "letters": "abcd", "ece_bins": 10, "letter_rule": "exact", "drop_contaminated": True}
    values = edited(valid, data)
    with_fields("paper", values if isinstance(values, dict) else {}).digest()


NORMAL = (
    "  The Blue-Green  Delta. ", "A", "-$1,000.50", "1/2 cup", "50 %", "COVID-19", "1e999",
    "\u0663\u066b\u0661\u0664", "1,2,3.4e-5%", "2024-05-01",
)  # fmt: skip
SETTINGS = (
    b"ccps.steps=5", b"steps=5", b"protocol.shots=0", b"ccps.deepspeed=false", b"protocol.letter_rule=exact",
    b"unflipped=none", b"protocol.letters=ABCD",
)  # fmt: skip
TARGETS = {
    "letter": simple(letter, b" (B).", b"The", b"[a]:", b"\xc3\xa9"),
    "normalise": simple(normalised, *(each.encode() for each in NORMAL)),
    "judge-answer": simple(lambda data: prompt.parse(text(data)), b"**Yes**, it is.", b"No: yes", b"yes/no", b" \n"),
    "openai": Target(
        openai, lambda: [b"\0" + EDITS, b"\0" + RAW + b'{"model":"m","choices":[{"message":{"content":"no"}}]}']
    ),
    "shown": simple(shown, b"\x1b[2J\x1b]0;title\x07", "\u202eabc\u2028".encode(), b"word " * 80),
    "judge-url": simple(
        address, b"http://127.0.0.1:8000/v1", b"https://me:secret@example.org/v1/?token=abcdef", b"http://[::1]:80/"
    ),
    "model-name": simple(model, b"tiny", b"Qwen/Qwen2.5-14B-Instruct", b"org/model", b"/"),
    "result-path": simple(path, b"ccps\nfixed\nmmlu-choice", b"ccps+isotonic\npaper\nx.y"),
    "set": simple(overrides, *SETTINGS, valid=False),
    "protocol": simple(overridden, b"", b"\0\0\0"),
    "style": Target(styles, lambda: [STYLE]),
    "released-name": simple(lambda data: requested_revision(text(data)), b"generate", b"released", b"released@abc"),
}
