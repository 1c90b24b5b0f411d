"""How good predictions are: metrics, threshold rules, and the protocols that combine them."""

from cgmvae.evaluation.metrics import (
    PAPER_METRICS,
    Counts,
    count,
    example_f1,
    hamming_accuracy,
    label_table,
    macro_f1,
    micro_f1,
    subset_accuracy,
)
from cgmvae.evaluation.protocol import PROTOCOLS, Evaluation, Scored, evaluate
from cgmvae.evaluation.ranking import precision_at_k
from cgmvae.evaluation.thresholds import (
    GlobalThreshold,
    LabelThresholds,
    ThresholdRule,
    TopK,
    learn_rule,
    sweep,
)

__all__ = [
    "PAPER_METRICS",
    "PROTOCOLS",
    "Counts",
    "Evaluation",
    "GlobalThreshold",
    "LabelThresholds",
    "Scored",
    "ThresholdRule",
    "TopK",
    "count",
    "evaluate",
    "example_f1",
    "hamming_accuracy",
    "label_table",
    "learn_rule",
    "macro_f1",
    "micro_f1",
    "precision_at_k",
    "subset_accuracy",
    "sweep",
]
