"""Files and frames become ragged arrays."""
