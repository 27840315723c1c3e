"""Statistics of a matrix: pairing runs by seed, errors and tests, verdicts, and the sentences that report
them.
"""
