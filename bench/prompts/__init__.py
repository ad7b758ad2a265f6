"""A question becomes token ids: wording, exemplars, chat template, shards."""
