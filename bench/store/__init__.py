"""Storage besides results: folders by their content, files written whole, records read back."""
