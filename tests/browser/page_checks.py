"""The page of a run in Chromium (Playwright's, or $CHROMIUM). Started by scripts/test_pages.sh.

Trap: the page's policy forbids eval, so ``wait_for_function`` fails unless it holds at once.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from page_runs import add_step, discussion, row, served, verdicts_of, write_run
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright
from small_runs import reopened

from comas.run.pages.page import PageSource, page_text
from comas.run.pages.run_report import run_source
from comas.types import Discussion, Generation, Question, RewardedDiscussion, Turn

LAPTOP: ViewportSize = {"width": 1366, "height": 768}
PHONE: ViewportSize = {"width": 390, "height": 844}


def question(number: int) -> Question:
    return Question(f"math/{number}", "math", f"What is {number} + 23 ?")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> PageSource:
    """The same question in steps 1 (answered wrong) and 3, another in step 2."""
    steps = {
        1: [discussion(1, answer="61", score="3")],
        2: [discussion(2, question=question(50), score="1")],
        3: [discussion(3)],
    }
    return run_source(write_run(tmp_path_factory.mktemp("saves"), "small", steps))


@pytest.fixture(scope="module")
def path(source: PageSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "view.html"
    path.write_text(page_text([source]))
    return path


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Page]:
    yield from opened(browser, path)


@pytest.fixture
def phone(browser: Browser, path: Path) -> Iterator[Page]:
    yield from opened(browser, path, PHONE)


def opened(browser: Browser, path, viewport=LAPTOP, *, at="", offline=True) -> Iterator[Page]:
    """Open the page; the console must be empty when it is closed."""
    context = browser.new_context(viewport=viewport, offline=offline, has_touch=viewport == PHONE)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((path if isinstance(path, str) else path.as_uri()) + at)
    page.wait_for_selector("body[data-ready]")
    yield page
    assert complaints == []
    context.close()


def count(page: Page) -> str:
    return page.inner_text("#count")


def test_it_opens_with_the_report_whose_curves_and_result_are_explained(page):
    assert "held-out accuracy" in page.inner_text("#results").lower()
    curve = page.locator(".curve").first
    assert "validation.temperature" in curve.inner_text()
    assert "higher is better" in (curve.locator("figcaption").get_attribute("title") or "")
    assert curve.locator("text").all_text_contents()[-2:] == ["step 1", "3"]
    assert "mean of 5" in page.inner_text("#curves > .caption")
    options = page.locator("#metric option[value='agent_1/policy/entropy']")
    assert "nats per token" in (options.get_attribute("title") or "")
    titles = page.locator(".curve figcaption strong").all_inner_texts()
    assert {"validation/accuracy", "time/step_s"} <= set(titles)
    assert page.locator(".curve svg").count() == len(titles)
    assert "society.num_agents" in page.inner_text("#report")
    page.locator("#report button").last.click()  # a disagreement of reward and verdict
    assert page.inner_text(".thread h3") == "step 1"
    solution, *_ = page.locator(".turn .about").all_inner_texts()
    assert "wrong" in solution and "reward 1" in solution


def test_filters_of_turns_hold_for_one_and_the_same_turn(page):
    page.keyboard.press("d")
    assert count(page) == "3 of 3 discussions"
    page.select_option("select[name=verdict]", "wrong")
    assert count(page) == "1 of 3 discussions"
    page.select_option("select[name=verdict]", "")
    page.select_option("select[name=role]", "evaluation")
    page.fill("#reward-from", "1")
    assert count(page) == "1 of 3 discussions"  # the accusation; approvals earn nothing
    page.locator(".row").click()
    assert page.locator(".turn.matching").count() == 1
    page.select_option("select[name=agent]", "0")
    assert count(page) == "0 of 3 discussions"
    page.click("button[type=reset]")
    expect(page.locator("#count")).to_have_text("3 of 3 discussions")
    page.select_option("select[name='look for']", "approved though wrong")
    expect(page.locator(".thread h3")).to_have_text("step 1")
    assert "approved though wrong" in page.inner_text(".turn.matching")


def test_the_keyboard_moves_shows_tokens_and_prompts_and_puts_the_same_question_beside(page):
    page.keyboard.press("d")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".thread h3")).to_have_text("step 2")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".thread h3")).to_have_text("step 1")
    page.keyboard.press("t")
    page.wait_for_selector(".token")
    assert page.locator(".token").first.inner_text().split() == ["61", "-0.25", "+1.5"]
    page.keyboard.press("p")
    page.wait_for_selector(".prompt")
    assert page.locator(".prompt").first.inner_text() == "What is 48 + 23"
    page.keyboard.press("b")
    expect(page.locator(".thread")).to_have_count(2)
    assert page.locator(".thread h3").all_inner_texts() == ["step 1", "step 3"]
    page.keyboard.press("b")
    expect(page.locator(".thread")).to_have_count(1)


def test_a_discussion_is_open_from_the_beginning_and_an_address_leads_to_one(browser, path):
    for page in opened(browser, path):
        page.keyboard.press("d")
        expect(page.locator(".thread h3")).to_have_text("step 1")
        page.keyboard.press("ArrowDown")
        address = page.evaluate("location.hash")
    for page in opened(browser, path, at=address):
        expect(page.locator(".thread h3")).to_have_text("step 2")
        page.keyboard.press("r")
        assert page.evaluate("location.hash") == ""


def test_the_gold_answer_is_shown_and_a_long_one_and_thinking_are_folded(browser, tmp_path):
    thought = "<think>48 and <b>23</b></think>"
    item = discussion(1, question=Question("science/1", "science", "How many?"), thinking=thought)
    run = write_run(tmp_path / "saves", "close", {})
    with reopened(run) as directory:
        directory.save_discussions(
            1,
            [item, discussion(1, question=question(50))],
            verdicts=verdicts_of(item),
            answers={"science/1": "73", "math/50": "first line\nsecond line"},
        )
        directory.log_metrics(1, row(1))
    path = tmp_path / "close.html"
    path.write_text(page_text([run_source(run)]))
    for page in opened(browser, path):
        page.keyboard.press("d")
        expect(page.locator(".gold")).to_have_text("Gold answer, which no agent sees: 73")
        thinking = page.locator("details.thinking")
        expect(thinking.locator("pre")).to_be_hidden()
        thinking.locator("summary").click()
        expect(thinking.locator("pre")).to_have_text(thought)
        page.locator(".row").last.click()
        expect(page.locator("details.gold pre")).to_be_hidden()
        page.locator("details.gold summary").click()
        expect(page.locator("details.gold pre")).to_have_text("first line\nsecond line")


def test_a_phone_shows_the_list_the_filters_and_a_discussion_in_its_whole_width(phone):
    assert phone.evaluate("document.getElementById('report').scrollWidth") == PHONE["width"]
    phone.tap("#tab-discussions")
    assert not phone.locator("select[name=verdict]").is_visible()
    phone.tap("#more")
    phone.select_option("select[name=verdict]", "wrong")
    phone.tap("#more")
    assert count(phone) == "1 of 3 discussions"
    row = phone.locator(".row")
    assert row.bounding_box()["width"] > 0.9 * PHONE["width"]
    row.tap()
    for name, what in (("tokens", ".token"), ("prompt", ".prompt")):
        phone.tap(f"#show-{name}")
        phone.wait_for_selector(what)
    thread = phone.locator(".thread").bounding_box()
    assert thread["width"] > 0.9 * PHONE["width"]
    assert 0 <= thread["y"] < PHONE["height"] / 2
    assert phone.locator(".thread .token").last.bounding_box()["width"] > 0
    phone.tap("#show-beside")
    expect(phone.locator(".thread")).to_have_count(2)
    assert phone.locator(".thread").last.bounding_box()["width"] > 0.9 * PHONE["width"]
    assert phone.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE])
def test_curves_of_several_runs_lie_over_each_other(browser, source, tmp_path, viewport):
    # The same run under three names.
    others = [replace(source, name=name, path=f"/{name}") for name in ("other", "third")]
    (tmp_path / "three.html").write_text(page_text([source, *others]))
    for page in opened(browser, tmp_path / "three.html", viewport):
        assert page.locator(".legend .key").all_inner_texts()[1:] == ["other", "third"]
        [first, *_] = page.locator(".curve").all()
        assert "validation/accuracy" in first.inner_text()
        assert first.locator("polyline").count() == 3
        page.select_option("#metric", "tokens/response")
        assert "tokens/response" in page.locator(".curve").first.inner_text()
        box = page.locator(".curve").first.bounding_box()
        assert 200 < box["width"] <= viewport["width"] and box["height"] < 300
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        assert page.evaluate("document.getElementById('report').scrollWidth") == viewport["width"]


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE])
def test_new_steps_of_a_run_appear_without_a_reload(browser, tmp_path, viewport):
    run = write_run(tmp_path, "followed", {1: [discussion(1)]})
    with reopened(run) as directory, served(run) as server:
        for page in opened(browser, server.address, viewport, offline=False):
            assert "step 1; step 1 ended" in page.inner_text("#progress")
            assert page.locator("#report").is_visible()
            page.click("#tab-discussions")
            page.evaluate("window.wasNotReloaded = true")
            expect(page.locator(".thread h3")).to_have_text("step 1")
            page.click("#show-tokens")
            add_step(directory, 2, question=question(2))
            expect(page.locator("#count")).to_have_text("2 of 2 discussions", timeout=15_000)
            assert "step 2 of 4, about 7 s left" in page.inner_text("#progress")
            expect(page.locator(".thread h3")).to_have_text("step 1")  # which was open
            page.locator(".row").last.click()
            expect(page.locator(".thread h3")).to_have_text("step 2")
            page.wait_for_selector(".token")  # which is asked for now
            assert page.locator(".token").first.inner_text().split()[0] == "71"
            page.click("#tab-report")
            assert page.locator(".curve circle").count() >= 2
            assert page.evaluate("window.wasNotReloaded")
            assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]


def said(text: str) -> Generation:
    return Generation((1,), (2,), text, (-0.5,), "stop", 1)


HOSTILE = "<img src=x onerror=alert(1)> [link](javascript:alert(1)) ![x](http://x.example/x.png)"
SOLUTION = rf"""## Step

