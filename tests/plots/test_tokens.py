"""Readable tokens."""

from __future__ import annotations

import io
import re
import warnings

import numpy as np
import pytest

from regmax.plots import Panel, attention_heatmap, attention_panels, parse_examples, text


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (["[CLS]", "play", "##ing", "##", "[SEP]"], ["[CLS]", "play", "‿ing", "##", "[SEP]"]),
        (["▁Hello", "▁wor", "ld", "</s>"], ["Hello", "wor", "‿ld", "</s>"]),
        (["Hello", "Ġwor", "ld", "ĠcafÃ©", "Ċ"], ["Hello", "wor", "‿ld", "café", "‿\n"]),
        (["lo@@", "w@@", "er", "end"], ["lo", "‿w", "‿er", "end"]),
        (["a", "#", "b@", "<s>"], ["a", "#", "b@", "<s>"]),
        (["<s>", "▁a"], ["<s>", "a"]),
        (
            ["l&apos;", "d&apos;or", "&quot;", "a&#124;b", "</s>", "[SEP]"],
            ["l'", "d'or", '"', "a|b", "</s>", "[SEP]"],
        ),
        (["R&amp;D", "&amp;lt;"], ["R&D", "&lt;"]),
        (["R&D", "&amp;"], ["R&D", "&amp;"]),
        (["<b>bold", "&lt;"], ["<b>bold", "&lt;"]),
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


@pytest.fixture(autouse=True)
def _no_warning_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_warned", set())


def test_fonts_cover_what_they_can_and_say_what_is_missing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert text.fonts_for(["plain", "Frühling", "שלום"])[0] == "DejaVu Sans"
    with pytest.warns(
        text.MissingGlyphWarning, match=r"has '\\U000e0fff'"
    ):  # a letter that no font will ever have
        assert text.fonts_for(["\U000e0fff"]) == ["DejaVu Sans"]


def test_a_letter_that_no_font_has_is_a_box_and_one_warning(recwarn: pytest.WarningsRecorder) -> None:
    source, target = ["\U000e0ffe", "a\U000e0ffd"], ["\U000e0ffc"] * 3
    figure = attention_panels([Panel(np.full((3, 2), 0.5), target, "\U000e0ffe")] * 4, source)
    figure.savefig(io.BytesIO())
    assert [warning.category for warning in recwarn] == [text.MissingGlyphWarning]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["□", "a□"]


def test_the_warning_names_the_scripts_font_once(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(text, "_covered", lambda tokens: (["DejaVu Sans"], set("".join(tokens))))
    for _ in range(2):
        text.fonts_for(["日本", "ไทย"])
        text.fonts_for(["語", "🙂"])
    fonts = [re.findall("install ([^,]*),", str(warning.message))[0] for warning in recwarn]
    assert fonts == ["Noto Sans Thai", "Noto Sans CJK", "Noto Emoji"]


def test_blanks_and_control_characters_are_visible_in_labels() -> None:
    figure = attention_heatmap([[0.2] * 5], ["", " ", "a\nb", "\t", "\u200b"], ["x"])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [
        "∅",
        "␣",
        "a↵b",
        "⇥",
        "U+200B",
    ]


def test_moses_escapes_are_undone_in_pictures_and_pages() -> None:
    one = {"source": ["l&apos;", "ami"], "target": ["friend"], "scores": [[0.0, 1.0]]}
    examples = parse_examples([one])
    assert examples.examples[0].source == ("l'", "ami")
    figure = attention_heatmap([[0.5, 0.5]], ["l&apos;", "ami"], ["friend"])
    assert figure.axes[0].get_xticklabels()[0].get_text() == "l'"
