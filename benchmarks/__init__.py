"""What measures or makes what the project is measured with, and is neither a part of the package nor a test."""
