"""Figures, one display per question, and the pages of ``cgmvae report``.

Each display computes plain arrays once, from a fitted estimator or from results, and draws them
with ``plot(ax=None)`` in matplotlib, on given axes or on those of a new figure.
"""

from cgmvae.report.figures.features import FeatureImportanceDisplay, LabelWordsDisplay
from cgmvae.report.figures.maps import LabelMapDisplay, LatentMapDisplay
from cgmvae.report.figures.predictions import (
    CalibrationDisplay,
    LabelF1Display,
    ThresholdCurveDisplay,
)
from cgmvae.report.figures.responses import ResponseDisplay
from cgmvae.report.figures.runs import (
    CriticalDifferenceDisplay,
    FewerDataDisplay,
    TrainingHistoryDisplay,
)
from cgmvae.report.figures.similarity import (
    LabelSimilarityDisplay,
    SimilarityCooccurrenceDisplay,
)
from cgmvae.report.figures.sites import SiteMapDisplay

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
    "ResponseDisplay",
    "SimilarityCooccurrenceDisplay",
    "SiteMapDisplay",
    "ThresholdCurveDisplay",
    "TrainingHistoryDisplay",
]
