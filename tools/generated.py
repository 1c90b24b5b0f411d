"""Write the generated parts of the documentation: command line, plan, and tables of results.

A page says where a part goes by a pair of comments, ``<!-- begin NAME -->`` and ``<!-- end NAME
-->``; what is between them is replaced. Usage::

    python tools/generated.py
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from cgmvae.cli.main import app
from cgmvae.data.catalog import entries
from cgmvae.methods import CGMVAEClassifier
from cgmvae.model.plan import DataProfile
from cgmvae.model.presets import PRESETS
from cgmvae.studies.published import published_value
from cgmvae.studies.spec import PAPER_DATA
from cgmvae.studies.statistics import Difference, paired_difference
from cgmvae.training.plan import TrainingConfig

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import generalize  # noqa: E402
import paper_tables  # noqa: E402
from ablation import STEPS  # noqa: E402
from measurement import TEST_SHARE  # noqa: E402
from paper_tables import short as _short  # noqa: E402

DOCS = ROOT / "docs"
DATA = DOCS / "results" / "data"

_PART = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n).*?(<!-- end (?P=name) -->)", re.S)

#: Metrics of the tables of results, by their names in the files.
F1 = ("example-F1", "micro-F1", "macro-F1")

#: What the verdicts of ``claims.csv`` are shown as, but for effects that are reversed.
SYMBOLS = {"found": "✓", "not found": "=", "undecided": "?"}

#: What arms of ``claims.csv`` are called in the grids.
ARMS = {
    "GM + contrastive": "both",
    "GM only": "mixture",
    "contrastive only": "contrastive",
    "plain cross-entropy": "neither",
}

#: Rows of the data that the plan is shown for, and columns by kind of the features.
PLANNED_ROWS = (80, 400, 1000, 2000, 4000, 10_000, 100_000)
PLANNED_COLUMNS = {"dense": 100, "sparse": 5000, "binary": 500}


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def records(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of results; lines that start with # say where they come from."""
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


# The command line.


def command_line() -> str:
    """Return all commands with their options, by panel."""
    parts: list[str] = []
    seen: dict[Any, str] = {}
    _add_command(parts, seen, typer.main.get_command(app), "cgmvae")
    return "\n".join(parts)


def _add_command(parts: list[str], seen: dict[Any, str], command: Any, name: str) -> None:
    context = command.make_context(name, [], resilient_parsing=True)
    if hasattr(command, "list_commands"):
        for each in command.list_commands(context):
            _add_command(parts, seen, command.get_command(context, each), f"{name} {each}")
        if not command.invoke_without_command or name == "cgmvae":
            return
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts += [f"## {name}\n", f"```text\n{usage}\n```\n", f"{command.help}\n"]
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        if (record := parameter.get_help_record(context)) is not None:
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append((f"`{record[0]}`", record[1].replace("|", "\\|")))
    for panel, options in panels.items():
        key = (panel, *options)
        if key in seen:
            parts.append(f"**{panel}**: as for `{seen[key]}`.\n")
        else:
            seen[key] = name
            parts.append(table((panel, "effect"), options))


# What a fit decides.


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if value is None:
        return "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def plan_table(kind: Any) -> str:
    """Return the default plan for features of one kind, a column for each number of rows."""
    names = ("E", "d", "encoder", "decoder", "epochs", "batch", "patience", "learning rate")
    names += ("units dropped", "features dropped", "contrastive weight", "τ")
    columns = []
    for n_rows in PLANNED_ROWS:
        profile = DataProfile(
            n_rows=n_rows, n_columns=PLANNED_COLUMNS[kind], n_labels=20, features=kind
        )
        plan = CGMVAEClassifier().plan(profile)
        assert plan.training is not None
        assert plan.member is not None
        network, training, member = plan.network, plan.training, plan.member
        values = (network.embedding_dim, network.latent_dim)
        values += (network.feature_hidden, network.decoder_hidden)
        values += (training.epochs, training.batch_size, training.patience)
        values += (member["learning_rate"], member["dropout"], member["input_dropout"])
        values += (member["weights"]["contrastive"], member["settings"]["temperature"])
        columns.append(list(map(_number, values)))
    header = ("rows", *(f"{n_rows:,}" for n_rows in PLANNED_ROWS))
    return table(header, zip(names, *columns, strict=True))


