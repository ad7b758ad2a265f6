"""What methods predict, against loops, numpy, scipy, scikit-learn and torch's own modules on the same batches."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import mahalanobis
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from bench import registry
from bench.api import (
    At,
    AttentionRows,
    Batch,
    Context,
    Format,
    Hidden,
    Of,
    QueryLogits,
    Related,
    RunFacts,
    SampleAgreement,
    Samples,
    Signal,
    TokenIds,
    TokenScores,
    UserError,
)
from bench.signals.synthetic import MODEL, planted
from bench.testing import MakeMethod
from bench.testing.observing import observed_fit
from methods._shared.logistic import apply_map
from methods._shared.meaning import semantic_entropy
from methods.semantic_entropy_probe import entropy_threshold
from tests.kit.methods import MethodCase, hard_batch, unlabelled, with_column

M = 5
"""Samples of a question."""
TOP = TokenScores(top=2)
ENTAILMENT, SIMILARITY = Related(question=True, samples=Samples(M)), Related(by="similarity", samples=Samples(M))
END = Hidden(1.0, At.ANSWER_END)


# --- tokens -----------------------------------------------------------------------------------------------------------


def mean(values: Any) -> float:
    return float(sum(map(float, values)) / len(values))


def of_tokens(signal: TokenScores, score: Any, collect: Any = mean) -> Any:
    """Oracle of a number of each token, collected over an answer's tokens one by one."""
    return lambda test, *_: [collect([score(token) for token in test[signal][i]]) for i in range(len(test))]


def log_p(token: Any) -> float:
    return float(token["log_probability"])


def margin(token: Any) -> float:
    first, second = map(float, token["top_log_probabilities"])
    return math.exp(first) - math.exp(second)


def yes(test: Batch, temperature: float = 1.0) -> list[float]:
    pairs = np.exp(test[QueryLogits()].astype(np.float64) / temperature)
    return [b / (a + b) for a, b in pairs]


# --- samples ----------------------------------------------------------------------------------------------------------


def sums(test: Batch) -> list[list[float]]:
    """Log-probability of each sample."""
    drawn = test[Samples(M)]
    parts = [(drawn[i], drawn.owner[slice(*drawn.offsets[i : i + 2])]) for i in range(len(test))]  # type: ignore[index]
    return [[sum(map(log_p, tokens[owner == k])) for k in range(M)] for tokens, owner in parts]


def clusters(related: Any) -> list[list[int]]:
    """Greedy clusters: a sample joins the first one whose first member it entails and is entailed by."""
    found: list[list[int]] = []
    for i in range(M):
        for own in found:
            if all(max(range(3), key=lambda c: related[a, b, c]) == 2 for a, b in ((own[0], i), (i, own[0]))):
                own.append(i)
                break
        else:
            found.append([i])
    return found


def entropy_of_counts(test: Batch, *_: Any) -> list[float]:
    shares = [[len(own) / M for own in clusters(each)] for each in test[ENTAILMENT]]
    return [sum(share * math.log(share) for share in own) for own in shares]


def entropy_of_likelihoods(test: Batch, *_: Any) -> list[float]:
    return [
        sum(len(own) * math.log(sum(math.exp(logs[j]) for j in own)) for own in clusters(each)) / M
        for each, logs in zip(test[ENTAILMENT], sums(test), strict=True)
    ]


def graphs(test: Batch) -> list[tuple[Any, Any]]:
    """Weights of each graph of samples and its normalised Laplacian, entry by entry."""
    found = []
    for each in test[ENTAILMENT]:
        w = np.array([[(each[i, j, 2] + each[j, i, 2]) / 2 for j in range(M)] for i in range(M)], dtype=float)
        d = [sum(row) for row in w]
        laplacian = [[float(i == j) - w[i, j] / math.sqrt(d[i] * d[j]) for j in range(M)] for i in range(M)]
        found.append((w, np.array(laplacian)))
    return found


def degrees(test: Batch, *_: Any) -> list[float]:
    return [-sum(M - sum(row) for row in w) / M**2 for w, _ in graphs(test)]


def distances(test: Batch, _train: Batch, method: Any) -> list[float]:
    found = []
    for _, laplacian in graphs(test):
        values, vectors = scipy.linalg.eigh(laplacian)
        kept = [vectors[:, k] - vectors[:, k].mean() for k in range(M) if values[k] < method.threshold]
        found.append(-math.sqrt(sum(float(x @ x) for x in kept)))
    return found


def components(test: Batch, *_: Any) -> list[float]:
    return [-sum(max(0.0, 1 - value) for value in scipy.linalg.eigvalsh(laplacian)) for _, laplacian in graphs(test)]


