"""`regmax plot`: the paper's figures, learning curves, and heat maps of sentences with their scores."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regmax import plots
from regmax.cli.errors import CommandError
from regmax.cli.parser import Parser, positive
from regmax.mappings import MAPPINGS
from regmax.plots.figures import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPILOG = """\
examples:
  regmax plot figures                                the paper's Figure 2 and its 3-d plots
  regmax plot scores.json --example 3                the third sentence with every mapping
  regmax plot runs/fusedmax                          test sentences of a run, with its own mapping
  regmax plot runs/softmax runs/fusedmax             the same sentences in several runs
  regmax plot curves runs                            learning curves of all runs in a folder
  regmax plot frontier runs                          test scores against segment length
  regmax plot scores.json --mapping softmax --mapping fusedmax,lam=0.2
"""


def run(arguments: Sequence[str]) -> int:
    """Write the figures and print their paths."""
    options = parser().parse(arguments)
    try:
        for name, figure in _figures(options):
            path = options.out / f"{name}.{options.format}"
            save_figure(figure, path, dpi=200)
            print(path)
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from None
    return 0


def _figures(options: Namespace) -> "Iterator[tuple[str, Figure]]":
    if options.source == "curves":
        yield "learning-curves", plots.learning_curves(_runs(options.runs, "curves"), score=options.score)
    elif options.source == "frontier":
        yield "frontier", plots.frontier(_runs(options.runs, "frontier"), score=options.score)
    elif options.source == "figures":
        yield "mapping-curves", plots.mapping_curves()
        yield "mapping-surfaces", plots.mapping_surfaces()
    else:
        yield from _heat_maps(options)


def _runs(folders: Sequence[Path], what: str) -> list[Path]:
    """The runs in these folders and their subfolders."""
    name = {"curves": "history.json", "frontier": "result.json"}[what]
    found = sorted({path.parent for folder in folders for path in folder.rglob(name)})
    if not found:
        raise CommandError(f"`regmax plot {what} RUN ...` needs runs: no folder holds a {name}.")
    return found


def _heat_maps(options: Namespace) -> "Iterator[tuple[str, Figure]]":
    settings = [plots.Setting.parse(text) for text in options.mapping or MAPPINGS]
    path = Path(options.source)
    if options.runs and not path.is_dir():
        raise CommandError(f"several sources must be folders of runs. Got {path}.")
    examples = (
        plots.run_examples([path, *options.runs]) if path.is_dir() else plots.read_examples(path)
    ).examples
    chosen = options.example or range(1, len(examples) + 1)
    for number in chosen:
        if not 1 <= number <= len(examples):
            raise CommandError(f"--example must be from 1 to {len(examples)}. Got {number}.")
        yield f"attention-{number}", _panels(examples[number - 1], settings)


def _panels(example: plots.Example, settings: Sequence[plots.Setting]) -> "Figure":
    """One panel per mapping; with several models, one per model with the mapping it was trained with."""
    trained = [view for view in example.views if view.mapping is not None]
    pairs = [(view, view.mapping) for view in trained if view.mapping] or [
        (view, setting) for view in example.views for setting in settings
    ]
    shown = [
        plots.Panel(
            setting(view.scores), view.target, _title(view, setting, len(example.views)), setting.clustered
        )
        for view, setting in pairs
    ]
    return plots.attention_panels(shown, example.source)


def _title(view: plots.View, setting: plots.Setting, views: int) -> str:
    if view.name.startswith(setting.label):  # a run, which is named by its mapping
        return view.name
    return setting.label if views == 1 else f"{view.name}: {setting.label}"


def parser() -> Parser:
    """The options of the command."""
    made = Parser(
        prog="regmax plot",
        description="Draw attention weights, or the paper's figures.",
        epilog=_EPILOG,
    )
    what = "`figures`, `curves`, `frontier`, a run folder, or a JSON file of scores (docs/explorer-format.md)"
    made.add_argument("source", metavar="WHAT", help=what)
    runs = "more run folders; for `curves` and `frontier` also folders that contain runs"
    made.add_argument("runs", type=Path, nargs="*", metavar="RUN", help=runs)
    score = (
        "for `curves` and `frontier`: the metric to plot, as named in history.json or result.json, e.g. 'dev loss' "
        "(BLEU, ROUGE-1 or accuracy)"
    )
    made.add_argument("--score", metavar="NAME", help=score)
    number = "number of a sentence, from 1; may be repeated (all)"
    made.add_argument("--example", type=positive, action="append", metavar="N", help=number)
    mapping = "a mapping, e.g. fusedmax,lam=0.2; may be repeated (all)"
    made.add_argument("--mapping", action="append", metavar="MAPPING", help=mapping)
    made.add_argument(
        "--format", choices=("pdf", "svg", "png"), default="pdf", help="file format (%(default)s)"
    )
    where = "output folder (%(default)s)"
    made.add_argument("--out", type=Path, default=Path("regmax-figures"), metavar="FOLDER", help=where)
    return made
