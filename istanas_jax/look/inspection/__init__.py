"""Looking into checkpoints, without jax."""
