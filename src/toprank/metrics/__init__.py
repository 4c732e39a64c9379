"""Gains, discounts, conventions and measures: rankings become numbers."""
