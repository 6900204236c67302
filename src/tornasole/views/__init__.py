"""Room 6: looking. Each view stands on ``trial`` alone."""
