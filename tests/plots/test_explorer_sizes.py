"""Long texts in the explorer: they fit or scroll with their labels, and are painted as the library maps them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from browser import Page

from regmax.plots import Example, Examples, Setting, View, write_explorer

Tab = Callable[..., Page]
WIDTHS = (360, 1280, 1900)
SIZES = (30, 60, 300, 1000)
MOVE = """(async (place) => {
  const slider = document.getElementById('left-lam');
  slider.value = place;
  slider.dispatchEvent(new Event('input'));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
})(%s)"""
PLACES = (0.3, 0.35, 0.4, 0.45, 0.6, 0.55, 0.2, 0.25, 0.5)


def scores(n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    near = np.exp(-((np.arange(n)[:, None] - np.arange(n)) ** 2) / 4)
    return (3 * near + 0.4 * rng.normal(size=(n, n))).astype(np.float32).astype(np.float64)


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def example(n: int) -> Example:
        source, target = (tuple(f"{letter}{k}" for k in range(n)) for letter in "st")
        return Example(source, (View("", target, scores(n)),), name=str(n))

    examples = Examples(tuple(map(example, SIZES)))
    return write_explorer(examples, tmp_path_factory.mktemp("long") / "page.html")


def figure(page: Page, expression: str, side: str = "left") -> object:
    return page.evaluate(f"((figure) => {expression})(document.getElementById('{side}-figure'))")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("size", SIZES)
def test_the_page_never_scrolls_sideways_and_labels_stay(
    tab: Tab, long_page: Path, width: int, size: int
) -> None:
    page = tab(width=width).open(long_page, f"#example={SIZES.index(size)}")
    page.settle()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelectorAll('*').length") < 6000
    fits = figure(page, "figure.scrollWidth <= figure.clientWidth + 1")
    if size <= 60 and width >= 1280:
        assert fits
    if fits:
        return
    figure(page, "figure.scrollTo(120, 40)")
    page.settle()
    away = "figure.querySelector('{0}').getBoundingClientRect().{1} - figure.getBoundingClientRect().{1}"
    assert abs(figure(page, away.format(".rows", "left"))) < 1
    assert abs(figure(page, away.format(".columns", "top"))) < 1
    assert f"of {size}: scroll for more" in page.evaluate(
        "document.querySelector('#left .extent').textContent"
    )
    left, top, width_left, height_left = figure(
        page,
        "[figure.scrollLeft, figure.scrollTop, figure.scrollWidth - figure.clientWidth - figure.scrollLeft,"
        " figure.scrollHeight - figure.clientHeight - figure.scrollTop]",
    )
    assert left > 1
    hidden = {"left": left > 1, "up": top > 1, "right": width_left > 1, "down": height_left > 1}
    shown = page.evaluate("document.querySelector('#left .window').dataset.more").split()
    assert set(shown) == {side for side, is_hidden in hidden.items() if is_hidden}
    # The other map follows.
    assert page.wait(lambda: figure(page, "[figure.scrollLeft, figure.scrollTop]", "right") == [left, top])


@pytest.mark.parametrize("setting", ["fusedmax", "fusedmax,gamma=4"])
@pytest.mark.parametrize("size", SIZES)
def test_a_slider_answers_every_event_and_rebuilds_nothing(
    tab: Tab, long_page: Path, size: int, setting: str
) -> None:
    """Nine events, the first included; gamma = 4 keeps every word of a row in the computation."""
    page = tab().open(long_page, f"#example={SIZES.index(size)}&left={setting}")
    whole(page)
    page.evaluate("document.querySelector('#left .rows').dataset.seen = 'yes'")
    for place in PLACES:
        page.evaluate(MOVE % place)
    assert page.evaluate("document.querySelector('#left-lam').nextSibling.value") == "0.25"
    assert page.evaluate("document.querySelector('#left .rows').dataset.seen") == "yes"


def test_a_slider_keeps_the_labels_and_the_rows_that_are_late_follow(tab: Tab, long_page: Path) -> None:
    page = tab().open(long_page, "#example=3&left=entmax,gamma=4")
    whole(page)
    page.evaluate("document.querySelector('#left .rows').dataset.seen = 'yes'")
    page.evaluate(MOVE.replace("left-lam", "left-alpha") % 0.35)
    assert page.evaluate("document.querySelector('#left .rows').dataset.seen") == "yes"
    whole(page)
    colours = np.array(page.evaluate(COLOURS % (1000, 1000)))
    expected = Setting.parse("entmax,gamma=4,alpha=1.35")(scores(1000))[
        : colours.shape[0], : colours.shape[1]
    ]
    assert len(colours) > 100
    order = np.argsort(expected.ravel())
    assert np.all(np.diff(colours.sum(-1).ravel()[order]) <= 1)


def whole(page: Page) -> None:
    """Wait until all visible rows are painted, and the averages known."""
    page.settle()
    page.wait(
        lambda: page.evaluate(
            "[...document.querySelectorAll('canvas.cells')].every((one) => one.dataset.whole) &&"
            " [...document.querySelectorAll('.panel:not([hidden]) .averages')].every((one) => one.textContent)"
        )
    )


COLOURS = """((canvas) => {
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const context = canvas.getContext('2d');
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const pixel = (x, y) => 4 * (Math.floor(y * ratio) * canvas.width + Math.floor(x * ratio));
  const at = (x, y) => [0, 1, 2].map((k) => data[pixel(x, y) + k]);
  const body = canvas.parentElement.style;
  const [wide, tall] = [parseFloat(body.width) / %d, parseFloat(body.height) / %d];
  const shown = [parseFloat(canvas.style.width) / wide, parseFloat(canvas.style.height) / tall];
  const [columns, rows] = shown.map((count) => Math.floor(count + 0.01));
  const range = (count) => [...Array(count).keys()];
  return range(rows).map((i) => range(columns).map((j) => at((j + 0.5) * wide, (i + 0.5) * tall)));
})(document.querySelector('#left canvas.cells'))"""


@pytest.mark.parametrize("size", [60, 300])
def test_painted_cells_are_grey_exactly_where_the_librarys_weights_are_zero(
    tab: Tab, long_page: Path, size: int
) -> None:
    page = tab().open(long_page, f"#example={SIZES.index(size)}&left=fusedmax,lam=0.2")
    whole(page)
    colours = np.array(page.evaluate(COLOURS % (size, size)))
    expected = Setting.parse("fusedmax,lam=0.2")(scores(size))[: colours.shape[0], : colours.shape[1]]
    grey = (colours == (0xEC, 0xEC, 0xEC)).all(-1)
    np.testing.assert_array_equal(grey, expected == 0)
    # Lightness falls with the weight.
    order = np.argsort(expected[~grey])
    assert np.all(np.diff(colours[~grey].sum(-1)[order]) <= 1)


def test_pointing_at_a_painted_cell_names_its_words(tab: Tab, long_page: Path) -> None:
    page = tab().open(long_page, "#example=1")
    x, y = page.evaluate(
        "(({left, top, width, height}) => [left + width * 10.5 / 60, top + height * 12.5 / 60])"
        "(document.querySelector('#left .body').getBoundingClientRect())"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.settle()
    assert page.evaluate("document.getElementById('tip').innerText").startswith("t12 → s10 ")
    marked = page.evaluate(
        "[...document.querySelectorAll('#left text.marked')].map((label) => label.textContent)"
    )
    assert sorted(marked) == ["s10", "t12"]


def test_keys_scroll_a_chosen_word_into_view(tab: Tab, long_page: Path) -> None:
    page = tab().open(long_page, "#example=2&row=250")
    page.evaluate("document.getElementById('left-figure').focus()")
    page.press("ArrowDown")
    page.wait(lambda: figure(page, "figure.scrollTop > 100"))
    assert page.evaluate("document.getElementById('announcement').textContent").startswith("t251: ")


def test_the_size_of_the_cells_can_be_chosen(tab: Tab, long_page: Path) -> None:
    page = tab().open(long_page, "#example=1")
    width = "parseFloat(document.querySelector('#left .body').style.width)"
    fitted = page.evaluate(width)
    page.evaluate("document.getElementById('larger').click()")
    page.settle()
    assert page.evaluate(width) > fitted
    page.evaluate("document.getElementById('fit').click()")
    page.settle()
    assert page.evaluate(width) == fitted


@pytest.mark.parametrize("scaling", ["one", "both", "own"])
def test_the_scale_of_the_colours_is_chosen(tab: Tab, long_page: Path, scaling: str) -> None:
    page = tab().open(long_page, f"#example=0&scale={scaling}&left=sparsemax&right=softmax")
    whole(page)
    darkest = [page.evaluate(COLOURS.replace("#left", f"#{side}") % (30, 30)) for side in ("left", "right")]
    least = [np.array(one).sum(-1).min() for one in darkest]
    ramp_end = sum((0x0A, 0x2F, 0x5C))
    assert (least[1] == ramp_end) == (scaling == "own")
    shown = page.evaluate("document.getElementById('scale').textContent")
    assert (shown == "1.00") == (scaling == "one") or scaling == "both"


def test_the_table_lists_weights_in_order_and_counts_the_zeros(tab: Tab, long_page: Path) -> None:
    page = tab().open(long_page, "#example=1&left=sparsemax&compare=no")
    y = Setting("sparsemax")(scores(60))[0]
    rows = "[...document.querySelectorAll('#numbers tbody tr')].map((row) => row.innerText.split('\\t'))"
    *listed, last = page.evaluate(rows)
    np.testing.assert_allclose([float(row[2]) for row in listed], np.sort(y[y > 0])[::-1], atol=5e-5)
    assert last[0].strip() == f"{(y == 0).sum()} more words, {(y == 0).sum()} with weight exactly 0"
    page.evaluate("document.getElementById('all-words').click()")
    assert len(page.evaluate(rows)) == 60


HEBREW = ["שלום", "לכולם", "היום", "אנחנו", "הולכים", "לראות", "את", "הים"]
UGLY = [
    "<script>alert(1)</script>",
    "x" * 300,
    "\u202eevil",
    "👩‍👩‍👧‍👦",
    "我们",
    "e\u0301",
    "\n",
    "",
    "&amp;",
]


@pytest.fixture(scope="module")
def ugly_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of tokens that break pages, 9, 60 and 300 of them, in a file with such a name."""
    examples = []
    for tokens in (UGLY, HEBREW):
        for n in (len(UGLY), 60, 300):
            words = tuple((tokens * n)[:n])
            examples.append(Example(words, (View("", words, scores(n)),), name=f"<b>{n}</b>"))
    path = tmp_path_factory.mktemp("ugly") / "<b>&amp; #1.html"
    return write_explorer(Examples(tuple(examples), title="<b>&</b>"), path)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("show", ["map", "lines"])
