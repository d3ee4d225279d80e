"""`python -m tests.faults.asking_service serve --config FILE`: the service, whose open intents are asked for sooner.

When the catalog is asked is a constant of the product, and the last ask comes after 35 minutes. Before the service
starts these times are replaced by a thirtieth of them: 1, 4, 20 and 70 seconds. All else is as in the product.
"""

from __future__ import annotations

from typing import Final

from sfn.cli import main
from sfn.inbox import intents

SOONER: Final = 30
ASKS: Final = tuple(pause / SOONER for pause in intents.CHECK_DELAYS)

if __name__ == "__main__":
    assert vars(intents)["MERGE_WINDOW"] is intents.MERGE_WINDOW, (
        "it is looked up elsewhere now, and would not be shorter"
    )
    vars(intents)["CHECK_DELAYS"] = ASKS
    vars(intents)["MERGE_WINDOW"] = intents.MERGE_WINDOW / SOONER
    main.main()
