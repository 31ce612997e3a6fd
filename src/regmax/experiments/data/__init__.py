"""Readers of the corpora, vocabularies and batches."""
