"""What a pair of processes is made of, how long its blocks are, and in which order they come. Standard library only."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from perfaudit.gate.records import ORDERS, SIDES, Blocks, Side
from perfaudit.measure.runner import BLOCK_SECONDS

SIDE_SECONDS = 3.0  # of steps, on each side of a pair; more tells little where pairs differ by more than it resolves
# Of a block, as near as whole steps come to it. On a shared machine the speed of a core changes within a tenth of a second
# (steps of 40 ms resemble the next one by 0.6 and the tenth by 0.1), so that what the two sides share is lost between longer
# blocks: after six seconds of identical code the error was 2.6 % with blocks of one step and 7 to 20 % with three to nine;
# of smaller steps 3.4 % with one, 4.3 % with two, 10 to 19 % with three to nine.
SHORT_SECONDS = 0.02
MOST_STEPS = 2000
MOST_ROUNDS = 20  # of a quad; more would cost more in handing over than they tell
HANDOVER_SECONDS = 0.002  # from the end of one block to the begin of the next; it was 1.5 ms
FEWEST_STEPS = 3  # of a long block: its median leaves one hiccup out
# Of a pair, where there is time for them. Even, so that each side begins equally often. With four, the first look has 16
# quads; the signed-rank test cannot call anything at its error, 0.002, from fewer than 9.
QUADS, FEWEST_QUADS = 4, 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pair is made of: so many quads, of so many rounds of four blocks, of so many timed steps after untimed ones."""

    quads: int
    rounds: int
    steps: int
    untimed: int

    def quad_seconds(self, seconds_per_step: float) -> float:
        """That a quad takes, both sides together."""
        return 4 * self.rounds * ((self.steps + self.untimed) * seconds_per_step + HANDOVER_SECONDS)

    def order(self, start: int, quad: int) -> list[Side]:
        """The sides of a quad's blocks, ABBA and BAAB in turn: so each side follows its own, which is faster, equally often."""
        first = start + quad * self.rounds
        return [side for number in range(first, first + self.rounds) for side in ORDERS[number % 2]]


SHORTEST: dict[Blocks, Plan] = {"short": Plan(FEWEST_QUADS, 1, 1, 0), "long": Plan(FEWEST_QUADS, 1, FEWEST_STEPS, 1)}


def plan_pair(seconds_per_step: float, seconds: float, length: Blocks) -> Plan:
    """The pair for a time, both sides together. A pair of slow steps takes longer, and the budget ends after fewer pairs.

    short: rounds of blocks of SHORT_SECONDS fill the time. long: one round a quad, of blocks of BLOCK_SECONDS or of what the
    time allows; one step of each block is not timed.
    """
    seconds = min(seconds, 2 * SIDE_SECONDS)
    return (_short if length == "short" else _long)(seconds_per_step, seconds)


def _short(seconds_per_step: float, seconds: float) -> Plan:
    steps = min(MOST_STEPS, max(1, round(SHORT_SECONDS / seconds_per_step)))
    rounds = int(seconds / Plan(1, 1, steps, 0).quad_seconds(seconds_per_step))
    quads = QUADS if rounds >= QUADS else FEWEST_QUADS
    return Plan(quads, min(MOST_ROUNDS, max(1, rounds // quads)), steps, 0)


def _long(seconds_per_step: float, seconds: float) -> Plan:
    wanted = min(MOST_STEPS, max(FEWEST_STEPS, round(BLOCK_SECONDS / seconds_per_step)))
    for quads in (QUADS, FEWEST_QUADS):
        steps = min(wanted, int(seconds / (4 * quads * seconds_per_step)) - 1)
        if steps >= FEWEST_STEPS:
            return Plan(quads, 1, steps, 1)
    return SHORTEST["long"]


def shorten_plan(plan: Plan, steps: int) -> Plan:
    """The plan with which the quads of a pair fit into so many steps of each side, as far as shorter blocks allow."""
    timed = max(1, min(plan.steps, steps // (2 * plan.quads) - plan.untimed))
    rounds = max(1, steps // (2 * (timed + plan.untimed)))  # of two blocks of each side
    quads = min(plan.quads, rounds)
    return Plan(quads, min(plan.rounds, rounds // quads), timed, plan.untimed)


def drawn_seed() -> int:
    """A seed that every library takes, also with the number of a pair added."""
    return int.from_bytes(os.urandom(3))


def first_side_and_order(seed: int, number: int, pair: int) -> tuple[Side, int]:
    """Which side of a pair is opened first, and with which of ORDERS it begins.

    Drawn once for a target, then in turn: of four consecutive pairs each has another of the four combinations, so at every
    look both are balanced, and neither goes with the other.
    """
    draw = random.Random(f"{seed} {number}")
    side, order = draw.randrange(2), draw.randrange(2)
    return SIDES[(side + pair) % 2], (order + pair // 2) % 2