def test_ugly_tokens_stay_text_inside_the_page(tab: Tab, ugly_page: Path, width: int, show: str) -> None:
    for example in range(6):
        page = tab(width=width, dark=show == "lines").open(ugly_page, f"#example={example}&show={show}")
        page.settle()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (example, show)
        assert page.evaluate("document.querySelectorAll('b, img').length") == 0
        assert page.evaluate("document.querySelectorAll('script').length") == 2
        assert page.evaluate("document.getElementById('name').textContent").startswith("<b>")


def test_long_labels_of_60_words_are_shortened_instead_of_scrolling(tab: Tab, ugly_page: Path) -> None:
    page = tab(width=1280).open(ugly_page, "#example=1")
    page.settle()
    assert figure(page, "figure.scrollWidth <= figure.clientWidth + 1")
    beyond = """(figure) => [...figure.querySelectorAll('.columns text')].filter((label) =>
      label.getBoundingClientRect().right > figure.getBoundingClientRect().right).length"""
    assert page.evaluate(f"({beyond})(document.getElementById('left-figure'))") == 0


def test_a_long_name_and_note_stay_inside_the_page(tab: Tab, tmp_path: Path) -> None:
    words = ("a", "\u200b")
    view = View("", words, np.eye(2))
    name = " ".join(f"word{k}" for k in range(300))
    examples = Examples((Example(words, (view,), name=name, note="n" * 300),), title="t" * 200)
    page = tab(width=390).open(write_explorer(examples, tmp_path / "page.html"))
    page.settle()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    height = "document.getElementById('name').offsetHeight"
    assert page.evaluate(height) < 120
    page.evaluate("document.getElementById('name').click()")
    assert page.evaluate(height) > 300
    labels = page.evaluate("[...document.querySelectorAll('#left .rows text')].map((one) => one.textContent)")
    assert labels == ["a", "U+200B"]


