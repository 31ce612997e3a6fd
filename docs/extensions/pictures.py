"""Makes the pictures in docs/img again: `python docs/extensions/pictures.py`.

Screenshots need Chromium. `--model FOLDER` is a local transformers model for the picture of all heads, and
`--report FILE` a report, e.g. that of `regmax demo`; without them those pictures stay as they are. Pictures of
measurements (speed, growth, learning curves) are made from the measurements: see docs/benchmarks.md and docs/results.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from regmax import plots
from regmax.cli import main
from regmax.files import write_atomically
from regmax.plots.figures import save_figure

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "img"
LINES = "recorded,view=15,also=17.18.20"  # heads of the second layer of a model that was made sparse
SENTENCE = "The old lighthouse keeper has not seen a single ship since early spring."


def figures() -> None:
    """The figures that need no browser."""
    with tempfile.TemporaryDirectory() as folder:
        main(["demo", "--quick", "--out", folder])
        write_atomically(ROOT / "docs" / "mappings.png", Path(folder, "mappings.png").read_bytes())
    save_figure(plots.mapping_curves(), IMAGES / "mapping-curves.png", dpi=110)
    save_figure(plots.mapping_surfaces(), IMAGES / "mapping-surfaces.png", dpi=110)
    example = plots.demo_examples().examples[0]
    (view,) = example.views
    settings = [plots.Setting(name) for name in ("softmax", "sparsemax", "fusedmax", "oscarmax")]
    panels = [plots.Panel(s(view.scores), view.target, s.label, s.clustered) for s in settings]
    save_figure(
        plots.attention_panels(panels, example.source, columns=2), IMAGES / "attention-panels.png", dpi=110
    )


def screenshots(model: Path | None, report: Path | None) -> None:
    """The pages, as Chromium shows them."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from browser import Browser, find_chromium

    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("pictures.py: screenshots need Chromium, which is not installed.")
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(chromium, Path(folder))
        demo = plots.write_explorer(plots.demo_examples(), Path(folder, "demo.html"))
        _shot(browser, demo, "explorer-light", height=860)
        _shot(browser, demo, "explorer-dark", "#example=2&left=oscarmax,lam=0.05", dark=True, height=860)
        _shot(browser, demo, "explorer-phone", width=390, height=1200)
        if model is not None:
            examples = plots.model_examples(model, [SENTENCE])
            page = plots.write_explorer(examples, Path(folder, "model.html"))
            _shot(browser, page, "explorer-heads", "#compare=no", height=960)
            lines = f"#show=lines&compare=no&row=3&left={LINES}"
            _shot(browser, page, "explorer-lines", lines, height=820)
        if report is not None:
            _shot(browser, report.resolve(), "report", height=2420)
        browser.close()


def _shot(browser: Any, path: Path, name: str, fragment: str = "", **options: Any) -> None:
    from browser import Page

    page = Page(browser, **{"width": 1280, **options}).open(path, fragment)
    page.settle()
    # Averages and thumbnails follow in slices.
    page.wait(lambda: page.evaluate("document.querySelector('.averages').textContent !== ''"))
    ready = "[...document.querySelectorAll('.figure[data-heads]')].every((one) => one.dataset.painted)"
    page.wait(lambda: page.evaluate(ready))
    page.screenshot(IMAGES / f"{name}.png")
    page.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the pictures in docs/img again.")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a local transformers model")
    parser.add_argument("--report", type=Path, metavar="FILE", help="a report's page")
    options = parser.parse_args()
    figures()
    screenshots(options.model, options.report)
