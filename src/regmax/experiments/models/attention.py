"""The configured mapping, and masks by length."""

import torch
from torch import Tensor, nn

from regmax.experiments.config import Config
from regmax.mappings import named
from regmax.nn.mappings import module


def mapping(config: Config) -> nn.Module:
    """The module of the configured mapping."""
    strengths = named(config.mapping).strengths
    return module(config.mapping, **{name: getattr(config, name, given) for name, given in strengths.items()})


def mask_of(lengths: Tensor, longest: int) -> Tensor | None:
    """True for words, False for padding; None if all sequences have the same length, which needs no mask."""
    if bool((lengths == longest).all()):
        return None
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
