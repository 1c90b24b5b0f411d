"""Sentences that say whether a claim was found again, computed from paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cgmvae.studies.results import Difference

#: Student's interval takes the splits to be independent; those of one data set are not.
SHARED_ROWS = "Splits of one data set share rows, so that these intervals are somewhat too narrow."

DIFFERENCE_READING = (
    "Differences are paired over splits and seeds, thresholds: validation; in brackets the 95% "
    f"interval over splits. {SHARED_ROWS} One in twenty would miss 0 by chance even if they did "
    "not."
)

_OTHERWISE = {
    "within noise": "within noise on",
    "not found": "not found, but the opposite, on",
    "not known": "not known, for want of a second split, on",
}


def difference_text(difference: Difference, digits: int = 3) -> str:
    """Write a difference with its interval.

    Examples
    --------
    >>> difference_text(Difference(0.012, -0.001, 0.025, 3))
    '+0.012 [-0.001, +0.025]'
    """
    mean, low, high = (signed(value, digits) for value in difference[:3])
    return mean if np.isnan(difference.low) else f"{mean} [{low}, {high}]"


def signed(value: float, digits: int = 3) -> str:
    """Write a number with its sign, or a dash where there is none."""
    return "–" if np.isnan(value) else f"{value:+.{digits}f}"


def finding(claim: str, by_data: Mapping[str, Difference], *, digits: int = 3) -> str:
    """Say on which data sets a claim was found again.

    Parameters
    ----------
    claim : str
    by_data : mapping of str to Difference
        What the claim says is above 0, by data set.

    Examples
    --------
    >>> found, noise = Difference(0.2, 0.1, 0.3, 3), Difference(0.1, -0.1, 0.3, 3)
    >>> finding("A above B", {"yeast": found, "scene": noise})
    'A above B: found on 1 of 2 data sets (yeast), within noise on 1 (scene); mean +0.150.'
    """
    known = {name: each for name, each in by_data.items() if each.n_splits > 0}
    if not known:
        return f"{claim}: no runs yet."
    names = {
        verdict: [name for name, each in known.items() if each.verdict == verdict]
        for verdict in ("found", *_OTHERWISE)
    }
    parts = [f"found on {len(names['found'])} of {len(known)} data sets{listed(names['found'])}"]
    parts += [
        f"{words} {len(names[verdict])}{listed(names[verdict])}"
        for verdict, words in _OTHERWISE.items()
        if names[verdict]
    ]
    mean = float(np.mean([each.mean for each in known.values()]))
    return f"{claim}: {', '.join(parts)}; mean {signed(mean, digits)}."


def listed(names: Sequence[str]) -> str:
    """Write names in brackets after a number, or nothing."""
    return f" ({', '.join(names)})" if names else ""
