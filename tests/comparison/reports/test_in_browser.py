"""The page in a real browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comparison.dumps import api, save_array, tensor, write_dump
from comparison.net import Net
from msprobe.comparison.reports import report_html

from .browser import Browser
from .made import HOSTILE, hostile, large, outcome_of, roots, structure

TWO_FRAMES = "await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
LABELS = "[...document.querySelectorAll('#tree .line')].map((line) => line.querySelector('.label').textContent)"


def page_of(target: Path, golden: Path, output: Path) -> Path:
    html = outcome_of(target, golden, output, "html").html
    assert html is not None
    return html


def search(browser: Browser, words: str) -> None:
    browser.run(
        f"(() => {{ const box = document.querySelector('#search'); box.value = {words!r}; box.dispatchEvent(new Event('input')); }})()"
    )


def choose(browser: Browser, name: str, index: int) -> None:
    found = f"document.querySelector('#choose-{name}')"
    browser.run(f"(() => {{ const list = {found}; list.selectedIndex = {index}; list.dispatchEvent(new Event('change')); }})()")


def text(browser: Browser, selector: str) -> str:
    found: str = browser.run(f"document.querySelector({selector!r})?.textContent ?? ''")
    return found


def nothing_went_wrong(browser: Browser) -> None:
    bad = [event for event in browser.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert bad == []
    asked = [event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"]
    assert len(asked) == 1 and asked[0].startswith("file:///")


@pytest.fixture(scope="module")
def net_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("net")
    return page_of(*roots(directory), directory / "out")


def test_it_opens_at_the_first_difference(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    assert text(browser, "#sentence") == "✕errorInputs equal, relu in blocks.0 differs (forward, step 0, rank 1): model.py:102"
    assert text(browser, "#details h2") == "✕ error relu"
    assert "The first difference." in text(browser, "#details .callout")
    assert browser.run("document.querySelector('#tree .selected .label').textContent") == "relu"
    assert browser.run(LABELS)[:6] == ["blocks.0", "input.0", "output.0", "fc", "relu", "input.0"]
    assert "y = self.part2(x)" in text(browser, "#details .source .at")
    numbers = "[...document.querySelectorAll('.value .side td.number')].map((cell) => cell.textContent)"
    assert browser.run(numbers)[:4] == [
        "3.0",
        "1.0",
        "2.0",
        "4.5",
    ]
    assert text(browser, "#status") == "18 calls, 41 values"
    nothing_went_wrong(browser)


def test_every_result_has_a_sign_and_a_word(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    browser.run("document.querySelector('.brand').click()")
    tiles = browser.run("[...document.querySelectorAll('.tile')].map((tile) => tile.textContent)")
    assert [tile[0] for tile in tiles] == ["✕", "◇", "?", "▲", "✓"]
    assert len(set(browser.run("[...document.querySelectorAll('.tile .sign')].map((sign) => getComputedStyle(sign).color)"))) == 5
    assert "First difference: Functional.relu.0.forward" in text(browser, "#details .lines")


def test_steps_and_ranks_can_be_chosen(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    options = browser.run("[...document.querySelectorAll('select option')].map((option) => option.textContent)")
    assert options == ["✕ 0  (2 error)", "✕ 1  (4 error)", "✓ 0", "✕ 1  (2 error)"]
    choose(browser, "rank", 0)
    browser.wait("document.documentElement.dataset.ready === '1'")
    assert text(browser, "#details h2") == "step 0, rank 0"
    assert "rank 1" in text(browser, "#sentence")  # the sentence is that of the whole comparison
    browser.run("document.querySelector('#sentence').click()")
    browser.wait("document.querySelector('#details h2').textContent.includes('relu')")
    browser.key("]")
    browser.wait("document.querySelector('#choose-step').selectedIndex === 1")
    nothing_went_wrong(browser)


def test_search_and_filter(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    search(browser, "LINEAR head")
    browser.wait("document.querySelector('#status').textContent.includes(' of ')")
    assert text(browser, "#status") == "3 of 18 calls"
    assert set(browser.run(LABELS.replace(".line", ".line:not(.row)"))) == {"head"}
    search(browser, "no such call")
    browser.wait("document.querySelector('#status').textContent.startsWith('0 of')")
    assert text(browser, "#tree") == "Nothing matches the search and the filter."
    browser.key("Escape")
    assert browser.run(LABELS)[:6] == ["blocks.0", "input.0", "output.0", "fc", "relu", "input.0"]  # as before
    browser.run("document.querySelector('[data-result=error]').click()")
    assert browser.run("[...document.querySelectorAll('#tree .line.row .label')].map((row) => row.textContent)") == ["output.0", "output.0"]
    browser.run("document.querySelector('[data-result=error]').click()")
    browser.run("document.querySelector('[data-way=backward]').click()")
    assert browser.run("[...document.querySelectorAll('#tree .line:not(.row)')].every((line) => line.querySelector('.way'))")


def test_the_keyboard_alone_is_enough(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    browser.run("document.querySelector('#tree').focus()")
    selected = "document.querySelector('#tree .selected .label').textContent"
    assert browser.run(selected) == "relu"
    browser.key("ArrowDown")
    assert browser.run(selected) == "input.0"
    browser.wait("document.querySelector('.value.chosen')")
    browser.key("ArrowLeft")
    assert browser.run(selected) == "relu"
    browser.key("ArrowLeft")  # closes it
    assert browser.run("document.querySelector('#tree .selected').getAttribute('aria-expanded')") == "false"
    browser.key("ArrowLeft")
    assert browser.run(selected) == "blocks.0"
    browser.key("Home")
    browser.key("n")
    assert browser.run("document.querySelector('#tree .selected').classList.contains('p')") is False
    browser.key("f")
    browser.wait("document.querySelector('#details h2').textContent.includes('relu')")
    browser.key("/")
    assert browser.run("document.activeElement.id") == "search"


def test_a_hundred_thousand_nodes_have_few_elements(browser: Browser, tmp_path: Path) -> None:
    outcome = large(layers=250, calls=100)
    page = report_html.write(outcome, tmp_path, "20260101000000")
    browser.open(page)
    assert text(browser, "#status") == "25 250 calls, 75 750 values"
    assert text(browser, "#details h2") == "✕ error linear"
    elements = "document.querySelectorAll('*').length"
    assert browser.run(elements) < 1500
    # Everything is opened, and the end is looked at: still as few.
    browser.run("(() => { const tree = document.querySelector('#tree'); tree.focus(); })()")
    last = browser.run(
        "(async () => { document.querySelector('#tree').focus(); for (const key of ['Home', '*', 'End']) "
        "{ document.querySelector('#tree').dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })); } "
        f"{TWO_FRAMES}; return [...document.querySelectorAll('#tree .line')].pop().textContent; }})()"
    )
    assert "layers.249" in last
    assert browser.run(elements) < 1500
    nothing_went_wrong(browser)


def test_names_that_try_to_be_more_than_text_are_inert(browser: Browser, tmp_path: Path) -> None:
    page = page_of(*hostile(tmp_path), tmp_path / "out")
    browser.open(page)
    for _ in HOSTILE:
        browser.key("n")
    browser.run("document.querySelector('.brand').click()")
    browser.run(f"(async () => {{ for (const box of document.querySelectorAll('details')) box.open = true; {TWO_FRAMES}; }})()")
    assert browser.run("document.title") == "msprobe compare"
    assert browser.run("document.querySelectorAll('img, svg, a, iframe').length") == 0
    assert HOSTILE[0] in browser.run("document.body.textContent")  # it is shown as it is
    nothing_went_wrong(browser)


def test_names_that_show_nothing_or_turn_the_text_are_spelled_out(browser: Browser, tmp_path: Path) -> None:
    for side, value in (("t", 1.0), ("g", 2.0)):
        names = ("re\u202elu", "relu", "re\u200blu")
        write_dump(tmp_path / side, {f"Functional.{name}.0.forward": api([tensor(1.0)], [tensor(value)]) for name in names})
    browser.open(page_of(tmp_path / "t", tmp_path / "g", tmp_path / "out"))
    assert browser.run(LABELS.replace(".line", ".line:not(.row)")) == ["re\\u202elu", "relu", "re\\u200blu"]
    assert text(browser, "#details h2 .name") == "re\\u202elu"
    nothing_went_wrong(browser)


def test_digits_are_marked_from_which_they_part(browser: Browser, tmp_path: Path) -> None:
    sides = [
        write_dump(tmp_path / side, {"Torch.a.0.forward": api([], [tensor(1.0, Max=high, Mean=mean)])})
        for side, high, mean in (("t", 12.5, 1.2345), ("g", 1.25, 1.2399))
    ]
    browser.open(page_of(*sides, tmp_path / "out"))
    marked = browser.run("[...document.querySelectorAll('.value .side td.number mark')].map((mark) => mark.textContent)")
    assert marked == ["12.5", "45", "1.25", "99"]


def test_the_errors_of_tensors_are_drawn(browser: Browser, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    golden = generator.normal(size=(40, 50)).astype(np.float32)
    golden[0, 0] = 0.0
    target = golden * np.float32(1.0 + 1e-2)
    target[3, 4], target[0, 0] = 99.0, 0.5
    sides = []
    for side, output in (("t", target), ("g", golden)):
        given = save_array(tmp_path / side, "Torch.op.0.forward.input.0.pt", np.ones(3, np.float32))
        made = save_array(tmp_path / side, "Torch.op.0.forward.output.0.pt", output)
        sides.append(write_dump(tmp_path / side, {"Torch.op.0.forward": api([given], [made])}, task="tensor", stack={}))
    browser.open(page_of(sides[0], sides[1], tmp_path / "out"))
    browser.wait("document.querySelectorAll('.picture svg').length === 2")
    assert browser.run("document.querySelectorAll('.plot .column').length") > 3
    assert browser.run("document.querySelectorAll('.plot .cell').length") > 10
    assert text(browser, ".picture .told") == "2 000 elements: 2 000 (100 %) differ, 0 (0.00 %) are equal."
    assert browser.run("[...document.querySelectorAll('.worst td')].slice(0, 2).map((cell) => cell.textContent)") == ["[3, 4]", "99.0"]
    nothing_went_wrong(browser)


def test_nothing_differs(browser: Browser, tmp_path: Path) -> None:
    path = Net().write(tmp_path / "a")
    browser.open(page_of(path, path, tmp_path / "out"))
    assert text(browser, "#sentence") == "✓passNo difference in what both sides recorded."
    assert text(browser, "#details h2") == "Overview"
    nothing_went_wrong(browser)


def test_unmatched_calls_are_no_pass(browser: Browser, tmp_path: Path) -> None:
    target, golden = Net(dropped=("Functional.relu.0.forward",)).write(tmp_path / "t"), Net().write(tmp_path / "g")
    browser.open(page_of(target, golden, tmp_path / "out"))
    assert text(browser, "#sentence").startswith("◇unmatchedValues agree; ")
    assert text(browser, "#details h2") == "◇ unmatched relu"
    assert text(browser, "#details .note") == "Only the golden dump has this call."
    assert text(browser, "#details .value tr.side td.faint") == "has no such value"
    nothing_went_wrong(browser)


def test_calls_without_values(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(*structure(tmp_path), tmp_path / "out"))
    assert text(browser, "#status") == "2 calls"
    search(browser, "relu")
    browser.wait("document.querySelector('#status').textContent.includes('1 of')")
    browser.run("document.querySelector('#tree .line:not(.around)').click()")
    browser.wait("document.querySelector('#details h2')?.textContent === '▲ warning relu'")
    assert "The line of code reads otherwise" in text(browser, "#details .told")
    assert browser.run("document.querySelectorAll('#tree .row, #details table').length") == 0
    nothing_went_wrong(browser)


def test_colours_follow_the_system(browser: Browser, net_page: Path) -> None:
    grounds = []
    for dark in (False, True):
        browser.open(net_page, dark=dark)
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(18, 22, 28)"]


def test_it_fits_a_narrow_window(browser: Browser, net_page: Path) -> None:
    for width in (700, 1000):
        browser.open(net_page, width=width, height=700)
        assert browser.run("document.documentElement.scrollWidth") <= width


def test_a_reload_leads_to_the_same_place(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    choose(browser, "step", 1)
    browser.wait("document.documentElement.dataset.ready === '1'")
    browser.run("document.querySelector('#tree').focus()")
    browser.key("ArrowDown")
    browser.wait("document.documentElement.dataset.shown !== ''")
    place, heading = browser.run("location.hash"), text(browser, "#details h2")
    browser.run("document.documentElement.dataset.ready = 'old'")
    browser.send("Page.reload")
    browser.wait("document.documentElement?.dataset.ready === '1'")
    assert browser.run("location.hash") == place
    assert text(browser, "#details h2") == heading
    assert browser.run("document.querySelector('#choose-step').selectedIndex") == 1
    browser.run("document.querySelector('.brand').click()")
    browser.run("document.documentElement.dataset.ready = 'old'")
    browser.send("Page.reload")
    browser.wait("document.documentElement?.dataset.ready === '1'")
    assert text(browser, "#details h2") == "step 1, rank 1"
    nothing_went_wrong_of_pages(browser)


def test_an_address_that_leads_nowhere_opens_the_first_difference(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    for place in ("#99.3", "#1.99999", "#x", "#1.-1"):
        browser.run(f"location.hash = {place!r}; document.documentElement.dataset.ready = 'old'")
        browser.send("Page.reload")
        browser.wait("document.documentElement?.dataset.ready === '1'")
        assert text(browser, "#details h2") in ("✕ error relu", "step 0, rank 1")


def test_a_filter_stays_over_ranks_and_can_be_taken_off(browser: Browser, net_page: Path) -> None:
    browser.open(net_page)
    browser.run("document.querySelector('[data-result=error]').click()")
    choose(browser, "rank", 0)  # nothing differs there
    browser.wait("document.documentElement.dataset.ready === '1'")
    assert text(browser, "#tree") == "Nothing matches the search and the filter."
    assert text(browser, "#status") == "0 of 18 calls"
    browser.run("document.querySelector('[data-result=error]').click()")
    assert text(browser, "#status") == "18 calls, 41 values"
    browser.run("document.querySelector('[data-way=backward]').click()")
    assert text(browser, "#status") == "10 of 18 calls"
    choose(browser, "rank", 1)
    browser.wait("document.documentElement.dataset.ready === '1'")
    assert text(browser, "#status") == "10 of 18 calls"
    assert text(browser, "#details h2") == "step 0, rank 1"  # the first difference is not among them
    nothing_went_wrong(browser)


def nothing_went_wrong_of_pages(browser: Browser) -> None:
    assert [event for event in browser.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")] == []
