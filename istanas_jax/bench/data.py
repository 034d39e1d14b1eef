"""How fast the image pipeline is, and what limits it: reading, decoding, resizing, handing over.

One core does each part by itself, and the same crops by Pillow alone; then the whole pipeline runs.
The parts take turns, since the machine's speed may change, and processor time is measured, since
others may use the processor too.
"""

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import psutil
from ml_collections import ConfigDict
from PIL import Image, ImageDraw

from istanas_jax.data import decoding
from istanas_jax.data.contract import EncodedImages
from istanas_jax.data.errors import DataError
from istanas_jax.data.streaming import StreamedImages, cores, open_images

BATCH = 128
WARM_UP = 2  # batches of the pipeline that are not counted
SYNTHETIC = 96  # files


def run(
    config: ConfigDict,
    *,
    images: int = 1024,
    workers: int | None = None,
    rounds: int = 5,
    step_rate: float = 0.0,
    must_have: bool = False,
) -> dict:
    """Measure with the images that `config` names, or with made ones where they are not here.

    Args:
      images: how many go through the pipeline in each round, after its warm-up.
      workers: how many to use instead of the config's.
      rounds: how often every part has its turn; the medians count.
      step_rate: images per second that a step uses, as `bench step` or a run tells.
      must_have: do not make images.
    """
    data = config.data.copy_and_resolve_references()
    if workers is not None:
        data.update({"workers": workers})
    with tempfile.TemporaryDirectory() as folder:
        try:
            train = open_images(data).train
            name = train.source.name
        except DataError:
            if must_have:
                raise
            _make_images(Path(folder))
            name = f"{SYNTHETIC} made images, since {data.name} is not here"
            data.name = folder
            train = open_images(data).train
        results = _measure(train, images, rounds)
    return {"benchmark": "data", "data": name} | results | _limits(results, step_rate)


def _make_images(root: Path) -> None:
    """Write JPEGs like those of ImageNet: 500 x 375, about 110 kB."""
    rng = np.random.default_rng(0)
    for i in range(SYNTHETIC):
        folder = root / "ab"[i % 2]
        folder.mkdir(exist_ok=True)
        _picture(rng, 500, 375).save(folder / f"{i}.jpg", quality=90)


