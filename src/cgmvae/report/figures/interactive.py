"""What the interactive figures of pages share: an empty plotly figure in the style of the others.

Grounds are transparent, so that a page may be light or dark; a page sets the colour of the text.
Names go through :func:`~cgmvae.report.figures.names.escaped`.
"""

from __future__ import annotations

from typing import Any


def page_figure(*, x: str = "", y: str = "", note: str = "", **layout: Any) -> Any:
    """Return an empty plotly figure with titles of the axes, and a note in small print below."""
    import plotly.graph_objects as go

    figure = go.Figure()
    faint = {"gridcolor": "rgba(128,128,128,0.25)", "zerolinecolor": "rgba(128,128,128,0.4)"}
    figure.update_layout(
        template="simple_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 40, "r": 20, "t": 30, "b": 40},
        modebar={"bgcolor": "rgba(0,0,0,0)"},
        hoverlabel={"align": "left", "bgcolor": "white", "font": {"color": "black"}},
        **layout,
    )
    title = f"{x}<br><sup>{note}</sup>" if note else x
    figure.update_xaxes(title_text=title, automargin=True, showgrid=True, **faint)
    figure.update_yaxes(title_text=y, automargin=True, showgrid=True, **faint)
    return figure
