"""What a model makes of columns that are no plain numbers: learnt with it, kept in its file.

``features`` joins the columns; there is one file for each kind of column, and ``column`` says what
they have in common. :class:`~cgmvae.methods.base.MultiLabelClassifier` uses it.
"""

from cgmvae.preparation.features import ColumnSummary, FeaturePreparation

__all__ = ["ColumnSummary", "FeaturePreparation"]
