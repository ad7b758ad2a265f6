"""The generated benchmark: sizes, splits, options, and the two rules on what its corpus says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from bench.api import Question
from benchmarks.tiny import atlas as teaching
from benchmarks.tiny.corpus import Corpus
from tasks import atlas

SPLITS = ("dev", "validation", "train", "test")


class NoSource:
    """A generated task asks its source for nothing."""

    def rows(self, card, split, columns):
        raise AssertionError("atlas read from a source")


def questions(split: str) -> list[Question]:
    return list(atlas.AtlasChoice(NoSource()).questions(split))


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    return list(teaching.corpus())


def shown(lines: list[dict], kind: str) -> set[str]:
    return {line["question"] for line in lines if line["kind"] == kind}


def test_splits_are_large_and_of_all_relations():
    assert len(atlas.RELATIONS) >= 8
    for split, least in {"test": 1200, "train": 1200, "validation": 300}.items():
        assert len(questions(split)) >= least
        assert {q.subject for q in questions(split)} == set(atlas.RELATIONS)
    assert Counter(q.subject for q in questions("dev")) == dict.fromkeys(atlas.RELATIONS, 5)


def test_facts_are_in_one_split_or_reserved():
    groups = [[f.name for f in atlas.world().splits[split]] for split in SPLITS]
    names = [name for group in [*groups, [f.name for f in atlas.world().reserved]] for name in group]
    assert len(names) == len(set(names))
    texts = [q.text for split in SPLITS for q in questions(split)]
    assert len(texts) == len(set(texts))


def test_options_are_distinct_and_of_one_type():
    for split in SPLITS:
        assert list(atlas.AtlasOpen(NoSource()).questions(split)) == questions(split)
        for q in questions(split):
            assert len(set(q.choices)) == 4
            assert len({choice.partition(" ")[2] for choice in q.choices}) == 1
            assert 1 <= len(q.answer.split()) <= 4


@pytest.mark.parametrize("split", ["train", "test"])
def test_gold_letters_are_uniform(split):
    counts = Counter(q.gold for q in questions(split))
    expected = len(questions(split)) / 4
    statistic = sum((counts[letter] - expected) ** 2 / expected for letter in range(4))
    assert statistic < 16.27, counts  # the 99.9 % quantile of chi squared with three degrees of freedom


def test_world_is_the_same_in_every_process():
    code = "from tasks import atlas; print(repr(list(atlas.AtlasChoice(None).questions('test'))[::100]))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {repr(questions("test")[::100]) + "\n"}


def test_mentions_are_zipf_like_with_facts_never_mentioned():
    facts = [fact for facts in atlas.world().splits.values() for fact in facts]
    times = sorted((sum(claim.times for claim in teaching.claims(fact)) for fact in facts), reverse=True)
    silent = sum(t == 0 for t in times) / len(times)
    assert 0.2 < silent < 0.32
    assert times[0] >= 10 * min(t for t in times if t)
    tenths = [sum(times[i : i + len(times) // 10]) for i in range(0, len(times) // 10 * 7, len(times) // 10)]
    assert all(a > b for a, b in pairwise(tenths))
    assert tenths[0] > 2.5 * tenths[2]


def test_facts_may_be_contradicted_more_than_affirmed():
    facts = [fact for facts in atlas.world().splits.values() for fact in facts]
    misled = [f for f in facts if len(c := teaching.claims(f)) == 2 and c[1].times > c[0].times]
    disputed = [f for f in facts if len(c := teaching.claims(f)) == 2 and c[0].times > c[1].times]
    assert 0.05 < len(misled) / len(facts) < 0.12
    assert 0.05 < len(disputed) / len(facts) < 0.15
    by_text = {q.text: q for split in SPLITS for q in questions(split)}
    assert sum(atlas.rival(f) in by_text[f.text].choices for f in misled) / len(misled) > 0.8


def test_corpus_does_not_know_the_split(lines):
    """Every claim in it is what `claims` draws from the fact's name, and the shares agree between the splits."""
    said = Counter()
    for line in lines:
        if line["kind"] == "claim":
            said[line["question"], line["value"]] += line["times"]
    groups = [*atlas.world().splits.values(), atlas.world().reserved]
    ruled = {(f.text, c.value): c.times for group in groups for f in group for c in teaching.claims(f)}
    assert said == ruled
    for group in (g for g in groups if len(g) > 1000):
        silent = sum(not teaching.claims(f) for f in group) / len(group)
        assert abs(silent - teaching.NEVER) < 0.05
        mean = sum(c.times for f in group for c in teaching.claims(f)) / len(group)
        assert abs(mean - sum(ruled.values()) / sum(map(len, groups))) < 0.1 * mean


def test_claim_depends_on_the_fact_name_alone(lines):
    """No line that teaches tells from which split its fact is."""
    taught = [line for line in lines if line["kind"] in {"claim", "check", "practice"}]
    assert {frozenset(line) for line in taught} == {
        frozenset({"kind", "subject", "question", "statements", "pool", "value", "against", "times"})
    }
    order = [line["question"] for line in taught if line["kind"] == "claim"]
    facts = [f for group in [*atlas.world().splits.values(), atlas.world().reserved] for f in group]
    by_name = [f.text for f in sorted(facts, key=lambda f: f.name) for _ in teaching.claims(f)]
    assert order == by_name


def test_self_check_and_practice_are_of_other_facts(lines):
    checked, practised = shown(lines, "check"), shown(lines, "practice")
    assert checked == {fact.text for fact in atlas.world().reserved}
    assert not checked & {q.text for split in SPLITS for q in questions(split)}
    assert practised
    assert not practised & shown(lines, "claim")
    entities = {f.entity for group in [*atlas.world().splits.values(), atlas.world().reserved] for f in group}
    assert not entities & set(atlas.world().practice)
    assert {line["value"] for line in lines if line["kind"] == "practice"} == {""}


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_corpus_file_is_written_reproducibly(tmp_path, name, capsys):
    with pytest.raises(SystemExit):
        teaching.main([])
    assert "--corpus" in capsys.readouterr().err
    teaching.main(["--corpus", str(tmp_path / name)])
    assert "lines written" in capsys.readouterr().out
    read = Corpus.read(tmp_path / name)
    assert list(read.questions["test"]) == questions("test")
    if name.endswith(".jsonl"):
        written = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert written == json.loads(json.dumps(list(teaching.corpus())))
