"""What is kept on disk besides results: folders by their content, files written whole, records read back."""
