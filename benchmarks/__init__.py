"""What Tornasole costs and how fast it reads, measured against the bounds that the project promises.

``make bench`` runs all of it; ``python -m benchmarks raw import_time`` runs some. One file per measurement: each has
``measure()``, which returns ``Result`` values. Results go to ``benchmarks/results/``.
"""
