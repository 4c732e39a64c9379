"""Scorers turn rows into scores, and gradients in score space back into gradients of their weights."""
