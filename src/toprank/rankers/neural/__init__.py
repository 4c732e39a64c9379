"""Networks: the ranker, what it is trained by, and how it scores."""
