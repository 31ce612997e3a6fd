"""Run folders of the experiments, read as plain files: sentences with their attention, and how training went.

Of a run's files these are read: `config.json` (the mapping and its strengths), `examples.json` (a list of examples in
the form of docs/explorer-format.md) and `history.json` (the scores after each epoch).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regmax.plots.examples import Example, Examples, FormatError, View, parse_examples
from regmax.plots.settings import PARAMETERS, Setting


@dataclass(frozen=True)
class Run:
    """What the pictures need of a run."""

    folder: Path
    name: str  # the mapping, with the seed where several runs share it
    setting: Setting
    history: tuple[dict[str, float], ...]
    task: str = ""
    test: tuple[str, ...] = ()  # its files
    annealed: bool = True  # gamma fell to its value in training; softmax has no need of it
    scaled: bool = True  # scores were divided by sqrt(hidden), or not dot products at all

    @property
    def label(self) -> str:
        """The mapping, and what was not done to help it learn."""
        lacks = [(self.scaled, "raw scores"), (self.annealed, "not annealed")]
        return ", ".join([self.setting.label, *(text for done, text in lacks if not done)])


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read how runs were made and how training went.

    Raises:
        FormatError: naming the file and what is wrong with it.
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
    """The test sentences of one or more runs: those of the same source are views of one example.

    So the models of several mappings stand side by side, each with the words that it wrote.

    Example:
        >>> import json, tempfile
        >>> one = {"source": ["a", "b"], "target": ["c"], "scores": [[1.0, 0.5]]}
        >>> config = {"mapping": "fusedmax", "gamma": 1.0, "lam": 0.2, "p": 1.5}
        >>> content = {"config": config, "examples": [one], "history": []}
        >>> with tempfile.TemporaryDirectory() as folder:  # what `regmax train` leaves there
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
    """Begin with the first model beside fusedmax's, or beside the last one, each under its own mapping."""
    known = [view.mapping for view in views if view.mapping is not None]
    fused = [setting for setting in known[1:] if setting.mapping == "fusedmax"]
    return known[0], [*fused, known[-1]][0]


def _setting(config: Any, folder: Path) -> Setting:
    try:
        strengths = tuple((name, float(config[name])) for name in PARAMETERS[config["mapping"]])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder / 'config.json'} is not the configuration of a run: {error!r}.") from None
    return Setting(config["mapping"], strengths)


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
