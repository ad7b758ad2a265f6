"""Files that `bench new` copies: a method or a task to begin with, and its tests; names in them are placeholders."""
