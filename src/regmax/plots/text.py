"""Readable tokens: subword marks, the direction of writing, and fonts that have the letters."""

import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

# Precedes a subword that continues a word.
JOINER = "\u203f"
# Tried in this order for letters that the first font lacks; fonts that are not installed are skipped.
FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
)


# The escapes of the Moses tokenizer, the ampersand last.
_MOSES = {
    "&apos;": "'",
    "&quot;": '"',
    "&lt;": "<",
    "&gt;": ">",
    "&#124;": "|",
    "&#91;": "[",
    "&#93;": "]",
    "&amp;": "&",
}
_BOX = "\u25a1"
_warned: set[str] = set()  # fonts


class MissingGlyphWarning(UserWarning):
    """No installed font has some of the letters: they are drawn as boxes."""


def readable(tokens: Sequence[str]) -> list[str]:
    """Subwords without their vocabulary's marks; a subword that continues a word begins with an undertie.

    WordPiece (`##ing`), SentencePiece (`▁the`), byte-level BPE (`Ġthe`) and `lo@@ w` are recognised by their marks;
    tokens without marks are not changed. The Moses tokenizer's escapes (`d&apos;`) are undone.

    Example:
        >>> readable(["un", "##believ", "##able", "!"])
        ['un', '‿believ', '‿able', '!']
        >>> readable(["▁the", "▁ligh", "t"])
        ['the', 'ligh', '‿t']
        >>> readable(["l&apos;", "R&amp;D"])
        ["l'", 'R&D']
    """
    tokens = unescaped(tokens)
    if any(re.match(r"##.", token) for token in tokens):
        return [re.sub("^##(?=.)", JOINER, token) for token in tokens]
    if any(token.endswith("@@") for token in tokens):
        before = ["", *tokens]
        return [
            JOINER * last.endswith("@@") + token.removesuffix("@@")
            for last, token in zip(before, tokens, strict=False)
        ]
    if any(token.startswith("Ġ") for token in tokens):
        return _spaced([_bytes_of(token) for token in tokens], " ")
    if any(token.startswith("▁") for token in tokens):
        return _spaced(tokens, "▁")
    return list(tokens)


def unescaped(tokens: Sequence[str]) -> Sequence[str]:
    """The tokens without the escapes of the Moses tokenizer.

    It escapes every sign in `_MOSES`, so a token that has one is not its work, and `&amp;` then stands for itself.
    Special tokens (`<unk>`) are added later, and tell nothing.
    """
    words = [token for token in tokens if not re.fullmatch(r"</?\w+>|\[\w+\]", token)]
    if any(set(re.sub("|".join(_MOSES), "", word)) & set(_MOSES.values()) for word in words):
        return tokens
    return [re.sub("|".join(_MOSES), lambda escape: _MOSES[escape[0]], token) for token in tokens]


def _spaced(tokens: Sequence[str], space: str) -> list[str]:
    """Schemes that mark the beginning of a word. The first token begins one, and special tokens are separate."""
    words = []
    for k, token in enumerate(tokens):
        begins = k == 0 or token.startswith(space) or re.fullmatch(r"<.*>|\[.*\]", token)
        after_special = k > 0 and re.fullmatch(r"<.*>|\[.*\]", tokens[k - 1])
        shown = token.lstrip(space) or space
        words.append(shown if begins or after_special else JOINER + shown)
    return words


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes printable bytes as themselves and the others as the letters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + k): b for k, b in enumerate(others)}


def _bytes_of(token: str) -> str:
    alphabet = _byte_alphabet()
    if not all(letter in alphabet for letter in token):
        return token
    return bytes(alphabet[letter] for letter in token).decode("utf-8", errors="replace")


def is_right_to_left(tokens: Iterable[str]) -> bool:
    """Whether the first letter of the tokens belongs to a right-to-left script such as Hebrew or Arabic.

    Example:
        >>> is_right_to_left(["«", "שלום", "עולם"]), is_right_to_left(["hello", "שלום"])
        (True, False)
    """
    for letter in "".join(tokens):
        direction = unicodedata.bidirectional(letter)
        if direction in ("R", "AL", "L"):
            return direction != "L"
    return False


@lru_cache(maxsize=1)
def _installed() -> dict[str, str]:
    """The files of the installed fonts in `FONTS`."""
    from matplotlib.font_manager import fontManager

    files = {
        font.name: font.fname for font in fontManager.ttflist if font.weight in (400, "normal", "regular")
    }
    return {name: files[name] for name in FONTS if name in files}


