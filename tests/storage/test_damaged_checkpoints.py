"""A checkpoint that is damaged or of another network is never restored as if it were sound."""

import os
import shutil
from pathlib import Path

import jax.numpy as jnp
import pytest
from saved_states import assert_same, make_state, opened, step_names

from istanas_jax.storage import checkpoints
from istanas_jax.storage.checkpoint_files import CheckpointError, read_about


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two steps")
    with opened(folder) as saved:
        for step in (10, 20):
            saved.save(step, make_state(step), about={"epoch": step})
    return folder


def damage_and_restore(source: Path, folder: Path, name: str, damage) -> list[str]:
    """Damage one file of step 20; what is restored is right, be it step 20 or 10."""
    shutil.copytree(source, folder)
    damage(folder / "20" / name)
    told = []
    with opened(folder, warn=told.append) as saved:
        step, state, about = saved.restore(make_state())
        assert about["epoch"] == step
        assert_same(state, make_state(step))
        assert [str(folder / "20") in line and "step 10" in line for line in told] == (
            [True] if step == 10 else []
        )
        saved.save(20, make_state(21), about={"epoch": 20}, wait=True)
        assert_same(saved.restore(make_state()).state, make_state(21))
    return told


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, truncate, os.remove])
def test_damage_to_any_file_is_harmless_or_noticed(two_steps, tmp_path, damage):
    files = [p.relative_to(two_steps / "20") for p in (two_steps / "20").rglob("*") if p.is_file()]
    noticed = set()
    for n, name in enumerate(files):
        if damage_and_restore(two_steps, tmp_path / str(n), str(name), damage):
            noticed.add("/".join(name.parts[:2]))
            assert "corrupt-20" in step_names(tmp_path / str(n))
    assert noticed >= {"about/metadata", "state/manifest.ocdbt", "state/d", "state/ocdbt.process_0"}


def exchange(state: Path) -> None:
    shutil.rmtree(state)
    shutil.copytree(state.parent.parent / "10" / "state", state)


def edit(about: Path) -> None:
    about.write_text(about.read_text().replace('"epoch": 20', '"epoch": 10'))


@pytest.mark.parametrize(("name", "damage"), [("state", exchange), ("about/metadata", edit)])
def test_wrong_bytes_in_sound_files_are_noticed(two_steps, tmp_path, name, damage):
    (told,) = damage_and_restore(two_steps, tmp_path / "x", name, damage)
    assert "checksum" in told


def test_none_readable_is_an_error_and_changes_nothing(two_steps, tmp_path):
    shutil.copytree(two_steps, tmp_path, dirs_exist_ok=True)
    for step in ("10", "20"):
        flip(tmp_path / step / "about" / "metadata")
    with (
        opened(tmp_path) as saved,
        pytest.raises(CheckpointError, match=f"no checkpoint in {tmp_path} can be read"),
    ):
        saved.restore(make_state())
    assert step_names(tmp_path) == {"10", "20"}
    with pytest.raises(CheckpointError, match="20 cannot be read"):
        read_about(tmp_path)


def test_another_network_is_an_error(two_steps):
    with opened(two_steps) as saved:
        with pytest.raises(
            CheckpointError, match=r"network: opt\..*, params\.conv\.kernel differ$"
        ):
            saved.restore(make_state(width=8))
        with pytest.raises(CheckpointError, match=r"network: .*, .*, .* and 12 more differ$"):
            saved.restore({"w": jnp.zeros(3)})
    assert step_names(two_steps) == {"10", "20"}


def test_another_format_is_an_error(tmp_path, monkeypatch):
    with opened(tmp_path) as saved:
        monkeypatch.setattr(checkpoints, "FORMAT", 2)
        saved.save(1, {"w": jnp.zeros(3)}, about={})
        monkeypatch.undo()
        with pytest.raises(CheckpointError, match="has format 2, not 1"):
            saved.restore({"w": jnp.zeros(3)})
