# SPDX-License-Identifier: Apache-2.0
"""Does the learned forecaster help the loop, on families it never trained on?

    python -m benchmarks.forecast_loop.run [--seeds N] [--cycles N] [--write]
    python -m benchmarks.forecast_loop.run --tuning          # tuning families and seeds, no test
    python -m benchmarks.forecast_loop.run --regenerate      # the shipped artefact, byte by byte
    python -m benchmarks.forecast_loop.run --demand NAME     # a demand forecaster you trained

Three arms see the same days: the transparent baseline, the learned forecaster with its own
thresholds, and an oracle that knows which nodes die (the ceiling). Exits non-zero where a claim
does not hold. All figures are simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.forecast_loop import strange
from benchmarks.forecast_loop.oracle import Oracle
from pilothouse.learn.evaluate import inloop
from pilothouse.learn.evaluate.inloop import Arm, difference, means, run_arm
from pilothouse.predict.learned import load_artifact
from pilothouse.settings import Settings

HERE = Path(__file__).parent
FULL_FORM = ("", "--regenerate")
BASELINE, LEARNED, ORACLE = "ewma-trend", "learned", "oracle/1"
DEMAND_SCENARIOS, DEMAND_SEED = ("harbor", "light", "cpu-saturation"), 700
FEWER, ABSTAINED_NEW, ABSTAINED_STRANGE, ABSTAINED_FAMILIAR = 0.20, 0.10, 0.95, 0.01


def arms(scenario: str, seed: int, cycles: int, *, held_out: bool) -> list[Arm]:
    """One day, three times."""
    settings = Settings()
    learned = replace(settings, forecast=replace(settings.forecast, forecaster=LEARNED))
    shipped = load_artifact().thresholds
    knowing = replace(settings, safety=replace(settings.safety, **_hold(shipped)))
    return [
        run_arm(settings, scenario, seed, cycles, held_out=held_out),
        run_arm(learned, scenario, seed, cycles, held_out=held_out),
        run_arm(knowing, scenario, seed, cycles, held_out=held_out, seer=Oracle),
    ]


def _hold(shipped: dict[str, float]) -> dict[str, Any]:
    """The oracle lets places go as early as the learned forecaster does."""
    return {"hold_seconds": int(shipped["hold_seconds"])}


def measure(families: tuple[str, ...], seeds: range, cycles: int, *, held_out: bool) -> list[Arm]:
    out: list[Arm] = []
    for scenario in families:
        for seed in seeds:
            out += arms(scenario, seed, cycles, held_out=held_out)
            print(f"{scenario} {seed}", file=sys.stderr, flush=True)
    return out


def summary(found: list[Arm]) -> dict[str, Any]:
    """All families together, and each."""
    families = sorted({arm.scenario for arm in found})
    groups = {"all": found} | {f: [a for a in found if a.scenario == f] for f in families}
    return {
        name: {
            "means": {who: means(group, who) for who in (BASELINE, LEARNED, ORACLE)},
            "learned": difference(group, BASELINE, LEARNED),
            "oracle": difference(group, BASELINE, ORACLE),
        }
        for name, group in groups.items()
    }


def print_table(figures: dict[str, Any]) -> None:
    for name, group in figures.items():
        print(f"\n{name}")
        print(
            f"  {'':<14}{'failed-pod s':>13}{'violation s':>13}{'actions':>9}{'abstained':>11}",
            end="",
        )
        print(f"{'lead s':>8}{'at throttle':>13}{'at migrate':>12}{'at replicate':>14}")
        for who, row in group["means"].items():
            print(
                f"  {who:<14}{row['failed_pod_seconds']:>13.0f}{row['violation_seconds']:>13.0f}"
                f"{row['actions']:>9.1f}{row['abstained']:>11.3f}{row['lead_seconds_median']:>8.0f}"
                + "".join(
                    f"{row[f'share_of_deaths_at_{level}_risk']:>{width}.2f}"
                    for level, width in (("throttle", 13), ("migrate", 12), ("replicate", 14))
                )
            )
        for who in ("learned", "oracle"):
            d = group[who]
            low, high = d["interval"]
            print(
                f"  {who}: {100 * d['fewer_failed_pod_seconds']:.1f} % fewer failed-pod seconds "
                f"({100 * low:.1f} to {100 * high:.1f}), better on {d['better_on']} of {d['days']}"
            )


def claims(figures: dict[str, Any], strangeness: dict[str, float]) -> dict[str, bool]:
    every = figures["all"]
    gain, rows = every["learned"], every["means"]
    return {
        "at least 20 % fewer failed-pod seconds": gain["fewer_failed_pod_seconds"] >= FEWER,
        "the interval excludes zero": gain["interval"][0] > 0,
        "no more actions": rows[LEARNED]["actions"] <= rows[BASELINE]["actions"],
        "abstains on at most 10 % of the new families": rows[LEARNED]["abstained"] <= ABSTAINED_NEW,
        **{
            f"abstains within 60 s: {name}": share >= ABSTAINED_STRANGE
            for name, share in strangeness.items()
            if name != "familiar"
        },
        "abstains on at most 1 % of the familiar": strangeness["familiar"] <= ABSTAINED_FAMILIAR,
    }


def regenerate() -> int:
    """Train by the recipe and compare with the shipped file."""
    from importlib import resources

    from pilothouse.learn.train import simulated

    shipped = (resources.files("pilothouse.predict") / "shipped" / "harbor.json").read_bytes()
    name = load_artifact().name
    made = simulated.train(simulated.Recipe(), name=name, progress=_show).dump()
    same = made == shipped
    print(
        "The shipped artefact is " + ("byte by byte what its command makes." if same else "OTHER.")
    )
    return 0 if same else 1


def demand(name: str, seeds: int, cycles: int) -> int:
    """The same days with the transparent demand and with a trained one; risk is the baseline's."""
    settings = Settings()
    wanted = replace(settings, forecast=replace(settings.forecast, demand=name))
    found: list[Arm] = []
    for scenario in DEMAND_SCENARIOS:
        for seed in range(DEMAND_SEED, DEMAND_SEED + seeds):
            for arm, chosen in (("transparent", settings), (name, wanted)):
                run = run_arm(chosen, scenario, seed, cycles, held_out=False)
                found.append(replace(run, forecaster=arm))
            print(f"{scenario} {seed}", file=sys.stderr, flush=True)
    print(f"{'':<18}{'demand':<14}{'failed-pod s':>13}{'violation s':>13}", end="")
    print(f"{'energy, MJ':>12}{'actions':>9}")
    for scenario in ("all", *DEMAND_SCENARIOS):
        group = [arm for arm in found if scenario in ("all", arm.scenario)]
        for arm in ("transparent", name):
            row = means(group, arm)
            print(
                f"{scenario:<18}{Path(arm).stem:<14}{row['failed_pod_seconds']:>13.0f}"
                f"{row['violation_seconds']:>13.0f}{row['energy_joules'] / 1e6:>12.3f}"
                f"{row['actions']:>9.1f}"
            )
    return 0


