"""What people look at: figures, each a display that computes arrays once and draws them."""

from cgmvae.report.figures import (
    CalibrationDisplay,
    CriticalDifferenceDisplay,
    FeatureImportanceDisplay,
    FewerDataDisplay,
    LabelF1Display,
    LabelMapDisplay,
    LabelSimilarityDisplay,
    LabelWordsDisplay,
    LatentMapDisplay,
    SimilarityCooccurrenceDisplay,
    ThresholdCurveDisplay,
    TrainingHistoryDisplay,
)

__all__ = [
    "CalibrationDisplay",
    "CriticalDifferenceDisplay",
    "FeatureImportanceDisplay",
    "FewerDataDisplay",
    "LabelF1Display",
    "LabelMapDisplay",
    "LabelSimilarityDisplay",
    "LabelWordsDisplay",
    "LatentMapDisplay",
    "SimilarityCooccurrenceDisplay",
    "ThresholdCurveDisplay",
    "TrainingHistoryDisplay",
]
