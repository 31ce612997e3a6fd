"""The bars (targets) of the library, and whether a run met them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from regmax.bench.cases import MILLION, SCORES, TINY, Case
from regmax.bench.cliffs import ATTENTION, ROWS, Cell
from regmax.bench.contestants import BOTH, FORWARD, MAPPINGS
from regmax.bench.measure import Result
from regmax.bench.report import Report, Verdict
from regmax.bench.uses import UseResult

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

# Time of a use relative to its baseline, with AVX-512.
USES = {
    "sparsemax(x, gamma=2.0)": 1.3,
    "fusedmax(x, gamma=2.0)": 1.3,
    "fusedmax, gamma learned": 1.8,
    "fusedmax, lam learned": 2.0,
    "fusedmax, lam learned, per row": 2.0,
    "oscarmax, lam learned": 2.2,
    "sqpnormmax(x, p=1.3)": 2.0,
    "sqpnormmax, p learned": 3.0,
    "nn.Fusedmax()(x)": 1.3,
    "nn.Fusedmax()(x), compiled": 1.5,
    "regularized_max(FusedLasso(.1), x)": 2.0,
    "regularized_argmax(OscarComposition(.01), x)": 4.0,
    "fusedmax(x), bfloat16": 1.3,
    "sparsemax(x), bfloat16": 1.3,
    "entmax(x, alpha=1.5), d = 32": 1.2,
    "entmax(x, alpha=1.5), d = 128": 1.0,
    "entmax(x, alpha=1.5), d = 512": 0.8,
    "entmax(x, alpha=1.5), d = 2048": 0.5,
    "entmax(x, alpha=1.25)": 2.0,
    "entmax, alpha learned": 2.5,
    "entmax(x, alpha=1.5), over the package": 0.05,
    "entmax(x, alpha=1.25), over the package": 0.05,
    "attention: a name": 0.2,
    "attention: a module": 0.22,
    "attention: an annealed module": 0.22,
    "attention: lam learned": 0.3,
    "attention: lam learned, per head": 0.3,
    "attention: gamma learned, per head": 0.3,
    "attention: lam per head": 0.25,
    "attention: oscarmax, lam learned": 0.3,
    "attention: compiled": 0.25,
    "attention: autocast to bfloat16": 0.3,
    "attention: dense weights": 0.6,
    "attention: sparse weights": 0.25,
    "attention: gradient of the bias": 0.8,
    "attention: is_causal": 0.2,
    "attention: a dense causal mask": 0.2,
    "decode: 1 of 32 heads, 32 x 4096 keys of 128": 0.35,
    "decode: 1 of 8 heads, 8 x 32768 keys of 64": 0.45,
    "decode: 1 of 32 heads, 8 x 4096 keys of 128": 0.35,
    "decode: 4 of 32 heads, 8 x 4096 keys of 128": 0.35,
    "inference: n = 32, padding": 0.9,
    "inference: n = 128, padding": 0.7,
}
# The same bars with narrower vectors; the baseline build has none.
USES_FACTORS = {"avx512": 1.0, "avx2": 1.5}

# Cliffs, forward + backward.
WORST_ROW, WORST_ATTENTION = 12.0, 2.0
STEEP, STEEP_SHARE = 5.0, 0.1  # at most one in ten rows above 5


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


def use_bar(result: UseResult, machine: Mapping[str, str]) -> float | None:
    """The bar on a use with the instruction set of this machine's core."""
    factor = USES_FACTORS.get(machine.get("core", "").rpartition(" ")[2])
    bar = USES.get(result.use)
    return None if bar is None or factor is None else factor * bar


def verdicts(report: Report) -> list[Verdict]:
    """Every bar that applies to this report."""
    results = report.results
    return [
        *_ratios(results),
        *_padding(results),
        *_speed_ups(results),
        *_uses(report),
        *_cliffs(report.cliffs),
    ]


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


def _uses(report: Report) -> Iterator[Verdict]:
    for result in report.uses:
        if (bar := use_bar(result, report.machine)) is not None:
            yield Verdict(f"over {result.baseline}", result.use, result.ratio, bar)


def _cliffs(cells: Sequence[Cell]) -> Iterator[Verdict]:
    """The worst cell of rows and of attention, and the share of steep cells among the rows."""
    for of, bar in ((ROWS, WORST_ROW), (ATTENTION, WORST_ATTENTION)):
        if chosen := [cell for cell in cells if (cell.of, cell.run) == (of, BOTH)]:
            worst = max(chosen, key=lambda cell: cell.ratio)
            yield Verdict(f"{worst.kind}, d = {worst.d}, the worst of {of}", worst.setting, worst.ratio, bar)
            if of == ROWS:
                share = sum(cell.ratio > STEEP for cell in chosen) / len(chosen)
                yield Verdict(f"share of cells above {STEEP:g}", "all mappings", share, STEEP_SHARE)
