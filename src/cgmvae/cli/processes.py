"""One command in several processes, as ``torchrun`` starts them: one of them prints and writes.

:mod:`cgmvae.training.distributed` says how they share the work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cgmvae.cli.output import error_console
from cgmvae.errors import InputError

#: The commands whose work several processes share.
_SHARED = ("fit",)


def are_several() -> bool:
    """Return whether this process is one of several."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ


def leads() -> bool:
    """Return whether this process is the one that prints and writes."""
    return not are_several() or os.environ["RANK"] == "0"


def join(arguments: Sequence[str]) -> None:
    """Join the other processes, if there are any, and print nothing in all but the first.

    Refuse a command that each of them would do as a whole.
    """
    if not are_several():
        return
    if not leads():
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115, for the rest of the process
        error_console.is_interactive = False
    from cgmvae.training.distributed import current_group

    current_group()
    if not {*_SHARED, "--help"} & {*arguments}:
        raise InputError(
            f"Only 'cgmvae {_SHARED[0]}' can be shared by several processes; start this command "
            "without torchrun."
        )


def finish() -> bool:
    """Wait for the other processes; return whether this one is to write what they made."""
    if are_several():
        from cgmvae.training.distributed import current_group

        current_group().barrier()
    return leads()


def speaks_first() -> bool:
    """Return whether no other process has said what is wrong."""
    if not are_several():
        return True
    from cgmvae.training.distributed import current_group

    try:
        return current_group().is_first("error")
    except InputError:  # none of them can be asked
        return True
