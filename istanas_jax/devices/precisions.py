"""How products of float32 round: names for configs, and what the chips do; needs no jax."""

# Bits of the mantissa that operands keep when float32 is multiplied with the default precision:
# bfloat16 on TPUs, TF32 on GPUs from Ampere on.
MANTISSA_BITS = {"tpu": 7, "cuda": 10}
# Names that a config has for what `jax.default_matmul_precision` sets.
PRECISIONS = ("default", "high", "highest")
