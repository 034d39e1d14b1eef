"""What the paper's Tables 1 to 4 say of methods and cells, to stand beside our figures.

Yang et al., ISTA-NAS, NeurIPS 2020; times are of a GTX 1080Ti. Methods have the names of
`istanas_jax.methods`, cells those of `published`.
"""

from typing import NamedTuple

# Table 1: (method, batch): memory in GB, days of search.
COST = {
    ("darts", 64): (9.1, 0.70),
    ("pc_darts", 256): (11.6, 0.14),
    ("ista", 64): (1.9, 0.15),
    ("ista", 256): (5.5, 0.05),
    ("ista", 512): (10.5, 0.03),
}

# Table 2: Kendall's tau of 8 seeds.
TAU = {"darts": -0.36, "pc_darts": -0.21, "ista": 0.43, "one_stage": 0.57}


class Row(NamedTuple):
    """A row of Table 3 or 4, in the digits that are printed."""

    method: str | None  # that was run on these images; None if the cell comes from others
    cell: str | None  # None if it is not among those published
    error: str  # of the test images, %, top 1
    parameters: str  # millions
    search: str = "-"  # GPU-days
    training: str = "-"  # GPU-days
    top5: str | None = None  # error, %
    flops: int | None = None  # millions

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Error, parameters, search and training, as text."""
        top5 = f" (top 5: {self.top5})" if self.top5 else ""
        return f"{self.error}{top5}", self.parameters, self.search, self.training


# Table 3.
CIFAR10 = (
    Row(None, "NASNet_A", "2.65", "3.3"),
    Row("darts_second_order", "DARTS_V2", "2.76 ± 0.09", "3.3", "4.0", "2.3"),
    Row("snas", "SNAS", "2.85 ± 0.02", "2.8", "1.5", "2.2"),
    Row("pdarts", "PDARTS", "2.50", "3.4", "0.3", "2.9"),
    Row("nasp", None, "2.83 ± 0.09", "3.3", "0.1", "-"),
    Row("pc_darts", "PC_DARTS_cifar", "2.57 ± 0.07", "3.6", "0.1", "3.1"),
    Row("ista", "ISTA_twostage", "2.54 ± 0.05", "3.32", "0.05", "2.0"),
    Row("one_stage", "ISTA_onestage", "2.36 ± 0.06", "3.37", "2.3 in all", ""),
)

# Table 4: cells searched on CIFAR-10 unless their name says otherwise.
IMAGENET = (
    Row(None, "NASNet_A", "26.0", "5.3", flops=564),
    Row(None, "DARTS_V2", "26.7", "4.7", "4.0", "3.6 x 8", top5="8.7", flops=574),
    Row(None, "SNAS", "27.3", "4.3", "1.5", "3.3 x 8", top5="9.2", flops=522),
    Row(None, "PDARTS", "24.4", "4.9", "0.3", "3.6 x 8", top5="7.4", flops=557),
    Row(None, "PC_DARTS_image", "24.2", "5.3", "3.8", "3.9 x 8", top5="7.3", flops=597),
    Row(None, "ISTA_onestage", "25.1", "4.78", "2.3", "3.4 x 8", top5="7.7", flops=550),
    Row("one_stage", "ISTA_ImageNet", "24.0", "5.65", "4.2 x 8 in all", "", top5="7.1", flops=638),
)


def find_row(table: tuple[Row, ...], name: str) -> Row | None:
    """The row of a method or of a published cell."""
    return next((row for row in table if name in (row.method, row.cell)), None)
