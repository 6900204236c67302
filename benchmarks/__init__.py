"""What Tornasole costs and how fast it reads, measured against the bounds that it promises.

``make bench`` runs all of it; ``python -m benchmarks raw import_time`` runs some. One file per
measurement: each has ``measure()``, which returns ``Result`` values. They are printed, and kept in
``benchmarks/results/``. Times of the training thread leave out what other processes on the machine
cost it (``measuring.clock``); the rest wants a quiet machine.
"""
