"""The report as a reader meets it: in the system's Chromium, opened from a file, wide and narrow, light and dark."""

from __future__ import annotations

import json

import numpy as np
import pytest

import toprank as tr
from browser import Browser

EVIL = "<script>alert(1)</script>"
WIDE, NARROW = 1400, 375


@pytest.fixture(scope="module")
def chromium():
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def made():
    """Scores of three systems on 150 queries, one of which has a hostile name."""
    rng = np.random.default_rng(0)
    n_queries, size = 150, 8
    labels = rng.integers(0, 4, n_queries * size).astype(float)
    qids = np.repeat([EVIL, *(f"query {i}" for i in range(1, n_queries))], size)
    data = tr.RankingData(rng.normal(size=(len(labels), 2)), labels, qid=qids)
    scores = {f"system {s}": labels + (1 + s) * rng.normal(size=len(labels)) for s in range(3)}
    return data, scores, tr.compare(scores, data, ["ndcg@5", "map"])


@pytest.fixture(scope="module")
def report(made, tmp_path_factory):
    data, scores, compared = made
    ranker = tr.LinearRanker("Squared", l2=1.0).fit(data)
    content = tr.report.from_comparison(compared, data, scores, rankers={"system 0": ranker}, name="a <set>")
    path = tmp_path_factory.mktemp("report") / "report.html"
    tr.report.write_html(path, content)
    return path


@pytest.fixture
def page(chromium, report):
    return chromium.open(report, WIDE)


ROWS = "[...document.querySelectorAll('.queries tbody tr')]"


def listed(page, column=0):
    return page.run(f"{ROWS}.map(row => row.children[{column}].textContent)")


def choose(page, role, value):
    page.run(
        f"(e => {{ e.value = {json.dumps(str(value))}; e.dispatchEvent(new Event('change', {{bubbles: true}})); }})"
        f"(document.querySelector('[data-role=\"{role}\"]'))"
    )


