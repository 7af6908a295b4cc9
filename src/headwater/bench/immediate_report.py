"""The figures of `bench immediate` as JSON and as tables, and what they must show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from headwater.bench.immediate import HAND, NONE, OURS, RIVAL, RIVAL_NONE, Cost, Rate
from headwater.bench.report import Json, Table

Figure = Cost | Rate
ALLOWED = 1.3  # of what triggers written by hand cost, as multiples of no view
SINGLE_LESS, BULK_LESS, RATE_MORE = 3.5, 2.0, 5.0  # than pg_ivm
MANY = 8
# pg_ivm 1.15 on PostgreSQL 15, for runs without a server that has it: time of the server over all
# writes of one row and over all of more, as multiples of triggers written by hand (what no view
# costs differs more between machines), and the share of the transactions without a view that eight
# clients reach.
RECORDED_SINGLE, RECORDED_BULK = 5.15, 3.02
RECORDED_RATES = {"groups": 0.0161, "joined": 0.0191}


def tell(figure: Figure) -> str:
    """Say a figure in one line."""
    match figure:
        case Cost():
            ratios = ", ".join(f"{way} {ratio:.2f}" for way, ratio in ratios_of(figure).items())
            return f"{figure.view}, {figure.write} of {figure.rows:,}: {ratios}"
        case Rate():
            rates = ", ".join(f"{way} {tps:,.0f}" for way, tps in figure.tps.items())
            return f"{figure.view}, {figure.clients} clients: {rates} a second"


def base_of(way: str) -> str:
    """Return the way that a way is compared with: no view on the same server."""
    return RIVAL_NONE if way in (RIVAL, RIVAL_NONE) else NONE


def ratios_of(cost: Cost) -> dict[str, float]:
    """Return what each way costs as a multiple of no view."""
    return {way: ms / cost.ms[base_of(way)] for way, ms in cost.ms.items() if way != base_of(way)}


def immediate_json(host: Json, figures: Sequence[Figure]) -> Json:
    """Return all of the benchmark as a JSON document."""
    costs = [asdict(f) | {"ratios": ratios_of(f)} for f in figures if isinstance(f, Cost)]
    rates = [asdict(f) for f in figures if isinstance(f, Rate)]
    return {"benchmark": "immediate", "host": host, "costs": costs, "rates": rates,
            "totals": totals(figures), "missed": missed(figures)}  # fmt: skip


def totals(figures: Sequence[Figure]) -> dict[str, dict[str, float]]:
    """Return what all writes of one row, and all of more, cost as multiples of no view."""
    costs = [f for f in figures if isinstance(f, Cost)]
    sizes = {"single": [c for c in costs if c.rows == 1], "bulk": [c for c in costs if c.rows > 1]}
    return {name: _total(found) for name, found in sizes.items() if found}


def _total(costs: Sequence[Cost]) -> dict[str, float]:
    sums = {way: sum(cost.ms[way] for cost in costs) for way in costs[0].ms}
    return {way: ms / sums[base_of(way)] for way, ms in sums.items() if way != base_of(way)}


def missed(figures: Sequence[Figure]) -> list[str]:
    """Say which targets the figures miss."""
    found = totals(figures)
    single, bulk = found["single"], found["bulk"]
    faults = []
    if single[OURS] > ALLOWED * single[HAND]:
        faults.append(
            f"writes of one row cost {single[OURS]:.2f} times those without a view,"
            f" more than {ALLOWED:g} times the {single[HAND]:.2f} of triggers written by hand"
        )
    for what, total, recorded, less in (
        ("one row", single, RECORDED_SINGLE, SINGLE_LESS),
        ("more rows", bulk, RECORDED_BULK, BULK_LESS),
    ):
        other = total.get(RIVAL, recorded * total[HAND])
        if other < less * total[OURS]:
            faults.append(
                f"writes of {what} cost {total[OURS]:.2f} times those without a view, pg_ivm"
                f" {other:.2f} times: not {less:g} times less"
            )
    return faults + [fault for f in figures if isinstance(f, Rate) for fault in _slow(f)]


def _slow(rate: Rate) -> list[str]:
    if rate.clients != MANY:
        return []
    share, other = rate.tps[OURS] / rate.tps[NONE], RECORDED_RATES[rate.view]
    if RIVAL in rate.tps:
        other = rate.tps[RIVAL] / rate.tps[RIVAL_NONE]
    if share >= RATE_MORE * other:
        return []
    return [
        f"{rate.view}, {rate.clients} clients: {share:.3f} of the transactions without a view,"
        f" pg_ivm {other:.3f}: not {RATE_MORE:g} times more"
    ]


def immediate_tables(figures: Sequence[Figure]) -> tuple[Table, ...]:
    """Return one table of costs, one of totals and one of rates."""
    costs = [f for f in figures if isinstance(f, Cost)]
    rates = [f for f in figures if isinstance(f, Rate)]
    ways, compared = tuple(costs[0].ms), tuple(ratios_of(costs[0]))
    times = tuple(
        (c.view, c.write, f"{c.rows:,}", *(f"{ms:.3f}" for ms in c.ms.values()),
         *(f"{ratio:.2f}" for ratio in ratios_of(c).values()))
        for c in costs
    )  # fmt: skip
    heads = (*(f"{way} ms" for way in ways), *(f"{way} / {base_of(way)}" for way in compared))
    sums = tuple(
        (name, *(f"{total[way]:.2f}" for way in compared)) for name, total in totals(costs).items()
    )
    told = tuple(
        (r.view, f"{r.clients}", *(f"{tps:,.0f}" for tps in r.tps.values())) for r in rates
    )
    return (
        Table("Server time per statement", ("view", "write", "rows", *heads), times, 2),
        Table("All writes, as multiples of no view", ("rows", *compared), sums, 1),
        Table("Transactions per second", ("view", "clients", *rates[0].tps), told, 1),
    )
