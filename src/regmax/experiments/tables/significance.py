"""Whether two systems' scores differ by more than chance: a paired bootstrap over the test sentences.

A resample draws test sentences with replacement, the same for both systems, and with a sentence all seeds of it: seeds
repeat a sentence, they are not new ones. The p-value is the share of resamples in which the difference deviates from
its mean by at least the difference that was found (as in sacrebleu, Koehn 2004). It says whether other test sentences
could have reversed the order of these models, not whether other seeds could.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regmax.experiments.metrics.sentences import Sentences, Sums, score
from regmax.experiments.training import runs

P_VALUE = "p against"  # a column's name begins with it
_SAMPLES = 1000
_SEED = 12345


def p_values(results: Sequence[dict[str, Any]]) -> tuple[str, dict[str, dict[str, float]]]:
    """The first row's label, and for every other row and each score the p-value of its difference to the first.

    Systems are compared on the seeds that both have. Rows without outputs, or with other references, have no p-value.
    """
    systems: dict[str, dict[int, Sentences]] = {}
    for result in results:
        found = runs.read_sentences(result["folder"], result["task"])
        if found is not None:
            systems.setdefault(result["label"], {})[result["seed"]] = found
    if len(systems) < 2:
        return "", {}
    baseline, *others = systems
    return baseline, {label: _compare(systems[baseline], systems[label]) for label in others}


def _compare(one: Mapping[int, Sentences], other: Mapping[int, Sentences]) -> dict[str, float]:
    seeds = sorted(one.keys() & other.keys())
    if not seeds or any(one[seed].references != other[seed].references for seed in seeds):
        return {}
    summed = [
        {
            name: np.sum([system[seed].statistics[name] for seed in seeds], axis=0)
            for name in one[seeds[0]].statistics
        }
        for system in (one, other)
    ]
    return {name: _p_value(name, rows, summed[1][name], len(seeds)) for name, rows in summed[0].items()}


def _p_value(name: str, one: Sums, other: Sums, seeds: int) -> float:
    """The p-value of two systems, given the sums over their seeds for each sentence."""
    draw, n = np.random.default_rng(_SEED), len(one)

    def difference(chosen: Any) -> float:
        return score(name, one[chosen].sum(0), n * seeds) - score(name, other[chosen].sum(0), n * seeds)

    found = np.array([difference(draw.integers(n, size=n)) for _ in range(_SAMPLES)])
    extreme = np.abs(found - found.mean()) >= abs(difference(slice(None)))
    return float((extreme.sum() + 1) / (_SAMPLES + 1))
