"""Readable tokens."""

from __future__ import annotations

import warnings

import pytest

from regmax.plots import text


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (["[CLS]", "play", "##ing", "##", "[SEP]"], ["[CLS]", "play", "‿ing", "##", "[SEP]"]),
        (["▁Hello", "▁wor", "ld", "</s>"], ["Hello", "wor", "‿ld", "</s>"]),
        (["Hello", "Ġwor", "ld", "ĠcafÃ©", "Ċ"], ["Hello", "wor", "‿ld", "café", "‿\n"]),
        (["lo@@", "w@@", "er", "end"], ["lo", "‿w", "‿er", "end"]),
        (["a", "#", "b@", "<s>"], ["a", "#", "b@", "<s>"]),
        (["<s>", "▁a"], ["<s>", "a"]),
    ],
)
def test_subword_marks_are_read(tokens: list[str], shown: list[str]) -> None:
    assert text.readable(tokens) == shown


def test_every_byte_of_a_byte_level_vocabulary_is_known() -> None:
    assert sorted(text._byte_alphabet().values()) == list(range(256))


@pytest.mark.parametrize(
    ("words", "expected"), [("123 שלום abc", True), ("abc שלום", False), ("مرحبا", True), ("12.", False)]
)
def test_the_first_letter_decides_the_direction(words: str, expected: bool) -> None:
    assert text.is_right_to_left(words.split()) is expected


def test_fonts_cover_what_they_can_and_say_what_is_missing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert text.fonts_for(["plain", "Frühling", "שלום"])[0] == "DejaVu Sans"
    with pytest.warns(
        text.MissingGlyphWarning, match=r"has '\\U000e0fff'"
    ):  # a letter that no font will ever have
        assert text.fonts_for(["\U000e0fff"]) == ["DejaVu Sans"]
