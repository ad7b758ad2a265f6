"""What tests of all folders build on: planted results, the command in this process, independent metrics."""
