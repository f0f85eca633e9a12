"""NumPy float64 oracles: the papers' equations, written out plainly.

They import nothing of keras_ln or Keras, share no code with it, and work on
complex arrays too, so that the complex step gives exact gradients.

Letters: B batch, T time, D input features, U units.
"""
