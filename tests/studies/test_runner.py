"""One job from data to stored runs: rows, packs, hidden labels, measures, failures."""

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from tiny_study import NETWORKS, SHARE, STUDY

from cgmvae.data import load_dataset, make_split
from cgmvae.errors import InputError
from cgmvae.evaluation import PAPER_METRICS, PROTOCOLS, micro_f1
from cgmvae.studies import rows as run_rows
from cgmvae.studies import runner
from cgmvae.studies.rows import hide_labels, load_parts
from cgmvae.studies.runner import make_records, run_job
from cgmvae.studies.spec import RunSpec, Scope, make_jobs
from cgmvae.studies.store import Store
from cgmvae.training.checkpoint import Checkpoint

SPECS = {
    method: RunSpec("yeast", method, train_fraction=SHARE, settings=settings)
    for method, settings in {"mlknn": {}, "binary-relevance": {}, **NETWORKS}.items()
}


def test_a_run_does_not_depend_on_the_others_of_its_pack():
    base = SPECS["cgmvae"]
    pack = [
        base,
        replace(base, seed=1),
        replace(base, split=1),
        replace(base, hidden_labels=0.5),
        replace(base, settings={**base.settings, "learning_rate": 0.01, "dropout": 0.5}),
        replace(base, settings={**base.settings, "contrastive_weight": 0.0, "kl_weight": 0.0}),
    ]
    assert make_jobs(pack) == [tuple(pack)]
    together = make_records(pack, device="cpu")
    for spec in pack:
        alone = make_records([spec], device="cpu")[spec]
        assert together[spec].split.equals(alone.split)
        for part in ("validation", "test"):
            np.testing.assert_allclose(
                together[spec].predictions[part], alone.predictions[part], rtol=1e-4, atol=1e-5
            )
        if spec != base:
            assert not np.allclose(alone.predictions["test"], together[base].predictions["test"])


@pytest.mark.parametrize("method", list(SPECS))
def test_test_labels_change_no_prediction(method, monkeypatch):
    spec = SPECS[method]
    before = make_records([spec], device="cpu")[spec]
    data = load_dataset("yeast")
    labels = data.Y.toarray() if sp.issparse(data.Y) else data.Y.copy()
    test_rows = make_split(data, seed=0, drop_empty=True).test
    labels[test_rows] = 1 - labels[test_rows]
    labels[test_rows, 0] = 1  # a row without any label would be left out
    monkeypatch.setattr(run_rows, "_dataset", lambda _: replace(data, Y=labels))
    after = make_records([spec], device="cpu")[spec]
    assert after.split.equals(before.split)
    for part in ("validation", "test"):
        np.testing.assert_array_equal(after.predictions[part], before.predictions[part])
    held = [each.report["metrics"]["validation"]["micro_f1"] for each in (before, after)]
    assert held[0] != held[1]


def test_a_report_says_what_was_measured():
    spec = SPECS["cgmvae"]
    record = make_records([spec], device="cpu")[spec]
    parts, report = load_parts(spec), record.report
    assert list(report["metrics"]) == list(PROTOCOLS)
    for metrics in report["metrics"].values():
        assert list(metrics) == list(PAPER_METRICS)
    assert report["rows"]["train"] == parts.train.n_samples == len(record.split.train)
    assert report["train_positives"] == np.asarray(parts.train.Y.sum(axis=0)).ravel().tolist()
    assert len(report["label_f1"]) == parts.test.n_labels
    assert (report["members"], report["epochs"]) == (1, 3)
    assert record.similarity.shape == (14, 14)
    oracle = max(
        micro_f1(parts.test.Y, record.predictions["test"] >= cut) for cut in np.arange(0.1, 1, 0.1)
    )
    # The oracle chooses among nine thresholds only.
    validation = report["metrics"]["validation"]["micro_f1"]
    assert report["metrics"]["test-oracle"]["micro_f1"] >= validation - 0.02
    assert report["metrics"]["test-oracle"]["micro_f1"] == pytest.approx(oracle, abs=0.05)


@pytest.mark.parametrize("sparse", [False, True])
def test_hidden_labels(survey, sparse):
    known = np.zeros(survey.Y.shape, bool)
    known[:, 0] = True
    labels = np.where(known, 0, survey.Y).astype(np.uint8)
    rows = replace(
        survey,
        Y=sp.csr_array(labels) if sparse else labels,
        unknown=sp.csr_array(known) if sparse else known,
    )
    hidden = hide_labels(rows, 0.4, seed=1)
    assert hidden.unknown[:, 0].all()
    assert hidden.unknown[:, 1:].mean() == pytest.approx(0.4, abs=0.06)
    np.testing.assert_array_equal(hidden.Y[~hidden.unknown], labels[~hidden.unknown])
    assert not hidden.Y[hidden.unknown].any()
    np.testing.assert_array_equal(hidden.X, rows.X)
    assert (hide_labels(rows, 0.4, seed=2).unknown != hidden.unknown).any()
    more = hide_labels(rows, 0.8, seed=1)
    assert more.unknown[hidden.unknown].all()  # a larger fraction hides the same labels and more


