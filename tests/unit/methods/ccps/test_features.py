"""The fast CCPS features against the slow oracle, and the invariants of docs/methods.md §8."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bench.api import OutputHead
from methods.ccps import features
from methods.ccps.features import FEATURES, Variant, perturbation_features

SIZES = {"vocab_size": 307, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = {**SIZES, "intermediate_size": 96, "num_key_value_heads": 2, "initializer_range": 0.2}
MODELS: dict[str, dict[str, Any]] = {
    "Llama": WIDE,
    "Qwen2": WIDE,
    "Mistral": WIDE,
    "Gemma2": {**WIDE, "head_dim": 16, "final_logit_softcapping": 30.0},
    "Phi": {**SIZES, "intermediate_size": 96, "initializer_range": 0.2},
    "GPT2": {"vocab_size": 307, "n_embd": 64, "n_layer": 2, "n_head": 4, "initializer_range": 0.2},
}
ARGMAX_COLUMNS = tuple(n for n in FEATURES if "argmax_change" in n or n == "is_actual_token_original_argmax")
FLIP = "epsilon_to_flip_token"

Oracle = Callable[..., list[Any]]


def build(name: str) -> tuple[Tensor, Tensor, OutputHead, Callable[[Tensor], Tensor]]:
    """Hidden states of a random model, the tokens it would choose (and some it wouldn't), its head twice."""
    import transformers

    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(pad_token_id=0, bos_token_id=0, eos_token_id=0, **MODELS[name])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    head = model.get_output_embeddings()
    if head.bias is not None:
        torch.nn.init.normal_(head.bias)  # it starts as zero, which would prove nothing
    softcap = getattr(config, "final_logit_softcapping", None)
    with torch.no_grad():
        out = model(torch.randint(307, (1, 7)), output_hidden_states=True)
    hidden, logits = out.hidden_states[-1][0], out.logits[0]
    ids = logits.argmax(-1)
    ids[::3] = torch.randint(307, (len(ids[::3]),))
    module = torch.nn.Linear(head.in_features, head.out_features, bias=head.bias is not None).double()
    module.load_state_dict(head.state_dict())

    def exact(h: Tensor) -> Tensor:
        z = module(h)
        return z if softcap is None else softcap * torch.tanh(z / softcap)

    ours = OutputHead(head.weight, head.bias, softcap=softcap)
    torch.testing.assert_close(exact(hidden.double()).float(), logits, rtol=1e-4, atol=1e-4)
    return hidden, ids, ours, exact


def scaled_to_gap(hidden: Tensor, head: OutputHead, gap: float) -> Tensor:
    """Each state times the factor at which the lead of its top-1 logit comes nearest to `gap`."""
    factors = torch.logspace(-2, 3, 2001)
    rows = []
    for h in hidden:
        top = head.logits(factors[:, None] * h).topk(2)[0]
        rows.append(factors[(top[:, 0] - top[:, 1] - gap).abs().argmin()] * h)
    return torch.stack(rows).detach()


def assert_agree(fast: Tensor, truths: list[Any]) -> None:
    """1e-3 relative with a floor of 1e-2; argmax columns where float64 decides by more than 1e-4."""
    assert fast.dtype == torch.float32
    for row, truth in zip(fast.double(), truths, strict=True):
        assert tuple(truth.columns) == FEATURES
        for name, ours in zip(FEATURES, row.tolist(), strict=True):
            if (name in ARGMAX_COLUMNS or name == FLIP) and truth.margin < 1e-4:
                continue
            wanted = truth.columns[name]
            assert ours == pytest.approx(wanted, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("gap", [None, 5.0, 12.0, 20.0])
@pytest.mark.parametrize("name", MODELS)
def test_features_agree_with_the_oracle(name: str, gap: float | None, oracle: Oracle) -> None:
    hidden, ids, head, exact = build(name)
    if gap is not None:
        hidden = scaled_to_gap(hidden, head, gap)
        ids = torch.where(torch.arange(len(ids)) % 3 == 0, ids, head.logits(hidden).argmax(-1))
        top = head.logits(hidden).topk(2)[0]
        if head.softcap is None:
            torch.testing.assert_close(top[:, 0] - top[:, 1], torch.full_like(top[:, 0], gap), rtol=0.02, atol=0.05)
    truths = oracle(hidden, ids, exact)
    assert_agree(perturbation_features(hidden, ids, head), truths)
    assert sum(t.margin > 1e-4 for t in truths) >= len(truths) - 1


@pytest.mark.parametrize(
    "options",
    [{"js": "ref"}, {"eps_flip": "exact"}, {"eps_relative": True}, {"entropy_epsilon": 1e-6}],
    ids=lambda o: next(iter(o)),
)
@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_feature_variants_agree_with_the_oracle(name: str, options: dict[str, Any], oracle: Oracle) -> None:
    hidden, ids, head, exact = build(name)
    radius = 2.0 if "eps_relative" in options else 20.0
    fast = perturbation_features(hidden, ids, head, radius=radius, steps=3, variant=Variant(**options))
    assert_agree(fast, oracle(hidden, ids, exact, radius=radius, steps=3, **options))


@pytest.mark.parametrize("softcap", [None, 8.0])
def test_features_honour_logit_scale_and_bias(softcap: float | None, oracle: Oracle) -> None:
    hidden, ids, head = random_tokens(3, vocabulary=90)
    head = OutputHead(head.weight, torch.randn(90), scale=0.25, softcap=softcap)
    wide = OutputHead64(head)
    assert_agree(perturbation_features(hidden, ids, head), oracle(hidden, ids, wide))


class OutputHead64:
    """The formula of `OutputHead`, written again for float64."""

    def __init__(self, head: OutputHead) -> None:
        self.head = head

    def __call__(self, h: Tensor) -> Tensor:
        bias = 0.0 if self.head.bias is None else self.head.bias.double()
        u = self.head.scale * (self.head.weight.double() @ h + bias)
        return u if self.head.softcap is None else self.head.softcap * torch.tanh(u / self.head.softcap)


def random_tokens(seed: int, *, vocabulary: int = 200, n: int = 6) -> tuple[Tensor, Tensor, OutputHead]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(vocabulary, 16, generator=generator) / 3
    hidden = 3 * torch.randn(n, 16, generator=generator)
    return hidden, torch.randint(vocabulary, (n,), generator=generator), OutputHead(weight)


def columns(rows: Tensor, prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): rows[:, i] for i, n in enumerate(FEATURES) if n.startswith(prefix)}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(2, 400),
    size=st.floats(0.01, 30),
    radius=st.floats(0.1, 40),
    steps=st.integers(1, 7),
)
def test_features_keep_their_invariants(seed: int, vocabulary: int, size: float, radius: float, steps: int) -> None:
    hidden, ids, head = random_tokens(seed, vocabulary=vocabulary)
    rows = perturbation_features(hidden * size, ids, head, radius=radius, steps=steps).double()
    assert rows.shape == (len(hidden), 75)
    assert bool(rows.isfinite().all())
    value = dict(zip(FEATURES, rows.T, strict=True))
    moved = value["jacobian_norm_token"] > 1e-9
    tolerance = 1e-4 * (1 + value["delta_log_prob_actual_from_original_max"])
    assert bool((value["pei_value_token"] >= 0).all())
    # the negative log-probability is convex along d, so the drop is at least eps * |J|
    last = value["delta_log_prob_actual_from_original_max"]
    assert bool((last >= radius * value["jacobian_norm_token"] * moved - tolerance).all())
    first = value["delta_log_prob_actual_from_original_min"]
    assert bool((first >= radius / steps * value["jacobian_norm_token"] * moved - tolerance).all())
    for statistic in ("min", "max", "mean"):
        js = value[f"js_div_perturbed_from_original_{statistic}"]
        assert bool(((js >= 0) & (js <= math.log(2) + 1e-6)).all())
        assert bool((value[f"kl_div_perturbed_from_original_{statistic}"] >= 0).all())
        for what in ("logits", "hidden"):
            assert bool((value[f"cosine_sim_{what}_perturbed_to_original_{statistic}"].abs() <= 1).all())
    flips = value["did_argmax_change_from_original_max"] == 1
    assert bool((flips | (value[FLIP] == rows.new_tensor(radius).float())).all())
    torch.testing.assert_close(value["l2_dist_hidden_perturbed_from_original_max"], radius * moved.double())


