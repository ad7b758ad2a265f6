"""Prompts: templates, exemplars, chat template, and token ids by shard."""
