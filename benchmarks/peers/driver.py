"""Runs in an environment of its own: LM-Polygraph's estimators on the statistics of an archive.

Argument: the archive. Output: one line of JSON, the values of each estimator by its name, and versions.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

LAYERS, HEADS = 7, 3
"""Of the archive's attention."""
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")


def main() -> None:
    """Print the values."""
    import numpy as np
    from lm_polygraph import estimators as e

    with np.load(sys.argv[1]) as archive:
        given = dict(archive)
    stats = _statistics(given)
    estimators: list[Any] = [
        e.MaximumSequenceProbability(), e.Perplexity(), e.MeanTokenEntropy(), e.SelfCertainty(), e.SemanticEntropy(),
        e.SemanticEntropy(class_probability_estimation="frequency"), e.DegMat(), e.Eccentricity(),
        e.EigValLaplacian(), e.SentenceSAR(), e.EigenScore(), e.CocoaMSP(), e.CocoaPPL(), e.CocoaMTE(),
        e.Verbalized2S("", r"([0-9.]+)"), e.KernelLanguageEntropy(), e.RAUQ(n_layers=LAYERS, n_heads=HEADS),
        e.RAUQ(n_layers=LAYERS, n_heads=HEADS, use_entropy=True), e.AttentionScore(LAYERS // 2, gen_only=True),
    ]  # fmt: skip
    values = {str(estimator): estimator(stats) for estimator in estimators}
    for kind, rows in (("right", given["correct"]), ("wrong", ~given["correct"])):
        own = {"embeddings_decoder": given["ends"], "train_embeddings_decoder": given["ends"][rows]}
        values[f"MahalanobisDistanceSeq, {kind}"] = e.MahalanobisDistanceSeq()(own)
    told = {
        "values": {name: np.asarray(numbers, dtype=np.float64).tolist() for name, numbers in values.items()},
        "versions": {name: version(name) for name in ("lm-polygraph", "torch", "numpy", "scipy")},
    }
    sys.stdout.write(json.dumps(told) + "\n")


def _statistics(given: dict[str, Any]) -> dict[str, Any]:
    """What the estimators read, by LM-Polygraph's names; its own calculators make of it what needs no weights."""
    import numpy as np
    from lm_polygraph.stat_calculators.entropy import EntropyCalculator
    from lm_polygraph.stat_calculators.semantic_classes import SemanticClassesCalculator

    ends = given["offsets"][1:-1]
    chosen = given["log_probabilities"][np.arange(len(given["ids"])), given["ids"]]
    tokens = np.split(given["sampled"], np.cumsum(given["lengths"].ravel())[:-1])
    sums = np.asarray([own.sum(dtype=np.float64) for own in tokens]).reshape(given["lengths"].shape)
    stats = {
        "greedy_log_probs": np.split(given["log_probabilities"], ends),
        "greedy_log_likelihoods": np.split(chosen, ends),
        "greedy_texts": [str(own[-1]) for own in given["texts"]],
        "input_texts": [""] * len(given["texts"]),
        "sample_texts": [list(map(str, own[:-1])) for own in given["texts"]],
        "sample_log_probs": sums,
        "sample_embeddings": given["states"],
        "semantic_matrix_entail": given["entailment"][:, :-1, :-1, 2],
        "semantic_matrix_classes": given["entailment"][:, :-1, :-1].argmax(axis=-1),
        "semantic_matrix_contra": given["entailment"][:, :-1, :-1, 0],
        "attention_all": [_between(own) for own in np.split(given["itself"], ends)],
        "forwardpass_attention_weights": [_triangles(own) for own in np.split(given["itself"], ends)],
        "greedy_tokens": [[0] * (len(own) + 1) for own in np.split(given["itself"], ends)],
        "entailment_id": 2,
        "sample_sentence_similarity": given["similarity"][:, :-1, :-1],
        "model": SimpleNamespace(
            device=lambda: "cpu", generate_texts=lambda chats, **_: [f"{value:.2f}" for value in given["stated"]]
        ),
    }
    stats |= _similarity_to_answer(given, stats)
    stats |= EntropyCalculator()(stats)
    stats |= SemanticClassesCalculator()(stats, [], None)
    return stats


def _between(itself: Any) -> Any:
    """Attention `(layers * heads, T, T)` as RAUQ reads it: below the diagonal, of each token on itself."""
    import numpy as np

    return np.stack([np.diag(own[:-1], -1) for own in itself.reshape(len(itself), -1).T])


def _triangles(itself: Any) -> Any:
    """Attention `(layers, heads, S, S)` with a last token more, which AttentionScore leaves out."""
    import numpy as np

    diagonals = np.concatenate([itself, itself[:1]]).transpose(1, 2, 0)
    return np.stack([[np.diag(own) for own in layer] for layer in diagonals])


def _similarity_to_answer(given: dict[str, Any], stats: dict[str, Any]) -> dict[str, Any]:
    """Similarity of answers and samples as LM-Polygraph makes it of a cross-encoder's, in whose place ours stand."""
    import numpy as np
    from lm_polygraph.stat_calculators.greedy_cross_encoder_similarity import (
        GreedyCrossEncoderSimilarityMatrixCalculator,
    )

    def place(question: int, text: str) -> int:
        return int(np.flatnonzero(given["texts"][question] == int(text))[0])

    calls = iter(np.repeat(np.arange(len(given["texts"])), 2).tolist())  # each question's pairs in both orders

    def predict(pairs: list[tuple[str, str]], **_: Any) -> Any:
        i = next(calls)
        return np.asarray([given["similarity"][i, place(i, one), place(i, other)] for one, other in pairs])

    calculator = GreedyCrossEncoderSimilarityMatrixCalculator()
    calculator.crossencoder, calculator.crossencoder_setup = SimpleNamespace(predict=predict), True
    return calculator(stats, [], stats["model"])  # type: ignore[no-any-return]


main()
