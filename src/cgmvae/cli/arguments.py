"""Arguments that commands share: the data to read, the files to write, and ``NAME=VALUE`` settings.

The readers and estimators below this layer know Python parameters only. Here they become options,
and :func:`command_line_message` names the option in an error about a parameter.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from cgmvae.cli.console import download_progress
from cgmvae.data import MultiLabelDataset, catalog, readers
from cgmvae.data.files import atomic_path, check_new_file
from cgmvae.data.readers.options import FILE, ReadingOptions, table_options
from cgmvae.data.streaming import TABLE_FORMATS, Blocks, TableBlocks, open_blocks
from cgmvae.declared import fits, requirement
from cgmvae.errors import InputError, Setting

# --- Options ------------------------------------------------------------------------------------


class Panel(StrEnum):
    """Headings under which the help of a command lists its options."""

    OUTPUT = "Output"
    TRAINING = "Training"
    TEST = "Test and thresholds"


def option(
    metavar: str | None, help_: str, *names: str, panel: str | None = None, **limits: Any
) -> Any:
    """Return an option of a command; its name is that of the parameter unless one is given."""
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel=panel, **limits)


def flag(name: str, help_: str, panel: Panel | None = None) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help_, rich_help_panel=panel)


def parameters_of(record: Callable[..., Any]) -> list[Any]:
    """Return the options that typer makes of the parameters of a function or dataclass."""
    single = typer.Typer(add_completion=False)
    single.command()(record)
    return list(typer.main.get_command(single).params)


def _option_type(hint: Any) -> Any:
    """Return the type of the option for a field of this type: one value, or a list of words."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = {get_origin(member) or member for member in members}
    if Sequence in kinds and str not in kinds:
        return list[str]
    return next((kind for kind in (bool, int, float) if kind in kinds), str)


def _reading_options() -> dict[str, Any]:
    """Return the annotations of the options that say how a file is read, by field."""
    hints, found = get_type_hints(ReadingOptions), dict[str, Any]()
    metavars = {int: "N", float: "SIZE", list[str]: "NAME", str: "TEXT"}
    for each in fields(ReadingOptions):
        if not (about := each.metadata):
            continue
        if about["panel"] == FILE:
            formats = option("TEXT", f"File format: {', '.join(readers.FORMATS)}.", panel=FILE)
            found.setdefault("format", Annotated[str | None, formats])
        type_, names = _option_type(hints[each.name]), filter(None, [about["flag"]])
        made = option(metavars.get(type_), about["help"], *names, panel=about["panel"])
        found[each.name] = Annotated[type_ | None, made]
    return found


#: The options that say how a file is read, and those of them that name columns which a file with
#: other rows need not have.
READING_OPTIONS = _reading_options()
COLUMN_OPTIONS = {f.name for f in fields(ReadingOptions) if f.metadata.get("names_columns")}


