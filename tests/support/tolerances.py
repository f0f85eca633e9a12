"""Every tolerance of the suite that more than one file uses, with its reason.

Pass them as `numpy.testing.assert_allclose(a, b, **FLOAT64)`.
"""

# Two right float64 programs of a few steps differ by rounding alone: 1e-16,
# times what norms of small deviations amplify, times the number of operations
# and steps. Two decades are left.
FLOAT64 = {"rtol": 1e-10, "atol": 1e-10}

# The same at 6e-8.
FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}

# float32 values, no gradient: short sequences, numbers of order one.
FLOAT32_VALUES = {"rtol": 1e-4, "atol": 1e-5}

# Two ways through the same float32 program (compiled or not, saved or not)
# whose reductions may be ordered differently.
SAME_PROGRAM = {"rtol": 1e-5, "atol": 1e-6}

# Outputs of order one, rounded to 11 and 8 bits after some thirty operations
# in at least float32 and as many in the compute dtype.
FLOAT16 = {"rtol": 1e-2, "atol": 1e-2}
BFLOAT16 = {"rtol": 6e-2, "atol": 6e-2}
