"""What a row of a table stands for: a configuration, whatever its seed, named by what sets it apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from regmax.experiments.config import GROWTH, PRESETS, make
from regmax.mappings import MAPPINGS

Configuration = Mapping[str, Any]
# A run's result does not depend on these; a seed is a draw of the same configuration.
_NOT_COMPARED = ("seed", "tensorboard", "save_every", "device")
_STRENGTHS = ("gamma", "lam", "p", "alpha")
# These help a mapping to learn, so they are compared between runs of one mapping only.
_SCHEDULE = ("anneal_from", "anneal_begin", "anneal_end", *GROWTH)


def key(config: Configuration) -> tuple[tuple[str, Any], ...]:
    """What the seeds of one row share.

    Example:
        >>> key({"mapping": "softmax", "seed": 1}) == key({"mapping": "softmax", "seed": 2})
        True
    """
    return tuple(
        (name, _hashable(value)) for name, value in sorted(config.items()) if name not in _NOT_COMPARED
    )


def labels(configs: Sequence[Configuration]) -> list[str]:
    """The mapping, the strengths that are not its defaults, and every other field that differs within the table.

    Example:
        >>> common = {"task": "translation", "preset": "small", "gamma": 1.0}
        >>> labels([{**common, "mapping": "softmax", "epochs": 5}, {**common, "mapping": "softmax", "epochs": 9}])
        ['softmax, epochs=5', 'softmax, epochs=9']
        >>> labels([{**common, "mapping": "softmax"}, {**common, "mapping": "fusedmax", "lam": 0.3}])
        ['softmax', 'fusedmax, lam=0.3']
    """
    named = [", ".join([config["mapping"], *_differences(config, configs)]) for config in configs]
    # Rows of one name are averaged, so configurations that differ must not share one.
    keys: dict[str, list[Any]] = {}
    for name, config in zip(named, configs, strict=True):
        if key(config) not in keys.setdefault(name, []):
            keys[name].append(key(config))
    numbers = [keys[name].index(key(config)) for name, config in zip(named, configs, strict=True)]
    return [f"{name} #{number + 1}" if number else name for name, number in zip(named, numbers, strict=True)]


def order(config: Configuration) -> tuple[Any, ...]:
    """Sorts rows in the paper's order of the mappings, then by the fields that are numbers."""
    names = list(MAPPINGS)
    mapping = config["mapping"]
    place = names.index(mapping) if mapping in names else len(names)
    return place, mapping, [(name, value) for name, value in key(config) if isinstance(value, int | float)]


def _differences(config: Configuration, configs: Sequence[Configuration]) -> list[str]:
    alike = [other for other in configs if other["mapping"] == config["mapping"]]
    shown = []
    for name in dict(key(config)):
        if name in ("task", "mapping") or (name in GROWTH and _is_implied(config, name)):
            continue
        others = alike if name in (*_STRENGTHS, *_SCHEDULE) else configs
        # Results of older versions know less of their configuration: what is unknown is no difference.
        differs = len({_hashable(other[name]) for other in others if name in other}) > 1
        if differs or (name in (*_STRENGTHS, *GROWTH) and not _is_default(config, name)):
            shown.append(f"{name}={_text(config[name])}")
    return shown


def _is_implied(config: Configuration, name: str) -> bool:
    """Whether a lam that does not grow is recognised without this field: by its value, where the default grows."""
    if config.get("grow_end"):
        return False
    return name == "grow_begin" or _is_default(config, "grow_end") or not _is_default(config, "lam")


def _is_default(config: Configuration, name: str) -> bool:
    preset = config.get("task"), config.get("preset")
    if preset not in PRESETS or config["mapping"] not in MAPPINGS:
        return True
    return bool(getattr(make(*preset, {"mapping": config["mapping"]}), name) == config[name])


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
