"""A dataset of the hub becomes files; missing requirements are reported first. No network is used."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from regmax.cli import main
from regmax.experiments.data.hub import COLUMNS, download
from regmax.experiments.data.pairs import read_pairs
from regmax.experiments.data.snli import read_snli
from regmax.experiments.errors import ExperimentError

PAIRS = [
    {"translation": {"en": "a dog\n runs", "de": "ein hund läuft"}},
    {"translation": {"en": "hi", "de": "hallo"}},
]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A fake hub with the content that a test provides."""
    content: dict[str, Any] = {}
    package = types.ModuleType("datasets")
    package.load_dataset = content.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", package)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda self, name, **options: content[name])
    return content


def test_pairs_become_parallel_files_and_are_not_downloaded_again(
    hub: dict[str, Any], tmp_path: Path
) -> None:
    hub["owner/pairs"] = {"train": PAIRS, "validation": PAIRS[:1], "test": PAIRS[1:]}
    files = download("owner/pairs", COLUMNS["translation"], tmp_path)
    assert files["dev"] == (f"{tmp_path}/owner--pairs/dev.en", f"{tmp_path}/owner--pairs/dev.de")
    pairs = read_pairs([Path(file) for file in files["train"]])
    assert [pair.source for pair in pairs] == [("a", "dog", "runs"), ("hi",)]
    assert pairs[0].target == ("ein", "hund", "läuft")
    hub.clear()
    assert download("owner/pairs", COLUMNS["translation"], tmp_path) == files


def test_entailment_becomes_json_lines(hub: dict[str, Any], tmp_path: Path) -> None:
    records = [{"premise": "A man.", "hypothesis": "A person.", "label": label} for label in (0, 2, -1)]
    hub["snli"] = {"train": records, "validation": records, "test": records}
    (file,) = download("snli", COLUMNS["entailment"], tmp_path)["test"]
    assert [pair.label for pair in read_snli(Path(file), parses=False)] == [0, 2]
    assert json.loads(Path(file).read_text().splitlines()[2])["gold_label"] == "-"


def test_a_set_or_a_column_that_is_missing_is_named(hub: dict[str, Any], tmp_path: Path) -> None:
    hub["pairs"] = {"train": PAIRS}
    with pytest.raises(ExperimentError, match="`--hub pairs` has no dev set, only train"):
        download("pairs", ("en", "de"), tmp_path)
    with pytest.raises(ExperimentError, match="has no column 'fr': choose others with `--hub-columns`"):
        download("pairs", ("en", "fr"), tmp_path)
    assert not list(tmp_path.iterdir())


def train(tmp_path: Path) -> int:
    out, data = str(tmp_path / "run"), str(tmp_path / "data")
    return main(["train", "translation", "--hub", "owner/pairs", "--hub-data", data, "--out", out])


def test_a_missing_package_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert train(tmp_path) == 2
    assert (
        "`--hub` needs datasets: `pip install '.[hub]'` in the folder of regmax's sources. Or give files"
        in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


def test_a_missing_network_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = types.ModuleType("datasets")
    package.load_dataset = None  # type: ignore[attr-defined]  # must not be reached
    monkeypatch.setitem(sys.modules, "datasets", package)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # no server there
    assert train(tmp_path) == 2
    assert "`--hub owner/pairs` cannot be read: [Errno 111] Connection refused" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
