"""Modules import downwards only, and each outside library in the places meant for it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "istanas_jax"
# A module may import modules of lower levels, and of its own level.
LEVELS = [
    set(names.split())
    for names in (
        "xla_settings files search_space genotype genotype_check published judge "
        "cell_layout drawing ascii_cells",
        "sparse_coding active_set architecture",
        "platforms kernels batch_norm ops slots cells target_net super_cell dense supernet "
        "selection interop describe describe_all "
        "bn_absorption folding budget",
        "config_bounds preparation exported run_files memory dry_run "
        "fingerprints set_aside search_accuracy "
        "data data_prepare npz streaming jpeg image_sources augment distributed parallel "
        "train_state optimizers steps search_steps methods.base methods.ista methods.tables "
        "methods.darts methods.pc_darts methods.snas methods.nasp methods.pdarts "
        "methods.random_search recipes evaluation checkpoint_files quiet_orbax "
        "checkpoint_reading checkpoints compiled_programs provenance metrics "
        "progress curves workdir config_check config_files interrupts session trained loop search "
        "training export predict outline hlo plan plan_table inspection.figures inspection.arch "
        "inspection.diff inspection.files inspection.table report.run_page report.facts "
        "report.html report.replay report.series report.folds report.compare report.index "
        "judge_fit judge_runs "
        "bench.recovery bench.step bench.memory bench.loop bench.data bench.switch bench.methods "
        "bench.documented bench.same bench.damage bench.torture",
        "two_stage one_stage retrain",
        "studies.names studies.check studies.stats studies.paper studies.base studies.runs "
        "studies.figures studies.cost studies.cell studies.correlation "
        "studies.accuracy studies.curves",
        "api cli cli_runs cli_look cli_bench cli_study __main__",
    )
]
NO_JAX = LEVELS[0]
DRIVERS = LEVELS[4]  # never import each other
NETWORKS = LEVELS[2]  # take support and coefficients as arrays: they know no sparse coding
ONLY_IN = {
    "jaxopt": {"sparse_coding"},
    "orbax": {"checkpoints"},
    "tensorstore": {"checkpoint_files"},
    "tensorflow_datasets": {"image_sources"},
    "cv2": {"image_sources", "jpeg"},
    "grain": {"streaming"},
    "simplejpeg": {"jpeg"},
    "matplotlib": {"curves", "studies.figures"},
    "safetensors": {"export"},
    "scipy": {"judge_fit", "studies.stats"},
    "torch": set(),
    "tensorflow": set(),
}


def level(module: str) -> int:
    for number, modules in enumerate(LEVELS):
        if module in modules:
            return number
    raise AssertionError(f"{module} has no level: add it to LEVELS where it belongs")


def modules() -> dict[str, Path]:
    files = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if path.name != "__init__.py":
            files[name] = path
    return files


def imported(path: Path) -> set[str]:
    """Dotted names of everything the file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports(module):
    known = modules()
    for name in imported(known[module]):
        root = name.split(".")[0]
        if root == "istanas_jax":
            target = name.removeprefix("istanas_jax.")
            while target and target not in known:
                target = target.rpartition(".")[0]
            if target:
                assert level(target) <= level(module), f"{module} imports {target} above it"
                assert not (module in NETWORKS and target in LEVELS[1]), f"{module}: {target}"
                assert not (module in DRIVERS and target in DRIVERS), f"{module}: {target}"
        if module in NO_JAX:
            assert root not in ("jax", "flax", "numpy", "optax"), f"{module} imports {root}"
        assert module in ONLY_IN.get(root, {module}), f"{module} imports {root}"


def test_pmap_is_in_one_place():
    users = {name for name, path in modules().items() if "pmap(" in path.read_text()}
    assert users == {"parallel"}
