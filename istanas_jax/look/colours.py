"""Colours of operations, and of light and dark pages."""

from istanas_jax.space.operations import BY_NAME

# What operations choose from. After Okabe and Ito, orange, sky blue and purple darkened: their
# contrast is at least 3 : 1 on either page.
COLOURS = {
    "blue": "#0072b2",
    "sky blue": "#3a96d0",
    "green": "#009e73",
    "vermilion": "#d55e00",
    "orange": "#c98200",
    "purple": "#c46a9c",
}
GREY = "#818b98"  # edges to the output, outlines of nodes
LIGHT = {"page": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "node": "#eaeef2"}
DARK = {"page": "#0d1117", "ink": "#e6edf3", "soft": "#9198a1", "node": "#262c36"}


def colour_of(operation: str) -> str:
    """The colour of an operation's lines."""
    known = BY_NAME.get(operation)  # not one from a file: looking at a run does not run its files
    return COLOURS[known.colour if known else "purple"]
