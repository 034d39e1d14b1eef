"""Eq. (gamma): the coefficients go into the batch norms, and a plain target net remains.

Every active operation of a one-stage net ends in a batch norm, so multiplying its output by a
coefficient is the same as multiplying scale and shift of that norm.
"""

from jaxtyping import Array, Float

from istanas_jax.networks import operations
from istanas_jax.networks.cells import operation_name
from istanas_jax.networks.target_net import TargetNet, cell_name
from istanas_jax.space.connections import OTHER_ORDER, stride_of
from istanas_jax.space.operations import NONE


def absorb(net: TargetNet, params: dict, coefficients: Float[Array, "cells nodes s"]) -> dict:
    """Return parameters for which the net without coefficients computes the same logits.

    Args:
      coefficients: those of the normal and the reduction cell, strongest connection first.
    """
    g, regime = net.genotype, operations.REGIMES[net.regime]
    absorbed = dict(params)
    for index, plan in enumerate(net.plans()):
        name = cell_name(index)
        cell = dict(params[name])
        for j, node in enumerate(g.reduce if plan.reduction else g.normal):
            ranks = range(len(node))[OTHER_ORDER]
            for k, (op, predecessor) in enumerate(node):
                if op == NONE:
                    continue  # 0 times a coefficient
                stride = stride_of(predecessor, plan.reduction)
                last = operations.num_norms(op, stride, regime) - 1
                if last < 0 or not regime.affine:
                    raise ValueError(
                        f"{op} of {name} ends in no batch norm to absorb its coefficient"
                    )
                coefficient = coefficients[int(plan.reduction), j, ranks[k]]
                weights = dict(cell[operation_name(j, k)])
                for weight in (f"scale{last}", f"shift{last}"):
                    weights[weight] = weights[weight] * coefficient
                cell[operation_name(j, k)] = weights
        absorbed[name] = cell
    return absorbed
