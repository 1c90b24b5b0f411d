"""How the probability of a label changes with one column: response curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cgmvae.data.columns import Columns
from cgmvae.data.dataset import column_names
from cgmvae.data.mapped import is_sparse
from cgmvae.errors import InputError, listed
from cgmvae.report.figures.style import BLUE, GRAY, Display, index_of, one_line, tidy

#: Values of a column that are tried, the percentiles of the training rows between which those of
#: numbers and dates lie, and the most categories.
_N_VALUES, _RANGE, _MAX_CATEGORIES = 20, (1, 99), 12

#: Shares of the rows below the bounds of a table.
_TENTHS = (0.1, 0.9)

#: Rows of the rug.
_MAX_RUG = 200


class Response(NamedTuple):
    """What changing one column of some rows does."""

    values: NDArray[Any]
    """Numbers, dates or categories that the column was set to, (n_values,)"""
    probabilities: NDArray[np.float32]
    """Of each row with the column set to each value, (n_rows, n_values, n_labels)"""
    seen: NDArray[Any]
    """Values of training rows; a sample of them"""

    @property
    def is_category(self) -> bool:
        """Whether the column has categories."""
        return self.values.dtype == object


@dataclass(eq=False, repr=False)
class ResponseDisplay(Display):
    """Response curves: probabilities as one column is changed and all others stay as they are.

    The mean over rows is the partial dependence. Where the curves of single rows cross, the effect
    depends on the other columns.

    Examples
    --------
    >>> from cgmvae import BinaryRelevance, make_survey
    >>> data, _ = make_survey(200, 4, 5, n_groups=2, seed=0)
    >>> model = BinaryRelevance(random_state=0).fit(data.X, data)
    >>> display = ResponseDisplay.from_estimator(model, data.X, {("label_1", "feature_0"): 0.2})
    >>> display.responses["feature_0"].probabilities.shape
    (50, 20, 5)
    """

    panels: Mapping[tuple[str, str], float]
    """Pairs of a label and a column, with how important the column is for the label"""
    responses: Mapping[str, Response]
    """By name of the column"""
    _: KW_ONLY
    label_names: Sequence[str]

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        panels: Mapping[tuple[str, str], float],
        *,
        feature_names: Sequence[str] | None = None,
        reference: Any = None,
        max_rows: int = 50,
        random_state: int = 0,
    ) -> ResponseDisplay:
        """Set columns of some rows to values that training rows have, and predict.

        Parameters
        ----------
        model
            A fitted classifier.
        X : array or Columns, (n_samples, n_columns)
            Rows whose columns are changed, with the columns of ``fit``; more than ``max_rows`` are
            a sample.
        panels : mapping of (str, str) to float
            Labels, each with a column of numbers, dates or categories, by name, and how important
            it is. A column without values is left out.
        feature_names : sequence of str, optional
            Names of the columns of X, if it is an array; by default those of ``fit``.
        reference : array or Columns, optional
            Training rows, whose values are tried; by default X.
        """
        reference = X if reference is None else reference
        if is_sparse(X):
            raise InputError("Response curves need dense rows; the words of texts have none.")
        if isinstance(X, Columns):
            feature_names = X.names
        given = feature_names or getattr(model, "input_names_", None)
        names = column_names(given, "feature", X.shape[1])
        columns = list(dict.fromkeys(column for _, column in panels))
        if unknown := [name for name in columns if name not in names]:
            raise InputError(f"There is no column {listed(unknown)}.")
        rng = np.random.default_rng(random_state)
        X, seen = (_sample(rows, most, rng) for rows, most in ((X, max_rows), (reference, 2000)))
        found = {}
        for name in columns:
            place = names.index(name)
            own = _column(seen, place)
            if len(values := _values_to_try(own)) == 0:
                continue
            changed = [model.predict_proba(_with(X, place, value)) for value in values]
            rug = own[: min(len(own), _MAX_RUG)]
            found[name] = Response(values, np.stack(changed, axis=1).astype(np.float32), rug)
        shown = {pair: importance for pair, importance in panels.items() if pair[1] in found}
        return cls(shown, found, label_names=list(model.label_names_))

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield the titles of a table, and a row for each panel and value."""
        yield "label", "column", "importance", "value", "probability", "low", "high"
        for (label, column), importance in self.panels.items():
            response = self.responses[column]
            curves = response.probabilities[..., index_of(label, self.label_names)]
            numbers = np.stack([curves.mean(0), *np.quantile(curves, _TENTHS, axis=0)], axis=1)
            for value, row in zip(response.values, numbers, strict=True):
                text = f"{value:.6g}" if isinstance(value, float) else str(value)
                yield label, column, f"{importance:.4f}", text, *map("{:.4f}".format, row)

    def plot(self, ax: Any = None, *, n_columns: int = 3) -> ResponseDisplay:
        """Draw a panel for each pair of a label and a column, ``n_columns`` beside each other.

        The thick line is the mean, thin ones are rows, and ticks below are training rows.
        """
        n_columns = min(n_columns, len(self.panels))
        n_rows = -(-len(self.panels) // n_columns)
        size, grid = (3.2 * n_columns, 2.6 * n_rows), {"nrows": n_rows, "ncols": n_columns}
        axes = self._start_panels(ax, len(self.panels), size, **grid)
        for panel, (label, column) in zip(axes, self.panels, strict=True):
            response = self.responses[column]
            curves = response.probabilities[..., index_of(label, self.label_names)]
            if response.is_category:
                _draw_categories(panel, response, curves)
            else:
                _draw_curves(panel, response, curves)
            panel.set_ylim(0, min(1.0, 1.15 * float(curves.max()) + 0.01))
            panel.set_title(one_line(label, 24), fontsize=10, parse_math=False)
            panel.set_xlabel(one_line(column, 24), parse_math=False)
            tidy(panel)
        return self


def response_columns(X: Any, names: Sequence[str]) -> list[str]:
    """Return the columns whose response can be drawn: all but texts and sparse features."""
    if is_sparse(X):
        return []
    if isinstance(X, Columns):
        return [n for n, kind in zip(X.names, X.kinds, strict=True) if kind != "text"]
    return list(names)


def _draw_curves(panel: Any, response: Response, curves: NDArray[np.floating]) -> None:
    panel.plot(response.values, curves.T, color=GRAY, lw=0.5, alpha=0.5)
    panel.plot(response.values, curves.mean(0), color=BLUE, lw=2)
    low, high = response.values[[0, -1]]
    rug = response.seen[(response.seen >= low) & (response.seen <= high)]  # NaN is neither
    panel.plot(rug, np.zeros(len(rug)), "|", color="black", ms=6, mew=0.5, clip_on=False)
    panel.margins(x=0.02)
    panel.locator_params(axis="y", nbins=4)
    if response.values.dtype.kind == "M":
        panel.tick_params(axis="x", labelrotation=30, labelsize=8)
    else:
        panel.locator_params(axis="x", nbins=4)


def _draw_categories(panel: Any, response: Response, curves: NDArray[np.floating]) -> None:
    positions = np.arange(len(response.values))
    shift = np.linspace(-0.25, 0.25, len(curves))[:, None]
    panel.plot(positions + shift, curves, ".", color=GRAY, ms=2, alpha=0.6)
    panel.plot(positions, curves.mean(0), "_", color=BLUE, ms=16, mew=2.5)
    texts = [one_line(str(value), 12) for value in response.values]
    panel.set_xticks(positions, texts, rotation=30, ha="right", fontsize=8, parse_math=False)
    panel.locator_params(axis="y", nbins=4)


def _sample(rows: Any, most: int, rng: np.random.Generator) -> Any:
    chosen = rng.permutation(rows.shape[0])[:most]
    return rows[np.sort(chosen)] if isinstance(rows, Columns) else np.asarray(rows[np.sort(chosen)])


def _column(rows: Any, place: int) -> NDArray[Any]:
    return rows.values[place] if isinstance(rows, Columns) else rows[:, place]


def _with(rows: Any, place: int, value: Any) -> Any:
    """Return rows with a column set to one value."""
    if not isinstance(rows, Columns):
        changed = np.array(rows, copy=True)
        changed[:, place] = value
        return changed
    values = list(rows.values)
    values[place] = np.full(len(rows), value, dtype=values[place].dtype)
    return replace(rows, values=tuple(values))


def _values_to_try(seen: NDArray[Any]) -> NDArray[Any]:
    """Return values between which training rows lie, or their most frequent categories."""
    if seen.dtype == object:
        kinds, counts = np.unique([v for v in seen if v is not None], return_counts=True)
        return kinds[np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]].astype(object)
    if seen.dtype.kind == "M":
        days = seen[~np.isnat(seen)].astype("datetime64[s]")
        return _values_to_try(days.astype(np.float64)).astype("int64").astype("datetime64[s]")
    known = seen[~np.isnan(seen)]
    distinct = np.unique(known)
    if len(distinct) <= _N_VALUES:
        return distinct.astype(np.float64)
    low, high = np.percentile(known, _RANGE)
    return np.linspace(low, high, _N_VALUES)
