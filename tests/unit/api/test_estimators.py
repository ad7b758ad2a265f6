"""Fitted objects of scikit-learn survive saving to the last bit, and no other code can be had by what was saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC

from bench.api import Batch, ConfidenceMethod, ContractError, FloatArray, Needs

RNG = np.random.default_rng(0)
TRAIN, NEW = RNG.normal(size=(150, 12)).astype(np.float32), RNG.normal(size=(300, 12)).astype(np.float32)
LABELS = TRAIN[:, 0] + RNG.normal(size=150) > 0

KEPT: dict[str, Callable[[], Any]] = {
    "logistic": LogisticRegression,
    "ridge": RidgeClassifier,
    "svc": SVC,
    "linear svc": LinearSVC,
    "forest": lambda: RandomForestClassifier(10, random_state=0),
    "discriminant": LinearDiscriminantAnalysis,
    "neighbours": lambda: KNeighborsClassifier(algorithm="brute"),
    "calibrated": lambda: CalibratedClassifierCV(LinearSVC(), cv=3),
    "perceptron": lambda: MLPClassifier((4,), max_iter=60, tol=1.0, random_state=np.random.RandomState(1)),
    "pipeline": lambda: make_pipeline(StandardScaler(), PCA(5), LogisticRegression()),
}


class Holder(ConfidenceMethod):
    """Keeps what it is given."""

    needs = Needs()

    def predict(self, batch: Batch) -> FloatArray:
        return np.zeros(len(batch))


def saved(folder: Path, fitted: object) -> Path:
    """The JSON file beside the arrays."""
    holder = Holder()
    holder.model_ = fitted  # type: ignore[attr-defined]
    holder.save(folder)
    return folder / "fitted.json"


def loaded(folder: Path) -> Any:
    return Holder().load(folder).model_  # type: ignore[attr-defined]


def outputs(estimator: Any) -> FloatArray:
    ask = getattr(estimator, "predict_proba", None) or estimator.decision_function
    return np.asarray(ask(NEW))


# Seen twice in some 80 runs of this file, in a product within a fit; its cause is not known. A NaN would fail the test.
@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
@pytest.mark.parametrize("name", KEPT)
def test_estimator_predicts_the_same_after_loading(tmp_path: Path, name: str) -> None:
    estimator = KEPT[name]().fit(TRAIN, LABELS)
    saved(tmp_path, estimator)
    again = loaded(tmp_path)
    assert type(again) is type(estimator)
    assert np.isfinite(outputs(estimator)).all()
    assert np.array_equal(outputs(again), outputs(estimator))
    assert np.array_equal(again.predict(NEW), estimator.predict(NEW))


def test_estimators_in_dicts_and_lists_are_saved(tmp_path: Path) -> None:
    scaler, pca = StandardScaler().fit(TRAIN), PCA(3).fit(TRAIN)
    saved(tmp_path, {"first": scaler, "layers": [pca, (pca, 1, None)]})
    again = loaded(tmp_path)
    assert np.array_equal(again["first"].transform(NEW), scaler.transform(NEW))
    assert np.array_equal(again["layers"][0].transform(NEW), pca.transform(NEW))
    assert again["layers"][1][1:] == (1, None)


def test_saved_numbers_keep_type_and_order(tmp_path: Path) -> None:
    by_columns = np.asfortranarray(TRAIN[:4])
    saved(tmp_path, (np.float32(0.1), np.int64(3), True, 0.1, by_columns, np.zeros(()), [], ()))
    number, count, yes, plain, columns, none, *empty = loaded(tmp_path)
    assert [type(each) for each in (number, count, yes, plain)] == [np.float32, np.int64, bool, float]
    assert columns.flags.f_contiguous
    assert np.array_equal(columns, by_columns)
    assert none.shape == ()
    assert empty == [[], ()]


def test_saved_keys_and_objects_are_the_same_after_loading(tmp_path: Path) -> None:
    """A key that JSON can't hold would come back as text, or not at all; so would what arrays of objects hold."""
    by_key = {0: 0.3, 1: TRAIN[0], (1, "a"): [2], None: True, "1": np.int64(4)}
    names = np.array([["a", None], [2, [3, 4]]], dtype=object)
    weighted = LogisticRegression(class_weight={0: 0.3, 1: 0.7}).fit(TRAIN, LABELS)
    named = LogisticRegression().fit(TRAIN, np.where(LABELS, "right", "wrong"))
    saved(tmp_path, [by_key, names, np.array([], dtype=object), weighted, named])
    keys, objects, none, *again = loaded(tmp_path)
    assert [*keys] == [*by_key]
    assert np.array_equal(keys.pop(1), by_key.pop(1))
    assert keys == by_key
    assert (objects.dtype, objects.shape, objects.tolist()) == (names.dtype, names.shape, names.tolist())
    assert (none.dtype, none.shape) == (object, (0,))
    assert again[0].class_weight == {0: 0.3, 1: 0.7}
    assert again[1].classes_.dtype == named.classes_.dtype
    for loaded_one, fitted in zip(again, (weighted, named), strict=True):
        assert loaded_one.predict(NEW).tolist() == fitted.predict(NEW).tolist()


