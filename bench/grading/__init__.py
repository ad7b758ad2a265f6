"""Right or wrong: letters, texts, judges."""