def raised(test: Batch, _train: Batch, method: Any) -> list[float]:
    found = []
    for each, logs in zip(test[SIMILARITY].astype(float), sums(test), strict=True):
        p = [math.exp(log) for log in logs]
        own = [p[i] + sum(each[i, j] * p[j] for j in range(M) if j != i) / method.t for i in range(M)]
        found.append(mean([math.log(value) for value in own]))
    return found


def unlike(test: Batch, _train: Batch, method: Any) -> list[float]:
    uncertain = {
        "probability": of_tokens(TokenScores(), log_p, sum),
        "perplexity": of_tokens(TokenScores(), log_p),
        "entropy": of_tokens(TokenScores(), lambda token: -token["entropy"]),
    }[method.uncertainty](test)
    apart = [mean([1 - (each[M, j] + each[j, M]) / 2 for j in range(M)]) for each in test[SIMILARITY].astype(float)]
    return [value * part for value, part in zip(uncertain, apart, strict=True)]


def spread(test: Batch, _train: Batch, method: Any) -> list[float]:
    states = test[Hidden(0.5, At.SAMPLE_END, samples=Samples(M))].astype(float)
    centring = np.eye(states.shape[2]) - 1 / states.shape[2]
    products = [np.array([[a @ centring @ b for b in each] for a in each]) for each in states]
    return [-float(np.linalg.slogdet(each + method.alpha * np.eye(M))[1]) / M for each in products]


def entropies_of_kernels(test: Batch, _train: Batch, method: Any) -> list[float]:
    """Entropies of scipy's exponentials and inverses, where 0 is that of equal samples and -1 the largest."""

    def entropy(w: Any, same: Any) -> float:
        laplacian = np.diag(w.sum(axis=1) - w.diagonal()) - w + np.diag(w.diagonal())
        heat = scipy.linalg.expm(-0.3 * 10 / M * laplacian)
        kernel = np.linalg.inv(2 * np.eye(M) + laplacian) if method.kernel == "matern" else heat
        unit = [[kernel[i, j] / math.sqrt(kernel[i, i] * kernel[j, j]) / M for j in range(M)] for i in range(M)]
        shares = np.linalg.eigvalsh((np.array(unit) + same / M) / 2 if method.kernel == "full" else np.array(unit))
        return -sum(share * math.log(share) for share in shares if share > 0)

    found, least = [], entropy(2 * np.ones((M, M)), np.ones((M, M)))
    for each in test[ENTAILMENT].astype(float):
        edge = [[each[i, j, 2] + each[i, j, 1] / 2 for j in range(M)] for i in range(M)]
        if method.edges == "likeliest":
            edge = [[each[i, j].argmax() / 2 for j in range(M)] for i in range(M)]
        groups = clusters(each)
        same = np.array([[any(i in own and j in own for own in groups) for j in range(M)] for i in range(M)])
        found.append((least - entropy(np.array(edge) + np.array(edge).T, same)) / (math.log(M) - least))
    return found


# --- attention --------------------------------------------------------------------------------------------------------


