"""Sphinx configuration. `make docs` builds the site strictly: a warning is an error."""

import sys
from importlib.metadata import metadata
from pathlib import Path

import regmax
from regmax.mappings import MAPPINGS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "regmax"
author = "regmax developers"
release = version = regmax.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # MathJax inside the site: no page needs a network
    "sphinx_gallery.gen_gallery",
    "plain_docstrings",
    "formulas",
    "mapping_pictures",
    "public_names",
]
templates_path = ["templates"]

myst_enable_extensions = ["colon_fence", "dollarmath", "substitution"]
# docs/results may have no pages yet, and Sphinx warns about an empty toctree.
myst_substitutions = {
    "results": "```{toctree}\n:glob:\n:maxdepth: 1\n\nresults/*\n```"
    if any((HERE / "results").glob("*.md"))
    else "No tables yet."
}
myst_heading_anchors = 3
# In docstrings, a word in backticks is a link if it is a public name, and code otherwise.
default_role = "py:obj"
# Case-insensitive file systems cannot hold files whose names differ only in case.
autosummary_filename_map = {
    "regmax.Groups": "regmax.Groups-result",
    "regmax.compat.entmax.Entmax15": "regmax.compat.entmax.Entmax15-module",
    "regmax.compat.entmax.Sparsemax": "regmax.compat.entmax.Sparsemax-module",
}
autosummary_context = {"mappings": list(MAPPINGS)}
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# The copy button copies an example's code without prompts and results.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"^(?!plot_)",
    "image_scrapers": ("figures",),
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_",),  # the explorer, as in a notebook
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
html_title = "regmax"
html_static_path = ["static", "mappings.png"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
# The repository's address is in pyproject.toml, once it has one.
_URLS = dict(line.split(", ", 1) for line in metadata("regmax").get_all("Project-URL") or ())
_REPOSITORY = next((_URLS[name] for name in ("Repository", "Source", "Homepage") if name in _URLS), None)
html_theme_options = {
    "navbar_end": ["version", "theme-switcher", "navbar-icon-links"],
    "icon_links": []
    if _REPOSITORY is None
    else [{"name": "Repository", "url": _REPOSITORY, "icon": "fa-brands fa-git-alt"}],
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "start": []}
