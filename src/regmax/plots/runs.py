"""Run folders of the experiments, read as plain files: sentences with their attention, and the training history.

These files of a run are read: `config.json` (the mapping and its strengths), `examples.json` (a list of examples in
the format of docs/explorer-format.md) and `history.json` (the scores after each epoch).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regmax.files import read_json
from regmax.mappings import MAPPINGS
from regmax.plots.examples import Example, Examples, FormatError, View, parse_examples
from regmax.plots.settings import Setting
from regmax.plots.text import unescaped

_LABELS = re.compile(r"(\w+) \(gold: (\w+)\)")


@dataclass(frozen=True)
class Run:
    """The data of a run that the pictures need."""

    folder: Path
    name: str  # the mapping, with the seed if several runs share it
    setting: Setting
    history: tuple[dict[str, float], ...]
    task: str = ""
    test: tuple[str, ...] = ()  # the test files
    annealed: bool = True  # gamma was lowered to its value during training; softmax does not need this
    scaled: bool = True  # scores were divided by sqrt(hidden), or are not dot products
    config: Mapping[str, Any] = field(default_factory=dict)  # everything in config.json

    @property
    def label(self) -> str:
        """The mapping, and the training aids that were switched off."""
        lacks = [(self.scaled, "raw scores"), (self.annealed, "not annealed")]
        return ", ".join([self.setting.label, *(text for done, text in lacks if not done)])


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read the configurations and histories of runs.

    Raises:
        FormatError: the message names the file and the problem.
    """
    configs = [_json(folder / "config.json") for folder in folders]
    settings = [_setting(config, folder) for config, folder in zip(configs, folders, strict=True)]
    names = _names(configs, settings, folders)
    runs = []
    for folder, config, setting, name in zip(folders, configs, settings, names, strict=True):
        annealed = setting.mapping == "softmax" or config.get("anneal_from", 0) > 0
        history = _history(folder)
        test = tuple(config.get("test", ()))
        scaled = config.get("scaled", True)
        task = config.get("task", "")
        runs.append(Run(folder, name, setting, history, task, test, annealed, scaled, config))
    return runs


def _names(configs: Sequence[Any], settings: Sequence[Setting], folders: Sequence[Path]) -> list[str]:
    """The mapping; with the seed, and then with the folder, if runs would share a name."""
    names = [setting.label for setting in settings]
    seeds = [f"seed {config.get('seed', '?')}" for config in configs]
    for further in (seeds, [folder.name for folder in folders]):
        names = [
            name if names.count(name) == 1 else f"{name}, {text}"
            for name, text in zip(names, further, strict=True)
        ]
    return names


def run_examples(folders: Sequence[Path | str]) -> Examples:
    """The test sentences of one or more runs: what the runs made of one sentence are views of one example.

    So the models of several mappings stand side by side, each with the words that it wrote. A source that occurs more
    than once in the test set, with another reference or hypothesis, is another example each time.

    Example:
        >>> import json, tempfile
        >>> one = {"source": ["a", "b"], "target": ["c"], "scores": [[1.0, 0.5]]}
        >>> config = {"mapping": "fusedmax", "gamma": 1.0, "lam": 0.2, "p": 1.5}
        >>> content = {"config": config, "examples": [one], "history": []}
        >>> with tempfile.TemporaryDirectory() as folder:  # the files that `regmax train` writes
        ...     for name, value in content.items():
        ...         _ = Path(folder, f"{name}.json").write_text(json.dumps(value))
        ...     print(run_examples([folder]).examples[0].views[0].name)
        fusedmax, λ = 0.2
    """
    runs = read_runs([Path(folder) for folder in folders])
    if not runs:
        raise FormatError("No run was given.")
    gathered: dict[tuple[Any, ...], Example] = {}
    for run in runs:
        seen: Counter[tuple[Any, ...]] = Counter()
        for example, output in _examples(run.folder):
            name = f"{run.name}: {output}" if output else run.name
            views = tuple(replace(view, name=name, mapping=run.setting) for view in example.views)
            pair = (example.source, example.name, example.note)
            key = (*pair, seen[pair])
            before = gathered.get(key)
            gathered[key] = replace(example, views=(*before.views, *views) if before else views)
            seen[pair] += 1  # the same sentence again is another example
    start = _start([view for example in gathered.values() for view in example.views])
    return Examples(tuple(gathered.values()), title="Attention on test sentences", start=start)


def _start(views: Sequence[View]) -> tuple[Setting, Setting]:
    """Start with the first model next to fusedmax's, or else the last one, each under its own mapping."""
    known = [view.mapping for view in views if view.mapping is not None]
    fused = [setting for setting in known[1:] if setting.mapping == "fusedmax"]
    return known[0], [*fused, known[-1]][0]


def _setting(config: Any, folder: Path) -> Setting:
    try:
        row = MAPPINGS[config["mapping"]]
        return Setting(row.name, tuple((name, float(config[name])) for name in row.strengths))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder / 'config.json'} is not the configuration of a run: {error!r}.") from None


def _history(folder: Path) -> tuple[dict[str, float], ...]:
    """The scores after each epoch; an evaluation has none."""
    path = folder / "history.json"
    records = _json(path) if path.exists() or not (folder / "result.json").exists() else []
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise FormatError(f"{path} is not the history of a run: it must be a list of objects.")
    return tuple(records)


def _examples(folder: Path) -> list[tuple[Example, str]]:
    """The test sentences of a run, each with the label that the model gave it, if it gives labels."""
    path = folder / "examples.json"
    listed = _json(path)
    if not isinstance(listed, list) or not all(isinstance(example, dict) for example in listed):
        raise FormatError(f"{path} is not the examples of a run: it must be a list of objects.")
    named = [_named(example) for example in listed]
    try:
        parsed = parse_examples([example for example, _ in named]).examples
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    return list(zip(parsed, [output for _, output in named], strict=True))


def _named(example: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """An example with its note, and the model's label; older versions joined labels as `neutral (gold: entailment)`."""
    reference, output = str(example.get("reference", "")), str(example.get("output", ""))
    if older := _LABELS.fullmatch(reference):
        output, reference = older.groups()
        hypothesis, premise = (" ".join(map(str, example.get(key, ()))) for key in ("target", "source"))
        example = {**example, "name": f"{hypothesis} ← {premise}"}
    reference = " ".join(unescaped(reference.split()))
    return {**example, "note": f"reference: {reference}" if reference else ""}, output


def _json(path: Path) -> Any:
    if not path.exists():
        raise FormatError(f"{path.parent} is not the folder of a finished run: it has no {path.name}.")
    try:
        return read_json(path)
    except ValueError as error:
        raise FormatError(str(error)) from None
