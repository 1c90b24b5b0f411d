"""What people look at: figures, one display a question, and pages that are made of them.

Each display computes plain arrays once, from a fitted estimator or from results, and draws them
with ``plot(ax=None)``, on given axes or new ones; those that gain from zooming and hovering have
``to_plotly()`` as well: matplotlib for files, plotly for pages.
"""

from cgmvae.report.figures.calibration import CalibrationDisplay
from cgmvae.report.figures.comparison import CriticalDifferenceDisplay, FewerDataDisplay
from cgmvae.report.figures.cooccurrence import SimilarityCooccurrenceDisplay
from cgmvae.report.figures.effects import plot_effects
from cgmvae.report.figures.importance import FeatureImportanceDisplay
from cgmvae.report.figures.label_map import LabelMapDisplay
from cgmvae.report.figures.labels import LabelF1Display
from cgmvae.report.figures.latent_map import LatentMapDisplay
from cgmvae.report.figures.similarity import LabelSimilarityDisplay
from cgmvae.report.figures.thresholds import ThresholdCurveDisplay
from cgmvae.report.figures.training import TrainingHistoryDisplay
from cgmvae.report.figures.words import LabelWordsDisplay

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
    "plot_effects",
]
