"""Parts of a training step with random numbers of their own: what is left out moves no other."""

from __future__ import annotations

from enum import IntEnum


class Section(IntEnum):
    """What :meth:`~cgmvae.nn.noise.Noise.section` is told."""

    ENCODER = 0
    LABELS = 1
    RECONSTRUCTION = 2
    DECODER = 3
    INPUT = 4
    SAMPLE = 5
