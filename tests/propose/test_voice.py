# SPDX-License-Identifier: Apache-2.0
"""How a risk's driver is told."""

from __future__ import annotations

import pytest

from pilothouse.domain import Driver
from pilothouse.propose.voice import driven_by
from pilothouse.testing.builders import a_forecast, a_snapshot, with_risk


@pytest.mark.parametrize(
    ("driver", "value", "told"),
    [
        (Driver.HEARTBEAT, 8_400, "heartbeat 8.4 s late"),
        (Driver.MEMORY_GROWTH, 48, "memory +48 MiB/min"),
        (Driver.UNREADY, 90, "not ready for 90 s"),
        (Driver.NONE, 7, ""),
    ],
)
def test_driver_is_told_in_its_unit(driver: Driver, value: int, told: str) -> None:
    forecast = with_risk(a_forecast(a_snapshot()), "node_risk", 0, 900, driver, value)
    assert driven_by(forecast.node_risk, 0) == told
