"""Functions of tensors: the maths of keras_ln, with hand-written gradients."""
