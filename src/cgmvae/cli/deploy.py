"""``cgmvae serve`` and ``cgmvae export``: a model for other programs, over HTTP or as ONNX."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cgmvae.cli import console
from cgmvae.cli.arguments import ModelArgument, OverwriteOption, check_target, flag, option
from cgmvae.data.files import check_file
from cgmvae.errors import InputError
from cgmvae.serving.config import ServingConfig

#: Environment variable with the API key, used when no file is given.
KEY_VARIABLE = "CGMVAE_API_KEY"

#: Maximum size of a key file.
_KEY_BYTES = 4096


def serve(
    model: ModelArgument,
    host: Annotated[str, option("ADDRESS", "Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, option("N", "Port; 0 for any free one.", min=0, max=65535)] = 8000,
    api_key_file: Annotated[
        str | None, option("FILE", f"File with the API key; or set {KEY_VARIABLE}.")
    ] = None,
    max_rows: Annotated[int, option("N", "Maximum rows per request.", min=1)] = ServingConfig.rows,
    max_bytes: Annotated[
        int, option("N", "Maximum body size of a request.", min=1)
    ] = ServingConfig.body_bytes,
    timeout: Annotated[
        float, option("SECONDS", "Maximum duration of a request.", min=0.1)
    ] = ServingConfig.seconds,
    batch_rows: Annotated[
        int, option("N", "Maximum rows per batch; 1: no batching.", min=1)
    ] = ServingConfig.batch_rows,
    workers: Annotated[int, option("N", "Processes that serve the model.", min=1)] = 1,
    threads: Annotated[int | None, option("N", "Threads for scoring, per process.", min=1)] = None,
    grace: Annotated[
        float, option("SECONDS", "How long to wait for the last requests.", min=0.1)
    ] = ServingConfig.grace_seconds,
    quiet: Annotated[bool, flag("--quiet", "Do not log requests.")] = False,
) -> None:
    """Serve a model over HTTP.

    MODEL is a file that 'cgmvae fit' wrote. Clients post rows as JSON or CSV to /predict; /docs
    describes the API. Ctrl-C stops the server after it has answered all accepted requests. The
    signal SIGHUP loads the file again.
    """
    config = ServingConfig(
        rows=max_rows,
        body_bytes=max_bytes,
        seconds=timeout,
        batch_rows=batch_rows,
        grace_seconds=grace,
        held_bytes=max(ServingConfig.held_bytes, 4 * max_bytes),
        api_key=_key(api_key_file),
    )
    with console.needs_extra("Serving", "serve"):
        from cgmvae.serving import server
    from joblib import cpu_count

    from cgmvae.methods import load

    fitted = load(model)  # a file that cannot be served is reported before anything listens
    threads = threads or max(1, (cpu_count() - 1) // workers)  # leave one core to the web server
    listening = server.bind(host, port)
    if config.api_key is None and not server.is_local(host):
        console.print_warning(
            f"Anyone who can reach {host} can use the model; give --api-key-file."
        )
    console.print_text(f"Serving {model} at {server.address(listening)}; press Ctrl-C to stop.")
    arguments = (str(model), config, listening)
    if workers == 1:
        server.serve_file(*arguments, threads=threads, quiet=quiet, model=fitted)
    else:
        del fitted
        server.serve_in_workers(workers, *arguments, threads=threads, quiet=quiet)
    console.print_text("Stopped.")


def _key(path: str | None) -> str | None:
    """Return the API key from its file or from the environment."""
    if path is None:
        return os.environ.get(KEY_VARIABLE)
    try:
        with check_file(path).open(encoding="ascii") as file:
            key = file.read(_KEY_BYTES + 1)
    except (OSError, UnicodeError) as error:
        raise InputError(f"{path} is not a readable key file; name another.") from error
    if len(key) > _KEY_BYTES:
        raise InputError(f"{path} is too long for a key file; name another.")
    return key.strip()


def export(
    model: ModelArgument,
    onnx: Annotated[str, option("FILE", "File to write, *.onnx.", "--onnx")],
    overwrite: OverwriteOption = False,
) -> None:
    """Export a model to ONNX, to run it without cgmvae.

    MODEL is a file that 'cgmvae fit' wrote. The ONNX model takes unscaled features, with NaN for
    missing values, and returns probabilities and labels; its metadata contains the names of
    features and labels and the threshold rule. The file is written only if ONNX Runtime reproduces
    the predictions of the model.
    """
    if Path(onnx).suffix.lower() != ".onnx":
        raise InputError(f"{onnx!r} does not end in .onnx; name a file that does.")
    check_target(onnx, model, overwrite=overwrite)
    from cgmvae.methods import load
    from cgmvae.serving.onnx_export import export_onnx

    fitted = load(model)
    with console.spinner("Exporting the model and comparing predictions"):
        written = export_onnx(fitted, onnx)
    console.print_text(
        f"Wrote {onnx}: {written.n_features:,} features in, {written.n_labels:,} labels out; it "
        f"differs from the model by at most {written.difference:.1g}."
    )
    if written.prepared:
        console.print_text(
            "It takes the features that the model prepares from categories, dates and texts, and "
            "does not prepare them itself; its metadata says how to (columns), and the page about "
            "export shows it for texts."
        )