@pytest.mark.parametrize(
    "options", [{}, {"js": "ref"}, {"eps_flip": "exact"}, {"eps_relative": True}], ids=lambda o: next(iter(o), "paper")
)
@pytest.mark.parametrize("name", ["Llama", "Gemma2", "Phi"])
def test_features_of_given_directions_agree_with_the_oracle(name: str, options: dict[str, Any], oracle: Oracle) -> None:
    hidden, ids, head, exact = build(name)
    directions = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(3))
    radius = 2.0 if "eps_relative" in options else 20.0
    rows = perturbation_features(
        hidden, ids, head, radius=radius, steps=3, variant=Variant(**options), directions=directions
    )
    truths = oracle(hidden, ids, exact, radius=radius, steps=3, directions=directions, **options)
    assert_agree(rows, truths)
    own = perturbation_features(hidden, ids, head, radius=radius, steps=3, variant=Variant(**options))
    kept = [k for k, n in enumerate(FEATURES) if n.startswith(("original_", "is_actual", "jacobian", "l2_dist"))]
    assert torch.equal(rows[:, kept], own[:, kept])
    assert not torch.allclose(rows, own, atol=0.1)


def test_step_distances_are_equal_in_every_row() -> None:
    """A scaler divides by the spread of these columns: rounding noise in them would become a feature."""
    rows = perturbation_features(*random_tokens(2, n=50))
    for suffix, wanted in (("min", 4.0), ("max", 20.0), ("mean", 12.0), ("std", math.sqrt(32))):
        column = rows[:, FEATURES.index(f"l2_dist_hidden_perturbed_from_original_{suffix}")]
        assert set(column.tolist()) == {np.float32(wanted)}