def _show(done: int, total: int) -> None:
    print(f"run {done} of {total}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cycles", type=int, default=280)
    parser.add_argument("--tuning", action="store_true", help="Tuning families; tests nothing.")
    parser.add_argument("--regenerate", action="store_true")
    parser.add_argument("--demand", help="Name or file of a trained demand forecaster.")
    parser.add_argument("--write", action="store_true", help="Renew results.json.")
    options = parser.parse_args()
    if options.regenerate:
        return regenerate()
    if options.demand:
        return demand(options.demand, options.seeds, options.cycles)
    if options.tuning:
        seeds = range(inloop.TUNING_SEEDS[0], inloop.TUNING_SEEDS[0] + min(options.seeds, 6))
        print_table(summary(measure(inloop.TUNING_FAMILIES, seeds, options.cycles, held_out=False)))
        return 0
    found = measure(inloop.NEW_FAMILIES, range(options.seeds), options.cycles, held_out=True)
    figures = summary(found)
    print_table(figures)
    strangeness = strange.abstained(("harbor", "weary-nodes"), (700, 701, 702), 120)
    print("\nabstained on")
    for name, share in strangeness.items():
        print(f"  {name:<24}{share:.3f}")
    held = claims(figures, strangeness)
    print()
    for claim, holds in held.items():
        print(f"  {'holds' if holds else 'FAILS'}  {claim}")
    if options.write:
        document = {
            "date": date.today().isoformat(),
            "cycles": options.cycles,
            "seeds": options.seeds,
            "figures": figures,
            "abstained": strangeness,
            "claims": held,
            "arms": [asdict(arm) for arm in found],
        }
        (HERE / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
