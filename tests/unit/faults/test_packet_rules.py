"""The rules given to iptables, and the counters read from it."""

from faults import packet_rules


def rules(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("-A")]


def test_a_cut_drops_incoming_and_outgoing_packets() -> None:
    assert rules(packet_rules.cut("F", ["10.0.0.2"], only_in=False)) == [
        "-A F-IN -s 10.0.0.2 -j DROP",
        "-A F-OUT -d 10.0.0.2 -j DROP",
    ]


def test_a_one_way_cut_drops_only_incoming_packets() -> None:
    assert rules(packet_rules.cut("F", ["10.0.0.2"], only_in=True)) == [
        "-A F-IN -s 10.0.0.2 -j DROP"
    ]


def test_an_isolated_broker_still_reaches_itself() -> None:
    assert rules(packet_rules.cut("F", [], only_in=False)) == [
        "-A F-IN ! -i lo -j DROP",
        "-A F-OUT ! -o lo -j DROP",
    ]


def test_packets_are_dropped_at_random() -> None:
    incoming, rest, *_ = rules(packet_rules.drop("F", 20))

    assert "-m statistic --mode random --probability 0.20 -j DROP" in incoming
    assert rest == "-A F-IN ! -i lo -j RETURN"


def test_redirection_breaks_existing_connections() -> None:
    text = packet_rules.redirect("F", 7500, 17500)

    assert "-A F-NAT -p tcp --dport 7500 -j REDIRECT --to-ports 17500" in text
    assert "-A F-IN ! -i lo -p tcp --dport 7500 -j REJECT --reject-with tcp-reset" in text


def test_removal_covers_every_created_chain() -> None:
    made = {w for w in packet_rules.redirect("F", 1, 2).replace(":", " ").split() if w[:2] == "F-"}
    removed = [
        line.split()[1] for line in packet_rules.stop_redirect("F").splitlines() if "-X" in line
    ]

    assert made == set(removed)


def test_dropped_and_passed_packets_are_counted() -> None:
    listing = """\
Chain F-IN (1 references)
    pkts      bytes target     prot opt in     out     source               destination
      12      720 DROP       0    --  *      *       10.0.0.2             0.0.0.0/0
       3      180 REJECT     6    --  !lo    *       0.0.0.0/0            0.0.0.0/0
      85     5000 RETURN     0    --  !lo    *       0.0.0.0/0            0.0.0.0/0
       9      500 ACCEPT     0    --  *      *       0.0.0.0/0            0.0.0.0/0
"""
    counted = packet_rules.packets(listing)
    assert counted == (15, 85)
    assert counted.percent_lost == 15
