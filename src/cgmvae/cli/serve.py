"""``cgmvae serve``: a model that other programs ask over HTTP."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from cgmvae.cli.extras import needs_extra
from cgmvae.cli.output import print_text, say_warning
from cgmvae.cli.sources import ModelArgument
from cgmvae.data.files import check_file
from cgmvae.errors import InputError
from cgmvae.serving.config import ServingConfig

#: Where the key is looked for when no file is named.
KEY_VARIABLE = "CGMVAE_API_KEY"

#: A file that is longer holds something else than a key.
_KEY_BYTES = 4096


def serve(
    model: ModelArgument,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is everywhere.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="0 takes any that is free.")
    ] = 8000,
    api_key_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help=f"The key that requests must bring; or {KEY_VARIABLE}."),
    ] = None,
    max_rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most rows of a request.")
    ] = ServingConfig.rows,
    max_bytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Largest body of a request.")
    ] = ServingConfig.body_bytes,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Most time of a request.")
    ] = ServingConfig.seconds,
    batch_rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows scored at once; 1: no batches.")
    ] = ServingConfig.batch_rows,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads that score.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log no requests.")] = False,
) -> None:
    """Answer other programs with a model, over HTTP.

    MODEL is a file that 'cgmvae fit' wrote. Rows are sent as JSON or CSV to /predict; /docs tells
    more. Ctrl-C stops it, once everything that was taken in is answered.
    """
    config = ServingConfig(
        rows=max_rows,
        body_bytes=max_bytes,
        seconds=timeout,
        batch_rows=batch_rows,
        held_bytes=max(ServingConfig.held_bytes, 4 * max_bytes),
        api_key=_key(api_key_file),
    )
    with needs_extra("Serving", "serve"):
        from cgmvae.serving import server
        from cgmvae.serving.app import make_app
    app = make_app(_load(model, threads), config)
    listening = server.bind(host, port)
    if config.api_key is None and not server.is_local(host):
        say_warning(f"Everybody who reaches {host} can ask the model; give --api-key-file.")
    if not quiet:
        server.log_to(sys.stderr)
    print_text(f"Serving {model} at {server.address(listening)}; Ctrl-C stops it.")
    server.run(app, listening, seconds=timeout)
    print_text("Stopped.")


def _key(path: str | None) -> str | None:
    """Return the key from its file, or from the environment."""
    if path is None:
        return os.environ.get(KEY_VARIABLE)
    try:
        with check_file(path).open(encoding="ascii") as file:
            key = file.read(_KEY_BYTES + 1)
    except (OSError, UnicodeError) as error:
        raise InputError(f"{path} is not a readable file with a key; name another.") from error
    if len(key) > _KEY_BYTES:
        raise InputError(f"{path} is too long for a file with a key; name another.")
    return key.strip()


def _load(path: str, threads: int | None) -> object:
    """Load the model, with threads that leave a core to the requests."""
    import torch
    from joblib import cpu_count

    from cgmvae.methods import load

    torch.set_num_threads(threads or max(1, cpu_count() - 1))
    return load(path)