def find(page, words):
    page.run("document.querySelector('[data-role=\"find\"]').focus(); document.activeElement.select()")
    page.type(words)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_it_renders_without_complaints(chromium, report, width, dark):
    page = chromium.open(report, width, dark=dark)
    assert page.complaints() == []
    assert page.run("document.documentElement.scrollWidth") == width  # nothing sticks out sideways
    ink, paper = page.run("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
    assert (brightness(ink) > brightness(paper)) == dark
    empty = page.run(
        "[...document.querySelectorAll('.plot')].filter(p => p.getBoundingClientRect().height < 40).length"
    )
    assert empty == 0
    assert page.run("document.querySelectorAll('.plot').length") > 8
    small = page.run("Math.min(...[...document.querySelectorAll('.plot')].map(p => p.getBoundingClientRect().width))")
    assert small > 300  # the plots' letters keep about their own size


def brightness(color):
    return sum(map(int, color.strip("rgb()").split(",")))


def test_contrast_is_enough_to_read(chromium, report):
    """WCAG: 4.5 to 1 for text, wins and losses included, and 3 to 1 for the marks of systems."""
    for dark in (False, True):
        page = chromium.open(report, WIDE, dark=dark)
        names = ["ink", "muted", "link", "win", "loss", "flat", *(f"c{i}" for i in range(7))]
        colors = page.run(
            f"{json.dumps(['paper', *names])}.map(n => getComputedStyle(document.documentElement)"
            ".getPropertyValue('--' + n).trim())"
        )
        paper = luminance(colors[0])
        for name, color in zip(names, colors[1:], strict=True):
            light, deep = sorted((luminance(color), paper), reverse=True)
            needed = 3 if name.startswith("c") else 4.5
            assert (light + 0.05) / (deep + 0.05) >= needed, (name, color, dark)


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_the_reader_can_change_the_theme(page):
    before = page.run("getComputedStyle(document.body).backgroundColor")
    page.run("document.querySelector('.theme').click()")
    after = page.run("getComputedStyle(document.body).backgroundColor")
    assert brightness(after) < brightness(before)
    assert page.run("document.querySelector('.theme').getAttribute('aria-label')") == "Use light colors"
    page.run("document.querySelector('.theme').click()")
    assert page.run("getComputedStyle(document.body).backgroundColor") == before
    page.run("localStorage.clear()")
    assert page.complaints() == []


def test_the_explorer_finds_queries(page):
    assert len(listed(page)) == 100  # more on demand
    page.run("document.querySelector('.more').click()")
    assert len(listed(page)) == 150
    find(page, "QUERY 14")
    assert sorted(listed(page)) == sorted(["query 14", *(f"query 14{i}" for i in range(10))])
    assert page.run("document.querySelector('.count').textContent").startswith("11 of 150 queries")
    page.press("Escape")
    assert len(listed(page)) == 100
    find(page, "nothing like that")
    assert listed(page) == []
    assert page.complaints() == []


def test_a_hostile_name_is_text(page):
    find(page, EVIL)
    assert listed(page) == [EVIL]
    page.run(f"{ROWS}[0].click()")
    assert EVIL in page.run("document.querySelector('.detail h3').textContent")
    assert page.run("document.querySelectorAll('.explorer tbody script').length") == 0
    assert page.complaints() == []


def test_the_explorer_sorts_and_filters_by_the_numbers(page, made):
    data, scores, _ = made
    values = {n: tr.evaluate(c, data, ["ndcg@5", "map"]).per_query for n, c in scores.items()}
    names = data.qids.tolist()
    choose(page, "a", 2)
    choose(page, "b", 0)
    gain = values["system 2"]["ndcg@5"] - values["system 0"]["ndcg@5"]

    def numbers(column):
        return [float(text.split()[0].replace("−", "-")) for text in listed(page, column)]

    assert numbers(5) == sorted(numbers(5), reverse=True)  # by default the largest wins of A first
    np.testing.assert_allclose(numbers(5), np.sort(gain)[::-1][:100], atol=1.01e-4)
    page.run("document.querySelector('[data-sort=\"a\"]').click()")
    np.testing.assert_allclose(numbers(3), np.sort(values["system 2"]["ndcg@5"])[::-1][:100], atol=1e-4)
    assert page.run("document.querySelector('[data-sort=\"a\"]').closest('th').ariaSort") == "descending"
    page.run("document.querySelector('[data-sort=\"a\"]').click()")
    assert numbers(3) == sorted(numbers(3))
    page.run("document.querySelector('[data-sort=\"id\"]').click()")
    assert listed(page)[:4] == [EVIL, "query 1", "query 2", "query 3"]  # numbers within names count as numbers
    choose(page, "filter", 2)
    page.run("document.querySelector('.more').click()")
    better = [name for name, g in zip(names, gain, strict=True) if g < 0]
    assert sorted(listed(page)) == sorted(better)
    choose(page, "filter", 3)
    assert sorted(listed(page)) == sorted(name for name, g in zip(names, gain, strict=True) if g == 0)
    choose(page, "filter", 0)
    choose(page, "metric", 1)
    first = names.index(listed(page)[1])
    np.testing.assert_allclose(numbers(3)[1], values["system 2"]["map"][first], atol=1e-4)
    assert page.complaints() == []


def test_two_rankings_stand_side_by_side(page, made):
    data, scores, _ = made
    find(page, "query 77")
    page.run(f"{ROWS}[0].click()")
    rows = np.arange(77 * 8, 78 * 8)
    for side, system in enumerate(("system 0", "system 1")):
        order = rows[np.argsort(-scores[system][rows], kind="stable")]
        shown = page.run(
            f"[...document.querySelectorAll('.rankings > div')[{side}].querySelectorAll('tbody tr')]"
            ".map(r => [r.children[2].textContent, r.children[1].textContent])"
        )
        assert shown == [[str(row), f"{data.labels[row]:g}"] for row in order]


def test_the_explorer_is_usable_by_keyboard(page):
    page.run("document.body.focus()")
    page.press("/", "Slash", "/")
    assert page.run("document.activeElement.dataset.role") == "find"
    assert page.run("document.activeElement.value") == ""
    page.type("query 1")
    first, second, third = listed(page)[:3]
    selected = "document.querySelector('tr[aria-selected=\"true\"]').children[0].textContent"
    page.press("ArrowDown")
    assert page.run(selected) == first
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.run(selected) == third
    page.press("ArrowUp")
    assert page.run(selected) == second
    assert page.run("document.activeElement.textContent") == second
    assert second in page.run("document.querySelector('.detail h3').textContent")
    page.press("End")
    assert page.run(selected) == listed(page)[-1]
    outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_the_first_tab_skips_to_the_results(page):
    page.run("document.body.focus()")
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0
    page.press("Enter", text="\r")
    assert page.run("document.activeElement.id") == "main"


def test_every_control_has_a_name(page):
    nameless = page.run(
        "[...document.querySelectorAll('button, a, select, input')].filter(e => !(e.textContent.trim() || "
        "e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.outerHTML)"
    )
    assert nameless == []


def test_a_bar_and_a_card_open_their_query(page):
    selected = "document.querySelector('tr[aria-selected=\"true\"]').children[0].textContent"
    card = page.run("document.querySelector('.card h3 .name').textContent")
    page.run("document.querySelector('.card a').click()")
    assert page.run(selected) == card
    words = page.run("document.querySelectorAll('.bar[data-q]')[3].querySelector('title').textContent")
    page.run("document.querySelectorAll('.bar[data-q]')[3].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert words.startswith(f"query {page.run(selected)}:")
    assert page.complaints() == []


def test_bars_are_reached_and_opened_by_keyboard(page):
    selected = "document.querySelector('tr[aria-selected=\"true\"]').children[0].textContent"
    stops = page.run(
        "[...document.querySelectorAll('#p1-wins .plot')].map(p => p.querySelectorAll('[tabindex=\"0\"]').length)"
    )
    assert set(stops) == {1}
    for key, text in (("Enter", "\r"), (" ", " ")):
        page.run("document.querySelector('#p1-wins .bar[tabindex=\"0\"]').focus()")
        page.press("ArrowRight")
        page.press("ArrowRight")
        page.press("ArrowLeft")
        words = page.run("document.activeElement.querySelector('title').textContent")
        assert page.run("document.activeElement.getAttribute('role')") == "button"
        page.press(key, "Space" if key == " " else None, text)
        assert words.startswith(f"query {page.run(selected)}:")
    assert page.complaints() == []


def test_the_detail_shows_a_query_that_is_listed(page):
    heading = "document.querySelector('.detail h3 .name').textContent"
    find(page, "query 77")
    assert page.run(heading) == "query 77"
    find(page, "nothing like that")
    assert page.run("document.querySelector('.detail').textContent") == "No query is listed."
    page.press("Escape")
    assert page.run(heading) == listed(page)[0]


def test_nothing_runs_through_the_names_of_differences(chromium, report):
    page = chromium.open(report, NARROW)
    crossed = page.run("""
        [...document.querySelectorAll('#p1-differences .plot')].flatMap(plot => {
          const behind = [...plot.querySelectorAll('.zero, .band')].map(e => e.getBoundingClientRect());
          return [...plot.querySelectorAll('text.name:not(.end)')].filter(text => {
            const t = text.getBoundingClientRect();
            return behind.some(b => b.top < t.bottom - 2 && b.bottom > t.top + 2 &&
                b.left < t.right && b.right > t.left);
          });
        }).length
    """)
    assert page.run("document.querySelectorAll('#p1-differences .plot .zero').length") > 0
    assert crossed == 0


def test_a_mark_tells_what_it_is(page):
    words = page.run("document.querySelector('#p1-curves .plot .mark title').textContent")
    page.point_at("#p1-curves .plot .mark")
    assert page.run("document.querySelector('.tip').hidden") is False
    assert page.run("document.querySelector('.tip').textContent") == words
    page.point_at("h1")
    assert page.run("document.querySelector('.tip').hidden") is True
    assert page.run("document.querySelector('#p1-curves .plot .mark title').textContent") == words


def test_paper_gets_no_controls(page):
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    visible = "[...document.querySelectorAll('nav, .explorer, .copy')].filter(e => e.getClientRects().length).length"
    assert page.run(visible) == 0
    assert page.run("document.querySelectorAll('.plot').length") > 8


def test_it_reads_without_scripts(chromium, report, tmp_path):
    bare = tmp_path / "bare.html"
    text = report.read_text()
    start = text.rindex("<script>")
    bare.write_text(text[:start] + text[text.index("</script>", start) + 9 :])
    page = chromium.open(bare, NARROW)
    assert page.complaints() == []
    assert page.run("document.querySelector('h1').getClientRects().length") == 1
    assert page.run("document.documentElement.scrollWidth") == NARROW
