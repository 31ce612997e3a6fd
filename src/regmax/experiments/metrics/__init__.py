"""Scores of outputs, and what interpretability means in numbers."""
