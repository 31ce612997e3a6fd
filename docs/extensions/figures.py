"""Gallery scraper: figures of `regmax.plots` belong to no window, so the variable `figure` identifies them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def _get_sg_image_scraper() -> Callable[..., str]:
    """Called by sphinx-gallery."""
    return figure_scraper


def figure_scraper(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the variable `figure` if the block created it."""
    figure = block_vars["example_globals"].pop("figure", None)
    if not isinstance(figure, Figure):
        return ""
    path = next(block_vars["image_path_iterator"])
    figure.savefig(path, dpi=160, bbox_inches="tight", facecolor="white")
    return figure_rst([path], gallery_conf["src_dir"], Path(block_vars["src_file"]).stem)
