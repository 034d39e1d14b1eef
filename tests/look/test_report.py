"""The pages of `report`, read as text: what is in them, of whatever runs."""

import json
import re
import shutil

import numpy as np
import pytest
from report_runs import config, epochs_of, make_run, read, write_rows

from istanas_jax.api import load_run
from istanas_jax.cli.main import main
from istanas_jax.config.files import load_config
from istanas_jax.look import drawing
from istanas_jax.look.report import compare, index, run_page
from istanas_jax.look.report.facts import gather
from istanas_jax.look.report.html import Html, embed, tag
from istanas_jax.look.report.series import charts
from istanas_jax.look.report.series import time as time_spent
from istanas_jax.space.genotype import Genotype, load
from istanas_jax.storage.checkpoints import Checkpoints

EVIL = '<img src=x onerror="alert(1)">&</script>'


def test_needs_nothing_but_itself(page):
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page.text)
    assert not page.of("img") and not page.of("iframe")
    assert [link["href"] for link in page.of("link")] == ["data:,"]
    assert all("src" not in script for script in page.of("script"))
    policy = next(m["content"] for m in page.of("meta") if m.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "eval(" not in page.text and "innerHTML" not in page.text
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)


def test_order_of_what_matters(page):
    sections = [attributes.get("id", "hero") for attributes in page.of("section")]
    assert sections == ["hero", "cells", "replay", "curves", "time"]
    folds = [attributes.get("id") for attributes in page.of("details")][2:]  # after the words
    assert folds == ["genotype", "commands", "searches", "sizes", "config", "versions"]
    assert "98.89 %" in page.text and "± 0.12 over 2 seeds" in page.text
    assert "Two-stage search on digits, 8 × 8 pixels, 10 classes: 2 searches of 4" in page.text


def test_final_cells_have_every_edge_and_its_width(run, page):
    genotype = load(run / "genotype.json")
    before_templates = page.text[: page.text.index("<template")]
    cells = re.findall(r"<svg[^>]*istanas-cell.*?</svg>", before_templates, re.S)
    assert len(cells) == 2
    for cell, text in zip((genotype.normal, genotype.reduce), cells, strict=True):
        lines = re.findall(r'<g class="operation".*?</g>', text, re.S)
        assert len(lines) == sum(map(len, cell)) == 8
        widths = [float(re.search(r'stroke-width="([\d.]+)"', line)[1]) for line in lines]
        assert max(widths) == drawing.THICK > min(widths) >= drawing.THIN
        assert len(re.findall("data-node=", text)) == len(cell) + 3


def test_genotype_in_three_notations(run, page):
    genotype = load(run / "genotype.json")
    assert Genotype.from_text(page.data["as-darts"]) == genotype
    assert Genotype.from_json(page.data["as-json"]) == genotype
    call = r"Genotype\.from_supports\(normal=(.*), reduce=(.*)\)"
    supports = map(json.loads, re.fullmatch(call, page.data["as-indices"]).groups())
    assert Genotype.from_supports(*supports) == genotype
    copied = {attributes["data-copy"] for _, attributes in page.tags if "data-copy" in attributes}
    assert {"as-darts", "as-json", "as-indices", "resume", "retrain", "export"} < copied


def test_published_cells_without_indices(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config("retrain")))
    genotype = load("AmoebaNet_A")
    (tmp_path / "genotype.json").write_text(genotype.to_json())
    page = read(run_page.write(tmp_path))
    assert "as-indices" not in page.data
    assert "node 0 = " in page.data["as-words"]
    assert "replay" not in [attributes.get("id") for attributes in page.of("section")]


@pytest.mark.parametrize(("holdout", "images"), [(0.0, "images of b"), (0.1, "held-out images")])
def test_accuracies_are_named_by_their_images(tmp_path, holdout, images):
    """Also of a search whose file, of an earlier version, calls its accuracy held-out."""
    make_run(tmp_path, finished=False, holdout_fraction=holdout)
    file = tmp_path / "search_0.json"
    stored = json.loads(file.read_text())
    stored["heldout_accuracy"] = stored.pop("accuracy")
    del stored["accuracy_of"]
    file.write_text(json.dumps(stored))
    assert f"90.00 % ({images})" in read(run_page.write(tmp_path)).data["searches"]


def test_a_search_in_stages(tmp_path):
    """Its time is that of its stages, counted once; their epochs are the method's own."""
    make_run(tmp_path, finished=False)
    whole = json.loads((tmp_path / "config.json").read_text())
    whole["search"] |= {"method": "pdarts", "pdarts": {"epochs": 25}}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    stages = [epochs_of(f"search 0 stage {number}", 2) for number in (1, 2)]
    write_rows(tmp_path / "metrics.jsonl", [row for rows in stages for row in rows])
    before = gather(tmp_path)
    spent = before.ended["search 0"]["seconds"]["total"]
    assert before.total_seconds == spent
    (tmp_path / "search_0.json").unlink()
    assert gather(tmp_path).total_seconds == sum(rows[-1]["seconds"]["total"] for rows in stages)
    assert ("epochs of search 0 stage 2", "2 of 25", "") in run_page.headline(gather(tmp_path))


