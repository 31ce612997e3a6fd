"""The attention scores of a transformers model in a local folder.

A model that was saved with a mapping of regmax is run with it, and its weights are recorded.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regmax.extras import how_to_install
from regmax.plots.examples import Example, Examples, View
from regmax.plots.recorded import record_examples
from regmax.plots.scores import scores_of
from regmax.plots.settings import Setting
from regmax.plots.text import readable

LONGEST = 128  # tokens that an encoder-decoder generates at most
RECORDED = (
    "“recorded” shows the weights that the model computed. The other mappings map their logarithms, or the weights "
    "themselves if some are zero."
)


def model_examples(folder: Path | str, texts: Sequence[str]) -> Examples:
    """The attention of a model over `texts`: one view per layer and head.

    An encoder or a decoder attends to the text itself. An encoder-decoder generates its output greedily, which attends
    to the text. An encoder or decoder that `regmax.integrations.transformers.save_pretrained` saved keeps its mappings:
    the page starts with its own weights.

    Args:
        folder: a local folder with a model and its tokenizer, as `save_pretrained` writes them.
        texts: one or more sentences.

    Raises:
        ImportError: transformers is not installed.
        FileNotFoundError: the folder does not exist; nothing is downloaded.

    Example:
        >>> examples = model_examples("my-bert", ["A sentence."])  # doctest: +SKIP
        >>> model_examples("nowhere", ["A sentence."])
        Traceback (most recent call last):
            ...
        FileNotFoundError: nowhere is not a model's folder: it has no config.json. Nothing is downloaded.
    """
    try:
        import torch
        import transformers  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ImportError(f"reading a model needs transformers: {how_to_install('transformers')}.") from None
    if not (Path(folder) / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} is not a model's folder: it has no config.json. Nothing is downloaded."
        )
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if getattr(config, "regmax", None) is not None:
        return _recorded(folder, config, tokenizer, texts)
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
    model = kind.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval()
    attend = _cross_attention if config.is_encoder_decoder else _self_attention
    with torch.no_grad():
        examples = tuple(attend(model, tokenizer, text) for text in texts)
    return Examples(
        examples,
        title=f"Attention of {Path(folder).name}",
        start=(Setting("fusedmax"), Setting("softmax")),
        show="heads",
    )


def _recorded(folder: Path | str, config: Any, tokenizer: Any, texts: Sequence[str]) -> Examples:
    """The weights of a model with a mapping of regmax."""
    import torch
    from transformers import AutoModel

    from regmax.integrations.transformers import from_pretrained
    from regmax.nn.recording import record_attention

    if config.is_encoder_decoder:
        raise ValueError(
            "`model_examples(folder, texts)` shows encoders and decoders with a mapping of regmax. Got an "
            "encoder-decoder: record it with `record_attention`, and use `record_examples`."
        )
    model = from_pretrained(AutoModel, folder, local_files_only=True).eval()
    examples = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad(), record_attention(model) as record:
            model(**inputs)
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        found = record_examples(record, tokens, title=f"Attention of {Path(folder).name}")
        (example,) = found.examples
        views = tuple(_numbered(example.views, _head_labels(config)))
        examples.append(replace(example, name=text, note=RECORDED, views=views))
    return replace(found, examples=tuple(examples))


def _head_labels(config: Any) -> dict[str, list[str]]:
    """Of a sparsified model: the mapping and strengths of every head, by the name of its layer."""
    return {
        layer: [
            Setting("softmax" if each is None else chosen["mapping"], tuple((each or {}).items())).label
            for each in chosen["heads"]
        ]
        for layer, chosen in config.regmax.get("layers", {}).items()
        if "heads" in chosen
    }


def _numbered(views: Sequence[View], labels: dict[str, list[str]]) -> Iterator[View]:
    """The views with the names of a model's, "layer 1, head 2", instead of its modules', and their strengths."""
    layers = list(dict.fromkeys(view.layer for view in views))
    heads: Counter[str] = Counter()
    for view in views:
        heads[view.layer] += 1
        layer = f"layer {layers.index(view.layer) + 1}"
        name = f"{layer}, head {heads[view.layer]}"
        if view.layer in labels:
            name += f": {labels[view.layer][heads[view.layer] - 1]}"
        yield replace(view, name=name, layer=layer)


def _self_attention(model: Any, tokenizer: Any, text: str) -> Example:
    inputs = tokenizer(text, return_tensors="pt")
    tokens = _tokens(tokenizer, inputs["input_ids"][0])
    attentions = model(**inputs, output_attentions=True).attentions
    return Example(tokens, tuple(_views(attentions, tokens)), name=text)


def _cross_attention(model: Any, tokenizer: Any, text: str) -> Example:
    inputs = tokenizer(text, return_tensors="pt")
    written = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=LONGEST)
    # Position i has read the output up to i and predicts i + 1: the row belongs to the predicted word.
    outputs = model(**inputs, decoder_input_ids=written[:, :-1], output_attentions=True)
    source, target = (_tokens(tokenizer, ids) for ids in (inputs["input_ids"][0], written[0, 1:]))
    return Example(source, tuple(_views(outputs.cross_attentions, target)), name=text)


def _tokens(tokenizer: Any, ids: Any) -> tuple[str, ...]:
    return tuple(readable(tokenizer.convert_ids_to_tokens(ids)))


def _views(attentions: Sequence[Any], target: tuple[str, ...]) -> Iterator[View]:
    if not attentions or attentions[0] is None:
        raise ValueError("the model returns no attention weights: nothing can be shown.")
    for layer, heads in enumerate(attentions, start=1):
        for head, y in enumerate(heads[0].double().numpy(), start=1):
            yield View(
                f"layer {layer}, head {head}", target, scores_of(y), Setting("softmax"), f"layer {layer}"
            )
