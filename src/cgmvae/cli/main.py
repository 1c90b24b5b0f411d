"""The command ``cgmvae``: its subcommands, and how errors reach the user."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

from cgmvae import __version__
from cgmvae.errors import InputError

try:
    import typer
except ImportError:
    sys.exit('The command line needs more packages: pip install "cgmvae[cli]"')

from cgmvae.cli import data, demo
from cgmvae.cli.output import say_error, say_warning

app = typer.Typer(
    help="Multi-label classification: learn which labels a thing has, and which go together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cgmvae {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    pass


def _show_warning(message: Any, category: type[Warning], *_: Any) -> None:
    if issubclass(category, UserWarning):
        say_warning(str(message))


def run() -> None:
    """Run the command line; bad input becomes one line and exit code 2."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        app()
    except InputError as error:
        say_error(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        say_error("Stopped.")
        sys.exit(130)