**Bold**, \(x^2\) and 2*3*4 for $5 and $6, or 12\,345 {"$$" * 4000}. {HOSTILE}

> {"quoted " * 100}

$$\href{{javascript:alert(1)}}{{y}}$$ $\frac{{1$ {"> " * 3000}
"""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A long discussion of eight rounds."""
    rounds = [
        [
            Turn(f"r{i}.s0", None, i, "solution", 0, "", said(SOLUTION)),
            Turn(f"r{i}.s0.e0", f"r{i}.s0", i, "evaluation", 1, "", said("word " * 250)),
        ]
        for i in range(8)
    ]
    turns = tuple(turn for both in rounds for turn in both)
    item = RewardedDiscussion(Discussion("step1/math/1/copy0", question(1), turns), (1.0, 0.0) * 8)
    folder = tmp_path_factory.mktemp("long")
    (folder / "long.html").write_text(
        page_text([run_source(write_run(folder, "long", {1: [item]}))])
    )
    return folder / "long.html"


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE])
def test_a_long_discussion_is_folded_under_a_strip_of_its_rounds(browser, long, viewport):
    for page in opened(browser, long, viewport):
        page.click("#tab-discussions")
        page.click(".row >> nth=0")
        page.wait_for_selector(".strip")
        assert page.locator(".strip tr").nth(3).inner_text().split() == ["reward", *"1" * 8]
        screens = page.evaluate("document.querySelector('.thread').scrollHeight / innerHeight")
        assert screens < 2.5 and page.locator(".fold[open]").count() == 0
        page.click(".strip button >> nth=3")
        assert page.locator("[data-turn='r3.s0'] > .fold[open]").count() == 1
        page.keyboard.press("n")
        page.keyboard.press("n")
        page.keyboard.press("N")
        assert page.evaluate("document.activeElement.closest('.turn').dataset.turn") == "r3.s0.e0"
        top = page.locator("[data-turn='r3.s0.e0'] summary").bounding_box()["y"]
        assert 0 < top < viewport["height"] / 2
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]


def test_markup_is_shown_and_nothing_that_a_model_says_is_run_or_lost(browser, long):
    for page in opened(browser, long):
        page.keyboard.press("d")
        page.click(".row >> nth=0")
        page.keyboard.press("n")  # fast, though each of thousands of "$$" may begin a formula
        shown = page.locator(".formatted").first
        assert shown.locator("strong").inner_text() == "Bold"
        assert shown.locator("math msup").count() == 1
        text = shown.inner_text()
        assert (
            HOSTILE in text
            and r"2*3*4 for $5 and $6, or 12\,345 $$$" in text
            and r"$\frac{1$" in text
        )
        assert page.locator(":is(img, a, [href]:not(link))").count() == 0
        page.keyboard.press("f")
        expect(page.locator(".formatted")).to_have_count(0)
        assert page.locator(".said").first.inner_text().strip() == SOLUTION.strip()
