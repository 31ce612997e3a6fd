"""Scores of outputs, and statistics of attention weights."""
