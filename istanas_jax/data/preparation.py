"""How an image file becomes the pixels that a network is judged on, and is used on later.

Evaluation of streamed images, the decoding of sets in memory, and `predict` all call the same
`Preparation`; it is stored with every trained network and every export.
"""

from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True)
class Preparation:
    """How an encoded image is decoded for evaluation.

    Args:
      size, channels: of the result, uint8 (size, size, channels).
      resize: make the shorter side this long and take the middle, in the orientation that is
        stored. 0 turns the image as its EXIF note says and squeezes all of it into the square.
    """

    size: int
    channels: int
    resize: int = 0

    def __call__(self, encoded: bytes, what: object) -> np.ndarray:
        """The pixels; `what` names the image in errors."""
        from istanas_jax.data import decoding  # here: cv2 takes long to import

        if self.resize:
            return decoding.centre_crop(encoded, self.size, self.channels, what, self.resize)
        return decoding.decode(encoded, self.size, self.channels, what)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.size, self.size, self.channels)

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict) -> "Preparation":
        """Undo `to_dict`; anything else is a ValueError."""
        names = cls.__dataclass_fields__
        if not isinstance(found, dict) or found.keys() != names.keys():
            raise ValueError(f"the preparation of images must have the keys {', '.join(names)}")
        size, channels, resize = (found[name] for name in names)
        if not all(type(value) is int for value in found.values()):
            raise ValueError("the preparation of images must be in whole numbers")
        if size < 1 or channels < 1 or (resize and resize < size):
            raise ValueError(f"images cannot be prepared with {found}")
        return cls(size, channels, resize)

    def in_words(self) -> str:
        """Describe it for whoever has to do the same without this package."""
        colours = {1: "grey", 3: "RGB"}.get(self.channels, f"{self.channels} channels")
        square = f"{self.size} x {self.size} pixels"
        if self.resize:
            return (
                f"{colours}; the shorter side is resized to {self.resize} pixels (bilinear, "
                f"antialiased) and the middle {square} are taken; EXIF orientation is ignored"
            )
        return (
            f"{colours}, turned as EXIF says; the whole image is resized to {square} by averaging "
            "areas, whatever its shape"
        )