def presets_table() -> str:
    """Return all numbers of the presets in which they differ."""
    names = list(PRESETS)
    columns = [
        {
            **vars(preset.network),
            **{k: v for k, v in vars(preset).items() if isinstance(v, float)},
            **vars(TrainingConfig(**preset.training)),
        }
        for preset in PRESETS.values()
    ]
    settings = dict.fromkeys(name for column in columns for name in column)
    rows = []
    for setting in settings:
        values = [_number(column[setting]) for column in columns]
        if len(set(values)) > 1:
            rows.append([f"`{setting}`", *values])
    return table(("setting", *(f"`{name}`" for name in names)), rows)


# Results.


def symbol(record: dict[str, str]) -> str:
    """Return the sign of a difference: ✓ found, = below .01, ✗ reversed, ? undecided."""
    if record["verdict"] == "not found" and record["high"].startswith("-"):
        return "✗"
    return SYMBOLS[record["verdict"]]


def old_claims(split: str = "random") -> list[dict[str, str]]:
    """Return the records of ``claims.csv`` with thresholds from validation rows."""
    return [
        r for r in records("claims.csv") if (r["split"], r["thresholds"]) == (split, "validation")
    ]


def grid(
    arms: Sequence[tuple[str, str, str]], data: Sequence[str], claims: Iterable[dict[str, str]]
) -> str:
    """Return a grid of claims × networks × data sets; each cell has one entry per F1."""
    found = {
        (r["arm"], r["against"], r["condition"], r["network"], r["data"], r["metric"]): r
        for r in claims
    }
    rows = []
    for arm, against, condition in arms:
        for network in ("paper", "released", "tuned"):
            cells = []
            for name in data:
                keys = [(arm, against, condition, network, name, metric) for metric in F1]
                own = [found[key] for key in keys if key in found]
                cells.append(
                    " / ".join(f"{symbol(r)}\u00a0{_short(r['difference'])}" for r in own) or "–"
                )
            if set(cells) != {"–"}:
                claim = f"{ARMS.get(arm, arm)} over {ARMS.get(against, against)}"
                claim = claim if condition == "all rows" else condition
                rows.append([claim, network, *cells])
    return table(("claim", "network", *data), rows)


BOTH, PLAIN = "GM + contrastive", "plain cross-entropy"
SMALL = ("yeast", "scene", "sider")
ALL = (*SMALL, "mirflickr_tags", "bbs_2003_2009", "delicious")
PARTS = [
    (BOTH, PLAIN, "all rows"),
    (BOTH, "uni-Gaussian", "all rows"),
    (BOTH, "GM only", "all rows"),
    (BOTH, "contrastive only", "all rows"),
    ("GM only", "uni-Gaussian", "all rows"),
    ("contrastive only", PLAIN, "all rows"),
]
MODULES = [("contrastive", other, "all rows") for other in ("covariance", "GNN", "no module")]
#: Those of today's command.
CLAIMS = [*PARTS, ("GM only", "N(0, I)", "all rows")]
CLAIMS += [(BOTH, f"GM + {other}", "all rows") for other in ("covariance", "GNN")]
SCARCE = [(BOTH, PLAIN, f"{share}% of the rows") for share in (5, 10, 25, 50)]
SCARCE += [(BOTH, PLAIN, f"{share}% of the labels unknown") for share in (25, 50, 75)]


def paper_claims() -> str:
    """Return the grid of what ``cgmvae paper`` found, and how much of it was run."""
    found = list(paper_tables.claims())
    data = list(dict.fromkeys(record["data"] for record in found))
    text = grid(CLAIMS, data, found) if found else ""
    return text + paper_tables.missing_claims()


