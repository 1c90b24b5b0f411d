"""Data named on the command line: a name of the catalog, or a file with options that read it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from cgmvae.cli.output import download_progress
from cgmvae.data import MultiLabelDataset, catalog, formats
from cgmvae.data.files import check_file
from cgmvae.errors import InputError


def _option(type_: Any, help_: str, *names: str) -> Any:
    shown = {int: "N", list[str]: "NAME", str: "TEXT"}.get(type_)
    return Annotated[type_ | None, typer.Option(*names, help=help_, metavar=shown)]


#: Options that say how a file is read, by the name that the readers know them by.
READING_OPTIONS = {
    "format": _option(str, f"Format of the file: {', '.join(formats.FORMATS)}."),
    "xml": _option(str, "The file of label names that belongs to an ARFF file."),
    "labels": _option(list[str], "Name of a label column; repeat for each.", "--label"),
    "label_prefix": _option(str, "Label columns are those whose name starts so."),
    "label_count": _option(int, "The first N columns are labels; the last N if negative."),
    "label_sets": _option(str, "One column holds all labels of a row, separated."),
    "separator": _option(str, "What separates labels in that column (default ;)."),
    "counts": _option(str, "'presence' turns counts in label columns into 0 and 1."),
    "blank_labels": _option(str, "What a blank label cell means: 'absent' or 'unknown'."),
    "groups": _option(str, "Column (or npz key) of groups that must stay together."),
    "drop": _option(list[str], "A column to leave out; repeat for each.", "--drop"),
    "delimiter": _option(str, "What separates the cells of a CSV file (default ,)."),
    "n_labels": _option(int, "Number of labels (svmlight and released files)."),
    "n_features": _option(int, "Number of features (svmlight files)."),
    "zero_based": _option(bool, "Whether svmlight features are counted from 0 or from 1."),
    "meta_offset": _option(int, "Columns before the labels to skip (released files)."),
}

#: Arguments are described in the text of a command: in a list of them, typer would add ``<str>``.
_Source = Annotated[str, typer.Argument(metavar="SOURCE", hidden=True)]


def with_dataset(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function of a data set into a command that takes SOURCE and the reading options.

    The function's first parameter must be ``dataset``; its others stay as they are.
    """
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    reading = [
        inspect.Parameter(name, keyword, default=None, annotation=annotation)
        for name, annotation in READING_OPTIONS.items()
    ]
    source = inspect.Parameter("source", keyword, annotation=_Source)
    parameters = [source, *(p.replace(kind=keyword) for p in own), *reading]

    def run(**given: Any) -> None:
        options = {name: given.pop(name) for name in READING_OPTIONS}
        options = {name: value for name, value in options.items() if value is not None}
        command(load_source(given.pop("source"), **options), **given)

    run.__name__ = command.__name__
    run.__doc__ = f"{command.__doc__}\n\nSOURCE is a data set of the catalog, or a file."
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def load_source(source: str, format: str | None = None, **options: Any) -> MultiLabelDataset:
    """Load a file, or a data set of the catalog."""
    if _is_catalog_name(source):
        if options or format:
            raise InputError(f"{source} is a data set of the catalog; it takes no reading options.")
        with download_progress(f"Downloading {source}") as progress:
            return catalog.load_dataset(source, progress=progress)
    reader = formats.choose(check_file(source), format)
    accepted = inspect.signature(reader.read).parameters
    if unknown := [name for name in options if name not in accepted]:
        raise InputError(
            f"{_flag(unknown[0])} does not apply to {reader.name} files; leave it out."
        )
    needed = [p.name for p in accepted.values() if p.default is p.empty][1:]  # after the path
    if missing := [name for name in needed if name not in options]:
        raise InputError(f"{_flag(missing[0])} is needed for {reader.name} files; give it too.")
    return reader.read(source, **options)


def _is_catalog_name(source: str) -> bool:
    """Tell whether to look in the catalog: for a bare word, unless something here is called so.

    A folder gives way to a data set of its name: the folder of ``CGMVAE_DATA`` is full of those.
    """
    path = Path(source)
    if path.suffix or path.name != source:
        return False
    try:
        return not path.is_file() and (source in catalog.entries() or not path.is_dir())
    except OSError:  # too long to be looked for
        return False


def _flag(name: str) -> str:
    return "--label" if name == "labels" else "--" + name.replace("_", "-")
