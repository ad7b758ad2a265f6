"""Released answers come with their own prompt, text and label; what is odd is counted, what is wrong is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import registry
from bench.api import Format, Question, Split, Task, UserError
from bench.api.question import Message, Released
from bench.data.released import HUB, Release, ReleaseFolder, open_release, requested_revision
from bench.model import specs
from bench.prompts.templates import SYSTEM
from tests.fixtures.rivers import Rivers
from tests.kit import servers
from tests.kit.servers import SHA


class ReleasedRivers(Rivers):
    """A task of which answers are released."""

    def questions(self, split: Split) -> Iterator[Question]:
        raise AssertionError("a release brings its own questions")


class OpenRivers(ReleasedRivers):
    """The same, asked openly."""

    name = "rivers-oe"
    format = Format.OPEN


FOLDERS = {"rivers": "RIVERS-CHOICE", "rivers-oe": "RIVERS-OE"}

CONTEXT = "Question:\nWhere does it end?\n\nChoices:\n  (a): in a lake\n  (b): in (c): the sea\n  (c): nowhere"
CONVERSATION = [
    {"role": "system", "content": "Be brief. "},
    {"role": "user", "content": f"Shots.\nAnswer: a\n\n{CONTEXT}\nAnswer:"},
]
CHOICE: dict[str, Any] = {
    "prompt": "Shots.\nAnswer: a\n\n", "context": CONTEXT, "target_prompt": "\nAnswer:", "target": "b",
    "llm_output": "b", "conversation": CONVERSATION, "query_label": 1, "dataset_name": "obqa", "hash_id": "1f",
    "wrong_targets": "0<<OPJ>>2", "options": "passed over",
}  # fmt: skip
OPEN: dict[str, Any] = {
    "prompt": "", "context": "Question: Where does it end?", "target_prompt": "\nAnswer:", "target": "in the sea",
    "llm_output": " In the sea. ", "assessment": 0, "task": "rivers", "id": 17,
    "wrong_target_texts": "in a lake<<OPJ>> <<OPJ>> nowhere\n<<OPJ>>",
    "conversation": [{"role": "user", "content": "Question: Where does it end?\nAnswer:"}],
}  # fmt: skip


def lay_out(folder: Path, name: str, records: Sequence[object]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def read(
    folder: Path, *records: object, task: type[Task] = ReleasedRivers, split: Split = "test"
) -> tuple[list[tuple[Question, Released]], dict[str, int]]:
    """The records after a round through a file, and what was counted."""
    made = task(None)  # type: ignore[arg-type]
    lay_out(folder, f"{FOLDERS[made.name]}/small/{split}.jsonl", records)
    return Release(ReleaseFolder(folder), "small", FOLDERS).records(made, split), made.counts


# --- a record ---------------------------------------------------------------------------------------------------------


def test_choice_record(tmp_path: Path) -> None:
    ((question, released),), counts = read(tmp_path, CHOICE)
    assert question == Question(
        "1f", "obqa", "Question:\nWhere does it end?", ("in a lake", "in (c): the sea", "nowhere"), 1
    )
    assert released.prompt.messages == tuple(Message(m["role"], m["content"]) for m in CONVERSATION)
    assert (released.text, released.correct) == ("b", True)
    assert counts == {}


def test_open_record(tmp_path: Path) -> None:
    ((question, released),), counts = read(tmp_path, OPEN, task=OpenRivers)
    assert question == Question("17", "rivers", OPEN["context"], ("in the sea", "in a lake", "nowhere"), 0)
    assert (released.text, released.correct) == ("In the sea.", False)
    assert counts == {}
    numbers = {**OPEN, "target": 42, "llm_output": 7, "id": "017", "wrong_target_texts": "41<<OPJ>>43"}
    ((question, released),), _ = read(tmp_path, numbers, task=OpenRivers)
    assert (question.id, question.choices, released.text) == ("017", ("42", "41", "43"), "7")


@pytest.mark.parametrize("key", ["query_label", "assessment"])
def test_labels_are_theirs_whatever_the_answer_says(tmp_path: Path, key: str) -> None:
    right, wrong = (1, True, "1", 1.0), (0, False, " 0 ", 0.0)
    for label, correct in [*((label, True) for label in right), *((label, False) for label in wrong)]:
        record = {**CHOICE, "query_label": None, key: label, "llm_output": "The answer is a"}
        ((_, released),), counts = read(tmp_path, record)
        assert (released.text, released.correct, counts) == ("The answer is a", correct, {})


LEFT_OUT = "test: records without a label, left out"
WRONG = "test: records whose wrong options are not all but the right one"


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ([{"query_label": label} for label in (-1, "-1", None, float("nan"), -1.0)], {LEFT_OUT: 5}),
        (
            [{"llm_output": text, "query_label": label} for text in ("", "  \n", None) for label in (0, 1)],
            {"test: empty answers with label 1, taken as wrong": 3},
        ),
        (
            [{"wrong_targets": text} for text in ("", None, "2<<OPJ>>0", "0", "0<<OPJ>>1<<OPJ>>2", "a<<OPJ>>c")],
            {WRONG: 3},
        ),
        (
            [{"conversation": [{"role": "user", "content": "Hello"}]}],
            {"test: records whose conversation does not ask their question": 1},
        ),
    ],
    ids=["no label", "empty", "wrong options", "conversation"],
)
def test_odd_records_are_counted(tmp_path: Path, changes: list[dict[str, Any]], counts: dict[str, int]) -> None:
    records, counted = read(tmp_path, CHOICE, *({**CHOICE, "hash_id": str(i), **c} for i, c in enumerate(changes)))
    assert counted == counts
    kept = [] if LEFT_OUT in counts else changes
    assert [question.id for question, _ in records] == ["1f", *map(str, range(len(kept)))]
    assert all(
        (released.text, released.correct) == ("", False) for _, released in records[1:] if "llm_output" in kept[0]
    )


@pytest.mark.parametrize(("task", "record"), [(ReleasedRivers, CHOICE), (OpenRivers, OPEN)])
def test_prompt_without_a_conversation_is_put_together(
    tmp_path: Path, task: type[Task], record: dict[str, Any]
) -> None:
    """As the official code makes it: system message of the format, the open one without its full stop."""
    ((_, released),), counts = read(tmp_path, {**record, "conversation": None}, task=task)
    system = {Format.CHOICE: SYSTEM[Format.CHOICE], Format.OPEN: SYSTEM[Format.OPEN][:-1]}[task.format]
    user = record["prompt"] + record["context"] + record["target_prompt"]
    assert released.prompt.messages == (Message("system", system), Message("user", user))
    assert counts == {"test: records without a conversation, put together from their pieces": 1}


# --- options ----------------------------------------------------------------------------------------------------------


def with_options(lines: str, target: str = "a", before: str = "Question:\nWhat?\n\n") -> dict[str, Any]:
    return {k: v for k, v in CHOICE.items() if k != "wrong_targets"} | {
        "context": f"{before}Choices:\n{lines}", "target": target, "conversation": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ("  (a): x\n  (b): y", ("x", "y")),
        ("  (a): x\n  (b): y\n", ("x", "y")),
        ("(A): x\n(B): y", ("x", "y")),
        ("  (a):  spaced \n  (b): ", (" spaced ", "")),
        ("  (a): one\ntwo\n\nthree\n  (b): y", ("one\ntwo\n\nthree", "y")),
        ("  (a): x\n  (i): not the next letter\n  (b): y", ("x\n  (i): not the next letter", "y")),
        ("  (a): (b): x\n  (b): (c)", ("(b): x", "(c)")),
        ("  (a): x, y\u2028z\n  (b): y", ("x, y\u2028z", "y")),
    ],
)
def test_options_are_read_off_their_lines(tmp_path: Path, lines: str, options: tuple[str, ...]) -> None:
    ((question, _),), _ = read(tmp_path, with_options(lines))
    assert question.choices == options
    before = "Passage:\nChoices:\n  (a): no\n\nQuestion:\nWhat?\n\n"
    ((question, _),), _ = read(tmp_path, with_options(lines, "b", before))
    assert (question.choices, question.gold, question.text) == (options, 1, before.strip())


@given(
    st.lists(st.text(alphabet="xy ()ab:é", max_size=12), min_size=2, max_size=26).flatmap(
        lambda options: st.tuples(st.just(options), st.integers(0, len(options) - 1))
    )
)
def test_options_of_any_text_come_back(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[list[str], int]) -> None:
    options, gold = drawn
    lines = "\n".join(f"  ({chr(97 + i)}): {text}" for i, text in enumerate(options))
    ((question, _),), _ = read(tmp_path_factory.mktemp("r"), with_options(lines, chr(97 + gold)))
    assert (list(question.choices), question.gold) == (options, gold)


def test_question_asked_twice_is_kept_and_counted(tmp_path: Path) -> None:
    """MMLU repeats 27 questions whole; a hash of what is asked is the same for both."""
    records, counts = read(
        tmp_path, CHOICE, {**CHOICE, "hash_id": "2"}, {**CHOICE, "llm_output": "c", "query_label": 0}, CHOICE
    )
    assert [question.id for question, _ in records] == ["1f", "2", "1f#2", "1f#3"]
    assert [released.text for _, released in records] == ["b", "b", "c", "b"]
    assert counts == {"test: records that repeat a question and its id": 2}


# --- files ------------------------------------------------------------------------------------------------------------


def ids(release: Release, split: Split = "test", task: type[Task] = ReleasedRivers) -> list[str]:
    return [question.id for question, _ in release.records(task(None), split)]  # type: ignore[arg-type]


def test_files_with_wrong_options_go_first(tmp_path: Path) -> None:
    lay_out(tmp_path, "RIVERS-CHOICE/small/train.jsonl", [{**CHOICE, "hash_id": "without"}])
    lay_out(tmp_path, "RIVERS-CHOICE/small/test.jsonl", [{**CHOICE, "hash_id": "without"}])
    lay_out(tmp_path, "RIVERS-CHOICE-WRG/small/train.jsonl", [{**CHOICE, "hash_id": "with"}])
    lay_out(tmp_path, "RIVERS-CHOICE-WRG/other/test.jsonl", [{**CHOICE, "hash_id": "another model's"}])
    release = Release(ReleaseFolder(tmp_path), "small", FOLDERS)
    assert ids(release, "train") == ["with"]
    assert ids(release, "test") == ["without"]
    for name in ("val", "validation"):
        lay_out(tmp_path, f"RIVERS-CHOICE/small/{name}.jsonl", [{**CHOICE, "hash_id": name}])
        assert ids(release, "validation") == [name]


@pytest.mark.parametrize("below", ["", "test/"])
def test_files_may_be_of_one_subject_each(tmp_path: Path, below: str) -> None:
    record = {k: v for k, v in CHOICE.items() if k != "dataset_name"}
    lay_out(tmp_path, f"RIVERS-CHOICE/small/{below}hills.jsonl", [{**record, "hash_id": "h", "task": "high_hills"}])
    lay_out(tmp_path, f"RIVERS-CHOICE/small/{below}coasts.jsonl", [{**record, "hash_id": "c"}])
    lay_out(tmp_path, "RIVERS-CHOICE/small/train.jsonl", [{**record, "hash_id": "t"}])
    release = Release(ReleaseFolder(tmp_path), "small", FOLDERS)
    records = release.records(ReleasedRivers(None), "test")  # type: ignore[arg-type]
    assert [(question.id, question.subject) for question, _ in records] == [("c", "coasts"), ("h", "high_hills")]
    about = release.describe(ReleasedRivers(None), "test")  # type: ignore[arg-type]
    files = [tmp_path / f"RIVERS-CHOICE/small/{below}{name}.jsonl" for name in ("coasts", "hills")]
    assert about["sha256"] == hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    assert about["file"].endswith("hills.jsonl, 2 files")


def test_ids_are_unique_over_all_files_of_a_split(tmp_path: Path) -> None:
    lay_out(tmp_path, "RIVERS-CHOICE/small/coasts.jsonl", [CHOICE])
    lay_out(tmp_path, "RIVERS-CHOICE/small/hills.jsonl", [{**CHOICE, "context": CONTEXT.replace("end", "begin")}])
    with pytest.raises(UserError, match=r"hills\.jsonl line 1: .*'1f', which another question has in .*coasts\.jsonl"):
        ids(Release(ReleaseFolder(tmp_path), "small", FOLDERS))


def test_file_is_described_by_its_digest(tmp_path: Path) -> None:
    path = lay_out(tmp_path, "RIVERS-CHOICE/small/test.jsonl", [CHOICE])
    made: Any = ReleasedRivers(None)  # type: ignore[arg-type]
    assert Release(ReleaseFolder(tmp_path), "small", FOLDERS).describe(made, "test") == {
        "source": "folder", "file": "RIVERS-CHOICE/small/test.jsonl",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "license": "not stated",
    }  # fmt: skip


def test_splits_and_tasks_that_are_not_there(tmp_path: Path) -> None:
    lay_out(tmp_path, "RIVERS-CHOICE/small/train.jsonl", [CHOICE])
    release = Release(ReleaseFolder(tmp_path), "small", FOLDERS)
    with pytest.raises(
        UserError, match=r"CCPS/RIVERS-CHOICE/small/test\.jsonl, found RIVERS-CHOICE/small/train\.jsonl"
    ):
        ids(release)
    with pytest.raises(UserError, match=r"CCPS/RIVERS-OE/small/test\.jsonl, found nothing"):
        ids(release, task=OpenRivers)

    class Unreleased(ReleasedRivers):
        name = "lakes"

    with pytest.raises(UserError, match=r"'lakes' is not in the release, expected one of rivers, rivers-oe\."):
        ids(release, task=Unreleased)


def test_release_is_of_the_papers_models_and_tasks(tmp_path: Path) -> None:
    assert {name: spec.released for name, spec in specs.aliases().items()} == {
        "tiny": "tiny",
        "llama8b": "Meta-Llama-3.1-8B-Instruct",
        "qwen14b": "Qwen2.5-14B-Instruct",
        "mistral24b": "Mistral-Small-24B-Instruct-2501",
        "qwen32b": "Qwen2.5-32B-Instruct",
    }
    (tmp_path / "CCPS").mkdir()
    folders = open_release("", tmp_path, "tiny").folders
    assert set(folders) <= set(registry.built_in()[1].names())
    assert folders == {name: name.upper() for name in folders}
    assert len(folders) == 5


def test_data_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path / "CCPS", "RIVERS-CHOICE/tiny/test.jsonl", [CHOICE])
    monkeypatch.setenv("CONFBENCH_DATA", str(tmp_path))
    release = open_release("", None, "tiny")
    assert ids(replace(release, folders=FOLDERS)) == ["1f"]
    with pytest.raises(UserError, match=r"\$CONFBENCH_DATA names a folder; leave out @main or the folder"):
        open_release("main", None, "tiny")


def test_answers_option_may_name_a_revision() -> None:
    assert [requested_revision(said) for said in ("generate", "released", "released@main")] == [None, "", "main"]
    for said in ("releasd", "released@", ""):
        with pytest.raises(UserError, match=r"--answers: expected generate, released, .* or a file"):
            requested_revision(said)


# --- Hub --------------------------------------------------------------------------------------------------------------

HUB_FILES = {
    "RIVERS-CHOICE/tiny/train.jsonl": [{**CHOICE, "hash_id": "without"}],
    "RIVERS-CHOICE-WRG/tiny/train.jsonl": [{**CHOICE, "hash_id": "with"}],
    "RIVERS-CHOICE/tiny/coasts.jsonl": [{**CHOICE, "hash_id": "c"}],
    "RIVERS-CHOICE/tiny/hills.jsonl": [{**CHOICE, "hash_id": "h"}],
    "RIVERS-CHOICE/tiny/readme.txt": [],
    "RIVERS-CHOICE/other/test.jsonl": [{**CHOICE, "hash_id": "another model's"}],
}
SCRIPT = """
import json, sys
from dataclasses import replace
from bench.api import UserError
from bench.api.errors import AbsentError
from bench.data.released import open_release
from tests.fixtures.rivers import Rivers
rivers = Rivers(None)
said = []
for revision, split in json.loads(sys.argv[1]):
    try:
        release = replace(open_release(revision, None, "tiny"), folders={"rivers": "RIVERS-CHOICE"})
        found = [question.id for question, _ in release.records(rivers, split)]
        said.append({"ids": found, "about": release.describe(rivers, split)})
    except UserError as error:
        said.append({"error": str(error), "absent": isinstance(error, AbsentError)})
