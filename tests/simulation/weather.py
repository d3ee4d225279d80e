"""How bad a simulated world is."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace

from sfn.storage.remote_store import PROPAGATION_SECONDS
from tests.simulation.setting import Setting


@dataclass(slots=True)
class Weather:
    """How bad the world is.

    Attributes:
        kill: the chance that a port's call never returns, before or after its effect.
        stop: the chance that it returns very late.
        fail: the chance that a call of catalog or store fails.
        lag: how far replicas of the catalog may be behind, in seconds.
        least_lag: how far those that lag are behind at least.
        lagging: the chance that a lagging replica answers.
        conditional_delete: whether the store can delete on a condition.
        store_down: spells without a store.
        read_only: spells in which a policy denies every change; each folder learns of it a while later.
        inbox_full: spells in which the inbox takes nothing.
        slow: the chance that a transaction of the inbox takes as long as its disk hangs; all others wait for it.
        cut: the chance that a statement to a shared inbox ends the connection.
        unheard: the chance that a process is not told what another one tells all.
        calm: nothing is killed, stopped or fails any more; replicas still lag.
        is_still: whoever is told something hears it, and looks seldom.
    """

    kill: float = 0.008
    stop: float = 0.008
    fail: float = 0.04
    lag: float = 4.0
    least_lag: float = 0.0
    lagging: float = 0.25
    conditional_delete: bool = True
    store_down: list[tuple[float, float]] = field(default_factory=list)
    read_only: list[tuple[float, float]] = field(default_factory=list)
    inbox_full: list[tuple[float, float]] = field(default_factory=list)
    slow: float = 0.0
    cut: float = 0.0
    unheard: float = 0.0
    calm: bool = False
    is_still: bool = False

    def is_read_only(self, key: str, now: float) -> bool:
        """Whether a file may not be written or deleted now."""
        folder = key.rpartition("/")[0]
        late = zlib.crc32(folder.encode()) / 2**32 * 0.9 * PROPAGATION_SECONDS
        return any(start + late <= now < end + late for start, end in self.read_only)


def weather_of(setting: Setting) -> Weather:
    """The weather of a random history."""
    if setting.replicas:
        return Weather(kill=0.012, cut=0.003, unheard=0.3, conditional_delete=setting.conditional_delete)
    usual = Weather(conditional_delete=setting.conditional_delete, slow=0.01 if setting.slow_inbox else 0.0)
    # Who is killed all the time lives to pay no debt.
    return replace(usual, kill=usual.kill / 3, stop=usual.stop / 3) if setting.gateway else usual
