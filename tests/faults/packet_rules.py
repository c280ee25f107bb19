"""The input of iptables, and the parsing of its counters. Pure: text in, text out.

Each fault has two chains of its own, so that it is counted and removed by itself. iptables-restore
creates and removes them atomically."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# For the addresses of a container network; loopback stays open, because Docker resolves names
# there.
_LOOPBACK = "lo"
# A rule as `iptables -v -x -n -L` prints it: packets, bytes, target.
_PACKETS, _TARGET = 0, 2
TAKING_AWAY = ("DROP", "REJECT")
LETTING_PASS = "RETURN"


class Packets(NamedTuple):
    """`passed` is counted where only some packets are dropped."""

    lost: int
    passed: int

    @property
    def percent_lost(self) -> float:
        return 100 * self.lost / max(1, self.lost + self.passed)


def chains(name: str) -> tuple[str, str]:
    """The chains for incoming and outgoing packets."""
    return f"{name}-IN", f"{name}-OUT"


def cut(name: str, others: Sequence[str], *, only_in: bool) -> str:
    """`others`: addresses; none: everything except loopback."""
    incoming = [f"-s {other} -j DROP" for other in others] or [f"! -i {_LOOPBACK} -j DROP"]
    outgoing = [f"-d {other} -j DROP" for other in others] or [f"! -o {_LOOPBACK} -j DROP"]
    return _filter(name, incoming, [] if only_in else outgoing)


def drop(name: str, percent: int) -> str:
    some = f"-m statistic --mode random --probability {percent / 100:.2f} -j DROP"
    return _filter(
        name,
        [f"! -i {_LOOPBACK} {some}", f"! -i {_LOOPBACK} -j {LETTING_PASS}"],
        [f"! -o {_LOOPBACK} {some}", f"! -o {_LOOPBACK} -j {LETTING_PASS}"],
    )


def redirect(name: str, port: int, to_port: int) -> str:
    """Redirects connections to `port` to `to_port`, and breaks existing ones, so that all use the
    relay."""
    breaking = f"! -i {_LOOPBACK} -p tcp --dport {port} -j REJECT --reject-with tcp-reset"
    nat_chain = f"{name}-NAT"
    nat = [
        "*nat",
        f":{nat_chain} - [0:0]",
        f"-A {nat_chain} -p tcp --dport {port} -j REDIRECT --to-ports {to_port}",
        f"-I PREROUTING 1 -j {nat_chain}",
        "COMMIT",
    ]
    return "\n".join(nat) + "\n" + _filter(name, [breaking], [])


def stop_redirect(name: str) -> str:
    """New connections reach the port itself again; those of the relay break."""
    nat_chain = f"{name}-NAT"
    nat = [
        "*nat",
        f"-D PREROUTING -j {nat_chain}",
        f"-F {nat_chain}",
        f"-X {nat_chain}",
        "COMMIT",
    ]
    return "\n".join(nat) + "\n" + remove(name)


def remove(name: str) -> str:
    incoming, outgoing = chains(name)
    return _lines(
        "*filter",
        f"-D INPUT -j {incoming}",
        f"-D OUTPUT -j {outgoing}",
        *(f"-F {chain}" for chain in (incoming, outgoing)),
        *(f"-X {chain}" for chain in (incoming, outgoing)),
        "COMMIT",
    )


def packets(listing: str) -> Packets:
    """The packets that the rules of a chain dropped or let pass, from `iptables -v -x -n -L
    CHAIN`."""
    lost = passed = 0
    for fields in map(str.split, listing.splitlines()):
        if len(fields) <= _TARGET or not fields[_PACKETS].isdigit():
            continue
        if fields[_TARGET] in TAKING_AWAY:
            lost += int(fields[_PACKETS])
        elif fields[_TARGET] == LETTING_PASS:
            passed += int(fields[_PACKETS])
    return Packets(lost, passed)


def _filter(name: str, incoming: Iterable[str], outgoing: Iterable[str]) -> str:
    into, out = chains(name)
    return _lines(
        "*filter",
        f":{into} - [0:0]",
        f":{out} - [0:0]",
        *(f"-A {into} {rule}" for rule in incoming),
        *(f"-A {out} {rule}" for rule in outgoing),
        f"-I INPUT 1 -j {into}",
        f"-I OUTPUT 1 -j {out}",
        "COMMIT",
    )


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
