"""``cgmvae export``: a model as a file that runs without this library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cgmvae.cli.output import print_text, working
from cgmvae.cli.sources import ModelArgument
from cgmvae.cli.targets import OverwriteOption, check_target
from cgmvae.errors import InputError


def export(
    model: ModelArgument,
    onnx: Annotated[str, typer.Option("--onnx", metavar="FILE", help="The file, *.onnx.")],
    overwrite: OverwriteOption = False,
) -> None:
    """Write a model as an ONNX file, which runs without cgmvae.

    MODEL is a file that 'cgmvae fit' wrote. The ONNX file takes features as they are measured, with
    NaN for what is missing, and gives probabilities and labels; the names of features and labels
    and the threshold rule are in its metadata. It is written only if ONNX Runtime agrees with the
    model.
    """
    if Path(onnx).suffix.lower() != ".onnx":
        raise InputError(f"{onnx!r} does not end in .onnx; name a file that does.")
    check_target(onnx, model, overwrite=overwrite)
    from cgmvae.methods import load
    from cgmvae.serving.onnx_export import export_onnx

    fitted = load(model)
    with working("Writing the graph and comparing it with the model"):
        written = export_onnx(fitted, onnx)
    print_text(
        f"Wrote {onnx}: {written.n_features:,} features in, {written.n_labels:,} labels out; it "
        f"differs from the model by at most {written.difference:.1g}."
    )
    if written.prepared:
        print_text(
            "It takes the features that the model prepares from the columns of a table; "
            "their names are in its metadata."
        )
