"""The launch scripts: what they run, and one line where they cannot work."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

# A Python whose environments are made at once: their programs write down how they were called.
PYTHON = """\
#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin"
  for program in pip python; do
    printf '#!/bin/sh\\nfor word in "%s" "$@"; do echo "$word"; done >>calls\\n' $program \\
      >"$3/bin/$program"
    chmod +x "$3/bin/$program"
  done
fi
"""


@pytest.fixture
def checkout(tmp_path):
    """Enough of a checkout to build an environment in."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(checkout: Path, script="local.sh", arguments=("--help",), **env):
    return subprocess.run(
        ["bash", f"launch/{script}", *arguments],
        cwd=checkout,
        env=os.environ | env,
        capture_output=True,
        text=True,
    )


def gpu(checkout: Path, says: str) -> dict[str, str]:
    """The environment for cuda.sh, with an nvidia-smi and a Python that take no time."""
    program(checkout / "bin" / "nvidia-smi", f"#!/bin/sh\necho nvidia-smi >>calls\n{says}\n")
    python = program(checkout / "bin" / "fake_python", PYTHON)
    return {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "PYTHON": str(python)}


def calls(checkout: Path) -> list[str]:
    file = checkout / "calls"
    return file.read_text().splitlines() if file.exists() else []


def test_old_python_is_said(checkout):
    old = program(checkout / "old_python", "#!/bin/sh\nexit 1\n")
    result = run(checkout, PYTHON=str(old))
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "needs Python 3.11 or newer" in result.stderr


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ((11, 12, 13, 14), "python3.12"),
        ((11, 13, 14), "python3.11"),
        ((13, 14), "python3.13"),
        ((14,), "python3.14"),
        ((), "python3"),
    ],
)
def test_which_python_is_preferred(checkout, there, chosen):
    for minor in range(11, 15):
        program(checkout / "bin" / f"python3.{minor}", f"#!/bin/sh\nexit {minor not in there:d}")
    program(checkout / "bin" / "python3", "#!/bin/sh\n")
    find = ["bash", "-c", "source launch/environment.sh; find_python"]
    env = os.environ | {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"}
    for wanted, found in (("", chosen), ("true", "true")):  # what PYTHON names wins
        said = subprocess.check_output(find, cwd=checkout, env=env | {"PYTHON": wanted}, text=True)
        assert said == f"{found}\n"


@pytest.mark.slow
def test_unreachable_index_is_said(checkout):
    result = run(checkout, PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert result.returncode == 1
    assert "is the package index reachable?" in result.stderr.strip().splitlines()[-1]
    assert not (checkout / ".venv" / "built-from").exists()


def test_cuda_dry_run(checkout):
    env = gpu(checkout, "exit 9")
    odd = ["run", "--config", "a b.py", "--workdir", "it's"]
    result = run(checkout, "cuda.sh", ["--dry-run", *odd], **env)
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line for line in result.stdout.splitlines() if not line.startswith("#")]
    jax = "jax[cuda13]==" + version("jax")
    pip = [".venv-cuda/bin/pip", "install", "--disable-pip-version-check"]
    assert [shlex.split(line) for line in lines] == [
        ["nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"],
        ["rm", "-rf", ".venv-cuda"],
        [env["PYTHON"], "-m", "venv", ".venv-cuda"],
        [*pip, "-r", "requirements.txt", jax],
        [*pip, "--no-deps", "--no-build-isolation", "-e", "."],
        ["env", "JAX_PLATFORMS=cuda,cpu", ".venv-cuda/bin/python", "-m", "istanas_jax", *odd],
    ]
    assert calls(checkout) == []
    assert not (checkout / ".venv-cuda").exists()


def version(package: str) -> str:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(f"{package}=="))
    return found.partition("==")[2]