def test_a_taller_window_shows_more_rows(tab: Tab, long_page: Path) -> None:
    page = tab(width=1280, height=600).open(long_page, "#example=2")
    whole(page)
    size = {"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    page.call("Emulation.setDeviceMetricsOverride", **size)
    whole(page)
    painted, shown = figure(
        page,
        "[figure.querySelector('canvas.cells').offsetHeight,"
        " figure.clientHeight - figure.querySelector('.columns').getBoundingClientRect().height]",
    )
    assert painted >= shown - 1


def test_the_hint_of_more_is_at_the_edge_of_the_picture(tab: Tab, tmp_path: Path) -> None:
    words = tuple(f"w{k}" for k in range(200))
    example = Example(words, (View("", ("x", "y"), np.zeros((2, 200))),))
    page = tab().open(write_explorer(Examples((example,)), tmp_path / "page.html"))
    page.settle()
    assert page.evaluate("document.querySelector('#left .window').dataset.more") == "right"
    assert page.evaluate("document.querySelector('#left .window').style.getPropertyValue('--bar')") == "0px"


def test_a_text_that_runs_from_right_to_left_begins_at_the_right(tab: Tab, ugly_page: Path) -> None:
    page = tab().open(ugly_page, "#example=5")
    page.settle()
    left, width, client = figure(page, "[figure.scrollLeft, figure.scrollWidth, figure.clientWidth]")
    assert left > 0
    assert abs(left + client - width) <= 1
    page.evaluate("document.getElementById('previous').click()")
    page.settle()
    assert figure(page, "figure.scrollTop") == 0


def test_the_names_of_the_axes_are_whole(tab: Tab, tmp_path: Path) -> None:
    one = Example(("a",), (View("", ("b",), np.zeros((1, 1))),))
    page = tab().open(write_explorer(Examples((one,)), tmp_path / "page.html"))
    page.settle()
    tall = "((corner) => [corner.scrollHeight, corner.clientHeight])(document.querySelector('#left .corner'))"
    needed, given = page.evaluate(tall)
    assert needed <= given
    top = page.evaluate(
        "document.querySelector('#left .corner').getBoundingClientRect().top <="
        " document.querySelector('#left .corner span').getBoundingClientRect().top"
    )
    assert top


def test_row_labels_do_not_touch(tab: Tab, long_page: Path) -> None:
    page = tab().open(long_page, "#example=1")
    page.settle()
    places = page.evaluate(
        "[...document.querySelectorAll('#left .rows text')].map((one) => Number(one.getAttribute('y')))"
    )
    assert np.diff(sorted(places)).min() >= 11