def test_an_invalid_fraction_of_hidden_labels(survey):
    for fraction in (-0.1, 1):
        with pytest.raises(InputError, match="at least 0 and below 1"):
            hide_labels(survey, fraction, seed=0)


def test_labels_are_hidden_in_the_training_rows_only():
    parts = load_parts(RunSpec("yeast", "mlknn", hidden_labels=0.5))
    assert parts.train.unknown.mean() == pytest.approx(0.5, abs=0.02)
    for rows in (parts.validation, parts.test):
        assert rows.unknown is None or not rows.unknown.sum()


def test_an_official_split_has_the_publishers_test_rows():
    first, second = (
        load_parts(RunSpec("yeast", "mlknn", split=i, official=True)).split for i in range(2)
    )
    assert first.kind == "official"
    assert first.test.tolist() == second.test.tolist()
    assert len(first.test) == 917
    assert set(first.validation) != set(second.validation)


def test_a_failed_run_stores_its_error_and_is_tried_again(tmp_path, monkeypatch):
    store = Store(tmp_path)
    job = [replace(SPECS["mlknn"], settings={"k": 0})]
    assert run_job(job, store, device="cpu") == "failed"
    assert "k" in store.error(job[0])
    assert "\n" not in store.error(job[0])

    def break_down(*_, **__):
        raise ZeroDivisionError("two\nlines")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "make_records", break_down)
        assert run_job([SPECS["mlknn"]], store, device="cpu") == "failed"
    assert store.error(SPECS["mlknn"]) == "ZeroDivisionError: two lines"
    assert run_job([SPECS["mlknn"]], store, device="cpu") == "done"
    assert store.error(SPECS["mlknn"]) is None


def test_a_killed_pack_resumes(tmp_path, monkeypatch):
    spec = SPECS["cgmvae"]
    job, store, whole = [spec, replace(spec, seed=1)], Store(tmp_path), Store(tmp_path / "whole")
    save = Checkpoint.save

    def save_and_stop(self, state, fingerprint):
        save(self, state, fingerprint)
        if state["epoch"][0] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run_job(job, store, device="cpu")
    assert len(list((tmp_path / "checkpoints").iterdir())) >= 1
    for folder in (store, whole):
        assert run_job(job, folder, device="cpu") == "done"
        assert list((folder.folder / "checkpoints").iterdir()) == []
    for each in job:
        found, expected = store.predictions(each), whole.predictions(each)
        np.testing.assert_array_equal(found["test"], expected["test"])
        assert np.isnan(store.report(each)["seconds"]["fit"])
        assert whole.report(each)["seconds"]["fit"] > 0


def test_a_job_that_is_partly_stored_is_completed(whole_store, tmp_path):
    """Stored runs stay as they are; the others are as without an interruption."""
    job = [spec for spec in STUDY.runs(Scope()) if spec.method == "asl"]
    store = Store(tmp_path)
    records = make_records(job, device="cpu")
    store.write(job[1], replace(records[job[1]], report={"kept": True}))
    assert run_job(job, store, device="cpu") == "done"
    assert store.report(job[1]) == {"kept": True}
    for spec in (job[0], job[2]):
        assert store.report(spec)["metrics"] == whole_store.report(spec)["metrics"]


def test_stored_runs_of_another_pack_are_not_trained_again(tmp_path, monkeypatch):
    job = [spec for spec in STUDY.runs(Scope()) if spec.method == "asl"]
    store = Store(tmp_path)
    store.write(job[1], make_records(job[1:2], device="cpu")[job[1]])
    trained = []

    def noted(pack, **options):
        trained.append(list(pack))
        return make_records(pack, **options)

    monkeypatch.setattr(runner, "make_records", noted)
    assert run_job(job, store, device="cpu") == "done"
    assert trained == [[job[0], job[2]]]


def test_a_job_of_another_process_is_busy(tmp_path):
    store, job = Store(tmp_path), [SPECS["mlknn"]]
    with Store(tmp_path).claim(job):
        assert run_job(job, store, device="cpu") == "busy"
    assert not store.is_done(job[0])


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
@pytest.mark.parametrize("own", [True, False])
def test_the_commit_is_that_of_the_package_s_own_tree(own, tmp_path, monkeypatch):
    """A package that is installed inside somebody's repository is not of that commit."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init"], [*identity, "commit", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    place = tmp_path / ("src" if own else ".venv/lib/site-packages") / "cgmvae" / "studies"
    place.mkdir(parents=True)
    monkeypatch.setattr(runner, "__file__", str(place / "runner.py"))
    monkeypatch.delenv("CGMVAE_COMMIT", raising=False)
    commit = runner._commit.__wrapped__()
    assert (commit is not None) == own
    monkeypatch.setenv("CGMVAE_COMMIT", "abc")
    assert runner._commit.__wrapped__() == "abc"
