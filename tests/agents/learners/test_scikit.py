"""Estimators of scikit-learn as learners: the module answers as the estimator does; size and FLOPs follow the rules."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents.catalogue.spec import digest_of
from agents.learners.scikit import ScikitLearner
from agents.training.stage import Examples
from alma_env import meter

ensemble = pytest.importorskip("sklearn.ensemble")
neighbors = pytest.importorskip("sklearn.neighbors")
tree = pytest.importorskip("sklearn.tree")
DATA = alma_env.load("Digits")
TRAIN = Examples(torch.from_numpy(DATA.train_x[:300].copy()), torch.from_numpy(DATA.train_y[:300].copy()))
VALID = Examples(torch.from_numpy(DATA.train_x[300:400].copy()), torch.from_numpy(DATA.train_y[300:400].copy()))
TEST = torch.from_numpy(DATA.test_x.copy())
ESTIMATORS = {
    "forest": ensemble.RandomForestClassifier(8, random_state=0),
    "extra trees": ensemble.ExtraTreesClassifier(8, random_state=0),
    "tree": tree.DecisionTreeClassifier(random_state=0),
    "one leaf": tree.DecisionTreeClassifier(max_depth=1, min_samples_leaf=200),
    "neighbours": neighbors.KNeighborsClassifier(3),
}


def fitted(name: str):
    """The module of a trained learner, and the estimator fitted to the same examples."""
    learner = ScikitLearner(ESTIMATORS[name], DATA, seed=0)
    learner.train(TRAIN, VALID)
    with torch.no_grad():
        x, test = (learner._normalize(part).flatten(1).numpy() for part in (TRAIN.x, TEST))
    return learner, ESTIMATORS[name].fit(x, TRAIN.y.numpy()), test


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_module_has_the_probabilities_of_the_estimator(name):
    learner, estimator, test = fitted(name)
    with torch.no_grad():
        logits = learner.predictor(TEST)
    probabilities = estimator.predict_proba(test)
    np.testing.assert_allclose(logits.exp().numpy(), probabilities.clip(1e-6), atol=1e-6)
    top = np.sort(probabilities, 1)
    clear = top[:, -1] > top[:, -2] + 1e-6  # rounding may decide a tie
    assert (logits.argmax(1).numpy() == estimator.predict(test))[clear].all()


def test_a_class_that_did_not_occur_has_no_probability():
    rows = TRAIN.y < 7
    learner = ScikitLearner(ESTIMATORS["forest"], DATA)
    learner.train(Examples(TRAIN.x[rows], TRAIN.y[rows]), VALID)
    with torch.no_grad():
        assert (learner.predictor(TEST)[:, 7:].exp() < 1e-5).all()


def test_size_and_flops_follow_the_stated_rules():
    learner, estimator, _ = fitted("forest")
    trees = [one.tree_ for one in estimator.estimators_]
    decisions = sum(int((one.children_left >= 0).sum()) for one in trees)
    leaves = sum(int((one.children_left < 0).sum()) for one in trees)
    assert sum(p.numel() for p in learner.predictor.parameters()) == 4 * decisions + 10 * leaves + len(trees)
    depth = max(one.max_depth for one in trees)
    assert meter.count(learner.predictor, TEST[:5]).total == 5 * len(trees) * (4 * depth + 2 * 10)
    learner, _, _ = fitted("neighbours")
    assert sum(p.numel() for p in learner.predictor.parameters()) == 300 * 64 + 300
    assert meter.count(learner.predictor, TEST[:5]).total == 5 * 2 * 300 * 64


@pytest.mark.parametrize("name", ["forest", "neighbours"])
def test_an_episode_is_metered_and_declared(name):
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    learner = ScikitLearner(ESTIMATORS[name], env.data, seed=0)
    agent = agents.AnytimeAgent(learner, agents.FixedWait(wait=2, replay=True), env.ticks, learner.config)
    ledger = agents.run(env, agent, seed=0)
    assert ledger[4].error < 0.15 < ledger[1].error
    assert ledger[4].parameters == sum(p.numel() for p in learner.predictor.parameters())
    if name == "neighbours":  # the examples are recognised, and nothing has to be declared
        assert ledger[4].declared == ()
        assert ledger[4].inference_flops == 2 * 4 * 315 * 64
    else:
        (reason,) = ledger[4].declared
        assert "RandomForestClassifier" in reason
        assert ledger[4].flops["training"] > 0


def test_trees_without_a_decision_are_declared_and_deployed():
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    learner = ScikitLearner(tree.DecisionTreeClassifier(min_samples_leaf=1_000), env.data, seed=0)
    ledger = agents.run(env, agents.AnytimeAgent(learner, agents.FixedWait(wait=2), env.ticks, learner.config), seed=0)
    assert [row.flops["training"] for row in ledger if row.declared] == [
        2 * 2 * len(env.megabatch(1)["train"]["y"])
    ] * 2


def test_a_run_continues_from_its_folder_with_the_same_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr("agents.runs.run_folder.CHECKPOINT_SECONDS", 0)
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    forest = ensemble.RandomForestClassifier(4)

    def run(folder, stop=5):
        def on_tick(row):
            if row.tick == stop:
                raise KeyboardInterrupt

        learner = ScikitLearner(forest, env.data, seed=3)
        agent = agents.AnytimeAgent(learner, agents.FixedWait(wait=1), env.ticks, learner.config)
        return agents.run(env, agent, seed=0, folder=folder, on_tick=on_tick)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop=3)
    rows = [[(row.error, row.digest) for row in run(tmp_path / name)] for name in ("stopped", "whole")]
    assert rows[0] == rows[1]


def test_numbers_of_numpy_are_numbers_in_the_record_and_the_checkpoint(tmp_path):
    learner = ScikitLearner(neighbors.KNeighborsClassifier(np.int64(3)), DATA, seed=np.int64(1))
    assert learner.config == ScikitLearner(neighbors.KNeighborsClassifier(3), DATA, seed=1).config
    learner.train(TRAIN, VALID)
    torch.save(learner.state_dict(), tmp_path / "state.pt")
    again = ScikitLearner(neighbors.KNeighborsClassifier(3), DATA)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))  # as checkpoints are read
    assert torch.equal(again.predictor(TEST), learner.predictor(TEST))


def test_the_record_has_the_settings_of_the_estimator():
    one, other = (ScikitLearner(ensemble.RandomForestClassifier(n), DATA).config for n in (5, 6))
    assert one["estimator"]["n_estimators"] == 5
    assert digest_of(one) != digest_of(other)


def test_other_estimators_and_settings_are_refused(monkeypatch):
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(TypeError, match="must be a RandomForestClassifier"):
        ScikitLearner(LogisticRegression(), DATA)
    with pytest.raises(ValueError, match="weights='distance'"):
        ScikitLearner(neighbors.KNeighborsClassifier(weights="distance"), DATA)
    with pytest.raises(ValueError, match="metric_params={'w': 1}, .*use metric='euclidean', metric_params=None"):
        ScikitLearner(neighbors.KNeighborsClassifier(metric_params={"w": 1}), DATA)
    with pytest.raises(ValueError, match="seed=-1: must be at least 0"):
        ScikitLearner(ESTIMATORS["forest"], DATA, seed=-1)
    with pytest.raises(TypeError, match="must be a DataSet of images or arrays"):
        ScikitLearner(ESTIMATORS["forest"], object())
    monkeypatch.setitem(sys.modules, "sklearn.neighbors", None)
    with pytest.raises(alma_env.AlmaError, match=r"alma-env\[scikit\]"):
        ScikitLearner(ESTIMATORS["forest"], DATA)


def test_neighbours_far_from_the_origin_are_those_of_the_estimator():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1200, 5)).astype("float32")
    x[:, 0] += 20_000  # a feature far from the others: they share one mean
    y = (x[:, 1] + x[:, 2] > 0).astype(np.int64)
    data = alma_env.from_arrays((x[:1000], y[:1000]), (x[1000:], y[1000:]))
    learner = ScikitLearner(neighbors.KNeighborsClassifier(5), data)
    train, test = (
        Examples(torch.from_numpy(x[part]), torch.from_numpy(y[part])) for part in (slice(1000), slice(1000, None))
    )
    learner.train(train, test)
    with torch.no_grad():
        fitted_to, asked = (learner._normalize(part.x).numpy() for part in (train, test))
        probabilities = learner.predictor(test.x).exp().numpy()
    expected = neighbors.KNeighborsClassifier(5).fit(fitted_to, y[:1000]).predict_proba(asked)
    np.testing.assert_allclose(probabilities, expected.clip(1e-6), atol=1e-6)


def test_a_random_state_that_the_record_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="random_state=.*whole number or None.*random_state=0"):
        ScikitLearner(ensemble.RandomForestClassifier(2, random_state=np.random.RandomState(0)), DATA)
