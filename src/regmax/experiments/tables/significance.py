"""Whether two systems' BLEU differs by more than chance: sacrebleu's paired bootstrap on the runs' outputs."""

from collections.abc import Sequence
from typing import Any

from regmax.experiments.training import runs

P_VALUE = "p against"  # a column's name begins with it
_SAMPLES = 1000


def p_values(results: Sequence[dict[str, Any]]) -> tuple[str, dict[str, float]]:
    """The first row's label, and for every other row the p-value of its difference to the first.

    Systems are compared on the sentences of all seeds that both have. Rows without outputs, or with other references,
    have no p-value.
    """
    systems: dict[str, dict[int, runs.Outputs]] = {}
    for result in results:
        outputs = runs.read_outputs(result["folder"])
        if outputs is not None:
            systems.setdefault(result["label"], {})[result["seed"]] = outputs
    if len(systems) < 2:
        return "", {}
    baseline, *others = systems
    found = {label: _p_value(systems[baseline], systems[label]) for label in others}
    return baseline, {label: p for label, p in found.items() if p is not None}


def _p_value(one: dict[int, runs.Outputs], other: dict[int, runs.Outputs]) -> float | None:
    seeds = sorted(one.keys() & other.keys())
    if not seeds or any(one[seed].references != other[seed].references for seed in seeds):
        return None
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.significance import PairedTest

    systems: list[tuple[str, Sequence[str]]] = [
        (name, [text for seed in seeds for text in outputs[seed].texts])
        for name, outputs in (("baseline", one), ("system", other))
    ]
    references = [list(column) for column in zip(*(r for s in seeds for r in one[s].references), strict=True)]
    metrics = {"BLEU": BLEU(tokenize="none", force=True)}
    test = PairedTest(systems, metrics, references, test_type="bs", n_samples=_SAMPLES)
    _, scores = test()
    baseline, system = scores["BLEU"]
    # sacrebleu counts the resamples that differ by more: none do if the scores are equal, and p would be least.
    if baseline.score == system.score:  # type: ignore[union-attr]
        return 1.0
    return float(system.p_value)  # type: ignore[union-attr, arg-type]
