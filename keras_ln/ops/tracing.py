"""Where a value belongs that was made while a program is traced."""

from keras_ln import backend

current_trace = backend.current_trace