def tuned_methods() -> str:
    """Return micro-F1 and macro-F1 of tuned methods under test-oracle, beside the paper's."""
    found = {
        (r["method"], r["data"]): r
        for r in records("methods_tuned.csv")
        if r["thresholds"] == "test-oracle"
    }
    rows = []
    for method in dict.fromkeys(method for method, _ in found):
        cells = []
        name = method.split(",")[0]
        name = {"binary relevance": "BR", "ML-kNN": "MLKNN"}.get(name, name)
        for data in SMALL:
            own = found.get((method, data))
            if own is None:
                cells += ["–", "–"]
                continue
            for metric in ("micro_f1", "macro_f1"):
                printed = published_value(metric, name, data)
                cells.append(f"{_short(own[metric])} ({_short(f'{printed:.3f}')})")
        rows.append([method, *cells])
    header = [f"{data}, {metric}" for data in SMALL for metric in F1[1:]]
    return table(("method", *header), rows)


#: A difference of the mean of five metrics that is named.
NAMED = 0.005


@cache
def _comparison() -> dict[str, Any]:
    """Return the results of the comparison by data set, method and split."""
    return dict(_json("generalize.json"))


def _means(protocol: str) -> dict[str, dict[str, float]]:
    """Return the mean of the five metrics over splits by data set and method, the best first."""
    found = generalize.means(_comparison(), protocol)
    return {data: own for data, own in found.items() if generalize.BLEND in own}


def comparison(protocol: str) -> str:
    """Return the blend and what it consists of, beside the two best peers by name."""
    rows = []
    names = (generalize.NETWORK, generalize.BLEND, generalize.REST)
    for data, means in _means(protocol).items():
        peers = [
            f"{method} {_short(f'{own:.3f}')}"
            for method, own in means.items()
            if method not in names
        ]
        ours = [_short(f"{means[name]:.3f}") for name in names]
        n_splits = len(generalize.compared_splits(_comparison()[data]))
        rows.append([data, str(n_splits), *ours, *[*peers, "–", "–"][:2]])
    return table(("data", "splits", *names, "best peer", "next"), rows)


def comparison_peers(protocol: str) -> str:
    """Return all peers on all data sets, and why a peer has no numbers."""
    means = _means(protocol)
    peers = sorted({m for own in means.values() for m in own} - set(generalize.OURS))
    rows = []
    for data, own in means.items():
        cells = [data]
        for peer in peers:
            splits = _comparison()[data].get(peer, {}).values()
            why = next((split["not_run"] for split in splits if "not_run" in split), None)
            text = "–" if why is None else f"not run: {why}"
            cells.append(_short(f"{own[peer]:.3f}") if peer in own else text)
        rows.append(cells)
    return table(("data", *peers), rows)


def comparison_origin() -> str:
    """Return which methods were run when, by which commit, on which device."""
    origins: dict[str, dict[str, set[str]]] = {}
    for data, methods in _comparison().items():
        for method, splits in methods.items():
            for own in splits.values():
                if "made" in own:
                    origins.setdefault(own["made"], {}).setdefault(method, set()).add(data)
    rows = []
    for made, methods in origins.items():
        by_data: dict[str, list[str]] = {}
        for method, data in methods.items():
            whole = len(data) > len(_comparison()) / 2
            text = f"{len(data)} sets" if whole else ", ".join(sorted(data))
            by_data.setdefault(text, []).append(method)
        text = "; ".join(f"{', '.join(names)} ({data})" for data, names in by_data.items())
        rows.append([made, text])
    return table(("made", "methods (data)"), rows)


def comparison_ranks(protocol: str) -> str:
    """Return the mean ranks of our own methods, and of all that were run on most data sets."""
    found = _means(protocol)
    texts = [generalize.ranks_in_words(found, own) for own in (generalize.OURS, generalize.METHODS)]
    return _short("\n\n".join(texts)) + "\n"


def _n_known(gaps: dict[str, float]) -> int:
    return sum(not np.isnan(gap) for gap in gaps.values())


def _mean_gap(gaps: dict[str, float]) -> str:
    values = np.array([gap for gap in gaps.values() if not np.isnan(gap)])[:, None]
    return _cell(paired_difference(values, np.zeros_like(values), test_share=0))


def _listed(gaps: dict[str, float], *, above: bool) -> str:
    """Return the data sets with a difference that is named, the largest first."""
    order = sorted(gaps.items(), key=lambda pair: -abs(pair[1]))
    found = [
        f"{data} ({_short(f'{gap:+.3f}')})"
        for data, gap in order
        if (gap > NAMED if above else gap < -NAMED)
    ]
    return ", ".join(found) or "none"


