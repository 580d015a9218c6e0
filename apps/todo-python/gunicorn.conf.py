# SPDX-License-Identifier: Apache-2.0
"""Gunicorn's settings: one worker of threads, in the first process.

Gunicorn starts its workers by fork. Its hook `pre_fork` is called right before,
in the first process, with a worker that is ready to run; so the worker can run
there, and nothing is left to fork. Remove the hook, and the rest is an ordinary
configuration with one gthread worker.
"""

import os
import sys

bind = [f"0.0.0.0:{os.environ.get('PORT', '8080')}"]
workers = 1
worker_class = "gthread"
threads = 4


def pre_fork(_server, worker):
    """Runs the worker here, until SIGTERM ends it."""
    worker.pid = os.getpid()
    worker.ppid = os.getppid()
    worker.init_process()
    sys.exit(0)
