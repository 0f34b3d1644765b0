"""How many examples a property is tried with.

PYKRAFT_EXAMPLES multiplies them, for long runs. Under CI=true a property gets the same examples in
every run, as the tests of a change should; a longer run, like one without CI, draws new ones.
"""

import os
from typing import Any

from hypothesis import settings

FACTOR = int(os.environ.get("PYKRAFT_EXAMPLES", "1"))
USUAL = 100


def examples(count: int, **others: Any) -> settings:
    """The settings of a property that is tried `count` times, times what is asked for."""
    return settings(max_examples=count * FACTOR, **others)


def load_profile() -> None:
    """What holds for properties that don't say: none has a time limit of its own."""
    same = os.environ.get("CI") == "true" and FACTOR == 1
    parent = settings.get_profile("ci" if same else "default")
    settings.register_profile("pykraft", parent, max_examples=USUAL * FACTOR, deadline=None)
    settings.load_profile("pykraft")
