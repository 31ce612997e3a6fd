"""The uses and the cliffs of a report as text."""

from collections.abc import Callable, Iterator, Sequence

from regmax.bench.cliffs import STEPS, Cell
from regmax.bench.uses import UseResult
from regmax.timing import FEWEST

MARKS = {True: "✓", False: "✗", None: " "}
_WORST = 3  # cells shown per mapping


def use_lines(results: Sequence[UseResult], bar_of: Callable[[UseResult], float | None]) -> Iterator[str]:
    """One line per use: the ratio with its spread, its bar if it has one, its time and what it is compared with."""
    if not results:
        return
    width = max(len(result.use) for result in results) + 2
    yield from ("", "Uses: CPU time relative to the baseline in the same round, one thread")
    for result in results:
        bar = bar_of(result)
        mark = MARKS[None if bar is None else round(result.ratio, 2) <= bar]
        judged = f"{mark} {'' if bar is None else f'bar {bar:.3g}':<9}"
        spread = f"{(result.high - result.low) / 2:.2f}" if result.turns >= FEWEST else "?"
        ratio = f"{result.ratio:.2f} ±{spread}"
        time = f"{result.microseconds:,.0f} µs"
        yield f"{result.use:<{width}}{ratio:>13} {judged} {time:>12}  over {result.baseline}"


def cliff_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """One table for rows and one for each direction of attention; a line per mapping with its worst cells."""
    for of, run in dict.fromkeys((cell.of, cell.run) for cell in cells):
        chosen = [cell for cell in cells if (cell.of, cell.run) == (of, run)]
        low, high = STEPS[of][-2:]
        yield from (
            "",
            f"Cliffs: {of}, {run.replace('+', ' + ')} · CPU time relative to softmax · {len(chosen)} cells",
        )
        yield f"{'mapping':<12}{'cells':>7}{f'above {low:g}':>10}{f'above {high:g}':>10}  the worst"
        for name in dict.fromkeys(cell.mapping for cell in chosen):
            own = [cell for cell in chosen if cell.mapping == name]
            yield _cliff_line(name, own, low, high)
        yield _cliff_line("all", chosen, low, high)


def _cliff_line(name: str, cells: Sequence[Cell], low: float, high: float) -> str:
    worst = sorted(cells, key=lambda cell: cell.ratio, reverse=True)[:_WORST]
    counts = "".join(f"{sum(cell.ratio > limit for cell in cells):>10}" for limit in (low, high))
    return f"{name:<12}{len(cells):>7}{counts}  " + "; ".join(f"{cell.ratio:.1f} {cell}" for cell in worst)
