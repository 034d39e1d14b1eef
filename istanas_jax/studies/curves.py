"""How accuracy grows over the time of a search, and how z comes to rest. Figure 2 of the paper."""

from istanas_jax.devices.parallel import from_leader
from istanas_jax.methods import ONE_STAGE, title_of
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import METRICS
from istanas_jax.runs.phases import Phase, without_stage
from istanas_jax.runs.progress import format_seconds
from istanas_jax.studies import plots
from istanas_jax.studies.base import Job, percent, table
from istanas_jax.studies.runs import RunStudy
from istanas_jax.training.search_accuracy import IMAGES

# The first of these keys that a row has is shown. Images of b train b, but no weights.
SHOWN = {"heldout_accuracy": IMAGES["heldout"], "b_accuracy": f"{IMAGES['b']}, as they train it"}


class CurvesStudy(RunStudy):
    title = "Search over time (the paper's Figure 2)"

    def jobs(self) -> list[Job]:
        jobs = [self.searches(method) for method in self.methods]
        if self.settings.one_stage:
            jobs += [self.one_stage(number) for number in range(self.seeds)]
        return jobs

    def results(self) -> dict:
        return {"rows": [row for method in self.all_methods for row in self._searches(method)]}

    def _searches(self, method: str) -> list[dict]:
        """A row per seed that has come to its first epoch's end."""
        rows = []
        for number in range(self.seeds):
            own = method != ONE_STAGE
            folder = f"{method}_search" if own else f"{method}_{number}"
            phases = [Phase("search", number)] if own else [Phase("search"), Phase("train")]
            if curve := _curve(self._rows(folder), phases):
                rows.append(
                    {"method": method, "seed": self.config.seed + number}
                    | curve
                    | {"commit": self.commit(folder)}
                )
        return rows

    def _rows(self, folder: str) -> list[dict]:
        path = self.folder / folder / METRICS
        return from_leader(metrics.read(path) if path.exists() else [])

    def markdown(self, results: dict) -> list[str]:
        head = ["method", "seed", "accuracy of", "last, %", "best, %", "epochs", "time"]
        head += ["distance of z: first epoch", "last", "commit"]
        words = (
            f"{self.budget()} The super-net on images that trained no weights of it, after each "
            "epoch; times are of this machine, without compiling. The distance of z is the mean "
            "over nodes of how far z went in an epoch; only ISTA-NAS has one. One-stage goes on "
            "with the fixed architecture."
        )
        return [words, table(head, [_line(row) for row in results["rows"]])]

    def plot(self, results: dict, path) -> None:
        plots.over_time(results["rows"], path)


def _curve(rows: list[dict], phases: list[Phase]) -> dict | None:
    """Minutes, accuracies and distances of z after each epoch of these phases."""
    rows = [row for phase in phases for row in rows if without_stage(row["phase"]) == phase.title]
    key = next((key for key in SHOWN if any(key in row for row in rows)), None)
    if key is None:
        return None
    minutes, before, so_far, last = [], 0.0, 0.0, None
    for row in rows:
        if row["phase"] != last:  # a new phase, whose clock begins at 0
            before, last = so_far, row["phase"]
        seconds = row["seconds"]
        so_far = before + seconds["total"] - seconds.get("compile", 0.0)
        minutes.append(so_far / 60)
    timed = list(zip(minutes, rows, strict=True))
    pairs = [(m, row[key]) for m, row in timed if key in row]
    moved = [(m, row["distance"]) for m, row in timed if "distance" in row]
    return {
        "of": SHOWN[key],
        "minutes": [m for m, _ in pairs],
        "accuracy": [a for _, a in pairs],
        "distance_minutes": [m for m, _ in moved],
        "distance": [d for _, d in moved],  # cells x nodes, per epoch
        "seconds": round(so_far, 1),
    }


def _line(row: dict) -> list[str]:
    distances = [_mean(nodes) for nodes in row["distance"]]
    return [
        title_of(row["method"]),
        f"{row['seed']}",
        row["of"],
        percent(row["accuracy"][-1]),
        percent(max(row["accuracy"])),
        f"{len(row['accuracy'])}",
        format_seconds(row["seconds"]),
        *(f"{d:.2g}" for d in (distances[:1] + distances[-1:])),
        *["-"] * (0 if distances else 2),
        row["commit"],
    ]


def _mean(nodes: list) -> float:
    values = [float(value) for cell in nodes for value in cell]
    return sum(values) / len(values)
