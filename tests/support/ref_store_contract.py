# ruff: noqa: N802 - tests carry the ids of the oddities and contracts they show
"""What every ``RefStore`` keeps, numbered. A subclass has a fixture ``connect``: a function that makes one more client.

All clients of one test speak to the same host, empty but for what the test writes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from klaud.github.gateway import (
    CommitData,
    RefRejected,
    RefStore,
    RefSuperseded,
    RefUpdate,
    RefUpdated,
)

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = (f"refs/klaud/claims/{digit * 16}" for digit in "abc")
LEDGER = "refs/klaud/sessions/7.1-" + "a" * 16 + "-" + "b" * 16

Connect = "Callable[[], RefStore]"


class RefStoreContract:
    """R01 to R20."""

    def test_R01_list_has_exactly_the_refs_below_the_prefixes(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        oid = one.write_commit(b"one\n")
        names = (A, "refs/klaudius/x", "refs/heads/klaud/auto-x", "refs/heads/klaud-2", LEDGER)
        assert all(isinstance(r, RefUpdated) for r in one.apply([RefUpdate(name, None, oid) for name in names]))
        found = connect().list(["refs/klaud/", "refs/heads/klaud/"])
        assert dict(found) == {A: oid, LEDGER: oid, "refs/heads/klaud/auto-x": oid}

    def test_R02_of_two_creations_one_wins_and_the_other_is_told_who(self, connect: Callable[[], RefStore]) -> None:
        one, two = connect(), connect()
        first, second = one.write_commit(b"one\n"), two.write_commit(b"two\n")
        assert list(one.apply([RefUpdate(A, None, first)])) == [RefUpdated(A)]
        assert list(two.apply([RefUpdate(A, None, second)])) == [RefSuperseded(A, first)]
        assert connect().list([A]) == {A: first}

    def test_R03_a_stale_expectation_moves_nothing(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        first, second, third = (one.write_commit(text) for text in (b"1\n", b"2\n", b"3\n"))
        one.apply([RefUpdate(A, None, first)])
        assert list(one.apply([RefUpdate(A, first, second)])) == [RefUpdated(A)]
        assert list(one.apply([RefUpdate(A, first, third)])) == [RefSuperseded(A, second)]
        assert connect().list([A]) == {A: second}

    def test_R04_delete_is_compared_too(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        first, second = one.write_commit(b"1\n"), one.write_commit(b"2\n")
        one.apply([RefUpdate(A, None, first)])
        assert list(one.apply([RefUpdate(A, second, None)])) == [RefSuperseded(A, first)]
        assert list(one.apply([RefUpdate(A, first, None)])) == [RefUpdated(A)]
        assert connect().list([A]) == {}

    def test_R05_deleting_what_is_not_there_is_told_as_such(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        oid = one.write_commit(b"1\n")
        assert list(one.apply([RefUpdate(A, oid, None)])) == [RefSuperseded(A, None)]

    def test_R06_creating_what_stands_there_already_is_superseded_by_itself(
        self, connect: Callable[[], RefStore]
    ) -> None:
        one = connect()
        oid = one.write_commit(b"1\n")
        one.apply([RefUpdate(A, None, oid)])
        assert list(one.apply([RefUpdate(A, None, oid)])) == [RefSuperseded(A, oid)]

    def test_R07_updates_are_judged_alone_and_answered_in_order(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        first, second = one.write_commit(b"1\n"), one.write_commit(b"2\n")
        one.apply([RefUpdate(B, None, first)])
        answers = one.apply([RefUpdate(C, None, second), RefUpdate(B, second, None), RefUpdate(A, None, second)])
        assert list(answers) == [RefUpdated(C), RefSuperseded(B, first), RefUpdated(A)]
        assert connect().list(["refs/klaud/"]) == {A: second, B: first, C: second}

    def test_R08_an_atomic_push_moves_nothing_when_one_is_stale(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        first, second = one.write_commit(b"1\n"), one.write_commit(b"2\n")
        one.apply([RefUpdate(B, None, first)])
        answers = one.apply([RefUpdate(A, None, second), RefUpdate(B, second, None)], atomic=True)
        assert isinstance(answers[0], RefRejected)
        assert answers[1] == RefSuperseded(B, first)
        assert connect().list(["refs/klaud/"]) == {B: first}

    def test_R09_an_atomic_push_moves_all(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        first, second = one.write_commit(b"1\n"), one.write_commit(b"2\n")
        one.apply([RefUpdate(B, None, first)])
        answers = one.apply([RefUpdate(A, None, second), RefUpdate(B, first, None)], atomic=True)
        assert list(answers) == [RefUpdated(A), RefUpdated(B)]
        assert connect().list(["refs/klaud/"]) == {A: second}

    def test_R10_a_commit_is_read_as_it_was_written(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        text = '{"a":"ü 🚀","b":[1,2]}\n'.encode()
        oid = one.write_commit(text)
        one.apply([RefUpdate(A, None, oid)])
        found = connect().read([oid])[oid]
        assert isinstance(found, CommitData)
        assert (found.oid, found.parents, found.tree_is_empty) == (oid, (), True)
        assert found.message.rstrip(b"\n") == text.rstrip(b"\n")

    def test_R11_depth_reads_that_many_links_of_a_chain(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        chain: list[str] = []
        for number in range(5):
            chain.append(one.write_commit(b"%d\n" % number, chain[-1:]))
        one.apply([RefUpdate(LEDGER, None, chain[-1])])
        assert set(connect().read([chain[-1]], depth=3)) == set(chain[2:])
        whole = connect().read([chain[-1]], depth=100)
        assert set(whole) == set(chain)
        assert [whole[oid].parents for oid in chain if isinstance(whole[oid], CommitData)] == [  # type: ignore[union-attr]
            (), *((oid,) for oid in chain[:-1]),
        ]  # fmt: skip

    def test_R12_an_oid_the_host_does_not_have_is_left_out(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        oid = one.write_commit(b"1\n")
        one.apply([RefUpdate(A, None, oid)])
        assert set(connect().read([oid, "1" * 40])) == {oid}

    def test_R13_writing_a_commit_sends_nothing(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        oid = one.write_commit(b"1\n")
        assert (one.pushes, one.fetches) == (0, 0)
        assert oid not in connect().list(["refs/klaud/", "refs/heads/"]).values()

    def test_R14_nothing_to_do_is_no_push(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        assert list(one.apply([])) == []
        assert one.pushes == 0

    def test_R15_many_updates_are_one_push(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        oid = one.write_commit(b"1\n")
        updates = [
            RefUpdate(f"refs/klaud/leases/{number}.1-{'a' * 16}-{'b' * 16}", None, oid) for number in range(1, 51)
        ]
        assert all(isinstance(result, RefUpdated) for result in one.apply(updates))
        assert one.pushes == 1
        assert len(connect().list(["refs/klaud/leases/"])) == 50

    def test_R16_another_clients_commit_can_be_archived_and_its_ref_deleted_in_one_push(
        self, connect: Callable[[], RefStore]
    ) -> None:
        one, two = connect(), connect()
        oid = one.write_commit(b"1\n")
        one.apply([RefUpdate(A, None, oid)])
        kept = f"refs/klaud/archive/claims/{'a' * 16}/{oid}"
        assert list(two.apply([RefUpdate(kept, None, oid), RefUpdate(A, oid, None)])) == [
            RefUpdated(kept),
            RefUpdated(A),
        ]
        assert connect().list(["refs/klaud/"]) == {kept: oid}
        assert isinstance(connect().read([oid])[oid], CommitData)

    def test_R17_a_chain_can_be_continued_by_another_client(self, connect: Callable[[], RefStore]) -> None:
        one, two = connect(), connect()
        first = one.write_commit(b"1\n")
        one.apply([RefUpdate(LEDGER, None, first)])
        second = two.write_commit(b"2\n", [first])
        assert list(two.apply([RefUpdate(LEDGER, first, second)])) == [RefUpdated(LEDGER)]
        assert set(connect().read([second], depth=9)) == {first, second}

    def test_R18_eight_clients_at_once_and_one_of_them_wins(self, connect: Callable[[], RefStore]) -> None:
        """Oddity L19: compare-and-swap, so exactly one wins and the others are told who."""
        clients = [connect() for _ in range(8)]
        oids = [client.write_commit(b"%d\n" % number) for number, client in enumerate(clients)]
        answers: list[object] = [None] * 8
        gate = threading.Barrier(8)

        def claim(number: int) -> None:
            gate.wait()
            answers[number] = clients[number].apply([RefUpdate(A, None, oids[number])])[0]

        threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [number for number, answer in enumerate(answers) if answer == RefUpdated(A)]
        assert len(winners) == 1, answers
        assert connect().list([A]) == {A: oids[winners[0]]}
        assert {type(answer) for answer in answers} == {RefUpdated, RefSuperseded}
        told = {answer.actual for answer in answers if isinstance(answer, RefSuperseded)}
        assert told == {oids[winners[0]]}

    def test_R19_a_ref_may_be_moved_to_an_older_commit(self, connect: Callable[[], RefStore]) -> None:
        one = connect()
        first = one.write_commit(b"1\n")
        second = one.write_commit(b"2\n", [first])
        one.apply([RefUpdate(A, None, second)])
        assert list(one.apply([RefUpdate(A, second, first)])) == [RefUpdated(A)]
        assert connect().list([A]) == {A: first}
