"""The few calls that a notebook needs; `import istanas_jax` offers them.

import istanas_jax as ista

run = ista.run_schedule("configs/digits.py", "runs/digits")
run.result["test_accuracy"], run.genotype
ista.draw_cell(run.genotype, "normal", run.coefficients)
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from etils import epath
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from istanas_jax.config.files import load_config
from istanas_jax.deploy import predict
from istanas_jax.look import drawing
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import CONFIG, GENOTYPE, METRICS, REPLAY, RESULT, Workdir
from istanas_jax.runs.trained_network import Trained, load_trained
from istanas_jax.schedules import one_stage, retrain, two_stage
from istanas_jax.space.connections import CELL_TYPES
from istanas_jax.space.genotype import Genotype, in_order_of, load
from istanas_jax.sparse_coding.architecture import ArchState, coefficients
from istanas_jax.sparse_coding.lasso import solve_nodes, top_support
from istanas_jax.storage.checkpoint_files import absolute
from istanas_jax.training.replay_row import ReplayRow

DRIVERS: dict[str, Callable[[ConfigDict, str], dict]] = {
    "two_stage": two_stage.run,
    "one_stage": one_stage.run,
    "retrain": retrain.run,
}


@dataclass(frozen=True)
class Run:
    """A run's folder, whether it is finished or not.

    >>> run = load_run("runs/digits")
    >>> run.config["schedule"]
    'two_stage'
    >>> rows = run.metrics()
    """

    path: epath.Path

    @property
    def config(self) -> dict:
        """The config that the run was started with."""
        return self._read(CONFIG)

    @property
    def result(self) -> dict | None:
        """Accuracy, size and time; None as long as it is not finished."""
        return self._read(RESULT)

    @property
    def genotype(self) -> Genotype | None:
        """The cells found, or given; None as long as none are."""
        found = self._read(GENOTYPE)
        return None if found is None else Genotype.from_dict(found)

    @property
    def coefficients(self) -> list[list[list[float]]] | None:
        """Coefficients of each cell's nodes, in the genotype's order; None: no search gave them."""
        genotype = self.genotype
        for file in sorted(self.path.glob("search_*.json")):
            found = self._read(file.name)
            if Genotype.from_dict(found["genotype"]) == genotype:
                return in_order_of(genotype, found["coefficients"])
        return None

    def metrics(self) -> list[dict]:
        """A row per epoch of each phase."""
        return self._rows(METRICS)

    def replay(self) -> list[ReplayRow]:
        """A row per recovery: z, support, coefficients and frozen nodes."""
        return self._rows(REPLAY)

    def network(self, number: int = 0) -> Trained:
        """The trained network: `net.apply(variables, images, train=False)` gives logits."""
        return load_trained(self.path, number)

    def classify(self, images: list[str], top: int = 3) -> list[predict.Prediction]:
        """Name the likeliest classes of image files, prepared as the test images were."""
        return list(predict.predict(self.path, images, top=top))

    def _rows(self, name: str) -> list[dict]:
        file = self.path / name
        return metrics.read(file) if file.exists() else []

    def _read(self, name: str):
        return Workdir(self.path).read(name)

    def _repr_html_(self) -> str:
        """The result and both cells, as a notebook shows them."""
        result, genotype = self.result, self.genotype
        words = f"{100 * result['test_accuracy']:.2f} % test accuracy" if result else "not finished"
        cells = ""
        if genotype is not None:
            weights = self.coefficients
            pair = (None, None) if weights is None else weights
            cells = "".join(
                drawing.cell_svg(genotype, cell_type, coefficients=values)
                for cell_type, values in zip(CELL_TYPES, pair, strict=True)
            )
        return f"<p>{words}</p>{cells}"


def run_schedule(config: str | ConfigDict, workdir: str | os.PathLike) -> Run:
    """Algorithm 1 and retraining, or Algorithm 2, from images to a trained network.

    Args:
      config: a config, or the file of one: "configs/digits.py:one_stage".
      workdir: a folder; a run that was begun in it goes on.

    >>> run = run_schedule("digits", "runs/digits")
    >>> cells, result = run.genotype, run.result
    """
    config = _config(config)
    DRIVERS[config.schedule](config, workdir)
    return load_run(workdir)


def run_search(config: str | ConfigDict, workdir: str | os.PathLike) -> Run:
    """Algorithm 1: find a genotype by a two-stage config, without training it.

    >>> run = run_search("digits", "runs/search")
    >>> picture = draw_cell(run.genotype, "normal", run.coefficients)
    """
    two_stage.search(_config(config), workdir)
    return load_run(workdir)


def run_retrain(
    config: str | ConfigDict,
    genotype: Genotype | str,
    workdir: str | os.PathLike,
    *,
    one_stage: bool = False,
    runs: int | None = None,
) -> Run:
    """Train given cells from scratch and test them.

    Args:
      config: its `retrain` part is used, or the `train` part of a one-stage config.
      genotype: the cells, or a published name, a file, JSON, DARTS text, `random:SEED`.
      one_stage: whether the network has the batch norms of one-stage cells.
      runs: number of seeds; by default the config's.

    >>> run = run_retrain("digits", "ISTA_twostage", "runs/cell", runs=2)
    """
    text = genotype if isinstance(genotype, str) else genotype.to_json()
    retrain.run(retrain.config_for(_config(config), text, one_stage=one_stage, runs=runs), workdir)
    return load_run(workdir)


def load_run(path: str | os.PathLike) -> Run:
    """Open the run that is in this folder.

    >>> load_run("runs/digits").config["seed"]
    0
    >>> load_run("elsewhere")
    Traceback (most recent call last):
    ValueError: there is no run in elsewhere
    """
    run = Run(absolute(path))  # a notebook may change its folder
    if not (run.path / CONFIG).exists():
        raise ValueError(f"there is no run in {path}")
    return run


class Drawing(str):
    """The text of an SVG, which a notebook shows as a picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def draw_cell(
    genotype: Genotype | str,
    cell_type: str = "normal",
    coefficients: list[list[list[float]]] | None = None,
) -> Drawing:
    """A cell, "normal" or "reduction", as SVG; lines are as wide as coefficients are large.

    >>> picture = draw_cell("ISTA_twostage", "reduction")
    >>> picture.startswith("<svg")
    True
    """
    genotype = load(genotype) if isinstance(genotype, str) else genotype
    if coefficients is not None and cell_type in CELL_TYPES:
        coefficients = coefficients[CELL_TYPES.index(cell_type)]
    return Drawing(drawing.cell_svg(genotype, cell_type, coefficients=coefficients))


