"""Data sets: what they are, where they come from, how they are read, written and split."""

from cgmvae.data.catalog import load_dataset
from cgmvae.data.columns import Columns, as_columns
from cgmvae.data.dataset import DatasetStatistics, MultiLabelDataset
from cgmvae.data.readers import ReadingOptions, read, write
from cgmvae.data.splits import Split, holdout, make_split, spatial_blocks
from cgmvae.data.synthetic import SurveyTruth, make_survey

__all__ = [
    "Columns",
    "DatasetStatistics",
    "MultiLabelDataset",
    "ReadingOptions",
    "Split",
    "SurveyTruth",
    "as_columns",
    "holdout",
    "load_dataset",
    "make_split",
    "make_survey",
    "read",
    "spatial_blocks",
    "write",
]
