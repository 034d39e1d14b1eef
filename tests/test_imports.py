"""Packages import downwards only, and each outside library in the places meant for it."""

import ast
from pathlib import Path

import pytest
from places import ROOT

PACKAGE = ROOT / "istanas_jax"
# A package may import those before it; modules at the top level, `api` among them, any.
ORDER = [
    "space",
    "devices",
    "storage",
    "judge",
    "sparse_coding",
    "networks",
    "data",
    "training",
    "methods",
    "config",
    "runs",
    "look",
    "schedules",
    "deploy",
    "plan",
    "bench",
    "studies",
    "cli",
]
ONLY_IN = {
    "jaxopt": {"sparse_coding.lasso"},
    "orbax": {"storage.checkpoints"},
    "tensorstore": {"storage.checkpoint_files"},
    "tensorflow_datasets": {"data.sources.tfds"},
    "cv2": {"data.sources.tfds", "data.decoding"},
    "grain": {"data.streaming"},
    "simplejpeg": {"data.decoding"},
    "matplotlib": {"look.curves", "studies.plots", "bench.costs.grow_plot"},
    "safetensors": {"deploy.export"},
    "scipy": {"judge.fit", "studies.stats"},
    # Only where it is installed.
    "torch": {"deploy.pytorch_source", "deploy.latency", "bench.costs.torch_operations"},
    "wandb": {"runs.writers.wandb"},
    "mlflow": {"runs.writers.mlflow"},
    "onnx": {"deploy.onnx_model"},
    "onnxruntime": {"deploy.onnx_model", "deploy.latency"},
    "tensorflow": set(),
}
DRIVERS = {f"schedules.{name}" for name in ("two_stage", "one_stage", "retrain")}


def modules() -> dict[str, Path]:
    """Files by dotted name; a package's own file has the name of the package."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


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


def own(names: set[str], known: dict[str, Path]) -> dict[str, str]:
    """The imported names that are this package's, each with the module it is found in."""
    found = {}
    for name in names:
        if name.split(".")[0] == "istanas_jax":
            module = name.removeprefix("istanas_jax").lstrip(".")
            while module and module not in known:
                module = module.rpartition(".")[0]
            found[name] = module
    return found


def test_every_folder_has_a_place():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ORDER)
    for file in PACKAGE.rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(file.read_text()))
        assert text, f"{file.parent.name} does not say what lives in it"


@pytest.mark.parametrize("module", sorted(set(modules()) - {""}))
def test_imports(module):
    known = modules()
    package = module.split(".")[0]
    names = imported(known[module])
    for name, target in own(names, known).items():
        above = target.split(".")[0]
        if package in ORDER and above in ORDER:
            assert ORDER.index(above) <= ORDER.index(package), f"{module} imports {name}"
        assert not (module in DRIVERS and target in DRIVERS - {module}), f"{module}: {target}"
        assert not (package == "networks" and above == "sparse_coding"), f"{module}: {target}"
    roots = {name.split(".")[0] for name in names}
    if package == "space":
        assert not roots & {"jax", "flax", "numpy", "optax"}
    for root in roots & ONLY_IN.keys():
        assert module in ONLY_IN[root], f"{module} imports {root}"


def test_no_import_cycles():
    known = modules()
    edges = {name: set(own(imported(path), known).values()) for name, path in known.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for target in edges[module] - {module, ""}:
                visit(target, (*path, module))
            done.add(module)

    for name in known:
        if name:
            visit(name, ())


def test_pmap_is_in_one_place():
    users = {name for name, path in modules().items() if "pmap(" in path.read_text()}
    assert users == {"devices.parallel"}
