"""Load questions and answers from the Hub, a folder or a file."""
