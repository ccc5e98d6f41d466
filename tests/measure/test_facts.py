"""Facts between child and parent: what is sent arrives as it was, and another version's JSON is not read."""

from __future__ import annotations

import json

import pytest
from surveys import USUAL, facts

from perfaudit.measure.facts import VERSION, CallSite, Facts, from_json, to_json
from perfaudit.target.blocks import Repeated

SITE = CallSite("/here/train.py", 3, 4, 0, 12)
FULL = facts(
    device={"type": "cuda", "capability": (9, 0), "room": 7 << 30},
    loader={"site": SITE, "num_workers": 2, "prefetch_factor": 4},
    optimizer={"site": SITE, "fused": True},
    model={"repeated": Repeated("blocks", 4, 1), "compiled_sites": {"model": SITE}, "dtypes": ("bfloat16",)},
    ema_site=SITE,
    has_ema=True,
    step_autocast="bfloat16",
    factory_files={"model": "/here/train.py", "step": None},
    digests={"/here/train.py": "0" * 64},
    strays=("/here/nets.py",),
)


@pytest.mark.parametrize("sent", [USUAL, FULL])
def test_what_is_sent_arrives_as_it_was(sent: Facts) -> None:
    arrived = from_json(json.loads(json.dumps(to_json(sent))))
    assert arrived == sent
    assert arrived.model.repeated is None or type(arrived.model.repeated) is Repeated
    assert arrived.ema_site is None or type(arrived.ema_site) is CallSite


@pytest.mark.parametrize("version", [None, 0, VERSION - 1, VERSION + 1])
def test_facts_of_another_version_are_not_read(version: int | None) -> None:
    with pytest.raises(ValueError, match=f"facts of version {version}; this perfaudit reads {VERSION}"):
        from_json({**to_json(USUAL), "version": version})


def test_facts_that_lack_something_are_not_read() -> None:
    sent = to_json(USUAL)
    del sent["loader"]["batch_size"]
    with pytest.raises(KeyError, match="batch_size"):
        from_json(sent)
