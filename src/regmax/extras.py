"""The optional dependencies, and how to install them."""


def how_to_install(extra: str) -> str:
    """The command that installs an optional dependency: from the sources, because regmax is on no package index.

    Example:
        >>> how_to_install("plots")
        "`pip install '.[plots]'` in the folder of regmax's sources"
    """
    return f"`pip install '.[{extra}]'` in the folder of regmax's sources"
