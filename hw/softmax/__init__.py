"""Softmax of a row, in the order of its way: `score` and maximum, `numerator`, sums, `normaliser`.

`sum_queue` and `sum_stream` hold a row's weighted sums until the `normaliser` has their
`reciprocal`.
"""
