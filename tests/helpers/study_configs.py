"""Configs of studies."""

from places import ROOT

from istanas_jax.config.files import load_config

CONFIG = str(ROOT / "configs" / "study.py")


def study_config(variant, *overrides):
    return load_config(f"{CONFIG}:{variant}", [f"--config.{o}" for o in overrides])
