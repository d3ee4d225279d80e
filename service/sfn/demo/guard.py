"""Processes that do not outlive ours, however we end."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Kills its own process group when its standard input ends: as the pipe's other end is ours alone, that is when we end,
# however we do. PR_SET_PDEATHSIG would do so on Linux only, and already at the end of the *thread* that started it.
_GUARD = ("/bin/sh", "-c", "read -r _; kill -KILL 0")


class GuardedProcess:
    """One process and its guard, which share a process group of their own.

    Args:
        command: what to run, the program first.
        env: its whole environment.
        log: file that its output is appended to.
    """

    def __init__(self, command: Sequence[str | Path], *, env: Mapping[str, str], log: Path) -> None:
        self._guard = subprocess.Popen(_GUARD, stdin=subprocess.PIPE, process_group=0)  # noqa: S603
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    process_group=self._guard.pid,
                )
        except BaseException:
            self._end(self._guard)
            raise

    def status(self) -> int | None:
        """What it ended with, None while it runs."""
        return self._process.poll()

    def terminate(self, patience: float) -> int:
        """Ask it to end; what it ended with.

        Args:
            patience: seconds until it is killed instead.
        """
        self._process.terminate()
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            self.kill()

    def kill(self) -> None:
        """End it as a power cut would. Does nothing where it has ended."""
        self._end(self._process)
        self._end(self._guard)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()