def recurrent(test: Batch, _train: Batch, method: Any) -> list[float]:
    found, attention = [], test[AttentionRows()]
    for i in range(len(test)):
        own = [math.exp(log_p(token)) for token in test[SCORES][i]]
        if method.by == "entropy":
            own = [math.log(MODEL.vocab_size) - float(token["entropy"]) for token in test[SCORES][i]]
        of_layers = []
        for layer in (1, 2, 3):  # of four
            pairs = range(1, len(own))
            heads = range(MODEL.n_heads // MODEL.n_layers)
            at = (lambda j: j - 1) if method.entry == "itself" else (lambda j: j)
            of_heads = [[float(attention[i][method.entry][at(j), layer, h]) for j in pairs] for h in heads]
            between = max(of_heads, key=sum)
            confidences = [own[0]]
            for j in pairs:
                confidences.append(method.alpha * own[j] + (1 - method.alpha) * between[j - 1] * confidences[-1])
            of_layers.append(mean([math.log(value) for value in confidences]))
        found.append(min(of_layers))
    return found


def diagonals(method: Any) -> Any:
    """Log of the weights on themselves in the middle layer, `(n, 1)`."""

    def read(batch: Batch) -> Any:
        logs = [
            np.log(rows["itself"][:, 2].astype(float))
            for rows in (batch[AttentionRows()][i] for i in range(len(batch)))
        ]
        of_tokens = [own.sum(axis=1).mean() if method.over == "mean" else own.mean(axis=1).sum() for own in logs]
        return np.array(of_tokens)[:, None]

    return read


def signed(test: Batch, train: Batch, method: Any) -> Any:
    read = diagonals(method)
    return 1 / (1 + np.exp(-regression(read(train), train.correct, method.penalty)(read(test))))


def lookback(row: Any) -> Any:
    """Mean ratio of each head, by loops."""

    def read(batch: Batch) -> Any:
        found = []
        for i in range(len(batch)):
            ratios, n = [], len(batch[TokenIds(Of.PROMPT)][i])
            for j, weights in enumerate(batch[AttentionRows(row)][i]):
                itself, prompt, answer = (
                    weights[name].ravel().astype(float) for name in ("itself", "prompt", "answer")
                )
                if row == "holding":
                    context, new = prompt / n, answer / (j + 1)
                else:
                    context, new = (prompt / n, answer / j) if j else ((prompt - itself) / (n - 1), itself)
                ratios.append(context / (context + new))
            found.append(np.mean(ratios, axis=0))
        return np.array(found)

    return read


# --- trained ----------------------------------------------------------------------------------------------------------


def best_temperature(test: Batch, train: Batch, _method: Any) -> list[float]:
    z = train[QueryLogits()].astype(np.float64)
    margins = np.where(train.correct, 1, -1) * (z[:, 1] - z[:, 0])
    bounds = math.log(0.05), math.log(100)
    loss = lambda x: float(np.logaddexp(0.0, -margins / math.exp(x)).mean())  # noqa: E731
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    return yes(test, math.exp(found.x))


def descended(test: Batch, train: Batch, _method: Any) -> list[float]:
    """The official code's 2,000 steps, written out: AdamW, its bias correction, its decay, a half cosine."""
    (no, sure), correct = train[QueryLogits()].astype(np.float64).T, train.correct
    odds, rng = sure - no, Context(seed=5).rng
    theta = first = second = 0.0
    rows: list[int] = []
    for step in range(2000):
        rows = rows or rng.permutation(len(odds)).tolist()
        batch_rows, rows = rows[:64], rows[64:]
        x, y = odds[batch_rows], correct[batch_rows]
        z = x * math.exp(-theta)
        gradient = float(((1 / (1 + np.exp(-z)) - y) * -z).mean())
        rate = 1e-3 * (1 + math.cos(math.pi * step / 2000)) / 2
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        unbiased = second / (1 - 0.999 ** (step + 1))
        theta = theta * (1 - rate * 1e-2) - rate * first / (1 - 0.9 ** (step + 1)) / (math.sqrt(unbiased) + 1e-8)
    return yes(test, math.exp(theta))


def torch_probe(test: Batch, train: Batch, method: Any) -> Any:
    """The method's first weights, trained on all rows at once by torch's own modules in float64."""
    (signal,) = method.needs.predict
    first = type(method)(**{**method.params(), "steps": 1, "learning_rate": 0.0}).fit(train, Context(seed=5)).weights_
    scaler = StandardScaler(with_mean=method.standardise, with_std=method.standardise)
    states = scaler.fit(train[signal].astype(np.float64))
    if method.standardise:
        states.scale_[-1] = 1.0  # which it takes for a deviation of 1e-16
    x, held = (torch.tensor(states.transform(batch[signal].astype(np.float64))) for batch in (train, test))
    modules: list[nn.Module] = []
    for i in range((len(first) - 2) // 2):
        weight, bias = (torch.tensor(first[f"{i}.{part}"]).double() for part in ("weight", "bias"))
        linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
        linear.load_state_dict({"weight": weight, "bias": bias})
        modules += [linear, nn.ReLU()]
    network = nn.Sequential(*modules[:-1])
    adamw = torch.optim.AdamW(network.parameters(), lr=method.learning_rate, weight_decay=method.weight_decay)
    falls = getattr(method, "schedule", "constant") == "cosine"
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, T_max=method.steps if falls else 10**12)
    for _ in range(method.steps):
        adamw.zero_grad()
        nn.functional.cross_entropy(network(x), torch.tensor(train.correct).long()).backward()  # type: ignore[no-untyped-call]
        adamw.step()
        schedule.step()
    return network(held).softmax(dim=1)[:, 1].detach()


def regression(inputs: Any, labels: Any, penalty: float) -> Any:
    """Function from inputs to the decision of scikit-learn's regression on standardised ones."""
    scaler = StandardScaler().fit(inputs.astype(np.float64))
    scaler.scale_[np.ptp(inputs, axis=0) == 0] = 1.0
    fitted = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000).fit(scaler.transform(inputs), labels)
    return lambda rows: fitted.decision_function(scaler.transform(rows.astype(np.float64)))


