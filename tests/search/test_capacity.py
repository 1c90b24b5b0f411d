from cgmvae.methods.together import Fit

from cgmvae.data import make_survey
from cgmvae.methods import CGMVAEClassifier
from cgmvae.search import capacity
from cgmvae.search.capacity import members_that_fit


def test_a_processor_takes_what_memory_holds_and_no_more_than_pays(monkeypatch):
    data, _ = make_survey(60, 4, 5, seed=0)
    model = CGMVAEClassifier(embedding_dim=8, device="cpu", random_state=0)
    fit = Fit(*model._prepare(data.X, data.Y, None, None, None))
    assert members_that_fit(model, fit) == capacity._ENOUGH_ON_PROCESSOR
    monkeypatch.setattr(capacity.os, "sysconf", lambda name: 1 << 14)  # 256 MiB
    few = members_that_fit(model, fit)
    assert 1 <= few < capacity._ENOUGH_ON_PROCESSOR
    monkeypatch.setattr(capacity.os, "sysconf", lambda name: 1)
    assert members_that_fit(model, fit) == 1
