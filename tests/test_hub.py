"""C-GMVAE in the form of the Hugging Face Hub, in a folder."""

import json

import pytest
import torch

pytest.importorskip("huggingface_hub")

from cgmvae.hub import CGMVAE  # after the check that its package is there


def test_a_folder_gives_back_settings_and_weights(tmp_path):
    model = CGMVAE(6, 3, preset="paper", feature_hidden=(8,), kl_weight=0.5, embedding_dim=16)
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    assert json.loads((tmp_path / "config.json").read_text())["kl_weight"] == 0.5
    same = CGMVAE.from_pretrained(tmp_path)
    features = torch.randn(4, 6)
    assert torch.equal(same.predict_proba(features), model.predict_proba(features))
    assert same.weights == model.weights
    assert not same.training


def test_a_pushed_model_has_all_files(monkeypatch, tmp_path):
    """Record what would be uploaded; nothing leaves the machine."""
    sent = {}

    class Api:
        def __init__(self, **_): ...

        def create_repo(self, repo_id, **_):
            return type("Url", (), {"repo_id": repo_id})

        def upload_folder(self, folder_path, **_):
            sent.update({path.name: path.stat().st_size for path in folder_path.iterdir()})

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    CGMVAE(6, 3, embedding_dim=16).push_to_hub("somebody/birds")
    assert sent.keys() == {"README.md", "config.json", "model.safetensors"}