def logistic(read: Any) -> Any:
    def oracle(test: Batch, train: Batch, method: Any) -> Any:
        odds = regression(read(train), train.correct, method.weakest)(read(test))
        return 1 / (1 + np.exp(-odds))

    return oracle


def eight_features(batch: Batch) -> Any:
    """The features of `combined`, by loops."""
    found = []
    for i in range(len(batch)):
        logs, spread, gap = zip(
            *((log_p(t), -float(t["entropy"]), -float(np.diff(t["top_log_probabilities"])[0])) for t in batch[TOP][i]),
            strict=True,
        )
        no, yes = map(float, batch[QueryLogits()][i])
        found.append([*map(mean, (logs, spread, gap)), *map(min, (logs, spread, gap)), len(logs), yes - no])
    return np.array(found)


def two_normals(test: Batch, train: Batch, method: Any) -> Any:
    """Scipy's distances, with a covariance that unit rows join; mapped as the method learned."""
    states = train[method.state].astype(np.float64)
    deviation = np.where(np.ptp(states, axis=0) == 0, 1, states.std(axis=0))
    x, held = ((batch[method.state] - states.mean(axis=0)) / deviation for batch in (train, test))
    score = np.zeros(len(held))
    for sign, rows in ((1, x[~train.correct]), (-1, x[train.correct])):
        p, d = method.weakest, x.shape[1]
        inverse = np.linalg.inv((np.cov(rows.T, bias=True) * len(rows) + p * np.eye(d)) / (len(rows) + p))
        score += sign * np.array([mahalanobis(row, rows.mean(axis=0), inverse) ** 2 for row in held])
    return apply_map(method.weights_, score)


def sure_questions(test: Batch, train: Batch, method: Any) -> Any:
    entropies = semantic_entropy(train[Related(question=True)])
    odds = regression(train[END], entropies <= entropy_threshold("x", entropies), method.weakest)(test[END])
    return apply_map(method.weights_, odds)


PROBE = {"steps": 20, "batch_size": 60, "learning_rate": 1e-2}
DEEP = {**PROBE, "hidden_layers": (6, 5)}
XAVIER = {"initialisation": "xavier", "schedule": "cosine", "weight_decay": 0.0}
STATES = partial(hard_batch, n=120)
SCORES = TokenScores()


METHODS = registry.methods()


def case(name: str, oracle: Any, tolerance: float = 1e-6, batches: Any = hard_batch, **arguments: Any) -> MethodCase:
    method = METHODS.get(name)
    samples = {"n": M} if hasattr(method, "n") else {}
    return MethodCase(method(**samples, **arguments), oracle, batches, tolerance)