def _show_formats(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        assert isinstance(ctx.command, GroupedCommand)
        typer.echo(ctx.command.formats_help(ctx))
        raise typer.Exit


_HELP_FORMATS = typer.Option(
    "--help-formats",
    callback=_show_formats,
    is_eager=True,
    expose_value=False,
    help="Show how to read files that are unlike the model's data, and exit.",
)


@cache
def _reading_parameters() -> tuple[list[Any], list[Any]]:
    """Return the parameters for :data:`READING_OPTIONS`, and for ``--help-formats``."""
    record = make_dataclass("Reading", [(n, hint, None) for n, hint in READING_OPTIONS.items()])
    shown = make_dataclass("Shown", [("formats", Annotated[bool, _HELP_FORMATS], False)])
    return parameters_of(record), parameters_of(shown)


class GroupedCommand(TyperCommand):
    """A command whose plain help lists options by panel; without rich, typer ignores panels.

    A command that takes a ``source`` has the reading options, too, which become part of it, except
    those that it has as options of its own. If it takes a model, which knows how its data was read,
    its help has them behind ``--help-formats``.
    """

    def __init__(self, *given: Any, params: Sequence[Any], help: str, **more: Any) -> None:
        own = {parameter.name for parameter in params}
        self._reading: list[Any] = []
        self._apart = {"source", "model"} <= own
        if "source" in own:
            reading, shown = _reading_parameters()
            self._reading = [parameter for parameter in reading if parameter.name not in own]
            params = [*params, *self._reading, *(shown if self._apart else ())]
            help = f"{help}\n\nSOURCE is a data set of the catalog, or a file."
        super().__init__(*given, params=list(params), help=help, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what was given of the reading options is part of its source."""
        values = {parameter.name: ctx.params.pop(parameter.name) for parameter in self._reading}
        options = {n: v for n, v in values.items() if v not in (None, (), [])}
        if options and (source := ctx.params["source"]) is None:
            raise InputError(Setting(next(iter(options))), " needs a file to read; name one.")
        if options:
            format_ = options.pop("format", None)
            options = {n: list(v) if isinstance(v, tuple) else v for n, v in options.items()}
            ctx.params["source"] = replace(source, format=format_, options=options)
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of each panel."""
        shown = [p for p in self.get_params(ctx) if not (self._apart and p in self._reading)]
        _write_panels(ctx, formatter, shown)

    def formats_help(self, ctx: Any) -> str:
        """Return the help of the options that say how a file is read."""
        formatter = ctx.make_formatter()
        _write_panels(ctx, formatter, self._reading)
        return str(formatter.getvalue()).strip()


def _write_panels(ctx: Any, formatter: Any, parameters: Sequence[Any]) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in parameters:
        if (record := parameter.get_help_record(ctx)) is not None:
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append(record)
    for title, records in panels.items():
        with formatter.section(title):
            formatter.write_dl(records)


# Arguments are hidden and described in the text of each command: typer would list them with their
# Python types.
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", hidden=True)]

ModelFileOption = Annotated[
    str | None,
    option(
        "MODEL",
        "File to save the model to.",
        panel=Panel.OUTPUT,
        show_default="SOURCE.cgmvae, here",
    ),
]
EpochsOption = Annotated[
    int | None, option("N", "Passes over the training rows.", panel=Panel.TRAINING, min=1)
]
DeviceOption = Annotated[
    str | None, option("NAME", "auto (default), cpu or cuda.", panel=Panel.TRAINING)
]
SeedOption = Annotated[
    int, option("N", "Same seed, same result.", panel=Panel.TRAINING, min=0, max=2**32 - 1)
]
OverwriteOption = Annotated[bool, flag("--overwrite", "Replace existing files.", Panel.OUTPUT)]
DropEmptyOption = Annotated[
    bool,
    flag(
        "--drop-empty/--all-rows",
        "Leave out rows without a positive label, as the paper does.",
        Panel.TEST,
    ),
]
JsonOption = Annotated[bool, flag("--json", "Print JSON instead of a table.", Panel.OUTPUT)]

#: Options of parameters whose flag is not simply the parameter's name.
_FLAGS = {f.name: f.metadata["flag"] for f in fields(ReadingOptions) if f.metadata.get("flag")}
_FLAGS |= {
    "label_columns": "--label, --label-prefix, --label-count, --label-sets or --long",
    "column_types": "--category, --date or --text",
    "kinds": "--category, --date or --text",
    "n_members": "--members",
    "random_state": "--seed",
}


def is_reading_option(name: str, value: Any) -> bool:
    """Return whether a value, of a file of unknown origin, can be that of a reading option."""
    if name not in READING_OPTIONS:
        return False
    hint = str if name == "format" else get_type_hints(ReadingOptions)[name]
    return value is not None and fits(value, hint)


def flag_of(parameter: str) -> str:
    """Return the option, or options, that set a parameter."""
    return _FLAGS.get(parameter, "--" + parameter.replace("_", "-"))


def command_line_message(error: InputError | Warning) -> str:
    """Return the message of an error or a warning with options in place of Python parameters.

    Examples
    --------
    >>> command_line_message(InputError("Blank cells; give ", Setting("labels", ["an owl"]), "."))
    "Blank cells; give --label 'an owl'."
    >>> command_line_message(InputError("There is no column 'owl'.", parameter="labels"))
    "There is no column 'owl' (--label)."
    """
    message = "".join(map(_written, getattr(error, "sentence", (error,))))
    if (parameter := getattr(error, "parameter", None)) is None:
        return message
    end = message[-1:] if message.endswith((".", "?")) else ""
    return f"{message.removesuffix(end)} ({flag_of(parameter)}){end}"


def _written(part: object) -> str:
    """Return a part of a sentence as the command line writes it."""
    if not isinstance(part, Setting):
        return str(part)
    flag = flag_of(part.parameter)
    if part.value is None:
        return flag
    values = part.value if isinstance(part.value, list) else [part.value]
    return " ".join(f"{flag} {_quoted(str(value))}" for value in values)


def _quoted(value: str) -> str:
    """Quote a value for a shell, and a mark such as a comma for the eye, too."""
    return shlex.quote(value) if any(map(str.isalnum, value)) else f"'{value}'"


# --- Data to read -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Data named on the command line; nothing has been read yet."""

    name: str
    """A data set of the catalog, or the path of a file."""
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The reading options that were given, by the readers' parameter names."""

    @property
    def in_catalog(self) -> bool:
        """Whether to look in the catalog: for a bare word that is not the name of a file here.

        A data set takes precedence over a folder of the same name: ``CGMVAE_DATA`` is full of
        those.
        """
        path = Path(self.name)
        if path.suffix or path.name != self.name:
            return False
        try:
            return not path.is_file() and (self.name in catalog.entries() or not path.is_dir())
        except OSError:  # the name is too long for the file system
            return False

    @property
    def names_present_labels(self) -> bool:
        """Whether a row names the labels it has, so that a label that no row names is absent."""
        lists = {"label_sets", "long"} & {*self.options}
        return bool(lists) or (not self.in_catalog and self.reader().name == "svmlight")

    def reader(self) -> readers.Format:
        """Return the format of the file, after checking that the file and its options fit."""
        path = readers.check_source(self.name, self.format)
        reader = readers.choose(path, self.format)
        reader.check(self.options)
        return reader

    def check(self) -> None:
        """Reject a name that is neither in the catalog nor a file, before anything is loaded."""
        if self.in_catalog:
            catalog.find_entry(self.name)
        else:
            self.reader()

    def table(self) -> TableBlocks | None:
        """Open a table to see its columns, whatever they mean; None for any other data."""
        if self.in_catalog or (format_ := self.reader().name) not in TABLE_FORMATS:
            return None
        about_columns = table_options()
        options = {n: value for n, value in self.options.items() if n not in about_columns}
        blocks = open_blocks(self.name, format_, **options)
        assert isinstance(blocks, TableBlocks)
        return blocks

    def load(self, **defaults: Any) -> MultiLabelDataset:
        """Load the data set; ``defaults`` are reading options for what was not given.

        Those that the format does not have are ignored.
        """
        if not self.in_catalog:
            reader, options = self._reading_options(defaults)
            return readers.read(self.name, format=reader.name, **options)
        if self.options or self.format:
            raise InputError(
                f"{self.name} is a data set of the catalog; it takes no reading options."
            )
        with download_progress(f"Downloading {self.name}") as progress:
            return catalog.load_dataset(self.name, progress=progress)

    def open_blocks(
        self, *, features: Sequence[str] = (), others: Sequence[str] = (), **defaults: Any
    ) -> Blocks:
        """Open the data to read its features in blocks of rows; ``defaults`` as in :meth:`load`.

        In a table, the columns ``features`` are features, and the columns ``others`` are not.
        """
        if self.in_catalog:
            return Blocks.of(self.load(), self.name)
        reader, options = self._reading_options(defaults)
        return open_blocks(self.name, reader.name, features=features, others=others, **options)

    def _reading_options(
        self, defaults: Mapping[str, Any]
    ) -> tuple[readers.Format, dict[str, Any]]:
        """Return the format of the file and all options to read it with."""
        reader = self.reader()
        options = {name: value for name, value in defaults.items() if name in reader.options}
        return reader, options | dict(self.options)


_SOURCE = typer.Argument(metavar="SOURCE", hidden=True, parser=Source)
SourceArgument = Annotated[Source, _SOURCE]
OptionalSourceArgument = Annotated[Source | None, _SOURCE]


# --- Files to write -----------------------------------------------------------------------------

#: Formats that figures can be saved in.
FIGURE_FORMATS = ("png", "svg", "pdf")

_FIGURE_DPI = 150


def target_for(name: str, suffix: str) -> str:
    """Return the file of this suffix, in the working folder, that is named after another.

    Examples
    --------
    >>> target_for("field/plots.2024.csv.gz", ".cgmvae"), target_for("yeast", ".cgmvae")
    ('plots.2024.cgmvae', 'yeast.cgmvae')
    """
    path = Path(name)
    if path.suffix.lower() in (".gz", ".bz2"):
        path = path.with_suffix("")
    return f"{path.stem or 'model'}{suffix}"


def check_target(target: str, *inputs: str, overwrite: bool) -> None:
    """Reject a file that cannot or should not be written, before anything is computed.

    The ``inputs`` are what the command reads and must not replace; some may not be files.
    """
    path = Path(target)
    check_new_file(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; name another file, or give --overwrite.")
    check_not_input(path, *inputs)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"Cannot write {path} ({error.strerror}); choose another name or folder."
        ) from error


def check_not_input(path: Path, *inputs: str) -> None:
    """Reject a file that the command reads, even under another name."""
    try:
        is_input = any(path.exists() and Path(n).exists() and path.samefile(n) for n in inputs)
    except OSError:  # a name that the file system rejects; opening it will say so
        return
    if is_input:
        raise InputError(f"{path} is an input of this command; name another file.")


def check_figure(path: str) -> None:
    """Reject the name of a figure that does not say a format."""
    if Path(path).suffix.lower()[1:] not in FIGURE_FORMATS:
        raise InputError(f"{path} does not end in .png, .svg or .pdf; name a file that does.")


def save_figure(figure: Any, path: Path) -> None:
    """Save a matplotlib figure in the format of the file name."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=_FIGURE_DPI)


# --- Settings -----------------------------------------------------------------------------------


def parse_settings(given: Sequence[str], estimator: type) -> dict[str, Any]:
    """Parse ``NAME=VALUE``, where VALUE is JSON or a bare word, into settings of an estimator."""
    if not given:
        return {}
    hints = _setting_types(estimator)
    read = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"The setting {text!r} has no value; write NAME=VALUE.")
        if name not in hints:
            raise InputError(f"There is no setting {name!r}; there are {', '.join(sorted(hints))}.")
        read[name] = _parse_value(name, value, hints[name])
    return read


def check_space(space: Mapping[str, Sequence[Any]], estimator: type) -> None:
    """Reject a search space with values that the estimator's parameters cannot take."""
    hints = _setting_types(estimator) | get_type_hints(estimator)
    for name, values in space.items():
        if name not in hints:
            raise InputError(f"The method has no parameter {name!r}; remove it from the space.")
        for value in values:
            _parse_value(name, json.dumps(value), hints[name])


def _has_presets(estimator: type) -> bool:
    return any(field.name == "preset" for field in fields(estimator))


def _setting_types(estimator: type) -> dict[str, Any]:
    """Return the type of each setting, by name."""
    from cgmvae.methods.base import MultiLabelClassifier
    from cgmvae.methods.neural import NeuralClassifier
    from cgmvae.model.network import NetworkConfig
    from cgmvae.model.objective import TERMS
    from cgmvae.model.presets import Preset
    from cgmvae.training.plan import TrainingConfig

    if _has_presets(estimator):
        hints: dict[str, Any] = {f"{term}_weight": float for term in TERMS}
        for config in (Preset, TrainingConfig, NetworkConfig):
            hints |= get_type_hints(config)
        records = {"network", "training", "further_weights"}
        return {name: hint for name, hint in hints.items() if name not in records}
    shared = {f.name for base in (MultiLabelClassifier, NeuralClassifier) for f in fields(base)}
    own = {f.name for f in fields(estimator) if f.init} - shared - {"estimator", "training"}
    return {name: hint for name, hint in get_type_hints(estimator).items() if name in own}


def _parse_value(name: str, text: str, hint: Any) -> Any:
    """Return the value of a setting, checked against the type of its field."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if get_origin(hint) is tuple:
        value = tuple(value) if isinstance(value, list) else (value,)
    if get_origin(hint) is Literal:  # the estimator knows its choices
        hint = str
    if wanted := requirement(name, value, hint):
        raise InputError(f"The setting {name} is {text}; {wanted}.")
    return value
