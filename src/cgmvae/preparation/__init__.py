"""From table columns to the features that a method sees; fitted and stored with the model.

``encoders`` has one encoder per column type, ``features`` joins the encoded columns of a table, and
``scaling`` scales features. :class:`~cgmvae.methods.base.MultiLabelClassifier` applies all three.
"""

from cgmvae.preparation.features import ColumnSummary, FeaturePreparation

__all__ = ["ColumnSummary", "FeaturePreparation"]
