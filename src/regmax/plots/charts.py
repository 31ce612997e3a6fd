"""Small SVG charts for the report, in the page's colours, light and dark."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from regmax.plots.colours import LINES, OTHER_LINE

_WIDTH, _HEIGHT = 380, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 120, 26, 36
Point = tuple[float, float]


def line_chart(title: str, series: Mapping[str, Sequence[Point]], *, x_label: str) -> str:
    """Lines through points, labelled at their right ends.

    Example:
        >>> chart = line_chart("accuracy", {"softmax": [(1, 0.4), (2, 0.7)]}, x_label="epoch")
        >>> chart.startswith("<svg"), chart.count("<polyline")
        (True, 1)
    """
    xs = sorted({x for line in series.values() for x, _ in line})
    ys = [y for line in series.values() for _, y in line]
    rules = ticks(min(ys), max(ys))
    low, high = rules[0], rules[-1]

    def place(point: Point) -> Point:
        across = (point[0] - xs[0]) / ((xs[-1] - xs[0]) or 1)
        up = (point[1] - low) / (high - low)
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_rule(place((xs[0], y)), f"{y:g}") for y in rules]
    parts += [_tick(place((x, low))[0], f"{x:g}") for x in xs[:: math.ceil(len(xs) / 10)]]
    parts += [_line(name, [place(point) for point in line]) for name, line in series.items()]
    parts += _names({name: place(line[-1])[1] for name, line in series.items()})
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, x_label, "middle"))
    return _svg(title, parts, _HEIGHT)


def ticks(low: float, high: float) -> list[float]:
    """A few round numbers; the first is at most `low` and the last at least `high`.

    Example:
        >>> ticks(55.3, 100.0), ticks(0.0179, 2.49)
        ([40.0, 60.0, 80.0, 100.0], [0.0, 1.0, 2.0, 3.0])
    """
    rough = (high - low or abs(high) or 1.0) / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Rounded through text: 3 * 0.1 would be 0.30000000000000004.
    return [float(f"{step * k:.9g}") for k in range(first, max(last, first + 1) + 1)]


def bar_chart(title: str, values: Mapping[str, float]) -> str:
    """One bar per value, from zero.

    Example:
        >>> bar_chart("speed", {"softmax": 1.0, "fusedmax": 0.9}).count("<rect")
        2
    """
    longest = max(values.values()) or 1
    parts = []
    for k, (name, value) in enumerate(values.items()):
        top, length = _TOP + 26 * k, value / longest * (_WIDTH - 170)
        parts.append(_text(108, top + 14, name, "end"))
        parts.append(f'<rect {_series(name)} x="116" y="{top}" width="{length:.1f}" height="18" rx="2"/>')
        parts.append(_text(122 + length, top + 14, f"{value:.2f}", "start"))
    return _svg(title, parts, _TOP + 26 * len(values) + 4)


def _svg(title: str, parts: Sequence[str], height: int) -> str:
    box = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img"'
    head = f'<text x="{_LEFT}" y="14" font-weight="600">{escape(title)}</text>'
    return f'<svg {box} aria-label="{escape(title)}" font-size="12" fill="currentColor">{head}{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rule(start: Point, label: str) -> str:
    x, y = start
    line = f'<line x1="{x:.1f}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity=".2"/>'
    return line + _text(x - 6, y + 4, label, "end")


def _tick(x: float, label: str) -> str:
    return _text(x, _HEIGHT - _BOTTOM + 16, label, "middle")


def _line(name: str, places: Sequence[Point]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = LINES.get(_mapping(name), OTHER_LINE)[1]
    pattern = "" if isinstance(dashes, str) else " ".join(f"{2 * length:g}" for length in dashes[1])
    dashed = f' stroke-dasharray="{pattern}"' if pattern else ""
    return f'<polyline {_series(name)} points="{path}" stroke-width="2"{dashed}/>'


def _names(ends: Mapping[str, float]) -> list[str]:
    """The lines' names at the height of their ends, moved apart if they would overlap."""
    order = sorted(ends, key=lambda name: ends[name])
    heights: list[float] = []
    for name in order:
        heights.append(max(ends[name], heights[-1] + 14 if heights else _TOP))
    excess = max(0.0, heights[-1] - (_HEIGHT - _BOTTOM))
    return [
        f'<text {_series(name)} x="{_WIDTH - _RIGHT + 8}" y="{height - excess + 4:.1f}">{escape(name)}</text>'
        for name, height in zip(order, heights, strict=True)
    ]


def _series(name: str) -> str:
    """The class of a mapping's lines, bars and names; report.css has its colours, light and dark."""
    mapping = _mapping(name)
    return f'class="series {mapping if mapping in LINES else "other"}"'


def _mapping(name: str) -> str:
    return name.split(",")[0]
