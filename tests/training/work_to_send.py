"""Jobs that other processes import."""

import os
import signal
import time

import torch


def described(job, report):
    """Do a job that shows where it is done."""
    report(job, "begun")
    report(job, "done")
    return job, os.getpid(), torch.get_num_threads()


def killed(job, _):
    """Do a job, unless it is that with number 1."""
    if job == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def endless(job, _):
    """Say which process works on the job, and do not end."""
    os.write(1, f"{os.getpid()}\n".encode())
    time.sleep(300)
