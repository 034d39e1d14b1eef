"""What a run measures over its epochs and shows as curves, in the SVG figure and on its page."""

from typing import NamedTuple


class Quantity(NamedTuple):
    """Keys of the rows of metrics.jsonl that are shown together, in one chart."""

    title: str
    lines: dict[str, str]  # name of the line, by key
    unit: str = ""
    factor: float = 1  # from a row's value to the unit


QUANTITIES = (
    Quantity("Loss", {"loss": "training", "heldout_loss": "held-out", "b_loss": "images of b"}),
    Quantity(
        "Accuracy",
        {"accuracy": "training", "heldout_accuracy": "held-out", "b_accuracy": "images of b"},
        unit="%",
        factor=100,
    ),
    Quantity("Distance of z", {"distance": "mean of the nodes, between least and most"}),
    Quantity(
        "Connections without weights",
        {"weight_free_normal": "normal cell", "weight_free_reduction": "reduction cell"},
    ),
    Quantity("Nodes", {"frozen": "frozen", "changed": "changes in the epoch"}),
    Quantity("Learning rate", {"learning_rate": "of the weights"}),
    Quantity("Images per second", {"images_per_second": "at the end of the epoch"}),
    Quantity("Device waiting, at most", {"outside": "time of the host outside steps"}, unit="%"),
)
BY_TITLE = {quantity.title: quantity for quantity in QUANTITIES}