def comparison_findings() -> str:
    """Return what the comparison shows as a list."""
    one, each = (_means(protocol) for protocol in generalize.PROTOCOLS)
    of_one, of_each = generalize.gaps(one), generalize.gaps(each)

    def both(name: str) -> str:
        other = _mean_gap(of_each[name])
        return f"{_mean_gap(of_one[name])} ({other} with one threshold per metric)"

    alone = {data: own[generalize.NETWORK] - generalize.best_peer(own) for data, own in one.items()}
    rest, peer = of_one[generalize.REST], of_one["best peer"]
    test, chosen = generalize.ranks(one, generalize.METHODS)
    order = sorted(zip(test.mean_ranks, chosen, strict=True))
    reach = order[0][0] + test.critical_difference
    behind = ", ".join(name for rank, name in order if rank > reach) or "none"
    items = (
        f"Blend minus C-GMVAE alone: {both(generalize.NETWORK)}, the mean over {len(one)} data "
        "sets with its 95% interval over data sets.",
        f"What C-GMVAE adds to a blend of the other experts: {both(generalize.REST)}. By more than "
        f".005: {_listed(rest, above=True)}; behind by more: {_listed(rest, above=False)}.",
        f"Blend minus the best peer of each of the {_n_known(peer)} data sets with peers, which is "
        "picked by its test score: "
        f"{both('best peer')}. Ahead by more than .005: {_listed(peer, above=True)}; behind by "
        f"more: {_listed(peer, above=False)}.",
        "C-GMVAE alone minus the best peer, ahead by more than .005: "
        f"{_listed(alone, above=True)}; behind by more: {_listed(alone, above=False)}.",
        f"The best mean rank has {order[0][1]}; behind it by more than the critical difference: "
        f"{behind}.",
    )
    return "".join(f"- {item}\n" for item in items)


def comparison_in_words() -> str:
    """Return how far the blend is ahead, for the README."""
    gaps = generalize.gaps(_means("validation"))
    alone, peer = gaps[generalize.NETWORK], gaps["best peer"]
    return (
        f"Over the {len(peer)} sets of the table the blend is {_mean_gap(alone)} above C-GMVAE "
        f"alone (95% interval over sets), and on the {_n_known(peer)} with peers {_mean_gap(peer)} "
        "above the one that is best on the test rows of each, which is ahead by more than .005 on: "
        f"{_listed(peer, above=False)}.\n"
    )


def communities(kind: str) -> str:
    """Return the means of a kind of task of the benchmark of communities, the best in bold."""
    rows = []
    for each in records("communities.csv"):
        if each.pop("table") != f"Means, {kind}":
            continue
        measure, *values = each.values()
        best = (max if "discrimination" in measure else min)(values, key=float)
        is_compared = "precision" not in measure
        marked = (f"**{v}**" if v == best and is_compared else v for v in values)
        rows.append([measure, *map(_short, marked)])
    return table(("measure", *list(each)[1:]), rows)


def community_cells() -> str:
    """Return how often a model is at least as good as others in the benchmark of communities."""
    found = records("communities_cells.csv")
    return table(tuple(found[0]), [list(each.values()) for each in found])


def label_sets() -> str:
    """Return how likely label sets of test rows are."""
    rows = []
    for each in records("label_sets.csv"):
        gain = float(each["together"]) - float(each["independent"])
        error = _short(each["± (2 se)"])
        rows.append(
            [
                each["data"],
                each["labels"],
                each["factors"],
                *map(_short, (each["independent"], each["together"])),
                f"{_short(f'{gain:+.3f}')} ± {error}" if each["factors"] != "0" else "–",
                _short(each["chains"]),
            ]
        )
    header = ("data", "labels", "factors", "independent", "together", "gain", "chains")
    return table(header, rows)


def training_shares() -> str:
    """Return the training shares that the paper's table of data sets implies."""
    found = {name: entries()[name].paper for name in PAPER_DATA}
    rows = [[name, f"{own.training_share:.2f}"] for name, own in found.items() if own is not None]
    return table(("data", "training share"), rows)


# Speed.


