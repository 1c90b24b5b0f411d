"""Where and with what a run was made."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
import torch
from joblib import cpu_count

from cgmvae import __version__
from cgmvae.training.device import find_device


def describe_environment(device: str = "auto") -> dict[str, Any]:
    """Return versions, commit, machine and date, for JSON; nothing that names a person or host."""
    return {
        "cgmvae": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "sklearn": sklearn.__version__,
        "device": device_name(device),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def device_name(device: str = "auto") -> str:
    """Return the accelerator's name, or how many processor cores there are."""
    found = find_device(device)
    if found.type == "cuda":
        return torch.cuda.get_device_name(found)
    return f"{cpu_count()} processor cores"


@cache
def _commit() -> str | None:
    """Return the commit of the source tree, or None where the package is installed without one."""
    if given := os.environ.get("CGMVAE_COMMIT"):  # a copy of the tree without its history
        return given
    tree = Path(__file__).parents[3]
    if not (tree / ".git").exists():  # git would take the repository of whoever installed it
        return None
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
