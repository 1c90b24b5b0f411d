"""Trainings that ``test_distributed`` runs in one process and, by this file, in two."""

import os
import pickle
import signal
import sys
import warnings
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from test_loop import CPU, N_ROWS, PLAN, build, plain_member, survey_rows, weights_of

from cgmvae.data import make_survey
from cgmvae.errors import InputError
from cgmvae.methods import C2AE, CGMVAEClassifier
from cgmvae.training import checkpoint
from cgmvae.training.checkpoint import Checkpoint
from cgmvae.training.distributed import Group, current_group
from cgmvae.training.loop import train

#: An odd batch; the last one of an epoch has a single row, fewer than there are processes.
ODD = replace(PLAN, batch_size=17)
ROWS = np.arange(1, 2 + 3 * 17)
SIZES = {"feature_hidden": (16,), "label_hidden": (16,), "decoder_hidden": (16,), "latent_dim": 4}
TINY = {"epochs": 4, "batch_size": 17, "learning_rate": 1e-2, "device": "cpu", "random_state": 0}


class Stopped(Exception):
    """A training is stopped from outside."""


def trained(group: Group, *, plan=ODD, changed=None, **more):
    """Train two members that differ in rows and settings, in float64."""
    members = [
        plain_member(1, train_rows=ROWS),
        plain_member(3, train_rows=ROWS[:20], learning_rate=0.05, dropout=0.5),
    ]
    network = build(members)
    rows = survey_rows(0.2, changed)._replace(weight=torch.linspace(0, 2, N_ROWS).double())
    result = train(network, members, rows, plan, device=CPU, group=group, **more)
    history = result.history.arrays()
    return weights_of(network).numpy(), result.best_epoch, result.best_value, history


def stop_at(epoch: int):
    """Return a callback that stops the training of every process after an epoch."""

    def keep(reached, places, values):
        if reached == epoch:
            raise Stopped
        return places

    return keep


def drop_one(epoch, places, values):
    return places[:1] if epoch >= 2 else places


def continued(group: Group, folder: Path, name: str):
    """Resume a stopped training."""
    return trained(group, checkpoint=Checkpoint(folder / name))


def stopped(group: Group, folder: Path, name: str) -> None:
    try:
        trained(group, checkpoint=Checkpoint(folder / name), keep=stop_at(3))
    except Stopped:
        return
    raise AssertionError("nothing stopped it")


def failing(group: Group):
    """Give only the first member a row that is not finite."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = trained(group, changed={int(ROWS[30]): np.nan})
    return *found, [str(each.message) for each in caught if group.leads]


def estimated(method=CGMVAEClassifier, **changes):
    """Fit an estimator as a user does; return its weights, history and predictions."""
    data = make_survey(90, 6, 5, unknown_share=0.1, seed=4)[0]
    own = {"settings": SIZES, "embedding_dim": 16} if method is CGMVAEClassifier else {}
    model = method(**TINY | own | changes).fit(data.X, data)
    weights = {name: part.numpy() for name, part in model.network_.state_dict().items()}
    return weights, model.history_, model.best_epoch_, model.predict_proba(data.X)


def cases(group: Group, folder: Path) -> dict:
    """Return the results that must not depend on the number of processes."""
    return {
        "rows": trained(group),
        "rows, one left out": trained(group, plan=replace(ODD, patience=None), keep=drop_one),
        "failing": failing(group),
        "continued": continued(group, folder, "by one"),
        "one member": estimated(n_members=1),
        "members": estimated(n_members=4, checkpoint=Checkpoint(folder / "members")),
        "whole batches": estimated(C2AE, n_members=1, hidden_dim=16),
    }


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    checkpoint.LEAST_SECONDS, checkpoint.LARGEST_FRACTION = 0.0, np.inf
    group = current_group(timeout=timedelta(seconds=60))
    assert group.size == 2
    stopped(group, folder, "by two")
    found = cases(group, folder)
    (folder / f"results {group.rank}").write_bytes(pickle.dumps(found))
    try:
        trained(group, keep=lambda *_: os.kill(os.getpid(), signal.SIGKILL) if group.rank else _[1])
    except InputError as error:
        (folder / "left alone").write_text(str(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
