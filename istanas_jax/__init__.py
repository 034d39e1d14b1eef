"""ISTA-NAS in JAX and Flax: neural architecture search as sparse coding."""

__version__ = "0.1.0"
