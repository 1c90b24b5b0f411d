"""The studies by name, one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cgmvae.errors import InputError
from cgmvae.studies.studies import (
    ablation,
    claims,
    fewer_data,
    interpret,
    main,
    peers,
    regimes,
    replacement,
    stats,
    timing,
)
from cgmvae.studies.study import Study

STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        module.STUDY.name: module.STUDY
        for module in (
            main,
            stats,
            ablation,
            replacement,
            fewer_data,
            claims,
            regimes,
            timing,
            interpret,
            peers,
        )
    }
)


def find_study(name: str) -> Study:
    """Return the study of this name."""
    if name not in STUDIES:
        raise InputError(f"There is no study {name!r}; choose one of {', '.join(STUDIES)}.")
    return STUDIES[name]
