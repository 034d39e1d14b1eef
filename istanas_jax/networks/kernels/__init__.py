"""Depthwise convolution, pooling and sums per channel, each in the form fast on its platform.

TPU and GPU get the native primitives. XLA's CPU backend runs a grouped convolution 50 to 150
times slower than the same sum of shifted multiply-adds (its gradients 15 times), and max-pool's
select-and-scatter 10 to 27 times slower than a comparison of shifted windows, so there (and only
there) the shifted forms below are used. What makes them fast:

- The padded array is written once, in one pass with what computes it (ReLU), and every tap is a
  slice of it. With stride 1, width and channels are one axis: the inner loop is a whole row.
- The gradient of the input gathers from the padded cotangent, which is sliced without stride:
  one loop for each phase of the stride, then interleaved.
- Sums per channel, as in the gradient of the kernel, take the rows in groups of about eight. LLVM
  unrolls a loop that short and vectorises the one around it, and XLA splits the batch over
  threads; a reduction over everything is scalar code on one. A variadic reduce loads the
  cotangent once for several taps (5x5: 1.2 ms with five together, 8 with all 25, and 33 one by
  one, when XLA fuses both sums).
"""

from istanas_jax.networks.kernels.depthwise import depthwise_conv
from istanas_jax.networks.kernels.lanes import in_lanes
from istanas_jax.networks.kernels.pooling import avg_pool, max_pool
from istanas_jax.networks.kernels.sums import channel_sums
from istanas_jax.networks.kernels.windows import fence

__all__ = ["avg_pool", "channel_sums", "depthwise_conv", "fence", "in_lanes", "max_pool"]
