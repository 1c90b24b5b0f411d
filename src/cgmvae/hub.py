"""C-GMVAE on the Hugging Face Hub: ``save_pretrained``, ``push_to_hub`` and ``from_pretrained``.

It needs the extra ``hub``. The weights are a safetensors file, the settings a JSON file.
"""

from __future__ import annotations

from huggingface_hub import PyTorchModelHubMixin

import cgmvae.torch

__all__ = ["CGMVAE"]


class CGMVAE(
    cgmvae.torch.CGMVAE,
    PyTorchModelHubMixin,
    library_name="cgmvae",
    tags=["multi-label-classification"],
):
    """:class:`cgmvae.torch.CGMVAE` with the methods of ``huggingface_hub.PyTorchModelHubMixin``.

    Examples
    --------
    >>> import tempfile
    >>> model = CGMVAE(20, 4, latent_dim=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_pretrained(folder)
    ...     CGMVAE.from_pretrained(folder).preset.network.latent_dim
    Loading weights from local directory
    8
    """
