"""The attention scores of a transformers model in a local folder.

A mapping depends on a row of scores only up to a constant, and softmax's weights y determine the scores up to a
constant: x = log y + const. So the scores are computed from the weights, which every model can return, however it
computes attention.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regmax.extras import how_to_install
from regmax.plots.examples import Example, Examples, View
from regmax.plots.settings import Setting
from regmax.plots.text import readable

# Models compute softmax in float32 even if the rest is float64: weights below float32's smallest number are zero.
_FAR = float(np.log(np.finfo(np.float32).smallest_subnormal))

LONGEST = 128  # tokens that an encoder-decoder generates at most


def model_examples(folder: Path | str, texts: Sequence[str]) -> Examples:
    """The attention of a model over `texts`: one view per layer and head.

    An encoder or a decoder attends to the text itself. An encoder-decoder generates its output greedily, which attends
    to the text.

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
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
    model = kind.from_pretrained(folder, local_files_only=True, attn_implementation="eager").eval()
    attend = _cross_attention if config.is_encoder_decoder else _self_attention
    with torch.no_grad():
        examples = tuple(attend(model, tokenizer, text) for text in texts)
    return Examples(
        examples, title=f"Attention of {Path(folder).name}", start=(Setting("fusedmax"), Setting("softmax"))
    )


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
            yield View(f"layer {layer}, head {head}", target, scores_of(y), Setting("softmax"))


def scores_of(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores whose softmax is y, (target, source), to seven digits; positions masked by a causal model are -inf.

    Example:
        >>> scores_of(np.array([[1.0, 0.0], [0.25, 0.75]])).tolist()
        [[0.0, -inf], [-1.386294, -0.2876821]]
    """
    zero = y == 0
    x = np.where(zero, _FAR, np.log(np.where(zero, 1.0, y)))
    causal = y.shape[0] == y.shape[1] and not np.triu(y, 1).any()
    rounded = np.array([float(f"{score:.7g}") for score in x.ravel()]).reshape(x.shape)
    return np.where(np.triu(np.ones(y.shape, bool), 1), -np.inf, rounded) if causal else rounded
