"""The two ways in which a script ends early, each with one sentence."""


class InputError(Exception):
    """A flag, a file or a folder that cannot be used: exit code 2."""


class NonFiniteLossError(Exception):
    """Training that left the finite numbers: exit code 1."""
