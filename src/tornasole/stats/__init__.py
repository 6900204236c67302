"""The statistics of a tensor, many in one pass: one module per kind of tensor."""
