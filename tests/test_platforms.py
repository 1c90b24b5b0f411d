"""The library works without what only POSIX systems have."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import builtins, errno, fcntl, os, signal, sys

get_flags, sync = fcntl.fcntl, os.fsync

def fsync(descriptor):
    if get_flags(descriptor, fcntl_getfl) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Windows flushes only files that are open for writing")
    sync(descriptor)

fcntl_getfl, os.fsync = fcntl.F_GETFL, fsync
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
del os.sysconf, signal.pthread_sigmask, signal.SIGHUP

import cgmvae, cgmvae.studies, cgmvae.cli.main, cgmvae.serving.server
data, _ = cgmvae.make_survey(60, 3, 5, seed=0)
cgmvae.BinaryRelevance(random_state=0).fit(data.X, data.Y).save(sys.argv[1])
print(cgmvae.load(sys.argv[1]).predict(data.X).shape)
"""


def test_saving_and_loading_without_posix(tmp_path):
    path = os.pathsep.join([str(Path(__file__).parents[1] / "src"), *sys.path])
    outcome = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "a.cgmvae")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    assert outcome.stdout == "(60, 5)\n", outcome.stderr
