"""From table columns to the features that a method sees; fitted and stored with the model.

``encoders`` has one encoder per column type, ``features`` joins the encoded columns of a table,
``scaling`` scales features, ``piecewise`` and ``components`` add columns and replace them, and
``pipeline`` is all of that as one object.
"""

from cgmvae.preparation.features import ColumnSummary, FeaturePreparation
from cgmvae.preparation.pipeline import FeaturePipeline, FeaturePlan

__all__ = ["ColumnSummary", "FeaturePipeline", "FeaturePlan", "FeaturePreparation"]