class Node(NamedTuple):
    """What a node's b stands for."""

    z: Float[Array, " n"]  # Eq. (z), the solution of the LASSO
    support: Int[Array, " s"]  # its s largest entries, strongest first
    coefficients: Float[Array, " s"]  # Eq. (network_s), what these connections are weighted by
    kkt: float  # largest violation of the optimality conditions, relative to lambda
    certified: bool  # whether z is the solution


def recover_z(
    b: Float[Array, " m"], A: Float[Array, "m n"], *, lam: float = 1e-5, s: int = 2
) -> Node:
    """Algorithm 1, line 2: from the compressed b of a node to its sparse connections.

    >>> import numpy as np
    >>> node = recover_z(b=[0.5, -2.0, 0.0], A=np.eye(3), lam=0.1)
    >>> node.z
    Array([ 0.4, -1.9,  0. ], dtype=float32)
    >>> node.support
    Array([1, 0], dtype=int32)
    >>> node.certified
    True
    """
    A, b = (jnp.asarray(x, jnp.float32)[None, None] for x in (A, b))
    z = jnp.zeros((1, 1, A.shape[-1]))
    code = solve_nodes(A, b, lam, z0=z)
    support = top_support(code.z, s, exists=jnp.any(A != 0, axis=-2))
    arch = ArchState(b=b, A=A, z=code.z, support=support, frozen=jnp.zeros((1, 1), bool))
    return Node(
        code.z[0, 0],
        support[0, 0],
        coefficients(arch)[0, 0],
        float(code.kkt[0, 0]),
        bool(code.converged.all()),
    )


def _config(config: str | ConfigDict) -> ConfigDict:
    return load_config(config) if isinstance(config, str) else config
