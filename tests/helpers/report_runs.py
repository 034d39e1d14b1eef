"""For the tests of `report`: folders as runs leave them, without running one; pages taken apart."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from istanas_jax.networks.target_net import TargetNet
from istanas_jax.schedules import watch
from istanas_jax.schedules.results import sizes_of
from istanas_jax.space.genotype import Genotype
from istanas_jax.space.spaces import DARTS

ACTIVITIES = ("compile", "data", "step", "recovery", "checkpoint", "evaluation")


def config(schedule="two_stage", *, epochs=4, runs=1, nodes=4, **data) -> dict:
    """What config.json holds, as far as a report looks at it."""
    net = {"stem": "cifar", "cells": 5, "channels": 16, "dtype": "float32", "epochs": epochs}
    images = {"name": "digits", "classes": 10, "image_size": 8, "image_channels": 1} | data
    whole = {"schedule": schedule, "seed": 0, "data": images, "architecture": {"nodes": nodes}}
    if schedule != "retrain":
        whole["search"] = net | ({"runs": runs} if schedule == "two_stage" else {})
    whole["train"] = net | {"runs": 1, "one_stage_norms": False}
    return whole


def recoveries(seed=0, *, epochs=4, per_epoch=3, nodes=4, s=2, steps=120) -> list[dict]:
    """Rows of replay.jsonl: b walks ever more slowly, z is its projection with few entries left."""
    rng = np.random.default_rng(seed)
    n, m = replace(DARTS, nodes=nodes).max_candidates, 7
    A = rng.random((2, nodes, m, n)) - 0.5
    b = 0.02 * rng.standard_normal((2, nodes, m))
    pull = rng.standard_normal((2, nodes, m))
    frozen, before, rows = np.zeros((2, nodes), bool), None, []
    for number in range(epochs * per_epoch + 1):
        pace = 0.9 ** (16 * number / (epochs * per_epoch))
        moved = 0.08 * pace * (pull + 2 * rng.standard_normal(b.shape))
        b = np.where(frozen[..., None], b, b + moved)
        z = np.einsum("cjm,cjmn->cjn", b, A)
        for node in range(nodes):
            z[:, node, DARTS.num_candidates(node) :] = 0
        z[np.abs(z) < np.sort(np.abs(z))[..., -m:][..., :1]] = 0
        support = np.argsort(-np.abs(z))[..., :s]
        change = z - (z if before is None else before)
        distance = np.linalg.norm(change, axis=-1)
        at_epoch = number % per_epoch == 0
        if at_epoch and number > epochs * per_epoch // 3:
            frozen = frozen | (distance < np.quantile(distance, 0.15 + 0.5 * (1 - pace)))
        row = {
            "phase": f"search {seed}",
            "step": number * steps // per_epoch,
            "epoch": number // per_epoch,
            "z": z.round(7).tolist(),
            "support": support.tolist(),
            "coefficients": np.take_along_axis(z, support, -1).round(7).tolist(),
            "frozen": frozen.tolist(),
            "distance": distance.round(7).tolist(),
            "changed": np.zeros((2, nodes), bool).tolist(),
            "kkt": (1e-4 * rng.random((2, nodes))).tolist(),
            "budget_decided": False,
        }
        row |= watch.seen(row["support"])
        rows.append(row)
        before = z
    return rows


def epochs_of(phase: str, epochs: int, steps=120) -> list[dict]:
    """Rows of metrics.jsonl."""
    rng = np.random.default_rng(sum(map(ord, phase)))
    rows = []
    for epoch in range(1, epochs + 1):
        seconds = {
            activity: round(epoch * (9.0 if activity == "step" else 0.3), 3)
            for activity in ACTIVITIES
        }
        seconds |= {"compile": 25.0, "total": round(25 + 11.0 * epoch, 3)}
        loss = 2.3 * 0.93**epoch + 0.05 * rng.random()
        row = {"phase": phase, "step": epoch * steps, "epoch": epoch, "loss": loss}
        row |= {"accuracy": 1 - loss / 3, "heldout_accuracy": 0.95 - loss / 3}
        row |= {"learning_rate": 0.05 * (1 + np.cos(np.pi * epoch / epochs)) / 2}
        row |= {"images_per_second": 110 + 8 * rng.random(), "seconds": seconds}
        if phase.startswith("search"):
            row |= {"weight_free_normal": epoch, "weight_free_reduction": 2}
            row["distance"] = (0.1 * 0.9**epoch * (0.2 + rng.random((2, 4)))).tolist()
        rows.append(row)
    return rows


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_run(
    folder: Path, *, epochs=4, per_epoch=3, searches=1, nodes=4, finished=True, replay=True, **data
) -> Path:
    """A two-stage run, in the middle of its training unless it is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = config(epochs=epochs, runs=searches, nodes=nodes, **data)
    (folder / "config.json").write_text(json.dumps(whole))
    rows, moves = [], []
    for number in range(searches):
        rows += epochs_of(f"search {number}", epochs)
        found = recoveries(number, epochs=epochs, per_epoch=per_epoch, nodes=nodes)
        moves += found
        genotype = Genotype.from_supports(*found[-1]["support"]).to_dict()
        stored = {"seed": number, "genotype": genotype, "accuracy": 0.9}
        stored["accuracy_of"] = "b"
        stored |= {"coefficients": found[-1]["coefficients"], "seconds": rows[-1]["seconds"]}
        (folder / f"search_{number}.json").write_text(json.dumps(stored))
    (folder / "genotype.json").write_text(json.dumps(genotype))
    rows += epochs_of("retrain 0", epochs if finished else max(1, epochs // 2))
    write_rows(folder / "metrics.jsonl", rows)
    if replay:
        write_rows(folder / "replay.jsonl", moves)
    net = TargetNet(Genotype.from_dict(genotype), whole["data"]["classes"], cells=5, channels=16)
    net = net.clone(image_channels=whole["data"]["image_channels"])
    (folder / "sizes.json").write_text(json.dumps(sizes_of(net, whole["data"]["image_size"])))
    if finished:
        stored = {"seed": 0, "test_accuracy": 0.9889, "seconds": rows[-1]["seconds"]}
        (folder / "retrain_0.json").write_text(json.dumps(stored))
        result = {"schedule": "two_stage", "test_accuracy": 0.9889, "test_top5_accuracy": 1.0}
        result |= {"test_accuracy_deviation": 0.0012, "seeds": [0, 1], "parameters": 72730}
        result |= {"genotype": genotype, "seconds": {}}
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def connection(flat: int) -> str:
    """As the page names it."""
    operation, source = DARTS.connection(flat)
    return f"{operation}({['cₖ₋₂', 'cₖ₋₁'][source] if source < 2 else f'node {source - 2}'})"


VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """A page taken apart; fails where an element is not closed."""

    def __init__(self, text: str):
        super().__init__()
        self.text, self.open, self.tags, self.data = text, [], [], {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, name, attributes):
        attributes = dict(attributes)
        self.tags.append((name, attributes))
        if name not in VOID:
            self.open.append((name, attributes.get("id")))

    def handle_startendtag(self, name, attributes):
        self.tags.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, text):
        for _, key in self.open:
            if key:
                self.data[key] = self.data.get(key, "") + text

    def of(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]

    @property
    def json(self):
        return json.loads(self.data["data"])


def read(path) -> Page:
    return Page(path.read_text())
