"""Names of attention implementations."""

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from regmax.integrations.transformers.interface import Attend, mask
from regmax.integrations.transformers.layers import registered
from regmax.mappings import MAPPINGS
from regmax.resolver import MappingLike, resolve

# transformers treats a name that contains one of these as its own implementation.
_RESERVED = ("eager", "sdpa", "flash", "flex_attention", "paged", "|", "/", ":", "@")


def register(name: str | None = None, mapping: MappingLike | None = None) -> tuple[str, ...]:
    """Register mappings with transformers as `attn_implementation`, together with the masks that they need.

    Args:
        name: the implementation's name, which may be a mapping's with strengths, `"fusedmax,lam=0.2"`; None registers
            every mapping under its own name, with its default strengths.
        mapping: what the name stands for: a regularizer, a callable `f(scores, dim, mask=...)`, a module of `regmax.nn`
            or another mapping's name; None if `name` is a mapping's. Each attention layer gets its own copy of a module
            that learns its strengths, and its parameters are the model's.

    Returns:
        The names that were registered.

    Example:
        >>> import regmax
        >>> regmax.integrations.transformers.register()
        ('softmax', 'sparsemax', 'fusedmax', 'oscarmax', 'sqpnormmax', 'entmax')
        >>> regmax.integrations.transformers.register("fusedmax,lam=0.2")
        ('fusedmax,lam=0.2',)
        >>> regmax.integrations.transformers.register("fusedmax-strong", regmax.FusedLasso(lam=0.5))
        ('fusedmax-strong',)
    """
    if name is None:
        if mapping is not None:
            raise ValueError("`register(name, mapping)` needs a name for the mapping.")
        return tuple(register(each)[0] for each in MAPPINGS)
    _check_name(name)
    mapping = name if mapping is None else mapping
    resolve(mapping)  # a wrong mapping raises here, not inside a model
    AttentionInterface.register(name, Attend(mapping, name))
    # Without a registered mask function transformers passes None, silently.
    AttentionMaskInterface.register(name, mask)
    return (name,)


def _check_name(name: str) -> None:
    if any(word in name for word in _RESERVED):
        raise ValueError(
            f"`register(name)` must not contain {', '.join(_RESERVED)}: transformers reserves them. "
            f"Got {name!r}."
        )
    if name in ALL_ATTENTION_FUNCTIONS and registered(name) is None:
        raise ValueError(f"`register(name)` must not replace another library's implementation. Got {name!r}.")
