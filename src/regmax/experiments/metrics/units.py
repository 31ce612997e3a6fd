"""The units of everything that is measured."""

_UNITS = {
    "BLEU": "of 100",
    "accuracy": "%",
    "loss": "nats",
    "support": "words",
    "zeros": "%",
    "segments": "per row",
    "segment length": "words",
    "spans": "per row",
    "span length": "words",
    "clusters": "per row",
    "cluster size": "words",
    "entropy": "nats",
    "precision": "%",
    "recall": "%",
    "mass": "%",
    "seconds per epoch": "s",
    "words per second": "words/s",
}


def unit(name: str) -> str:
    """The unit of a score or a statistic by its name.

    Example:
        >>> unit("support"), unit("ROUGE-L f1 (75 bytes)")
        ('words', '%')
    """
    return "%" if name.startswith("ROUGE") else _UNITS.get(name, "")
