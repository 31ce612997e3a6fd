"""The learning rate as a function of the step, so that checkpoints need not store it."""

from regmax.experiments.config import Config


def rate(config: Config, step: int, steps_per_epoch: int) -> float:
    """The learning rate of step 0, 1, ...

    It increases linearly over the first `warm_up` of all steps, and decreases linearly to zero from `decay_from` on;
    or it is halved after epoch `halve_after` and after each further epoch.

    Example:
        >>> from regmax.experiments.config import make
        >>> paper = make("translation", "paper", {})
        >>> [rate(paper, epoch * 10, 10) for epoch in (0, 7, 8, 9)]  # the first, eighth, ninth and tenth epoch
        [1.0, 1.0, 0.5, 0.25]
    """
    total = config.epochs * steps_per_epoch
    factor = 1.0
    if config.warm_up > 0:
        factor = min(factor, (step + 1) / (config.warm_up * total))
    if config.decay_from < 1:
        factor = min(factor, (total - step) / ((1 - config.decay_from) * total))
    if config.halve_after:
        factor *= 0.5 ** max(0, step // steps_per_epoch + 1 - config.halve_after)
    return config.rate * factor
