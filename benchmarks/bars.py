"""The bars (targets) of the library, and whether a run met them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from regmax.bench.cases import MILLION, SCORES, TINY, Case
from regmax.bench.contestants import BOTH, FORWARD, MAPPINGS
from regmax.bench.measure import Result
from regmax.bench.report import Verdict

# Time relative to softmax, forward + backward, one thread, about a million N(0, 1) or attention scores, by d.
RATIOS = {
    "sparsemax": {32: 0.6, 64: 0.6, 128: 0.7, 512: 0.55, 2048: 0.35},
    "sqpnormmax": {32: 1.1, 64: 1.0, 128: 1.0, 512: 0.8, 2048: 0.45},
    "entmax": {32: 1.2, 128: 1.0, 512: 0.8, 2048: 0.5},
    "fusedmax": {32: 2.0, 64: 1.5, 128: 1.1, 512: 0.8, 2048: 0.45},
    "oscarmax": {32: 2.2, 64: 1.6, 128: 1.2, 512: 0.8, 2048: 0.5},
}
TINY_RATIOS = {FORWARD: 1.0, BOTH: 1.3}
FLAT_RATIO = 3.0
PADDING_FACTOR = 1.3  # relative to the ratio without a mask
SPEED_UP = 1.7  # from one thread to two


def ratio_bar(result: Result) -> float | None:
    """The bar on this result's ratio, if there is one."""
    if result.contestant not in MAPPINGS or result.threads != 1:
        return None
    if (result.n, result.d) == TINY:
        return TINY_RATIOS[result.run] if result.scores == "normal" else None
    if result.run != BOTH or not result.case.is_million:
        return None
    if result.scores in ("normal", "attention"):
        return RATIOS.get(result.contestant, {}).get(result.d)
    return FLAT_RATIO if result.scores == "flat" else None


def verdicts(results: Iterable[Result]) -> list[Verdict]:
    """Every bar that applies to these results."""
    results = list(results)
    return [*_ratios(results), *_padding(results), *_speed_ups(results)]


def _ratios(results: Iterable[Result]) -> Iterator[Verdict]:
    for result in results:
        if (bar := ratio_bar(result)) is not None:
            subject = f"{SCORES[result.scores]}, {result.n} x {result.d}, {result.run}"
            yield Verdict(subject, result.contestant, result.ratio, bar)


def _by_key(results: Iterable[Result], run: str) -> Mapping[tuple[Case, int, str], Result]:
    return {(r.case, r.threads, r.contestant): r for r in results if r.run == run}


def _padding(results: Iterable[Result]) -> Iterator[Verdict]:
    """The ratio under a padding mask relative to the ratio without."""
    found = _by_key(results, BOTH)
    for (case, threads, name), masked in found.items():
        plain = found.get((Case("normal", case.n, case.d), threads, name))
        if case.scores == "padding" and case.is_million and threads == 1 and name in MAPPINGS and plain:
            subject = f"ratio with a padding mask over that without, d = {case.d}"
            yield Verdict(subject, name, masked.ratio / plain.ratio, PADDING_FACTOR)


def _speed_ups(results: Iterable[Result]) -> Iterator[Verdict]:
    found = _by_key(results, BOTH)
    for (case, threads, name), one in found.items():
        two = found.get((case, 2, name))
        if (
            threads == 1
            and case.scores == "normal"
            and case.n * case.d == MILLION
            and name in MAPPINGS
            and two
        ):
            subject = f"speed-up from 1 to 2 threads, d = {case.d}"
            yield Verdict(subject, name, one.microseconds / two.microseconds, SPEED_UP, at_least=True)
