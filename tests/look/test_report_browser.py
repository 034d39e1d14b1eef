"""The pages of `report` in a real browser: opened from the disk, clicked and read."""

import json

import pytest
from browser import Browser, Missing
from report_runs import connection, make_run

from istanas_jax.look.report import compare, index, run_page

PHONE, DESKTOP = (390, 844), (1280, 900)
SPACE, RIGHT, END, CONTROL = " ", "\ue014", "\ue010", "\ue009"  # keys, as the protocol writes them


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    try:
        found = Browser(tmp_path_factory.mktemp("browser"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield found
    found.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs with spaces") / "digits"
    return make_run(folder, epochs=6, searches=2, classes=10)


@pytest.fixture(scope="module")
def written(run):
    return run_page.write(run)


@pytest.fixture
def page(browser, written):
    """The run's page, as it opens on a desktop; silent, and alone."""
    browser.size(*DESKTOP)
    browser.prefer(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
    browser.console(), browser.requests()
    browser.open(written)
    yield browser
    assert browser.console() == []
    assert browser.requests() == [written.as_uri()]


def frames(run, number=0):
    data = (run / "report.html").read_text().split('id="data">')[1].split("</script>")[0]
    return json.loads(data)["replays"][number]["frames"]


def labels(page):
    """The operations written in the replay's normal cell."""
    find = "#player figure .label"
    return page.run(f"[...document.querySelectorAll('{find}')].map((text) => text.textContent)")


def to_frame(page, number):
    page.run(
        "(() => { const s = document.querySelector('#player input[type=range]'); s.value = a[0];"
        "s.dispatchEvent(new Event('input')); })()",
        number,
    )


def text(page, selector):
    return page.run("document.querySelector(a[0]).textContent", selector)


def colour(page, selector="html", what="backgroundColor"):
    return page.run("getComputedStyle(document.querySelector(a[0]))[a[1]]", selector, what)


def test_slider_changes_cells_and_words(page, run):
    found = frames(run)
    number = next(i for i, frame in enumerate(found) if frame["changed"])
    to_frame(page, number - 1)
    before = labels(page)
    to_frame(page, number)
    assert labels(page) != before
    assert f"step {found[number]['step']:,}" in text(page, ".where")
    assert f"{number + 1} of {len(found)}" in text(page, ".where")
    cell, node, gone, come = found[number]["changed"][0]
    news = text(page, ".news")
    assert f"{('normal', 'reduction')[cell]} node {node}: " in news
    assert all(connection(flat) in news for flat in gone + come)
    assert page.run("document.querySelectorAll('#player .new.operation').length") == sum(
        len(come) for _, _, _, come in found[number]["changed"]
    )


def test_bars_are_z_and_the_line_is_the_threshold(page, run):
    frame = frames(run)[3]
    to_frame(page, 3)
    page.until("document.getAnimations().length === 0")
    for node in range(4):
        bars, lines = page.run(
            "(() => { const box = document.querySelectorAll('.node-z')[a[0]];"
            "return [[...box.querySelectorAll('rect')].map((r) => ['y', 'height', 'opacity'].map("
            "(k) => Number(r.getAttribute(k)))), [...box.querySelectorAll('.threshold')].map("
            "(l) => new DOMMatrix(getComputedStyle(l).transform).f)]; })()",
            node,
        )
        sparse = frame["z"][0][node]
        z = dict(zip(sparse[::2], sparse[1::2], strict=True))
        most = max(map(abs, z.values()))
        for flat, (y, height, opacity) in enumerate(bars):
            assert height == pytest.approx(40 * abs(z.get(flat, 0)) / most, abs=1e-3)
            assert (opacity == 1) == (flat in frame["picks"][0][node])
            assert z.get(flat, 0) <= 0 or y < 44
        picked = [bars[flat][1] for flat in frame["picks"][0][node]]
        assert lines == pytest.approx([-min(picked), min(picked)], abs=1e-3)


def test_line_widths_are_coefficients_and_frozen_nodes_are_marked(page, run):
    found = frames(run)
    to_frame(page, len(found) - 1)
    widths = page.run(
        "[...document.querySelector('#player figure').querySelectorAll('.operation')].map("
        "(g) => [Number(g.dataset.edge), Number(g.firstElementChild.nextElementSibling"
        ".getAttribute('stroke-width'))])"
    )
    weights = [abs(w) for node in found[-1]["w"][0] for w in node]
    for edge, width in widths:
        assert width == pytest.approx(1.2 + 4.8 * weights[edge] / max(weights), abs=0.006)
    shown = page.run(
        "[...document.querySelectorAll('#player .frozen')].map((g) => Number(g.dataset.node))"
    )
    expected = [
        node + 2 for cell in found[-1]["frozen"] for node, rests in enumerate(cell) if rests
    ]
    assert sorted(shown) == sorted(expected) != []
    bars = page.run("document.querySelectorAll('.timeline .rest').length")
    assert bars == len(expected)


def test_play_advances_pauses_and_ends(page, run):
    last = len(frames(run)) - 1
    assert text(page, ".play") == "▶ Play"
    page.click(".play")
    assert "Pause" in text(page, ".play")
    page.until("Number(document.querySelector('#player input[type=range]').value) >= 2")
    page.click(".play")
    assert text(page, ".play") == "▶ Play"
    to_frame(page, last - 1)
    page.keys("#player input[type=range]", SPACE)
    page.until(f"document.querySelector('#player input[type=range]').value === '{last}'")
    page.until("document.querySelector('.play').textContent === '▶ Play'")
    assert f"{last + 1} of {last + 1}" in text(page, ".where")


def test_keys_move_the_slider_and_another_search_is_another_replay(page, run):
    page.keys("#player input[type=range]", RIGHT + RIGHT)
    assert "3 of " in text(page, ".where")
    page.keys("#player input[type=range]", END)
    first = labels(page)
    page.run(
        "(() => { const s = document.querySelector('#player select'); s.value = 1;"
        "s.dispatchEvent(new Event('change')); })()"
    )
    assert "1 of " in text(page, ".where")
    page.keys("#player input[type=range]", END)
    assert labels(page) != first
    page.click(".timeline")  # in the middle
    middle = len(frames(run, 1)) // 2
    assert abs(int(text(page, ".where").split(" · ")[-1].split(" ")[0]) - 1 - middle) <= 2


def paste(page):
    """What is in the clipboard."""
    page.run(
        "(() => { document.getElementById('pasted')?.remove();"
        "document.querySelector('footer').append(el('textarea', { id: 'pasted' })); })()"
    )
    page.keys("#pasted", CONTROL + "v")
    return page.run("document.getElementById('pasted').value")


@pytest.mark.parametrize("notation", ["as-darts", "as-json", "as-indices"])
@pytest.mark.parametrize("clipboard", [True, False])
def test_copy_button(page, notation, clipboard):
    """Where the clipboard is refused, as it may be to a page from a disk, there is another way."""
    if not clipboard:
        page.run("(() => { navigator.clipboard.writeText = () => Promise.reject(); })()")
    button = f"[data-copy={notation}]"
    page.click(button)
    page.until(f"document.querySelector('{button}').textContent === 'Copied'")
    assert paste(page) == text(page, f"#{notation}") != ""


def test_theme_follows_the_system_until_one_is_chosen(page, written):
    light, node = colour(page), colour(page, "#cells .node:not(.end)", "fill")
    page.prefer(prefers_color_scheme="dark")
    dark, dark_node = colour(page), colour(page, "#cells .node:not(.end)", "fill")
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(13, 17, 23)")
    assert node != dark_node
    page.click(".theme label:nth-of-type(2)")
    assert (colour(page), colour(page, "#cells .node:not(.end)", "fill")) == (light, node)
    page.prefer(prefers_color_scheme="light")
    page.click(".theme label:nth-of-type(3)")
    assert colour(page) == dark
    page.run("location.reload()")
    page.until("document.readyState === 'complete' && document.querySelector('.chart .line')")
    assert colour(page) == dark
    assert page.requests() == [written.as_uri()] * 2
    page.click(".theme label:nth-of-type(1)")
    assert colour(page) == light
    page.open(written)


def test_charts_tell_their_values(page, run):
    page.until("document.querySelectorAll('.chart .line').length > 10")
    titles = page.run("[...document.querySelectorAll('.chart h3')].map((h) => h.textContent)")
    assert titles[:3] == ["Loss", "Accuracy (%)", "Distance of z"]
    page.keys(".chart svg[role=img]", RIGHT + RIGHT)
    tip = text(page, "#tip")
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    loss = [row["loss"] for row in rows if row["phase"] == "search 0"][1]
    assert tip.startswith("epoch 2") and f"{loss:.4g}" in tip
    assert page.run("document.querySelectorAll('.time-bar').length") == 3


@pytest.mark.parametrize("width, height", [PHONE, DESKTOP])
def test_nothing_sticks_out(page, width, height):
    page.size(width, height)
    page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.run("document.documentElement.scrollWidth") == width
    wide = page.run(
        "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.cell, .scroll, svg')"
        " && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 90))"
    )
    assert wide == []
    small = page.run(
        "Math.min(...[...document.querySelectorAll('#cells .label')].map("
        "(t) => t.getBoundingClientRect().height))"
    )
    assert small > 9  # pixels, of the operations' names


def test_reduced_motion(page, run):
    page.prefer(prefers_reduced_motion="reduce")
    to_frame(page, len(frames(run)) - 1)
    assert page.run("document.getAnimations().length") == 0


def test_comparison_and_index(browser, run, tmp_path):
    other = make_run(tmp_path / "runs" / "b", epochs=5, finished=False, replay=False)
    make_run(tmp_path / "runs" / "a", epochs=2)
    paths = [compare.write([run, other], tmp_path / "compared.html")]
    paths.append(index.write(tmp_path / "runs"))
    paths.append(tmp_path / "runs" / "b" / "report.html")  # written by the index, without a replay
    browser.console(), browser.requests()
    for path in paths:
        for width, height in (PHONE, DESKTOP):
            browser.size(width, height)
            browser.open(path)
            assert browser.run("document.documentElement.scrollWidth") == width
            assert browser.console() == [], path
            assert browser.requests() == [path.as_uri()]
    browser.open(paths[0])
    browser.until("document.querySelectorAll('.chart .line').length > 4")
    legend = (
        "[...document.querySelectorAll('.chart .legend')[0].children].map((l) => l.textContent)"
    )
    assert browser.run(legend) == ["digits", "b"]
    names = "[...document.querySelectorAll('#results tbody th')].map((cell) => cell.textContent)"
    assert browser.run(names) == ["digits", "b"]
    browser.click("#results th:nth-child(5) button")  # time, as a number
    assert browser.run(names) == ["b", "digits"]
    browser.open(paths[1])
    names = "[...document.querySelectorAll('tbody a')].map((a) => a.textContent)"
    assert browser.run(names) == ["a", "b"]
    browser.click("thead th:nth-child(6) button")  # time
    assert browser.run(names) == ["a", "b"]
    browser.click("thead th:nth-child(6) button")
    assert browser.run(names) == ["b", "a"]
    browser.click("thead th:nth-child(4) button")  # accuracy: those without come last
    assert browser.run(names) == ["a", "b"]
    browser.click("tbody a")
    browser.until("document.querySelector('h1').textContent === 'a'")
    assert browser.run("location.href").endswith("/runs/a/report.html")
