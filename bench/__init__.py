"""confbench: the harness. It knows no method and no task by name; start reading at `bench/run/pipeline.py`."""
