"""Questions in: rows of the Hub, of a folder or of a file become `Question`s."""