@pytest.mark.parametrize("softcap", [None, 30.0])
@pytest.mark.parametrize("given", [False, True])
def test_features_of_a_zero_gradient_keep_the_state(softcap: float | None, given: bool) -> None:
    hidden, ids, head = random_tokens(4)
    head = OutputHead(head.weight, softcap=softcap)
    if softcap is None:
        top = head.logits(hidden).topk(2)[0]
        hidden = hidden * 60 / (top[:, :1] - top[:, 1:])
        ids = head.logits(hidden).argmax(-1)
    else:
        hidden = hidden * 1e6  # all logits at the cap, where its slope is zero
    rows = perturbation_features(hidden, ids, head, directions=torch.ones_like(hidden) if given else None)
    value = dict(zip(FEATURES, rows.T, strict=True))
    assert bool((value["jacobian_norm_token"] <= 1e-9).all())
    assert bool((value[FLIP] == 20).all())
    assert bool((value["pei_value_token"] == 0).all())
    for name, column in columns(rows, "").items():
        if name.endswith("_std") or name.startswith(("did_argmax", "delta", "l2_dist", "kl_div")):
            assert bool((column == 0).all()), name
        if name.startswith("js_div"):
            torch.testing.assert_close(column, torch.zeros_like(column), rtol=0, atol=1e-6)
        if name.startswith("cosine") and not name.endswith("_std"):
            torch.testing.assert_close(column, torch.ones_like(column))
    torch.testing.assert_close(value["perturbed_entropy_mean"], value["original_entropy"])
    torch.testing.assert_close(value["perturbed_logit_argmax_max"], value["original_logit_argmax"])


def test_features_in_chunks_and_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, ids, head = random_tokens(9, n=23)
    whole = perturbation_features(hidden, ids, head)
    monkeypatch.setattr(features, "_SIZES", {"cpu": features._Sizes(9 * 200, 2 * 5 * 200, 1)})
    torch.testing.assert_close(perturbation_features(hidden, ids, head), whole, rtol=1e-5, atol=1e-5)


def test_features_read_half_precision_heads_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, ids, head = random_tokens(6)
    half = OutputHead(head.weight.bfloat16(), torch.randn(200).bfloat16())
    monkeypatch.setattr(
        features, "_SIZES", {"cpu": features._Sizes(16 * 64, 1 << 19, 1)}
    )  # several slices of the weight
    exact = OutputHead(half.weight.float(), half.bias.float())  # type: ignore[union-attr]
    torch.testing.assert_close(
        perturbation_features(hidden, ids, half), perturbation_features(hidden, ids, exact), rtol=1e-5, atol=1e-5
    )


def test_features_of_no_tokens_are_no_rows() -> None:
    _, _, head = random_tokens(1)
    assert perturbation_features(torch.zeros(0, 16), torch.zeros(0, dtype=torch.long), head).shape == (0, 75)


ZEROS, FEW, MANY = torch.zeros(2, 16), torch.ones(1, 16), torch.zeros(3, 16)


@pytest.mark.parametrize(
    ("hidden", "arguments", "message"),
    [
        (MANY, {}, r"\(2, 16\).*got \(3, 16\)"),
        (torch.zeros(2, 9), {}, "width 16"),
        (ZEROS, {"steps": 0}, "steps=0"),
        (ZEROS, {"radius": 0.0}, "radius=0"),
        (ZEROS, {"directions": FEW}, r"\(2, 16\)"),
        (ZEROS, {"directions": ZEROS}, "length above 0"),
        (ZEROS, {"directions": ZEROS + math.inf}, "length above 0"),
    ],
)
def test_features_refuse_bad_arguments(hidden: Tensor, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        perturbation_features(hidden, torch.zeros(2, dtype=torch.long), random_tokens(1)[2], **arguments)
