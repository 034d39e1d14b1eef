"""The files of an export: network.json says what each of them must be, and no others are used.

model.stablehlo is a program, as a config file is: use exports of people you trust. Checksums tell
that a file is what was written, not who wrote it.
"""

import hashlib
import json
from typing import NamedTuple

import jax
from etils import epath
from jax import export as jax_export

from istanas_jax.data.preparation import Preparation
from istanas_jax.storage.files import check_regular, in_bucket

FORMATS = "istanas_jax export "
FORMAT = f"{FORMATS}2"
NETWORK, MODEL = "network.json", "model.stablehlo"
ONNX, PYTORCH = "model.onnx", "network.py"
WEIGHTS, RELEASE, GENOTYPE = "weights.safetensors", "pytorch_state.npz", "genotype.json"
LOADS_FOR = 6  # months for which jax promises to load what it has exported
CHECKSUM = "sha256"


class ExportError(ValueError):
    """An export that cannot be made or used, said in one sentence."""


class Exported(NamedTuple):
    """An export whose network.json was read and found whole."""

    folder: epath.Path
    preparation: Preparation
    class_names: tuple[str, ...]
    checksums: dict[str, str]  # checksums of the other files, by name

    def read(self, name: str) -> bytes:
        """Read a file of the export and check that it is as it was written."""
        path = self.folder / name
        if name not in self.checksums:
            raise ExportError(f"{path} is not a file of the export: {NETWORK} does not list it")
        if not path.exists():
            raise ExportError(f"{path} is missing: copy the export again, or export again")
        content = _content(path)
        if checksum(content) != self.checksums[name]:
            raise ExportError(
                f"{path} is damaged, its {CHECKSUM} is not the one in {NETWORK}: copy the export "
                "again, or export again"
            )
        return content

    def model(self) -> jax_export.Exported:
        """The program in model.stablehlo."""
        content = self.read(MODEL)
        try:
            return load_model(content)
        except ExportError:
            raise
        except Exception as error:  # jax's reading of formats that it does not know
            said = " ".join(str(error).split())[:200] or type(error).__name__
            raise ExportError(
                f"{self.folder / MODEL} cannot be read by jax {jax.__version__}: {said}"
            ) from error


def open_export(folder: epath.Path) -> Exported:
    """Open the export in this folder; an ExportError says why it is none."""
    path = folder / NETWORK
    try:
        about = json.loads(_content(path))
    except ExportError:
        raise
    except ValueError:  # also of bytes that are no text
        raise ExportError(f"{path} is damaged, it is not JSON: export again") from None
    if not isinstance(about, dict) or not str(about.get("format")).startswith(FORMATS):
        raise ExportError(f"{path} is not the {NETWORK} of an export")
    if about["format"] != FORMAT:
        raise ExportError(
            f"{path} has format {about['format']!r}, this version reads {FORMAT!r}: export again"
        )
    if CHECKSUM not in about:
        raise ExportError(f"the export in {folder} was not finished: export again")
    if signed(about) != about:
        raise ExportError(
            f"{path} is damaged or was edited, its {CHECKSUM} is not that of its content: copy the "
            "export again, or export again"
        )
    try:
        names = about["class_names"]
        if not (names and isinstance(names, list) and all(isinstance(n, str) for n in names)):
            raise ValueError("class_names must be a list of names")
        how = Preparation.from_dict(about["preparation"])
        files = {str(name): file[CHECKSUM] for name, file in about["files"].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ExportError(f"{path} does not say what it should: {error}") from None
    return Exported(folder, how, tuple(names), files)


def _content(path: epath.Path) -> bytes:
    try:
        if not in_bucket(path):  # epath's own is_file takes a pipe for a file
            check_regular(path)
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror or error}") from None


def signed(about: dict) -> dict:
    """The description with a checksum of everything else in it."""
    rest = json.loads(json.dumps({key: about[key] for key in about if key != CHECKSUM}))
    return rest | {CHECKSUM: checksum(json.dumps(rest, sort_keys=True).encode())}


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load_model(content: bytes) -> jax_export.Exported:
    """Load what `export.stablehlo` wrote; `.call(images)` gives logits."""
    check_flatbuffers()
    return jax_export.deserialize(bytearray(content))


def check_flatbuffers() -> None:
    try:
        import flatbuffers  # noqa: F401  jax needs it here, but does not bring it along
    except ImportError:
        raise ExportError(
            f"{MODEL} is written and read by jax with flatbuffers: pip install flatbuffers"
        ) from None
