"""The check of the GPU kernels; nothing else imports it."""
