"""How long the explorer takes to answer a slider, at 30, 300 and 1,000 words: `python benchmarks/explorer.py`.

It needs Chromium. An event is a movement of the slider, the first included, until the frame after it is painted. `wall`
is the page's clock, for an idle machine; `CPU` is the time of the page's main thread, which other load changes less.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from regmax.plots import Example, Examples, View, write_explorer

SIZES = (30, 300, 1000)
SLIDERS = {
    "fusedmax": "lam",
    "fusedmax,gamma=4": "lam",
    "oscarmax": "lam",
    "sparsemax": "gamma",
    "entmax": "alpha",
}
PLACES = (0.3, 0.35, 0.4, 0.45, 0.6, 0.55, 0.2, 0.25, 0.5)
MOVE = """(async (slider, place) => {
  const start = performance.now();
  slider.value = place;
  slider.dispatchEvent(new Event('input'));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
})(document.getElementById('left-%s'), %s)"""
READY = """[...document.querySelectorAll('canvas.cells')].every((one) => one.dataset.whole) &&
  [...document.querySelectorAll('.panel:not([hidden]) .averages')].every((one) => one.textContent)"""


def example(n: int) -> Example:
    """A text of n words that attend to their neighbours, with noise."""
    near = np.exp(-((np.arange(n)[:, None] - np.arange(n)) ** 2) / 4)
    scores = 3 * near + 0.4 * np.random.default_rng(n).normal(size=(n, n))
    words = tuple(f"word{k}" for k in range(n))
    return Example(words, (View("", words, scores),), name=str(n))


def cpu(page) -> float:
    """Seconds of the main thread so far."""
    metrics = page.call("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def measure(page, slider: str) -> tuple[list[float], list[float]]:
    """Wall clock and CPU time of each event, in milliseconds."""
    page.settle()
    page.wait(lambda: page.evaluate(READY))
    page.call("Performance.enable", timeDomain="threadTicks")
    walls, cpus = [], []
    for place in PLACES:
        before = cpu(page)
        walls.append(page.evaluate(MOVE % (slider, place)))
        cpus.append(1000 * (cpu(page) - before))
    return walls, cpus


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from browser import Browser, Page, find_chromium

    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("explorer.py: Chromium is not installed.")
    print(f"{'mapping':18}{'words':>7}{'wall median':>13}{'max':>7}{'CPU median':>13}{'max':>7}   (ms)")
    with tempfile.TemporaryDirectory() as folder:
        path = write_explorer(Examples(tuple(map(example, SIZES))), Path(folder, "page.html"))
        browser = Browser(chromium, Path(folder, "profile"))
        for setting, slider in SLIDERS.items():
            for number, n in enumerate(SIZES):
                page = Page(browser).open(path, f"#example={number}&left={setting}")
                walls, cpus = measure(page, slider)
                shown = [f"{statistics.median(times):13.1f}{max(times):7.1f}" for times in (walls, cpus)]
                print(f"{setting:18}{n:7}{''.join(shown)}", flush=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
