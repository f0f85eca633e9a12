"""Section 5 of the paper as code: invariances and geometry of the weights."""

from keras_ln.analysis.dynamics import HiddenDynamics, hidden_dynamics
from keras_ln.analysis.fisher import fisher_information, parameter_vector
from keras_ln.analysis.invariance import InvarianceTable, invariance_table
from keras_ln.analysis.metric import (
    gain_metric,
    kl_divergence,
    projected_metric,
    riemannian_metric,
)

__all__ = [
    "HiddenDynamics",
    "InvarianceTable",
    "fisher_information",
    "gain_metric",
    "hidden_dynamics",
    "invariance_table",
    "kl_divergence",
    "parameter_vector",
    "projected_metric",
    "riemannian_metric",
]
