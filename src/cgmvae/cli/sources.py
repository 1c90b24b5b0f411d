"""Data named on the command line: a name of the catalog, or a file with options that read it."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer
from numpy.typing import NDArray

from cgmvae.cli.output import download_progress, say_warning
from cgmvae.data import MultiLabelDataset, catalog, readers
from cgmvae.data.streaming import Blocks, LoadedBlocks, open_blocks
from cgmvae.errors import InputError, listed


def _option(type_: Any, help_: str, *names: str) -> Any:
    shown = {int: "N", list[str]: "NAME", str: "TEXT"}.get(type_)
    return Annotated[type_ | None, typer.Option(*names, help=help_, metavar=shown)]


#: Options that say how a file is read, by the name that the readers know them by.
READING_OPTIONS = {
    "format": _option(str, f"Format of the file: {', '.join(readers.FORMATS)}."),
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
    "category": _option(list[str], "A column of categories; repeat for each.", "--category"),
    "date": _option(list[str], "A column of dates; repeat for each.", "--date"),
    "text": _option(list[str], "A column of text, for its words; repeat for each.", "--text"),
    "delimiter": _option(str, "What separates the cells of a CSV file (default ,)."),
    "n_labels": _option(int, "Number of labels (svmlight and released files)."),
    "n_features": _option(int, "Number of features (svmlight files)."),
    "zero_based": _option(bool, "Whether svmlight features are counted from 0 or from 1."),
    "meta_offset": _option(int, "Columns before the labels to skip (released files)."),
}

#: Arguments are described in the text of a command: in a list of them, typer would add ``<str>``.
_SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", hidden=True)]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", hidden=True)]


@dataclass(frozen=True)
class Source:
    """Data that the command line names; nothing of it is read yet."""

    name: str
    """A data set of the catalog, or the path of a file."""
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The reading options that were given, by the name that the readers know them by."""

    @property
    def in_catalog(self) -> bool:
        """Whether this is a data set of the catalog, not a file."""
        return _is_catalog_name(self.name)

    def reader(self) -> readers.Format:
        """Return the format of the file, once the file is there and the options are its own."""
        path = readers.check_source(self.name, self.format)
        reader = readers.choose(path, self.format)
        accepted = inspect.signature(reader.read).parameters
        if unknown := [name for name in self.options if name not in accepted]:
            raise InputError(
                f"{_flag(unknown[0])} does not apply to {reader.name} files; leave it out."
            )
        return reader

    def load(self, **defaults: Any) -> MultiLabelDataset:
        """Load the data set.

        Parameters
        ----------
        **defaults
            Reading options for what was not given; a format that does not know one is not told.
        """
        if self.in_catalog:
            return self._load_from_catalog()
        reader, options = self._reading(defaults)
        return reader.read(self.name, **options)

    def open_blocks(
        self, *, features: Sequence[str] = (), others: Sequence[str] = (), **defaults: Any
    ) -> Blocks:
        """Open the data for reading its features a block at a time.

        Parameters
        ----------
        features, others : sequence of str
            Columns of a table that are features, and those that are none.
        **defaults
            As in :meth:`load`.
        """
        if self.in_catalog:
            return LoadedBlocks(self._load_from_catalog(), self.name)
        reader, options = self._reading(defaults)
        return open_blocks(self.name, reader.name, features=features, others=others, **options)

    def _reading(self, defaults: Mapping[str, Any]) -> tuple[readers.Format, dict[str, Any]]:
        """Return the format of the file, and all the options that it is read with."""
        reader = self.reader()
        accepted = inspect.signature(reader.read).parameters
        options = {name: value for name, value in defaults.items() if name in accepted}
        options |= self.options
        needed = [p.name for p in accepted.values() if p.default is p.empty][1:]  # after the path
        if missing := [name for name in needed if name not in options]:
            raise InputError(f"{_flag(missing[0])} is needed for {reader.name} files; give it too.")
        return reader, options

    def _load_from_catalog(self) -> MultiLabelDataset:
        if self.options or self.format:
            raise InputError(
                f"{self.name} is a data set of the catalog; it takes no reading options."
            )
        with download_progress(f"Downloading {self.name}") as progress:
            return catalog.load_dataset(self.name, progress=progress)


