"""What plugins can't do to a run: methods of files live in processes of their own, the others are watched."""
