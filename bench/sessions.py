"""Sessions of the vendor's real program on a served hub, with their ledgers; and what an agent's program can do wrong.

Usage: python -m bench sessions

Part one plays one wave with four sessions: one is validated, one is handed off in mid-turn, one parks on a smoke run that
fails, is continued by a new process and repairs, and one is stopped by its budget. Part two is the table of faults, in
each kind of sandbox that this machine has. Part three kills klaud by SIGKILL at each write of a session, sweeps, and counts
what was done and what is left. The status is the number of things that are not as they must be.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from klaud import clock as clocks
from klaud.cli import demo_world
from klaud.leases import model as leases
from klaud.session import decide, journal, rules_redact, sandbox
from tests.support import agent_faults, canaries, messages_api, session_kills, session_wave

EXPECTED = {
    "validated": ("validated", "", ("open", False)),
    "handoff": ("handoff", "handoff-label", ("open", True)),
    "repaired": ("validated", "", ("open", False)),
    "budget": ("failed", "budget", None),
}
"""Name -> outcome, code, and how the draft stands."""


def play() -> int:
    """Play the wave and print each session; return how many things are wrong."""
    began = time.monotonic()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="klaud-sessions-") as name:
        Path(name).chmod(0o755)
        with session_wave.game(Path(name) / "world") as game:
            game.play()
            shown = game.shown()
    for one in shown:
        print(f"\n-- {one.name}: candidate {one.candidate}, {len(one.told)} candidate run(s)")
        for record in one.records:
            print(f"   {session_wave.line(record)}")
        wrong += _judge(one)
    print(f"\n{len(shown)} sessions of four, in {time.monotonic() - began:.0f} s with the wave and two sweeps")
    return wrong + (len(shown) != len(EXPECTED))


def _judge(one: session_wave.Shown) -> int:
    turns = [record for record in one.records if isinstance(record, leases.TurnEnded)]
    outcome = one.outcome
    tokens = [(turn.input_tokens, turn.output_tokens) for turn in turns]
    asked = [told.asked for told in one.told]
    print(f"   tokens (in, out) of each turn, as the proxy counted: {tokens}")
    print(f"   dollars: {sum(turn.cost_microdollars for turn in turns) / 1e6:.4f}; requests answered: {asked}")
    found = (outcome.outcome, outcome.code, one.draft and one.draft[:2]) if outcome else None
    faults = [] if found == EXPECTED[one.name] else [f"it ended {found} and not {EXPECTED[one.name]}"]
    for told in one.told:
        secrets = [
            secret
            for secret in (messages_api.KEY, demo_world.BOT_TOKEN)
            if canaries.found(secret, told.output.encode())
        ]
        faults += [f"a secret in the output of run {told.run}"] * len(secrets)
        if any(told.statuses):
            faults.append(f"run {told.run} ended with {told.statuses}: {told.output[-800:]}")
    if one.name == "repaired":
        memory = '\\"continued\\"' in one.told[-1].first
        print(f"   the second process was told what the first had done: {'yes' if memory else 'no'}")
        faults += [] if memory and len(one.told) == 2 else ["its memory was lost"]
    print(f"   outcome: {found}" + "".join(f"\n   WRONG: {fault}" for fault in faults))
    return len(faults)


def faults() -> int:
    """Try each fault in each sandbox and print the table; return how many things are wrong."""
    host = sandbox.find("best-effort")
    boxes = [sandbox.NONE, *([host] if isinstance(host, sandbox.Sandbox) and host.parts else [])]
    wrong = 0
    print(
        f"\n{'fault':28}{'sandbox':26}{'turn':11}{'outcome class':31}{'seconds':>8}{'left':>5}{'lost':>5}{'secrets':>8}"
    )
    cases = [(name, *case, None) for name, case in agent_faults.TABLE.items()]
    cases.append(("missing program", {}, "failed", "missing-program", ("/nonexistent/agent",)))
    for name, script, status, fault, argv in cases:
        for box in boxes:
            with tempfile.TemporaryDirectory(prefix="klaud-fault-") as folder:
                place = Path(folder)
                place.chmod(0o755)
                began = time.monotonic()
                policy = agent_faults.policy_of(fault)
                given = {"steps": agent_faults.CALL, **script}
                redactor = rules_redact.Redactor([agent_faults.SECRET])
                (place / "kept").mkdir()
                with journal.opened(place / "kept", "c", redactor=redactor, clock=clocks.SystemClock()) as told:
                    end, desk, log = agent_faults.drive_script(place, box, given, argv=argv, told=told, policy=policy)
                seconds = time.monotonic() - began
                left = end.left + len(agent_faults.strays(place))
                kept = b"".join(file.read_bytes() for file in sorted((place / "kept").iterdir()))
            lost = len(agent_faults.CALL) - len(desk.calls) if end.status == "completed" else 0
            lost += b'"phase":"agent"' not in kept and end.fault not in {"missing-program", "start"}
            secrets = int(canaries.found(agent_faults.SECRET, kept + ("\n".join(log) + repr(end)).encode()))
            outcome = "/".join(filter(None, decide.outcome_of_turn(end)))
            print(f"{name:28}{box.words:26}{end.status:11}{outcome:31}{seconds:8.2f}{left:5}{lost:5}{secrets:8}")
            good = (end.status, end.fault) == (status, fault) and not left and not lost and not secrets
            wrong += not (good and seconds < agent_faults.bound_of(policy))
    return wrong


def kills() -> int:
    """Kill a session at each of its writes, and print what came of it; return how many things are wrong."""
    wrong, number, killed = 0, 0, True
    print(f"\n{'killed at':58}{'draft':>7}{'smoke':>7}{'final':>7}{'comment':>9}{'left':>6}   the draft at the end")
    with tempfile.TemporaryDirectory(prefix="klaud-kills-") as name:
        Path(name).chmod(0o755)
        with session_kills.game(Path(name) / "world") as game:
            while killed:
                number += 1
                one = game.play(number)
                killed = one.killed
                counts = "".join(
                    f"{count:{width}}" for count, width in zip(one.effects.values(), (7, 7, 7, 9), strict=True)
                )
                print(f"{number:3} {one.at[:54]:54}{counts}{len(one.left):6}   {one.draft}", flush=True)
                for fault in one.faults:
                    print(f"    WRONG: {fault}")
                wrong += len(one.faults)
    return wrong


def main() -> int:
    """Play, try, kill, and count what is wrong."""
    wrong = play() + faults() + kills()
    print(f"\nnot as it must be: {wrong}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
