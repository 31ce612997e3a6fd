"""Fenchel-Young losses as modules, with the conventions of torch's `CrossEntropyLoss`."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regmax.arrays import A, AnyArray, Array, Strength
from regmax.losses import (
    check_reduction,
    fenchel_young_loss,
    linear_fenchel_young_loss,
    regularizer_and_gamma,
)
from regmax.resolver import MappingLike


class FenchelYoungLoss(torch.nn.Module):
    """The loss of any mapping, called like `torch.nn.CrossEntropyLoss`; see `regmax.fenchel_young_loss`.

    With `mapping="softmax"` and class indices it equals the cross entropy, with class weights too. For distributions
    and smoothed labels it is smaller by the entropy of the target, so that its minimum is 0; gradients are the same.

    Args:
        mapping: a name, a regularizer, or a module or function of regmax. A module's strengths can be learned.
        gamma: the strength of the regularizer, positive; a module's own gamma is multiplied by it.
        weight: one weight per class, which multiplies the target; with `reduction="mean"` and class indices the losses
            are averaged with the weights of their targets.
        ignore_index: rows with this class index have no loss and are not counted in the mean.
        reduction: "mean", "sum" or "none".
        label_smoothing: the share of the target, from 0 to 1, that is spread evenly over all kept classes.

    Example:
        >>> import torch, regmax
        >>> loss = regmax.nn.FenchelYoungLoss("sparsemax")
        >>> loss(torch.tensor([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]), torch.tensor([0, 1]))
        tensor(0.0312)
    """

    weight: Tensor | None

    if TYPE_CHECKING:  # torch's accepts and returns anything

        def __call__(self, scores: Array[A], target: AnyArray, mask: AnyArray | None = None) -> A: ...

    def __init__(
        self,
        mapping: MappingLike = "sparsemax",
        *,
        gamma: Strength = 1.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        regularizer_and_gamma("FenchelYoungLoss(mapping)", mapping, gamma)  # a wrong mapping raises here
        check_reduction("FenchelYoungLoss(..., reduction=...)", reduction)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(
                f"`FenchelYoungLoss(..., label_smoothing=...)` must be in [0, 1]. Got {label_smoothing}."
            )
        self.mapping = mapping
        set_strength(self, "gamma", gamma)
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, scores: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of scores (classes), (n, classes) or (n, classes, d1, ...).

        Args:
            scores: one per class.
            target: class indices (n, d1, ...), or distributions of the scores' shape.
            mask: boolean, True = keep, broadcasts to the scores.
        """
        omega, gamma = regularizer_and_gamma("FenchelYoungLoss(mapping)", self.mapping, self.gamma)
        dim = min(scores.ndim - 1, 1)
        by_class = not target.is_floating_point()
        counted = target != self.ignore_index if by_class else None
        classes = target if counted is None else torch.where(counted, target, 0)
        q, scale = self._weighted(scores, classes, mask, dim)
        loss = fenchel_young_loss(omega, scores, q, dim, gamma=gamma, mask=mask)
        loss = loss if scale is None else torch.where(scale == 0, 0.0, loss * scale)
        loss = loss if counted is None else torch.where(counted, loss, 0.0)
        if self.reduction == "none":
            return loss
        if self.reduction == "sum":
            return loss.sum()
        if counted is None:
            return loss.mean()
        if self.weight is None:
            return loss.sum() / counted.sum()
        return loss.sum() / torch.where(counted, self.weight.to(loss.dtype)[classes], 0.0).sum()

    def _weighted(
        self, scores: Tensor, target: Tensor, mask: Tensor | None, dim: int
    ) -> tuple[Tensor, Tensor | None]:
        """The target after smoothing and class weights, and the factor of every row's loss.

        A target q with class weights w stands for the loss sum_c w_c q_c L(x; e_c), which is W L(x; w q / W) with
        W = <w, q>, apart from a constant.
        """
        weight = self.weight
        if weight is not None and weight.shape != scores.shape[dim : dim + 1]:
            raise ValueError(
                f"`FenchelYoungLoss(..., weight=...)` needs one weight per class, {scores.shape[dim]}. "
                f"Got shape {tuple(weight.shape)}."
            )
        if not target.is_floating_point() and not self.label_smoothing:
            return target, None if weight is None else weight.to(scores.dtype)[target]
        q = _smoothed(scores, target, mask, dim, self.label_smoothing)
        if weight is None:
            return q, None
        parts = q * weight.to(q.dtype).reshape(-1, *(1,) * (scores.ndim - dim - 1))
        total = parts.sum(dim, keepdim=True)
        return torch.where(total > 0, parts / total, q), total.squeeze(dim)

    def extra_repr(self) -> str:
        """The options that are not the default."""
        shown = [] if isinstance(self.mapping, torch.nn.Module) else [repr(self.mapping)]
        defaults = {"gamma": 1.0, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
        return ", ".join(shown + changed_options(self, defaults))


class LinearFenchelYoungLoss(torch.nn.Module):
    """A linear layer and its loss, from hidden states to a number; see `regmax.linear_fenchel_young_loss`.

    Its weight can be shared: `loss.weight = embedding.weight`. The scores, for a prediction, are
    `torch.nn.functional.linear(hidden, loss.weight, loss.bias)`.

    Args:
        in_features: the size of the hidden states.
        n_classes: the number of classes.
        mapping: a name, a regularizer, or a module or function of regmax. A module's strengths can be learned.
        bias: whether the scores have one.
        gamma: the strength of the regularizer, positive; a module's own gamma is multiplied by it.
        ignore_index: rows with this class index have no loss and are not counted in the mean.
        reduction: "mean", "sum" or "none".
        device: of the parameters.
        dtype: of the parameters.

    Example:
        >>> import torch, regmax
        >>> loss = regmax.nn.LinearFenchelYoungLoss(8, 1000, "sparsemax")
        >>> loss(torch.randn(4, 5, 8), torch.randint(1000, (4, 5))).shape
        torch.Size([])
    """

    bias: Tensor | None
    gamma: Strength

    if TYPE_CHECKING:

        def __call__(self, hidden: Array[A], target: AnyArray) -> A: ...

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        mapping: MappingLike = "sparsemax",
        *,
        bias: bool = True,
        gamma: Strength = 1.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        regularizer_and_gamma("LinearFenchelYoungLoss(..., mapping)", mapping, gamma)
        check_reduction("LinearFenchelYoungLoss(..., reduction=...)", reduction)
        # The parameters of torch's linear layer, and their initial values.
        layer = torch.nn.Linear(in_features, n_classes, bias, device=device, dtype=dtype)
        self.weight = layer.weight
        self.register_parameter("bias", layer.bias)
        self.mapping = mapping
        set_strength(self, "gamma", gamma)
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The loss of states (..., in_features) and class indices (...)."""
        return linear_fenchel_young_loss(
            hidden,
            self.weight,
            target,
            self.bias,
            mapping=self.mapping,
            gamma=self.gamma,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """The sizes, and the options that are not the default."""
        classes, features = self.weight.shape
        shown = [f"in_features={features}", f"n_classes={classes}"]
        shown += [] if isinstance(self.mapping, torch.nn.Module) else [f"mapping={self.mapping!r}"]
        shown += [] if self.bias is not None else ["bias=False"]
        defaults = {"gamma": 1.0, "ignore_index": -100, "reduction": "mean"}
        return ", ".join(shown + changed_options(self, defaults))


def _smoothed(scores: Tensor, target: Tensor, mask: Tensor | None, dim: int, smoothing: float) -> Tensor:
    """The target as distributions, a share of them spread over the kept classes."""
    if target.is_floating_point():
        q = target
    else:
        classes = target.unsqueeze(dim)
        q = torch.zeros_like(scores).scatter(dim, classes, 1.0)
    if not smoothing:
        return q
    kept = scores.detach() != -torch.inf
    kept = kept if mask is None else kept & mask
    return (1 - smoothing) * q + smoothing * kept.to(q.dtype) / kept.sum(dim, keepdim=True).clamp(min=1)


def set_strength(module: torch.nn.Module, name: str, value: Any) -> None:
    """Set a strength: a number or a parameter as an attribute, another tensor as a buffer."""
    if isinstance(value, Tensor) and not isinstance(value, torch.nn.Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def changed_options(module: torch.nn.Module, defaults: dict[str, Any]) -> list[str]:
    """The options of a module that are numbers or words and not the default, for its repr."""
    values = {name: getattr(module, name) for name in defaults}
    return [
        f"{name}={value}"
        for name, value in values.items()
        if not isinstance(value, Tensor) and value != defaults[name]
    ]
