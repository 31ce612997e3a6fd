"""The paper's models."""
