"""Files that commands are told to write: refused before anything is computed, or written whole."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from cgmvae.data.files import atomic_path
from cgmvae.errors import InputError

OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]

#: The pictures that plots are written as.
PICTURES = ("png", "svg", "pdf")

#: Dots an inch of those that are made of dots.
_PICTURE_DPI = 150


def check_target(target: str, *inputs: str, overwrite: bool) -> None:
    """Refuse a file that cannot or should not be written.

    Parameters
    ----------
    target : str
        The file.
    *inputs : str
        What the command reads, which it must not replace; some may be no files.
    overwrite : bool
        Whether a file that exists may be replaced.
    """
    path = Path(target)
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file inside it.")
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists; name another file, or give --overwrite.")
        refuse_inputs(path, *inputs)
        if not path.parent.is_dir():
            raise InputError(f"The folder {path.parent} does not exist; make it first.")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"Cannot write {path} ({error.strerror}); choose another name or folder."
        ) from error


def refuse_inputs(path: Path, *inputs: str) -> None:
    """Refuse a file that the command reads, by whatever name."""
    try:
        is_read = any(path.exists() and Path(n).exists() and path.samefile(n) for n in inputs)
    except OSError:  # a name that cannot be looked for; who opens it says so
        return
    if is_read:
        raise InputError(f"{path} is what is read; name another file.")


def write_picture(figure: Any, path: Path, kind: str) -> None:
    """Write a figure of matplotlib as one of ``PICTURES``."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=_PICTURE_DPI)