print(json.dumps(said))
"""


def test_hub_is_read_at_the_named_revision_then_without_it(tmp_path: Path) -> None:
    asked = [(SHA, "train"), ("main", "train"), ("main", "test"), ("main", "validation"), ("v3", "train")]
    files = {name: "".join(json.dumps(row) + "\n" for row in rows).encode() for name, rows in HUB_FILES.items()}
    with servers.hub({HUB: servers.Repository(files, branches=(SHA, "main", "v2"))}) as endpoint:
        pinned, branch, test, validation, unknown = servers.answer_of(SCRIPT, asked, endpoint, tmp_path)
    about = {"source": "hub", "hub": HUB, "revision": SHA, "license": "not stated"}
    assert pinned == {"ids": ["with"], "about": {**about, "file": "RIVERS-CHOICE-WRG/tiny/train.jsonl"}}
    assert branch["about"] == {**pinned["about"], "asked for": "main"}
    assert test["ids"] == ["c", "h"]
    assert test["about"]["file"] == "RIVERS-CHOICE/tiny/coasts.jsonl to RIVERS-CHOICE/tiny/hills.jsonl, 2 files"
    assert "expected CCPS/RIVERS-CHOICE/tiny/validation.jsonl, found" in validation["error"]
    assert (validation["absent"], unknown["absent"]) == (True, False)
    assert f"Can't load {HUB} (revision v3)" in unknown["error"]
    assert "with --data-dir" in unknown["error"]
    offline = servers.answer_of(SCRIPT, [*asked[:3], ("v2", "train")], servers.NOBODY, tmp_path)
    assert offline[:2] == [pinned, branch]
    # nobody can tell whether all files of a split are there, nor what a branch that was never asked for means
    assert all("connect once" in read["error"] and not read["absent"] for read in offline[2:])