def _picture(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Noise of four finenesses, mostly grey, and some rings."""
    pixels = np.full((height, width, 3), 128.0)
    for cells, strength in ((4, 60), (16, 36), (64, 24), (width * 2 // 3, 46)):
        noise = rng.normal(0, strength, (max(cells * height // width, 1), cells, 3))
        noise = 0.7 * 3**0.5 * noise.mean(2, keepdims=True) + 0.3 * noise
        layer = Image.fromarray(np.clip(noise + 128, 0, 255).astype(np.uint8))
        pixels += np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC)) - 128.0
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(8):
        (x, y), radius = rng.integers(0, (width, height)), rng.integers(10, 60)
        colour = tuple(rng.integers(0, 256, 3).tolist())
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour, width=4)
    return image


def _measure(train: StreamedImages, images: int, rounds: int) -> dict:
    source, (size, _, channels) = train.source, train.image_shape
    few = [int(n) for n in np.random.default_rng(0).permutation(len(train))[:SYNTHETIC]]
    encoded = [image for image, _ in source.read(few)]
    seeds = iter(range(10**9))

    def each(function: Callable[[bytes, np.random.Generator], object]) -> float:
        seed = next(seeds) // 3  # the same crops for the three of a round
        begin = time.process_time()
        for i, image in enumerate(encoded):
            function(image, np.random.default_rng([seed, i]))
        return (time.process_time() - begin) / len(encoded)

    parts: dict[str, list[float]] = {}
    pipeline = []
    for _ in range(rounds):
        timed = {
            "pillow": each(lambda image, rng: _by_pillow(image, size, channels, rng)),
            "crop": each(lambda image, rng: decoding.random_crop(image, size, channels, "it", rng)),
            "decode": each(
                lambda image, rng: decoding.decode_crop(image, size, channels, "it", rng)
            ),
            "read": _read(source, few),
            "hand_over": _hand_over(train.image_shape),
        }
        for part, seconds in timed.items():
            parts.setdefault(part, []).append(seconds)
        pipeline.append(_pipeline(train, images))
    seconds = {part: float(np.median(times)) for part, times in parts.items()}
    ratio = np.median(np.divide(parts["pillow"], parts["crop"]))
    rate, cpu, start = np.median(pipeline, 0)
    return {
        "images": images,
        "image_size": size,
        "kilobytes": round(float(np.mean([len(image) for image in encoded])) / 1000, 1),
        "cores": cores(),
        "workers": train.workers,
        "platform": jax.default_backend(),
        "ms": {part: round(1000 * value, 4) for part, value in seconds.items()},
        "pillow_per_core": round(1 / seconds["pillow"], 1),
        "crop_per_core": round(1 / seconds["crop"], 1),
        "decode_per_core": round(1 / seconds["decode"], 1),
        "against_pillow": round(float(ratio), 3),
        "pipeline_per_second": round(float(rate), 1),
        "pipeline_per_core": round(float(1 / cpu), 1),
        "pipeline_against_pillow": round(float(seconds["pillow"] / cpu), 3),
        "first_batch_s": round(float(start), 2),
    }


def _by_pillow(encoded: bytes, size: int, channels: int, rng: np.random.Generator) -> np.ndarray:
    """The same crop as most people would write it, with Pillow."""
    image = Image.open(io.BytesIO(encoded)).convert("RGB" if channels == 3 else "L")
    top, left, height, width = decoding.random_box(image.height, image.width, rng)
    crop = image.crop((left, top, left + width, top + height))
    return np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))


def _read(source: EncodedImages, numbers: list[int]) -> float:
    begin = time.process_time()
    for _ in source.read(numbers):
        pass
    return (time.process_time() - begin) / len(numbers)


def _hand_over(image_shape: tuple[int, int, int]) -> float:
    """What one thread does with every image: put it into its batch, and that on the device."""
    piece = np.zeros((BATCH // 4, *image_shape), np.uint8)
    begin = time.perf_counter()
    batch = np.empty((BATCH, *image_shape), np.uint8)
    for start in range(0, BATCH, len(piece)):
        batch[start : start + len(piece)] = piece
    jax.device_put(batch).block_until_ready()
    return (time.perf_counter() - begin) / BATCH


def _pipeline(train: StreamedImages, images: int) -> tuple[float, float, float]:
    """Images per second, seconds of a core per image, seconds until the first batch."""
    count = WARM_UP + max(images // BATCH, 1)
    order = [np.arange(i * BATCH, (i + 1) * BATCH) % len(train) for i in range(count)]
    begin = time.perf_counter()
    for i, _ in enumerate(train.batches(order, seed=(0, 0))):
        if i == 0:
            first = time.perf_counter() - begin
        if i == WARM_UP - 1:
            warm, used = time.perf_counter(), _processor_seconds()
        if i == count - 1:
            seconds, used = time.perf_counter() - warm, _processor_seconds() - used
    counted = (count - WARM_UP) * BATCH
    return counted / seconds, used / counted, first


def _processor_seconds() -> float:
    """Processor seconds of this process and its workers."""
    this = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (this, *this.children()))


def _limits(results: dict, step_rate: float) -> dict:
    """Find the slowest part, and say so."""
    ms = results["ms"]
    shares = {"reading": ms["read"], "decoding": ms["decode"]}
    shares["resizing"] = max(ms["crop"] - ms["decode"], 0.0)
    largest = max(shares, key=shares.get)
    rates = {largest: results["pipeline_per_second"], "handing over": 1000 / ms["hand_over"]}
    if step_rate:
        rates["the step"] = step_rate
    slowest = min(rates, key=rates.get)
    words = f"{slowest} is the bottleneck: "
    if slowest == "the step":
        words += f"the pipeline gives {rates[largest] / step_rate:.1f} times what it uses"
    elif slowest == largest:
        share = 100 * shares[largest] / sum(shares.values())
        words += f"{share:.0f} % of a core's time for an image; more cores give more images"
        if step_rate:
            words += f"; the step could use {step_rate / rates[largest]:.1f} times as many"
    else:
        words += "one thread puts images into batches and these on the device"
    return {"step_images_per_second": step_rate, "bottleneck": slowest, "in_words": words}


def table(results: dict) -> str:
    """Format the results as text for people."""
    ms = results["ms"]
    by = f"{results['workers']} processes" if results["workers"] else f"{results['cores']} threads"
    resize = max(ms["crop"] - ms["decode"], 0)
    lines = [
        f"{results['data']}: {results['kilobytes']} kB on average, crops of "
        f"{results['image_size']} pixels, {results['cores']} cores",
        "one core, by itself:",
        f"  Pillow, crop and resize  {ms['pillow']:.2f} ms  {results['pillow_per_core']:.0f} "
        "images/s",
        f"  the same crops by us     {ms['crop']:.2f} ms  {results['crop_per_core']:.0f} images/s, "
        f"{results['against_pillow']:.2f} times Pillow",
        f"    of it decoding         {ms['decode']:.2f} ms  {results['decode_per_core']:.0f} "
        "images/s",
        f"    of it resizing         {resize:.2f} ms",
        f"  reading the file         {ms['read']:.3f} ms",
        f"  into a batch, on {results['platform']:8}{ms['hand_over']:.3f} ms",
        f"the pipeline, {by}: {results['pipeline_per_second']:.0f} images/s; the first batch after "
        f"{results['first_batch_s']:.1f} s",
        f"  per core that it used: {results['pipeline_per_core']:.0f} images/s, "
        f"{results['pipeline_against_pillow']:.2f} times Pillow",
        results["in_words"],
    ]
    return "\n".join(lines)
