"""The paper's three experiments: translation, entailment and summarization, with any mapping."""