def test_numbers_of_the_charts(run):
    facts = gather(run)
    found = {(chart["part"], chart["title"]): chart for chart in charts(facts)}
    loss = found["search", "Loss"]["lines"]
    assert [line["phase"] for line in loss] == ["search 0", "search 1"]
    rows = [row for row in facts.rows if row["phase"] == "search 0"]
    assert loss[0]["y"] == pytest.approx([row["loss"] for row in rows], rel=1e-4)
    assert {line["name"] for line in found["retrain", "Accuracy"]["lines"]} == {
        "training",
        "held-out",
    }
    distance = found["search", "Distance of z"]["lines"][0]
    assert all(map(lambda a, b, c: a < b < c, distance["low"], distance["y"], distance["high"]))
    assert found["search", "Device waiting, at most"]["lines"][0]["y"][1] == pytest.approx(
        100 * 2 / 11, rel=1e-3
    )
    assert ("retrain", "Distance of z") not in found
    (first, *_) = time_spent(facts)
    assert first["parts"]["step"] == rows[-1]["seconds"]["step"]
    assert sum(first["parts"].values()) == pytest.approx(first["total"])


def test_sizes_add_up(run, page):
    facts = gather(run)
    cells = re.findall(r"<tr><th scope=\"row\">cell (\d).*?<td>([\d,]+)</td>", page.text)
    assert [int(number) for number, _ in cells] == list(range(5))
    whole = sum(int(count.replace(",", "")) for _, count in cells)
    assert whole == sum(cell["parameters"] for cell in facts.sizes["cells"])
    assert whole < facts.sizes["parameters"]


def test_what_differs_from_the_config_file(tmp_path):
    run = make_run(tmp_path / "run")
    started = {"command": ["python", "-m", "istanas_jax", "run", "--workdir", "my runs"]}
    started |= {"config": "mine.py:small", "overrides": ["--config.search.epochs=4"]}
    started |= {"versions": {"jax": "9.9"}, "commit": "abc123", "xla_flags": "--xla_a=1"}
    started |= {"defaults": config(epochs=9)}
    (run / "started.json").write_text(json.dumps(started))
    page = read(run_page.write(run))
    assert "2 of " in page.data["config"] and "differ from mine.py" in page.data["config"]
    assert page.text.count("<mark>4</mark>") == 2
    assert page.data["resume"] == "python -m istanas_jax run --workdir 'my runs'"
    assert "--config mine.py:small --config.search.epochs=4 --genotype" in page.data["retrain"]
    assert all(text in page.data["versions"] for text in ("9.9", "abc123", "--xla_a=1"))
    (run / "started.json").write_text(json.dumps(started | {"defaults": config(epochs=4)}))
    assert "All as in mine.py" in read(run_page.write(run)).data["config"]
    for nothing in (None, [1]):
        (run / "started.json").write_text(json.dumps(started | {"defaults": nothing}))
        assert "did not record the defaults" in read(run_page.write(run)).data["config"]


def test_looking_runs_no_code_of_the_folder(tmp_path, capsys):
    """Whatever files a folder names, and wherever they are: they are not run."""
    trap, sprung = tmp_path / "trap.py", tmp_path / "sprung"
    trap.write_text(f"import pathlib\npathlib.Path({str(sprung)!r}).touch()\n1 / 0\n")
    runs = [make_run(tmp_path / "runs" / name) for name in ("a", "b")]
    for run, spec in zip(runs, (str(trap), f"{trap}:tiny"), strict=True):
        shutil.copy(trap, run / "config.py")
        started = {"config": spec, "command": ["python", str(trap)], "overrides": []}
        (run / "started.json").write_text(json.dumps(started))
        about = {"phase": "search 0", "epoch": 1, "notes": {}, "finished": False}
        with Checkpoints(run / "checkpoints" / "search_0", keep=1, every_minutes=60) as saved:
            saved.save(4, {"params": {"stem": np.arange(3.0)}}, about=about)
    (one, other) = map(str, runs)
    comparison = ["--out", str(tmp_path / "c.html")]
    for command in (
        ["report", one],
        ["report", one, other, *comparison],
        ["report", str(tmp_path / "runs")],
        ["inspect", one],
        ["inspect", "--diff", f"{one}/checkpoints/search_0", f"{other}/checkpoints/search_0"],
    ):
        assert main(command) == 0, capsys.readouterr().err
        assert not sprung.exists(), command
    loaded = load_run(one)
    assert (loaded.config, loaded.result) and loaded._repr_html_() and loaded.metrics()
    assert not sprung.exists()
    with pytest.raises(Exception, match="division"):
        load_config(str(trap))
    assert sprung.exists()  # the trap works


def test_no_text_becomes_code(tmp_path):
    run = make_run(tmp_path / "a<b>&c", name=EVIL)
    (run / "started.json").write_text(json.dumps({"config": EVIL, "overrides": [EVIL]}))
    rows = epochs_of(f"search {EVIL}", 2)
    write_rows(run / "metrics.jsonl", rows)
    for path in (run_page.write(run), compare.write([run, run], tmp_path / "c.html")):
        page = read(path)
        assert "<img" not in page.text
        assert not page.of("img")
    assert page.json["charts"][0]["lines"][0]["phase"] == f"search {EVIL}"
    listed = read(index.write(tmp_path))
    assert not listed.of("b")
    assert listed.of("a")[0]["href"] == "./a%3Cb%3E%26c/report.html"
    assert embed({"a": EVIL}).count("<") == 0
    assert tag("p", EVIL, Html("<b>"), title=EVIL).count("<") == 3