def with_source(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function of a ``source`` into a command that takes SOURCE and the reading options.

    A reading option whose name the function has among its own parameters is left to the function.
    Where the function's source may be None, SOURCE may be left out.
    """
    hints = get_type_hints(command, include_extras=True) | {"source": _SourceArgument}
    own = inspect.signature(command).parameters
    reading = {name: hint for name, hint in READING_OPTIONS.items() if name not in own}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword, annotation=hints[p.name]) for p in own.values()]
    parameters += [
        inspect.Parameter(name, keyword, default=None, annotation=hint)
        for name, hint in reading.items()
    ]

    def run(**given: Any) -> None:
        options = {name: given.pop(name) for name in reading}
        options = {name: value for name, value in options.items() if value is not None}
        name = given.pop("source")
        if name is None and options:
            raise InputError(f"{_flag(next(iter(options)))} needs a file to read; name it too.")
        source = None if name is None else Source(name, options.pop("format", None), options)
        command(source=source, **given)

    run.__name__ = command.__name__
    run.__doc__ = f"{inspect.getdoc(command)}\n\nSOURCE is a data set of the catalog, or a file."
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def with_dataset(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function of a data set into a command that takes SOURCE and the reading options.

    The function's first parameter must be ``dataset``; its others stay as they are.
    """

    def load_first(source: Source, **given: Any) -> None:
        command(source.load(), **given)

    dataset, *others = inspect.signature(command).parameters.values()
    load_first.__name__, load_first.__doc__ = command.__name__, command.__doc__
    load_first.__annotations__ = get_type_hints(command, include_extras=True)
    load_first.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [dataset.replace(name="source"), *others]
    )
    return with_source(load_first)


def load_fitted(path: str) -> tuple[Any, tuple[str, ...] | None]:
    """Load a model, and take the names of its features from it.

    The commands match columns by name themselves and give the model plain arrays; scikit-learn
    would warn of arrays if the model still had names.
    """
    from cgmvae.methods import load

    model = load(path)
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return model, None
    del model.feature_names_in_
    return model, tuple(map(str, names))


def feature_places(
    found: Sequence[str], wanted: Sequence[str] | None, n_features: int
) -> NDArray[np.int64]:
    """Return where each of a model's features is among the columns of the data, (n_features,).

    Parameters
    ----------
    found : sequence of str
        Names of the columns; those that the model does not know are warned of.
    wanted : sequence of str, optional
        Names of the model's features; without them the columns are taken as they come.
    n_features : int
        How many columns the model takes.
    """
    if wanted is None:
        if len(found) != n_features:
            raise InputError(
                f"The model takes {n_features:,} feature columns, whose names it does not know, "
                f"but the data has {len(found):,}; give the columns that it was fitted with."
            )
        return np.arange(n_features)
    places = {name: place for place, name in enumerate(found)}
    if missing := [name for name in wanted if name not in places]:
        raise InputError(
            f"The data lacks {len(missing):,} of the model's {n_features:,} feature columns: "
            f"{listed(missing)}; add them under these names."
        )
    known = set(wanted)
    if extra := [name for name in found if name not in known]:
        say_warning(f"Columns that the model does not know are ignored: {listed(extra)}.")
    return np.array([places[name] for name in wanted], np.int64)


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


#: An option with its value, as the readers' sentences write it for those who call them.
_READING_OPTION = re.compile(rf"\b({'|'.join(READING_OPTIONS)})=\[?'([^']*)'\]?")


#: What the data layer advises, and the commands that do it.
_COMMANDS = {
    "convert it to a mapped folder": "convert it to a mapped folder with 'cgmvae data convert'",
    "its catalog entry has a recipe": "'cgmvae data list --json' shows its recipe",
}


def with_flags(sentence: str) -> str:
    """Write the reading options that a sentence speaks of as the command line takes them.

    Examples
    --------
    >>> with_flags("The label column 'a' has blank cells; give blank_labels='absent' or ...")
    "The label column 'a' has blank cells; give --blank-labels absent or ..."
    """
    for words, command in _COMMANDS.items():
        sentence = sentence.replace(words, command)
    return _READING_OPTION.sub(lambda m: f"{_flag(m[1])} {shlex.quote(m[2])}", sentence)


def _flag(name: str) -> str:
    return "--label" if name == "labels" else "--" + name.replace("_", "-")
