"""Search spaces: values by parameter, taken as a full grid or as a random sample of it."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cgmvae.errors import InputError
from cgmvae.methods.registry import find_method

Space = Mapping[str, Sequence[Any]]

#: The grid of the paper's appendix B.1: 20 learning rates, 3 dropouts, 3 weight decays.
PAPER_SPACE: Space = {
    "learning_rate": tuple(round(0.0001 + 0.0002 * i, 4) for i in range(20)),
    "dropout": (0.3, 0.5, 0.7),
    "weight_decay": (0.0, 0.01, 0.0001),
}

#: What the appendix tunes in addition: E, α and β; with the grid, 18,000 settings.
PAPER_WEIGHT_SPACE: Space = {
    "embedding_dim": (512, 1024, 2048, 3072),
    "contrastive_weight": (0.1, 0.5, 1.0, 1.5, 2.0),
    "cross_entropy_weight": (0.1, 0.5, 1.0, 1.5, 2.0),
}
SPACES: Mapping[str, Space] = {
    "paper": PAPER_SPACE,
    "paper-full": {**PAPER_SPACE, **PAPER_WEIGHT_SPACE},
}


def read_space(name: str | os.PathLike[str], method: str = "cgmvae") -> Space:
    """Return the space ``paper`` or ``paper-full``, a method's ``default``, or that of a JSON file.

    ``paper`` has the learning rates, dropouts and weight decays of the paper's grid, and
    ``paper-full`` also its values of E, α and β. A file contains one object: a list of values for
    each parameter.
    """
    if name in SPACES:
        return SPACES[str(name)]
    if name == "default":
        return find_method(method).space
    path = Path(name)
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"There is no space {str(name)!r}; use {', '.join(SPACES)}, default or a JSON file."
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}).") from error
    values = read.values() if isinstance(read, dict) else ()
    if not values or not all(isinstance(each, list) and each for each in values):
        raise InputError(
            f"{path} must contain one object with a list of values for each parameter, such as "
            '{"learning_rate": [0.001, 0.002]}.'
        )
    return read


def grid(space: Space) -> list[dict[str, Any]]:
    """Return all settings of a space.

    Examples
    --------
    >>> grid({"dropout": (0.1, 0.2), "weight_decay": (0.0,)})
    [{'dropout': 0.1, 'weight_decay': 0.0}, {'dropout': 0.2, 'weight_decay': 0.0}]
    """
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def sample(
    space: Space | Sequence[Mapping[str, Any]], n_settings: int | None, seed: int
) -> list[dict[str, Any]]:
    """Return ``n_settings`` different settings of a space, drawn at random; all of them if None.

    The grid is never listed, since it may be larger than memory. A list of settings is a space too.
    """
    if not isinstance(space, Mapping):
        listed = [dict(setting) for setting in space]
        if n_settings is None or n_settings >= len(listed):
            return listed
        return random.Random(seed).sample(listed, n_settings)
    if empty := [name for name, values in space.items() if len(values) == 0]:
        raise InputError(f"The space has no values for {empty[0]!r}; give at least one.")
    total = math.prod(len(values) for values in space.values())
    if n_settings is None or n_settings >= total:
        return grid(space)
    if n_settings < 1:
        raise InputError(f"n_settings is {n_settings}; it must be at least 1.")
    generator = random.Random(seed)  # NumPy draws no integers beyond 64 bits
    numbers: dict[int, None] = {}
    while len(numbers) < n_settings:
        numbers.setdefault(generator.randrange(total))
    settings = []
    for number in numbers:  # a position in the grid
        setting = {}
        for name, values in space.items():
            number, index = divmod(number, len(values))
            setting[name] = values[index]
        settings.append(setting)
    return settings
