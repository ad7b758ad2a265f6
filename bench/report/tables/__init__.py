"""One table, and its views: terminal, Markdown, LaTeX, CSV, JSON."""
