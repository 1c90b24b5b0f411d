"""Data sets that the formats must write and read back, and how the two are compared."""

import numpy as np
import scipy.sparse as sp
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cgmvae.data.dataset import MultiLabelDataset
from cgmvae.data.mapped import dense


@st.composite
def datasets(draw, names=None, *, dtypes=(np.float32,), min_features=1, unknown=True, **fields):
    """Draw a small data set with dense or sparse features and labels.

    ``names`` is the strategy of the columns' names, and each of the ``fields`` a function that
    returns the strategy of its values for a number of rows.
    """
    n, n_features, n_labels = (draw(st.integers(low, 5)) for low in (1, min_features, 1))
    floats = st.floats(width=32, allow_infinity=False)
    dtype = draw(st.sampled_from(dtypes))
    X = draw(hnp.arrays(dtype, (n, n_features), elements=floats, fill=st.just(0)))
    Y = draw(hnp.arrays(np.uint8, (n, n_labels), elements=st.integers(0, 1), fill=st.just(0)))
    drawn = {field: draw(st.none() | values(n)) for field, values in fields.items()}
    if unknown:
        drawn["unknown"] = draw(st.none() | hnp.arrays(bool, Y.shape))
        if drawn["unknown"] is not None:  # tables are read without rows that are entirely blank
            assume(not (np.isnan(X).all(axis=1) & drawn["unknown"].all(axis=1)).any())
    if names is not None:
        size = n_features + n_labels
        found = draw(st.lists(names, min_size=size, max_size=size, unique=True))
        drawn |= {"feature_names": found[:n_features], "label_names": found[n_features:]}
    X, Y = (sp.csr_array(each) if draw(st.booleans()) else each for each in (X, Y))
    return MultiLabelDataset(X, Y, **drawn)


def assert_same(found, expected, *, exact=False):
    """Compare two data sets; if ``exact``, with the forms and types of their matrices."""
    for field in ("X", "Y", "unknown"):
        ours, theirs = getattr(found, field), getattr(expected, field)
        assert (ours is None) == (theirs is None), field
        if theirs is not None:
            if exact:
                assert (sp.issparse(ours), ours.dtype) == (sp.issparse(theirs), theirs.dtype)
            np.testing.assert_array_equal(dense(ours), dense(theirs))
    assert found.feature_names == expected.feature_names
    assert found.label_names == expected.label_names
    for field in ("groups", "official_split") if exact else ():
        ours, theirs = getattr(found, field), getattr(expected, field)
        assert (ours is None) == (theirs is None), field
        if theirs is not None:
            assert ours.dtype.kind == theirs.dtype.kind
            np.testing.assert_array_equal(ours, theirs)
