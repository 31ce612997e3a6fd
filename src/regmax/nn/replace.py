"""Swapping the attention of an existing model."""

from copy import deepcopy

import torch

from regmax.nn.attention import MultiheadAttention
from regmax.resolver import MappingLike


def replace_attention(model: torch.nn.Module, mapping: MappingLike = "fusedmax") -> int:
    """Replace every `torch.nn.MultiheadAttention` inside a model by `regmax.nn.MultiheadAttention`, in place.

    The new modules share the old ones' parameters: optimizers, frozen weights and state dicts stay valid. Hooks on the
    old ones are not copied. Existing modules of `regmax.nn` get the new mapping.

    Args:
        model: any module that contains attention.
        mapping: a name, a regularizer, a callable or a module of `regmax.nn`; each attention gets a copy of a module,
            and so learns its own strengths.

    Returns:
        The number of modules with the new mapping.

    Example:
        >>> import torch, regmax
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
        >>> regmax.replace_attention(torch.nn.TransformerEncoder(layer, 3), "sparsemax")
        3
    """
    if isinstance(model, torch.nn.MultiheadAttention):
        raise TypeError(
            "`replace_attention(model)` swaps modules inside a model. Got attention itself: build a "
            "`regmax.nn.MultiheadAttention` and load its state dict."
        )
    new: dict[torch.nn.Module, MultiheadAttention] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if type(module) in (torch.nn.MultiheadAttention, MultiheadAttention):
            if module not in new:
                new[module] = _rebuilt(module, mapping)
            model.set_submodule(path, new[module])
        if isinstance(module, torch.nn.TransformerEncoder):
            module.use_nested_tensor = False  # for torch's inference path, which computes softmax
    if not new:
        raise ValueError("`replace_attention(model)` found no `torch.nn.MultiheadAttention` in the model.")
    return len(new)


def _rebuilt(module: torch.nn.MultiheadAttention, mapping: MappingLike) -> MultiheadAttention:
    """The same parameters in a new module."""
    new = MultiheadAttention(
        module.embed_dim,
        module.num_heads,
        module.dropout,
        bias=module.in_proj_bias is not None,
        add_bias_kv=module.bias_k is not None,
        add_zero_attn=module.add_zero_attn,
        kdim=module.kdim,
        vdim=module.vdim,
        batch_first=module.batch_first,
        device="meta",  # nothing is allocated: the parameters come next
        mapping=deepcopy(mapping) if isinstance(mapping, torch.nn.Module) else mapping,
    )
    for name, parameter in module.named_parameters(recurse=False):
        setattr(new, name, parameter)
    new.out_proj = module.out_proj
    return new.train(module.training)
