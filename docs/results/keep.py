"""Keep the results of finished runs with the project: `python docs/results/keep.py OUT`.

Copies the `result.json` of each run in OUT to docs/results/runs, with the names of data files instead of their paths,
its scores after each epoch, and the statistics of each test sentence, from which a paired bootstrap needs neither the
corpora nor the outputs. `regmax table docs/results/runs` makes the tables from them, and `run.sh` skips the runs that
are there.
"""

import json
import sys
from pathlib import Path
from typing import Any

from regmax.experiments.training import runs
from regmax.files import write_atomically

KEPT = Path(__file__).parent / "runs"
FILES = ("train", "dev", "test", "masks", "glove")


def without_folders(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the names of files."""
    named = dict(config)
    for field in FILES:
        if isinstance(value := config.get(field), str):
            named[field] = Path(value).name
        elif value is not None:
            named[field] = [Path(path).name for path in value]
    return named


def main(out: Path) -> None:
    """Copy what is finished."""
    for path in sorted(out.glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        result["config"] = without_folders(result["config"])
        result["history"] = json.loads((path.parent / runs.HISTORY).read_text(encoding="utf-8"))
        kept = KEPT / path.parent.name
        write_atomically(kept / path.name, json.dumps(result, separators=(",", ":")) + "\n")
        found = runs.read_sentences(path.parent, result["task"])
        if found is not None:
            runs.write_sentences(kept, found)
        print(kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
