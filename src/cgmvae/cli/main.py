"""The command ``cgmvae``: its subcommands, and how errors reach the user."""

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

from cgmvae.cli import (
    bench,
    data,
    demo,
    describe,
    evaluate,
    export,
    fit,
    methods,
    predict,
    processes,
    report,
    search,
    serve,
)
from cgmvae.cli.output import Stopped, say_error, say_warning
from cgmvae.cli.sources import with_flags

#: What typer raises at a wrong option or argument; it gives the class no public name.
_UsageError: Any = typer.BadParameter.__base__

#: The exit code that typer turns Ctrl-C into.
_STOPPED = 130

app = typer.Typer(
    help="Multi-label classification: learn which labels a thing has, and which go together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: nothing in it is taken for markup or cut
)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
for command in (
    fit.fit,
    search.search,
    predict.predict,
    evaluate.evaluate,
    report.report,
    describe.describe,
    serve.serve,
    export.export,
    methods.methods,
    demo.demo,
):
    app.command(command.__name__)(command)


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
    if issubclass(category, UserWarning) and processes.leads():
        say_warning(str(message))


def _say_once(message: str) -> None:
    """Print what is wrong, unless another process has done it."""
    if processes.speaks_first():
        say_error(message)


def run() -> None:
    """Run the command line; bad input becomes one line and exit code 2."""
    # Threads that wait for each other must not spin: where other programs run beside this one, an
    # epoch then takes up to ten times as long. Read when the first of them is started.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    for stream in (sys.stdout, sys.stderr):  # a name may hold what the terminal cannot show
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        processes.join(sys.argv[1:])
        code = app(standalone_mode=False)
    except InputError as error:
        _say_once(with_flags(str(error)))
        code = 2
    except _UsageError as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # the help, where nothing was asked for
            typer.echo(message)
        else:
            _say_once(f"{message.rstrip('.')}; see {error.ctx.command_path} --help.")
        code = error.exit_code
    except Stopped as stopped:
        _say_once(str(stopped))
        sys.exit(_STOPPED)
    except KeyboardInterrupt:  # where typer does not see it
        code = _STOPPED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is not printed yet
        _say_once("There is no space left to write to; free some, and run the command again.")
        code = 2
    if code == _STOPPED:
        _say_once("Stopped.")
    sys.exit(code)
