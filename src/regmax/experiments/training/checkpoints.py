"""Checkpoints: one safetensors file each, written so that at any moment the old or the new one is complete.

Tensor names begin with `model.`, `optimizer.` or `random.`; everything else is JSON in the file's metadata, with a
checksum, because safetensors does not detect a flipped bit.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from regmax.experiments.errors import ExperimentError
from regmax.files import parse_json, write_atomically

_FORMAT = "regmax-experiment-2"
_OLD_FORMATS = ("regmax-experiment-1",)  # other names of the attention's parameters


def write(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    # Tied parameters share memory, which safetensors rejects: each gets a copy.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(state)
    metadata = {"format": _FORMAT, "state": text, "checksum": _checksum(tensors, text)}
    write_atomically(path, save(tensors, metadata))


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state of a checkpoint."""
    if not path.exists():
        raise ExperimentError(f"{path} does not exist: there is nothing to load.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ExperimentError(f"{path} is damaged: {error}.") from error
    if metadata.get("format") in _OLD_FORMATS:
        raise ExperimentError(f"{path} was written by an older version of regmax: train again.")
    if metadata.get("format") != _FORMAT:
        raise ExperimentError(f"{path} is not a checkpoint of `regmax train`.")
    text = metadata.get("state")
    if text is None:
        raise ExperimentError(f"{path} is damaged: it has no state.")
    if metadata.get("checksum") != _checksum(tensors, text):
        raise ExperimentError(f"{path} is damaged: its checksum does not match.")
    try:
        return tensors, dict(parse_json(text))
    except (ValueError, TypeError) as error:
        raise ExperimentError(f"{path} is damaged: its state is not a JSON object.") from error


def model_tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    """A model's state under `model.`."""
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


def load_model(model: torch.nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load the result of `model_tensors` into a model of the same shape."""
    own = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        # torch compares names and sizes, and knows of tensors that may be missing: an annealed gamma.
        model.load_state_dict(own)
    except RuntimeError as error:
        raise ExperimentError(
            f"{path} belongs to another model: the names or sizes of its tensors differ."
        ) from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state under `optimizer.PARAMETER.NAME`, without the rate, which is a function of the step."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{name}": tensor for i, values in state.items() for name, tensor in values.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the result of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, i, name = key.split(".", 2)
            state.setdefault(int(i), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _checksum(tensors: dict[str, Tensor], text: str) -> str:
    value = zlib.crc32(text.encode())
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes(), value)
    return f"{value:08x}"
