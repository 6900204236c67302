"""The statistics of a tensor, many in one pass: one definition, one module per kind of tensor."""
