"""Loading of questions and answers from the Hugging Face Hub, a folder or a file."""