@lru_cache(maxsize=32)
def _letters_of(file: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(Path(file)).get_charmap())


# The font to install for each script, by the first words of its letters' Unicode names.
_SCRIPT_FONTS = {
    "CJK": "Noto Sans CJK",
    "HIRAGANA": "Noto Sans CJK",
    "KATAKANA": "Noto Sans CJK",
    "HANGUL": "Noto Sans CJK",
    "ARABIC": "Noto Sans Arabic",
    "HEBREW": "Noto Sans Hebrew",
    "DEVANAGARI": "Noto Sans Devanagari",
    "THAI": "Noto Sans Thai",
    "BENGALI": "Noto Sans Bengali",
    "TAMIL": "Noto Sans Tamil",
    "TELUGU": "Noto Sans Telugu",
    "GEORGIAN": "Noto Sans Georgian",
    "ARMENIAN": "Noto Sans Armenian",
    "ETHIOPIC": "Noto Sans Ethiopic",
    "KHMER": "Noto Sans Khmer",
    "MYANMAR": "Noto Sans Myanmar",
    "SINHALA": "Noto Sans Sinhala",
}


def font_of(letter: str) -> str:
    """The name of a font that has a letter, by its script.

    Example:
        >>> font_of("語"), font_of("ก"), font_of("🙂")
        ('Noto Sans CJK', 'Noto Sans Thai', 'Noto Emoji')
    """
    script = unicodedata.name(letter, "").split(" ")[0]
    symbol = unicodedata.category(letter) == "So"
    return _SCRIPT_FONTS.get(script, "Noto Emoji" if symbol else "Noto Sans")


def fonts_for(tokens: Iterable[str]) -> list[str]:
    """The fonts that together have the tokens' letters, the plainest first; warns once for each missing font."""
    fonts, missing = _covered(tokens)
    by_font: dict[str, list[str]] = {}
    for letter in sorted(missing):
        by_font.setdefault(font_of(letter), []).append(letter)
    for font, letters in by_font.items():
        if font in _warned:
            continue
        _warned.add(font)
        message = (
            f"No font that matplotlib knows has {''.join(letters[:12])!r}: install {font}, and delete the list of "
            "fonts in `matplotlib.get_cachedir()`."
        )
        warnings.warn(message, MissingGlyphWarning, stacklevel=2)
    return fonts


def with_boxes(tokens: Sequence[str]) -> list[str]:
    """The tokens with a box for each letter that no font has: what matplotlib draws, without a warning for each one."""
    boxes = str.maketrans(dict.fromkeys(_covered(tokens)[1], _BOX))
    return [token.translate(boxes) for token in tokens]


def _covered(tokens: Iterable[str]) -> tuple[list[str], set[str]]:
    """The fonts that have the tokens' letters, and the letters that none has."""
    wanted = {ord(letter) for token in tokens for letter in token if not letter.isspace()}
    chosen: list[str] = []
    for name, file in _installed().items():
        if not chosen or wanted & _letters_of(file):
            chosen.append(name)
            wanted -= _letters_of(file)
    return chosen, set(map(chr, wanted))


_BLANKS = {"\t": "⇥", "\n": "↵", "\r": "↵"}


def visible(token: str) -> str:
    r"""A token with signs for line breaks, tabs, and blanks at its ends; an empty one is a sign too.

    A token of control characters only, such as a zero-width joiner, shows their numbers.

    Example:
        >>> visible("\n"), visible(" a b "), visible(""), visible("\u200d")
        ('↵', '␣a b␣', '∅', 'U+200D')
    """
    if not token.isspace() and all(map(_is_invisible, token)):
        token = "".join(letter if letter.isspace() else f"U+{ord(letter):04X}" for letter in token)
    inner = token.strip()
    start = token.index(inner) if inner else len(token)
    ends = (token[:start], token[start + len(inner) :])
    left, right = ("".join(_BLANKS.get(blank, "␣") for blank in end) for end in ends)
    return left + "".join(_BLANKS.get(letter, letter) for letter in inner) + right or "∅"


def _is_invisible(letter: str) -> bool:
    return letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf")


def isolated(token: str) -> str:
    """A right-to-left token between marks that keep it from reordering its surroundings."""
    return f"\u2068{token}\u2069" if is_right_to_left([token]) else token


def shortened(token: str, length: int = 22) -> str:
    """A token shortened to fit a label.

    Example:
        >>> shortened("Donaudampfschifffahrtsgesellschaft")
        'Donaudampfschifffahrt…'
    """
    return token if len(token) <= length else token[: length - 1] + "…"