def test_saved_dict_with_plain_keys_is_kept(tmp_path: Path) -> None:
    plain = {"pairs": [1], "nested": {"objects": [2], "shape": [3]}, "texts": {"texts": [], "shape": 0}}
    saved(tmp_path, plain)
    assert loaded(tmp_path) == plain


def test_saved_dict_with_reserved_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="'model_' has the keys array, which mean something else"):
        saved(tmp_path, {"array": 3.0})


def test_estimator_is_saved_without_pickle(tmp_path: Path) -> None:
    saved(tmp_path, KEPT["forest"]().fit(TRAIN, LABELS))
    assert {path.name for path in tmp_path.iterdir()} == {"fitted.json", "fitted.safetensors"}


class Mine(LogisticRegression):
    """A class of the author's own, whose code nobody can vouch for."""


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Mine().fit(TRAIN, LABELS), "'model_' is a Mine; only .*estimators of scikit-learn"),
        (lambda: HistGradientBoostingClassifier(max_iter=2).fit(TRAIN, LABELS), "'model_/.*; only|compiled"),
        (
            lambda: KNeighborsClassifier(algorithm="kd_tree").fit(TRAIN, LABELS),
            "'model_/_tree' is a KDTree of sci",
        ),
        (lambda: FunctionTransformer(np.log), "'model_/func' is a ufunc; only"),
        (lambda: {0: 1.0, 1: np.array([{2}], dtype=object)}, "'model_/1/1/0' is a set; only numbers, strings, arrays"),
    ],
)
def test_estimator_that_cannot_be_saved_is_named(tmp_path: Path, make: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        saved(tmp_path, make())


@pytest.mark.parametrize(
    "kind",
    [
        "os:system",
        "subprocess:Popen",
        "builtins:eval",
        "sklearn.linear_model._logistic:Missing",
        "sklearn.no_such_room:Thing",
        "sklearn.utils:check_array",
        "sklearn.utils._bunch:os.system",
        "sklearn.tree._tree:DepthFirstTreeBuilder",
        "sklearn.linear_model:LogisticRegression",
        "sklearnx:LogisticRegression",
        ".sklearn:LogisticRegression",
        7,
    ],
)
def test_estimator_class_outside_scikit_learn_is_refused(tmp_path: Path, kind: object) -> None:
    altered(tmp_path, lambda plain: plain.update(estimator=kind))
    with pytest.raises(ContractError, match="model_: expected a class of scikit-learn, got"):
        loaded(tmp_path)


@pytest.mark.parametrize("name", ["predict", "__class__", "__dict__", "__setstate__", "n_features_in", "fit", "a b"])
def test_estimator_attribute_hides_no_method(tmp_path: Path, name: str) -> None:
    altered(tmp_path, lambda plain: plain["state"].update({name: "x"}))
    if name == "n_features_in":  # a name like any other
        assert loaded(tmp_path).n_features_in == "x"
        return
    with pytest.raises(ContractError, match="a LogisticRegression has no attribute"):
        loaded(tmp_path)


def test_estimator_of_another_version_is_refused(tmp_path: Path) -> None:
    altered(tmp_path, lambda plain: plain.update(sklearn="0.19.0"))
    with pytest.raises(ContractError, match=r"model_ was fitted by scikit-learn 0.19.0, and this is .*; fit it again"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"), [("left_child", 10**6), ("left_child", 0), ("feature", 99), ("feature", -5)]
)
def test_estimator_tree_that_leads_outside_is_refused(tmp_path: Path, field: str, value: int) -> None:
    estimator = RandomForestClassifier(1, random_state=0).fit(TRAIN, LABELS)
    holder = Holder()
    holder.model_ = estimator  # type: ignore[attr-defined]
    holder.save(tmp_path)
    from safetensors.numpy import load_file, save_file

    arrays = load_file(tmp_path / "fitted.safetensors")
    (key,) = (key for key in arrays if key.endswith(f"nodes/{field}"))
    arrays[key][0] = value
    save_file(arrays, tmp_path / "fitted.safetensors")
    with pytest.raises(ContractError, match="expected a decision tree, got something else"):
        loaded(tmp_path)


def test_estimator_svc_without_all_vectors_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    saved(tmp_path, SVC().fit(TRAIN, LABELS))
    arrays = load_file(tmp_path / "fitted.safetensors")
    arrays["/model_/_n_support"][0] += 1000
    save_file(arrays, tmp_path / "fitted.safetensors")
    with pytest.raises(ContractError, match="expected a SVC whose support vectors are all there"):
        loaded(tmp_path)


def altered(folder: Path, alter: Callable[[dict[str, Any]], None]) -> None:
    """A saved logistic regression whose JSON somebody has changed."""
    path = saved(folder, LogisticRegression().fit(TRAIN, LABELS))
    plain = json.loads(path.read_text())
    alter(plain["model_"])
    path.write_text(json.dumps(plain))
