"""The comparison table, and its views as terminal text, Markdown, LaTeX, CSV and JSON."""
