"""Section 06: measured memory, and the overhead that comes from it."""

import statistics

import pytest

from onegpu.measured import MEASURED, leave_one_out, overhead, readings
from onegpu.quantities import overhead_bytes
from onegpu.units import GIB

ALLOCATED = readings("allocated", "active")


@pytest.mark.parametrize("row", ALLOCATED, ids=lambda row: row.name)
def test_allocated(row):
    """Every allocated peak within 15 %, with nothing fitted."""
    assert row.predicted == pytest.approx(row.measured_bytes, rel=0.15)


def test_reserved_holds_a_cache():
    """Reserved readings are above the prediction by a fifth at the median of the runs that print both."""
    twins = {m.name: m.name.replace(m.kind, "reserved") for m in ALLOCATED}
    both = [(MEASURED[name], MEASURED[twin]) for name, twin in twins.items() if twin != name and twin in MEASURED]
    assert len(both) == 8 and 1.15 < statistics.median(r.measured_bytes / a.measured_bytes for a, r in both) < 1.25


def test_overhead():
    """The default is what is missed inside the allocator and outside it, and no trainer decides the first."""
    inside, outside = overhead(ALLOCATED), overhead(readings("device"))
    assert round((inside + outside) / GIB, 1) == overhead_bytes.default / GIB
    found = leave_one_out(ALLOCATED)
    assert len(found) == 7 and all(abs(fitted - inside) < 0.1 * GIB and all(abs(e) <= 0.15 for e in errors) for fitted, errors in found.values())


def test_a_plain_sum_is_worse():
    """Adding everything up misses by more than a maximum over time."""
    missed, peaked = ([abs(getattr(m, how) / m.measured_bytes - 1) for m in ALLOCATED] for how in ("plain_sum", "predicted"))
    assert statistics.median(missed) > 2 * statistics.median(peaked) and max(missed) > 4 * max(peaked)


def test_sources():
    """Each row says where it was read."""
    assert all(m.source and m.url.startswith("https://") for m in MEASURED.values())
