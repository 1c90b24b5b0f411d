"""Packages that only some commands need; used by those commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cgmvae.errors import InputError


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Say what to install where the block misses a package of an extra."""
    try:
        yield
    except ImportError as error:
        raise InputError(f'{what} needs more packages: pip install "cgmvae[{extra}]"') from error
