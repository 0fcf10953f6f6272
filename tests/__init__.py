"""One thread for each process that tests, as the command has it: threads of two processes wait for one another."""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
