"""The number by which a member's best epoch is chosen, for all members and thresholds at once."""

from __future__ import annotations

import torch
from torch import Tensor

from cgmvae.errors import InputError
from cgmvae.evaluation.metrics import METRIC_TITLES, SET_METRICS, Counts
from cgmvae.evaluation.thresholds import NINE_THRESHOLDS

# Deviation D22: the paper does not say which epoch is kept.
#: Mean of the paper's five metrics, each at the best of the nine thresholds.
MEAN_OF_FIVE = "mean_of_five"

#: Cells that are counted at a time: a sum over truth values takes eight bytes for each on a CPU. A
#: GPU needs none, and is the faster the fewer kernels there are.
_BLOCK_CELLS, _GPU_BLOCK_CELLS = 2**18, 2**26

SELECTIONS = (MEAN_OF_FIVE, *SET_METRICS, "precision_at_1")


def selection_title(name: str) -> str:
    """Return what a metric of ``SELECTIONS`` is called in messages.

    Examples
    --------
    >>> selection_title("micro_f1"), selection_title("mean_of_five")
    ('validation micro-F1', 'mean of five validation metrics')
    """
    if name == MEAN_OF_FIVE:
        return "mean of five validation metrics"
    return f"validation {METRIC_TITLES.get(name, name.replace('_', ' '))}"


def selection_value(name: str, scores: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    """Return each member's validation metric at the best of the nine thresholds, (n_members,).

    All arrays are (n_members, n_rows, n_labels); a row that only fills up the shape has no known
    label. In float64: sums over rows must not depend on how many rows fill up the shape.
    """
    if name not in SELECTIONS:
        raise InputError(f"There is no metric {name!r}; choose one of {', '.join(SELECTIONS)}.")
    if name == "precision_at_1":
        return _precision_at_1(scores, positive, known)
    counts = _sweep(scores, positive, known)
    if name != MEAN_OF_FIVE:
        return counts.value(name, absent=0).max(0).values
    best = [counts.value(metric, absent=0).max(0).values for metric in SET_METRICS[:4]]
    return torch.stack([*best, _precision_at_1(scores, positive, known)]).mean(0)


def _sweep(scores: Tensor, positive: Tensor, known: Tensor) -> Counts:
    """Count at each threshold; arrays have leading axes (n_thresholds, n_members)."""
    n_members, n_rows, n_labels = scores.shape
    leading = (2, len(NINE_THRESHOLDS), n_members)
    by_label = torch.zeros(*leading, n_labels, dtype=torch.float64, device=scores.device)
    by_row = torch.zeros(*leading, n_rows, dtype=torch.float64, device=scores.device)
    label_true, row_true = torch.zeros_like(by_label[0, 0]), torch.zeros_like(by_row[0, 0])
    row_known = torch.zeros_like(row_true)
    n_cells = _GPU_BLOCK_CELLS if scores.is_cuda else _BLOCK_CELLS
    n_block = max(1, n_cells // (n_members * n_labels))
    for rows in (slice(start, start + n_block) for start in range(0, n_rows, n_block)):
        label_true += positive[:, rows].sum(1, dtype=torch.float64)
        row_true[:, rows] = positive[:, rows].sum(2, dtype=torch.float64)
        row_known[:, rows] = known[:, rows].sum(2, dtype=torch.float64)
        for i, threshold in enumerate(NINE_THRESHOLDS):
            predicted = (scores[:, rows] >= float(threshold)) & known[:, rows]
            for kind, mask in enumerate((predicted & positive[:, rows], predicted)):
                by_label[kind, i] += mask.sum(1, dtype=torch.float64)
                by_row[kind, i, :, rows] = mask.sum(2, dtype=torch.float64)
    return Counts(
        label_both=by_label[0],
        label_predicted=by_label[1],
        label_true=label_true,
        row_both=by_row[0],
        row_predicted=by_row[1],
        row_true=row_true,
        row_known=row_known,
    )


def _precision_at_1(scores: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    first = scores.masked_fill(~known, -1.0).argmax(-1, keepdim=True)
    usable = known.any(-1)
    hit = positive.gather(-1, first).squeeze(-1) & usable
    return hit.sum(-1, dtype=torch.float64) / usable.sum(-1).clamp(min=1)
