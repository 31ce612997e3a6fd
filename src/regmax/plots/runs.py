"""Run folders of the experiments, read as plain files: sentences with their attention, and the training history.

These files of a run are read: `config.json` (the mapping and its strengths), `examples.json` (a list of examples in
the format of docs/explorer-format.md) and `history.json` (the scores after each epoch).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regmax.mappings import MAPPINGS
from regmax.plots.examples import Example, Examples, FormatError, View, parse_examples
from regmax.plots.settings import Setting


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
    labels = [setting.label for setting in settings]
    runs = []
    for folder, config, setting in zip(folders, configs, settings, strict=True):
        unique = labels.count(setting.label) == 1
        name = setting.label if unique else f"{setting.label}, seed {config.get('seed', folder.name)}"
        annealed = setting.mapping == "softmax" or config.get("anneal_from", 0) > 0
        history = tuple(_json(folder / "history.json"))
        test = tuple(config.get("test", ()))
        scaled = config.get("scaled", True)
        runs.append(Run(folder, name, setting, history, config.get("task", ""), test, annealed, scaled))
    return runs


def run_examples(folders: Sequence[Path | str]) -> Examples:
    """The test sentences of one or more runs; sentences with the same source are views of one example.

    So the models of several mappings can be compared side by side, each with its own output.

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
    gathered: dict[tuple[str, ...], Example] = {}
    for run in runs:
        for example in _examples(run.folder):
            views = tuple(replace(view, name=run.name, mapping=run.setting) for view in example.views)
            before = gathered.get(example.source)
            gathered[example.source] = replace(example, views=(*before.views, *views) if before else views)
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


def _examples(folder: Path) -> tuple[Example, ...]:
    path = folder / "examples.json"
    listed = [{**example, "note": example.get("reference", "")} for example in _json(path)]
    try:
        return parse_examples(listed).examples
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def _json(path: Path) -> Any:
    if not path.exists():
        raise FormatError(f"{path.parent} is not the folder of a finished run: it has no {path.name}.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}") from None
