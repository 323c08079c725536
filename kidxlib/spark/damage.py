"""What is done with damage where Spark reads."""

from __future__ import annotations

from typing import NoReturn

from kidxlib.errors import DamagedLogError
from kidxlib.reading.damage import Damage, TakeDamage, warn_of


def damage_taker(*, fails: bool) -> TakeDamage:
    """Damage ends the reading; or a warning says what is lost, by way of `logging`."""
    return _fail_on if fails else warn_of


def _fail_on(damage: Damage) -> NoReturn:
    raise DamagedLogError(f"{damage}; failOnDataLoss=false reads what stands after it")
