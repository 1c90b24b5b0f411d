"""The command ``cgmvae``: its subcommands, and how errors are reported."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import Annotated, Any

from cgmvae import __version__
from cgmvae.errors import InputError

try:
    import rich  # noqa: F401
    import typer
except ImportError:
    sys.exit('The command line needs more packages: pip install "cgmvae[cli]"')

from cgmvae.cli import bench, console, data
from cgmvae.cli.arguments import GroupedCommand, command_line_message
from cgmvae.cli.compare import compare
from cgmvae.cli.demo import demo
from cgmvae.cli.deploy import export, serve
from cgmvae.cli.describe import describe, methods
from cgmvae.cli.effects import effects
from cgmvae.cli.evaluate import evaluate
from cgmvae.cli.fit import fit
from cgmvae.cli.paper import paper
from cgmvae.cli.predict import predict
from cgmvae.cli.report import report
from cgmvae.cli.search import search

#: What typer raises for a wrong option or argument; the class has no public name.
_UsageError: Any = typer.BadParameter.__base__

#: The exit code after Ctrl-C.
_STOPPED = 130

app = typer.Typer(
    help="Multi-label classification: predict which labels apply, and learn which occur together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: no markup, and nothing is truncated
)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
for command in (
    *(fit, compare, search, predict, evaluate, report, effects, describe),
    *(serve, export, methods, demo, paper),
):
    app.command(command.__name__, cls=GroupedCommand)(command)


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
        console.print_warning(command_line_message(message))


def run() -> None:
    """Run the command line; bad input becomes one line and exit code 2."""
    # OpenMP threads must not busy-wait for long: with other programs on the same cores, an epoch
    # would take up to ten times as long. Not to wait at all, though, takes a quarter longer on idle
    # cores; GNU's OpenMP can be told how long. Variables are read when the first thread starts.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    for stream in (sys.stdout, sys.stderr):  # for names that the terminal cannot encode
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = app(prog_name="cgmvae", standalone_mode=False)
    except InputError as error:
        console.print_error(command_line_message(error))
        code = 2
    except _UsageError as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # the help, if no command was given
            typer.echo(message)
        else:
            console.print_error(f"{message.rstrip('.')}; see {error.ctx.command_path} --help.")
        code = error.exit_code
    except console.Stopped as stopped:
        console.print_error(str(stopped))
        sys.exit(_STOPPED)
    except KeyboardInterrupt:  # outside of typer
        code = _STOPPED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # drop buffered output
        console.print_error(
            "There is no space left on the disk; free some, and run the command again."
        )
        code = 2
    if code == _STOPPED:
        console.print_error("Stopped.")
    sys.exit(code)