CASES = [
    case("ptrue", lambda test, *_: yes(test)),
    case("sequence-probability", of_tokens(SCORES, log_p, lambda logs: math.exp(mean(logs)))),
    case("sequence-probability", of_tokens(SCORES, log_p, lambda logs: math.exp(sum(logs))), length_normalised=False),
    case("perplexity", of_tokens(SCORES, log_p)),
    case("mean-token-entropy", of_tokens(SCORES, lambda token: -token["entropy"])),
    case("token-margin", of_tokens(TOP, margin)),
    case("self-certainty", of_tokens(TokenScores(divergence=True), lambda token: token["divergence"])),
    case("self-consistency", lambda test, *_: [sum(row) / M for row in test[SampleAgreement(M)].tolist()]),
    case("semantic-entropy", entropy_of_counts),
    case("semantic-entropy", entropy_of_likelihoods, weighting="likelihood"),
    case("degree-matrix", degrees),
    case("eccentricity", distances),
    case("eccentricity", distances, threshold=0.5),
    case("eigenvalues", components),
    case("sentence-sar", raised),
    case("sentence-sar", raised, t=1.0),
    case("cocoa", unlike),
    case("cocoa", unlike, uncertainty="perplexity"),
    case("cocoa", unlike, uncertainty="entropy"),
    case("eigenscore", spread),
    case("kernel-language-entropy", entropies_of_kernels),
    case("kernel-language-entropy", entropies_of_kernels, kernel="matern"),
    case("kernel-language-entropy", entropies_of_kernels, kernel="full", edges="likeliest"),
    case("rauq", recurrent),
    case("rauq", recurrent, entry="before", alpha=0.5),
    case("rauq", recurrent, by="entropy", alpha=0.9),
    case("attention-score", signed, 1e-5),
    case("attention-score", signed, 1e-5, over="sum"),
    case("lookback-lens", logistic(lookback("holding")), 1e-5, STATES, points=1),
    case("lookback-lens", logistic(lookback("predicting")), 1e-5, STATES, points=1, row="predicting"),
    case("lts", best_temperature),
    case("lts", descended, solver="descent"),
    case("pik", torch_probe, 1e-4, **PROBE),
    case("saplma-f", torch_probe, 1e-4, **DEEP),
    case("saplma-m", torch_probe, 1e-4, **DEEP, **XAVIER),
    case("saplma-um", torch_probe, 1e-4, **{**DEEP, "learning_rate": 1e-3}, standardise=False),
    case("logistic-probe", logistic(lambda batch: batch[END]), 1e-4, STATES, weakest=30.0, points=1),
    case("logistic-probe", logistic(lambda batch: batch[END]), 1e-4, STATES),
    case("relative-mahalanobis", two_normals, 1e-5, STATES, weakest=5.0, points=1),
    case("semantic-entropy-probe", sure_questions, 1e-5, STATES, weakest=4.0, points=1),
    case("combined", logistic(eight_features), 1e-5, STATES, points=1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.method.name)
def test_predictions_equal_the_reference(case: MethodCase) -> None:
    case.check()


# --- all of them ------------------------------------------------------------------------------------------------------

DRAWN = (
    "attention-score", "ccps", "combined", "litcab", "logistic-probe", "lookback-lens", "lts", "pik", "saplma-f",
)  # fmt: skip
FITTED_ELSEWHERE = {"ccps", "ct", "it", "litcab", "verbalised"}
ON_TRACES = {"trace-length", "deepconf-mean", "deepconf-tail", "deepconf-lowest", "answer-stability", "trace-probe"}
"""Their references are in `test_traces.py`."""


def test_every_built_in_method_has_a_reference() -> None:
    built_in = {entry.name for entry in registry.methods().entries() if entry.origin == registry.BUILT_IN}
    assert {case.method.name for case in CASES} == built_in - FITTED_ELSEWHERE - ON_TRACES


def n_learned(value: Any, name: str = "") -> int:
    """How many numbers were learned, without those that scale inputs."""
    if isinstance(value, dict):
        return sum(n_learned(part, key) for key, part in value.items() if key.strip("_") not in {"mean", "scale"})
    return 0 if isinstance(value, str) else int(np.size(value))


@pytest.mark.parametrize("fmt", list(Format))
@pytest.mark.parametrize("name", [*DRAWN, "saplma-m", "saplma-um", "semantic-entropy-probe"])
def test_parameter_count_is_that_of_the_learned_arrays(name: str, fmt: Format) -> None:
    fitted = observed_fit(MakeMethod(METHODS.get(name), fmt)).method
    assert n_learned(fitted.fitted()) == fitted.n_parameters(RunFacts(MODEL, "t", fmt, 200))


@pytest.mark.parametrize("name", DRAWN)
def test_seed_decides_if_the_method_draws(name: str) -> None:
    make = MakeMethod(METHODS.get(name))
    train = planted(make.reads.fit | make.reads.predict, 60, seed=1)
    first, other = (make().fit(train, Context(seed)).predict(unlabelled(train)) for seed in (1, 2))
    assert np.array_equal(first, other) == (not make.plugin.draws)


def infinite(values: Any) -> Any:
    values[3] = np.inf
    return values


SOME = r"1 of \d+ hold infinity or NaN.*--dtype"
FINITE = "finite hidden states; 1 of 60"


@pytest.mark.parametrize(
    ("name", "signal", "told"),
    [
        ("pik", Hidden(1.0, At.PROMPT_END), SOME),
        ("saplma-f", END, SOME),
        ("logistic-probe", END, FINITE),
        ("relative-mahalanobis", Hidden(1.0, At.ANSWER_PREDICTING, "mean"), FINITE),
        ("semantic-entropy-probe", END, FINITE),
        ("litcab", Hidden(1.0, At.GOLD_PREDICTING), SOME),
        ("litcab", Hidden(1.0, At.WRONG_PREDICTING), SOME),
        ("litcab", Hidden(1.0, At.ANSWER_PREDICTING), SOME),
    ],
)
def test_states_that_overflowed_are_refused(name: str, signal: Signal, told: str) -> None:
    method = MakeMethod(METHODS.get(name))()
    reads = method.reads()
    train = hard_batch(reads.fit | reads.predict)
    broken = with_column(train, signal, infinite)
    if signal in reads.fit:
        with pytest.raises(UserError, match=told):
            method.fit(broken, Context(seed=0))
    if signal in reads.predict:
        fitted = method.fit(train, Context(seed=0))
        with pytest.raises(UserError, match=told):
            fitted.predict(unlabelled(broken))