@pytest.mark.parametrize(
    ("gpus", "extra"),
    [
        ("580.65.06, 9.0", "cuda13"),
        ("590.44.01, 12.0", "cuda13"),
        ("575.57.08, 9.0", "cuda12"),
        ("525.60.13, 8.0", "cuda12"),
        ("580.65.06, 9.0\\n580.65.06, 7.0", "cuda12"),
    ],
)
def test_cuda_by_driver_and_gpu(checkout, gpus, extra):
    env = gpu(checkout, f"printf '{gpus}\\n'")
    result = run(checkout, "cuda.sh", [], **env)
    assert result.returncode == 0, result.stderr
    said = calls(checkout)
    assert f"jax[{extra}]=={version('jax')}" in said
    job = ["run", "--config", "configs/digits.py", "--workdir", "runs/digits"]
    assert said[-8:] == ["python", "-m", "istanas_jax", *job]
    # The second time everything is there; another choice makes another environment.
    run(checkout, "cuda.sh", ["describe", "a b"], **env)
    assert calls(checkout)[len(said) :] == [
        "nvidia-smi", "python", "-m", "istanas_jax", "describe", "a b",
    ]  # fmt: skip
    other = {"cuda12": "cuda13", "cuda13": "cuda12"}[extra]
    run(checkout, "cuda.sh", [], JAX_CUDA=other, **env)
    assert f"jax[{other}]=={version('jax')}" in calls(checkout)


@pytest.mark.parametrize(
    ("says", "choice", "sentence"),
    [
        ("exit 9", "", "nvidia-smi finds no CUDA GPU"),
        ("true", "", "nvidia-smi finds no CUDA GPU"),
        ("echo 470.82.01, 8.0", "", "the NVIDIA driver is 470.82.01, and jax needs 525 or newer"),
        ("echo 550.54.14, '[N/A]'", "", "set JAX_CUDA"),
        ("echo 550.54.14, 8.0", "cuda11", "it must be cuda12 or cuda13"),
    ],
)
def test_cuda_refused_before_anything_is_installed(checkout, says, choice, sentence):
    result = run(checkout, "cuda.sh", [], JAX_CUDA=choice, **gpu(checkout, says))
    assert result.returncode == 2
    assert result.stderr.startswith("launch/cuda.sh: ")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (checkout / ".venv-cuda").exists()


def test_cuda_without_a_driver(checkout):
    folder = checkout / "tools"
    folder.mkdir()
    for name in ("bash", "dirname", "sed", "cat"):
        (folder / name).symlink_to(shutil.which(name))
    result = run(checkout, "cuda.sh", [], PATH=str(folder))
    assert result.returncode == 2
    assert "there is no CUDA GPU here: nvidia-smi is missing" in result.stderr
    assert run(checkout, "cuda.sh", ["--help"], PATH=str(folder)).stdout.startswith("Run istanas")


def test_environments_are_built_once_by_processes_that_share_a_checkout(checkout):
    env = os.environ | gpu(checkout, "echo 580.65.06, 9.0")
    started = [
        subprocess.Popen(["bash", "launch/cuda.sh", "x"], cwd=checkout, env=env, stderr=-3)
        for _ in range(3)
    ]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    said = calls(checkout)
    assert said.count("pip") == 2
    assert said.count("python") == 3
    assert (checkout / "requirements.txt").read_bytes() == (ROOT / "requirements.txt").read_bytes()


def test_shellcheck():
    here = Path(sys.executable).parent
    checker = shutil.which("shellcheck", path=f"{here}:{os.environ['PATH']}")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    scripts = sorted(map(str, (ROOT / "launch").rglob("*.sh")))
    found = subprocess.run(
        [checker, "--external-sources", "--source-path=SCRIPTDIR", *scripts],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout


def test_jax_and_its_tpu_library_fit():
    """requirements-tpu.txt has the libtpu that the pinned jax asks for."""
    from importlib import metadata

    (wanted,) = (r for r in metadata.requires("jax") if r.startswith("libtpu"))
    wanted = wanted.partition("==")[2].partition(";")[0].strip().removesuffix("*")
    pinned = (ROOT / "requirements-tpu.txt").read_text()
    assert f"\nlibtpu=={wanted}" in pinned
