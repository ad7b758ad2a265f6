"""Prompts: templates, few-shot exemplars, chat templates, and the token ids of prompts shard by shard."""
