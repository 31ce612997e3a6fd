"""An invalid checkpoint is rejected and not changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regmax.experiments.errors import ExperimentError
from regmax.experiments.training import checkpoints


@pytest.fixture
def path(tmp_path: Path) -> Path:
    checkpoints.write(tmp_path / "last.safetensors", {"model.a": torch.arange(8.0)}, {"step": 3})
    return tmp_path / "last.safetensors"


def refused(path: Path, match: str) -> None:
    before = path.read_bytes()
    with pytest.raises(ExperimentError, match=match):
        checkpoints.read(path)
    assert path.read_bytes() == before


def test_what_was_written_is_read(path: Path) -> None:
    found, state = checkpoints.read(path)
    assert found["model.a"].tolist() == list(range(8))
    assert state == {"step": 3}
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_an_empty_checkpoint_is_refused(path: Path) -> None:
    path.write_bytes(b"")
    refused(path, "is damaged")


def test_a_truncated_checkpoint_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])
    refused(path, "is damaged")


@pytest.mark.parametrize("place", [-1, -20])
def test_a_flipped_bit_is_noticed(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(bytes(content))
    refused(path, "is damaged: its checksum does not match")


def test_a_changed_state_is_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(rb"\"step\": 3", rb"\"step\": 4"))
    refused(path, "is damaged: its checksum does not match")


def test_a_checkpoint_without_a_state_is_refused(path: Path) -> None:
    save_file({"model.a": torch.zeros(2)}, path, {"format": checkpoints._FORMAT})
    refused(path, "is damaged: it has no state")


@pytest.mark.parametrize("text", ["[1]", "3", "[" * 100_000])
def test_a_state_that_is_no_object_is_refused(path: Path, text: str) -> None:
    tensors = {"model.a": torch.zeros(2)}
    metadata = {"format": checkpoints._FORMAT, "state": text}
    save_file(tensors, path, {**metadata, "checksum": checkpoints._checksum(tensors, text)})
    refused(path, "is damaged: its state is not a JSON object")


def test_a_foreign_checkpoint_is_refused(path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, path)
    refused(path, r"is not a checkpoint of `regmax train`")


def test_a_checkpoint_of_an_older_version_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"regmax-experiment-2", b"regmax-experiment-1"))
    refused(path, r"was written by an older version of regmax: train again")


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"best.safetensors does not exist"):
        checkpoints.read(tmp_path / "best.safetensors")
