"""Text of single tokens: joined they are the decoded text, whatever the tokenizer does with bytes and spaces."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bench.prompts.chat import Chat


@cache
def chat(kind: str) -> Chat:
    """A tokenizer of single bytes and some longer tokens, as Llama 3 has them or as Llama 2 does."""
    if kind == "bytes":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {letter: k for k, letter in enumerate([*alphabet, "Ġt", "th"])}
        made = Tokenizer(models.BPE(vocabulary, [("Ġ", "t"), ("t", "h")]))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    else:
        tokens = ["<unk>", *(f"<0x{k:02X}>" for k in range(256)), "▁", *"abcdeth", "▁t", "th"]
        vocabulary = {letter: k for k, letter in enumerate(tokens)}
        made = Tokenizer(models.BPE(vocabulary, [("▁", "t"), ("t", "h")], unk_token="<unk>", byte_fallback=True))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    return Chat(PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>"))


KINDS = ("bytes", "pieces")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=12))
@example(text=" the 👩‍🚀 is\n\tça ")
def test_pieces_join_to_text_without_broken_characters(kind: str, text: str) -> None:
    own = chat(kind)
    ids: list[int] = own.tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces = own.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == own._text(ids)
    assert "".join(pieces).strip() == own.decode(ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.integers(0, 255), max_size=8))
def test_pieces_of_any_ids_join_to_their_text(kind: str, ids: list[int]) -> None:
    own = chat(kind)
    assert "".join(own.pieces(ids)) == own._text(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_have_characters_at_their_last_token(kind: str) -> None:
    own = chat(kind)
    ids: list[Any] = own.tokenizer("é", add_special_tokens=False)["input_ids"]
    assert [piece for piece in own.pieces([*ids, *ids]) if piece.strip()] == ["é", "é"]
    assert own.pieces([*ids, ids[-2]])[-1].strip("\ufffd") == ""  # an answer that was cut within a character


def test_pieces_of_end_tokens_are_empty() -> None:
    own = chat("bytes")
    ids = own.tokenizer("th", add_special_tokens=False)["input_ids"]
    assert own.pieces([*ids, own.tokenizer.eos_token_id]) == [*own.pieces(ids), ""]