def _json(name: str) -> dict[str, Any]:
    return json.loads((DATA / name).read_text()) if (DATA / name).exists() else {}


def _origin(made: dict[str, Any]) -> str:
    return (
        f"{made['device']}, {made['date']}, commit {made['commit']}, torch {made['torch']}, "
        f"`{made['command']}`"
    )


def speed_of_fits() -> str:
    """Return how long fits and predictions take, by the first method of each run."""

    def text(value: float | None, unit: str = "", digits: int = 1) -> str:
        return "–" if value is None else _short(f"{value:.{digits}f}") + unit

    rows: list[list[str]] = []
    origins: dict[str, list[str]] = {}
    for data, own in _json("speed.json").items():
        for method, values in own["methods"].items():
            cells = [text(values["seconds"], " s"), text(values["ratio"], digits=2)]
            cells += [text(values["bulk_seconds"], " s", 2), text(values["bulk_ratio"], digits=2)]
            cells += [text(values["row_ms"], " ms"), text(values["file_mib"], " MiB")]
            rows.append([data, method, *cells])
        made = own["made"]
        load = "" if made["load"] is None else f", load average before it {made['load']}"
        origins.setdefault(f"{_origin(made)}, repeats {made['repeats']}{load}", []).append(data)
    header = ("data", "method", "fit", "ratio", "predict 24,170 rows", "ratio", "one row", "file")
    found = "; ".join(f"{', '.join(data)}: {origin}" for origin, data in origins.items())
    return f"{table(header, rows)}\n{found}.\n"


def speed_on_gpu() -> str:
    """Return what takes how long on a GPU; nothing is known before the first run."""
    results = _json("gpu.json")
    if not results:
        return "Not measured with this code yet: `python benchmarks/gpu.py --members 200 --grid`.\n"
    rows = [[what, f"{seconds:.3g} s"] for what, seconds in results.get("whole", {}).items()]
    for precision, steps in results.get("steps", {}).items():
        for n, own in steps.items():
            members = "one member" if n == "1" else f"{n} members"
            text = f"{own['step_ms']:.2f} ms; its floor {own['floor_ms']:.2f} ms"
            rows.append([f"a step of {members}, {precision}", text])
    return f"{table(('what', 'time'), rows)}\n{_origin(results['made'])}.\n"


# What carries the accuracy.

#: Means of the five metrics and single ones of ``ablation.json``: columns of its arrays.
COLUMNS = {"mean of five": slice(None), "micro-F1": [1], "macro-F1": [2]}


def step_scores(protocol: str, column: str) -> dict[str, dict[str, np.ndarray]]:
    """Return the scores after and before each step by data set, (2, n_splits)."""
    results = json.loads((DATA / "ablation.json").read_text())["results"]
    found: dict[str, dict[str, np.ndarray]] = {step: {} for step in STEPS}
    for step, (before, after) in STEPS.items():
        for data, splits in results.items():
            arms = [own["arms"] for own in splits.values() if after in own["arms"]]
            if arms:
                pairs = [[own[after][protocol], own[before][protocol]] for own in arms]
                found[step][data] = np.array(pairs)[:, :, COLUMNS[column]].mean(axis=2).T
    return found


def _cell(found: Difference) -> str:
    if np.isnan(found.low):
        return _short(f"{found.mean:+.3f}")
    return _short(f"{found.mean:+.3f}") + " ± " + _short(f"{found.high - found.mean:.3f}")


def steps(protocol: str) -> str:
    """Return what each step adds in the mean over data sets, with intervals over these."""
    rows = []
    scores = {column: step_scores(protocol, column) for column in COLUMNS}
    for step in STEPS:
        cells = []
        for column in COLUMNS:
            own = scores[column][step].values()
            means = np.array([each.mean(axis=1) for each in own]).T[:, :, None]
            cells.append(_cell(paired_difference(*means, test_share=0)))
        rows.append([step, len(scores["micro-F1"][step]), *cells])
    return table(("step", "data sets", *COLUMNS), rows)


