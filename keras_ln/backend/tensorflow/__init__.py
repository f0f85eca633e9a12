"""The backend contract on TensorFlow."""

from keras_ln.backend.tensorflow.arithmetic import cast as cast
from keras_ln.backend.tensorflow.arithmetic import (
    current_trace as current_trace,
)
from keras_ln.backend.tensorflow.arithmetic import exp as exp
from keras_ln.backend.tensorflow.arithmetic import fused_sum as fused_sum
from keras_ln.backend.tensorflow.arithmetic import (
    how_to_densify as how_to_densify,
)
from keras_ln.backend.tensorflow.arithmetic import log as log
from keras_ln.backend.tensorflow.arithmetic import matmul as matmul
from keras_ln.backend.tensorflow.arithmetic import mean as mean
from keras_ln.backend.tensorflow.arithmetic import on_cpu as on_cpu
from keras_ln.backend.tensorflow.arithmetic import once_all as once_all
from keras_ln.backend.tensorflow.arithmetic import relu as relu
from keras_ln.backend.tensorflow.arithmetic import reshape as reshape
from keras_ln.backend.tensorflow.arithmetic import sigmoid as sigmoid
from keras_ln.backend.tensorflow.arithmetic import sqrt as sqrt
from keras_ln.backend.tensorflow.arithmetic import (
    stands_for_unknown as stands_for_unknown,
)
from keras_ln.backend.tensorflow.arithmetic import sum as sum
from keras_ln.backend.tensorflow.arithmetic import tanh as tanh
from keras_ln.backend.tensorflow.arithmetic import transpose as transpose
from keras_ln.backend.tensorflow.arithmetic import where as where
from keras_ln.backend.tensorflow.gradients import custom_vjp as custom_vjp
from keras_ln.backend.tensorflow.gradients import jacobian as jacobian
from keras_ln.backend.tensorflow.loops import scan as scan
from keras_ln.backend.tensorflow.structures import (
    trace_context as trace_context,
)