def steps_in_words() -> str:
    """Return what carries the accuracy as a list: the mean of five under both protocols."""

    def found(step: str) -> str:
        cells = []
        for protocol in ("validation", "validation-per-metric"):
            own = step_scores(protocol, "mean of five")[step].values()
            means = np.array([each.mean(axis=1) for each in own]).T[:, :, None]
            cells.append(_cell(paired_difference(*means, test_share=0)))
        return f"{cells[0]} ({cells[1]} with one threshold per metric)"

    first, calibration, blend, network = (
        found(step)
        for step in (
            "KL and contrastive term",
            "calibration",
            "all other experts",
            "the network, to the others",
        )
    )
    return (
        f"- KL and contrastive term add {first} to the network that is trained by cross-entropy.\n"
        f"- Calibration adds {calibration}; it is there for the probabilities.\n"
        f"- The other experts add {blend} to the network, and the network {network} to them.\n"
    )


def steps_by_data(protocol: str) -> str:
    """Return what each step adds to the mean of the five metrics on each data set."""
    found = step_scores(protocol, "mean of five")
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    rows = []
    for name in names:
        pairs = [own.get(name) for own in found.values()]
        cells = [
            "–" if p is None else _cell(paired_difference(*p[:, :, None], test_share=TEST_SHARE))
            for p in pairs
        ]
        rows.append([name, *cells])
    return table(("data", *STEPS), rows)


#: The generated parts by name.
PARTS_OF_PAGES: dict[str, Callable[[], str]] = {
    "commands": command_line,
    "plan-dense": lambda: plan_table("dense"),
    "plan-sparse": lambda: plan_table("sparse"),
    "plan-binary": lambda: plan_table("binary"),
    "presets": presets_table,
    "paper-made": lambda: paper_tables.made(table),
    "paper-claims": lambda: paper_claims(),
    **{
        f"paper-{chapter.replace('_', '-')}-{metric[:5]}-{protocol}": partial(
            paper_tables.methods, table, chapter, metric, protocol
        )
        for chapter in ("methods", "methods_official")
        for metric in F1[1:]
        for protocol in ("validation", "test-oracle")
        if (chapter, protocol) != ("methods_official", "validation")
    },
    "paper-half": lambda: paper_tables.half(table),
    "paper-times": lambda: paper_tables.times(table),
    "claims": lambda: grid(PARTS, ALL, old_claims()),
    "claims-official": lambda: grid(PARTS, SMALL[:2], old_claims("official")),
    "claims-modules": lambda: grid(MODULES, SMALL, old_claims()),
    "claims-scarce": lambda: grid(SCARCE, SMALL, old_claims()),
    "methods-tuned": tuned_methods,
    "training-shares": training_shares,
    "speed-fits": speed_of_fits,
    "speed-gpu": speed_on_gpu,
    "steps-in-words": steps_in_words,
    "steps": lambda: steps("validation"),
    "steps-per-metric": lambda: steps("validation-per-metric"),
    "steps-by-data": lambda: steps_by_data("validation"),
    "comparison-origin": comparison_origin,
    "comparison-findings": comparison_findings,
    "comparison-in-words": comparison_in_words,
    "comparison-ranks-one": lambda: comparison_ranks("validation"),
    "comparison-ranks-each": lambda: comparison_ranks("validation-per-metric"),
    "comparison-one": lambda: comparison("validation"),
    "comparison-each": lambda: comparison("validation-per-metric"),
    "peers-one": lambda: comparison_peers("validation"),
    "communities-interpolation": lambda: communities("interpolation"),
    "communities-extrapolation": lambda: communities("extrapolation"),
    "communities-cells": community_cells,
    "label-sets": label_sets,
    "peers-each": lambda: comparison_peers("validation-per-metric"),
}


def generated_pages() -> list[Path]:
    """Return the pages that have generated parts."""
    pages = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [path for path in pages if _PART.search(path.read_text("utf-8"))]


def rendered(text: str) -> str:
    """Return a page with its generated parts written anew."""
    return _PART.sub(lambda part: part[1] + PARTS_OF_PAGES[part["name"]]() + part[3], text)


def main() -> None:
    """Write the generated parts of all pages."""
    for path in generated_pages():
        text = path.read_text("utf-8")
        if (new := rendered(text)) != text:
            path.write_text(new, "utf-8")
            print(f"Wrote {path.relative_to(DOCS.parent)}.")


if __name__ == "__main__":
    main()
