"""Where copies go: far enough away, evenly, and the same wherever it is asked."""

from collections import Counter

import pytest

from superinfer_core.checkpoint.peers import Peer, PeerPolicy, choose_peers


def pool(count, *, nodes=4, gpus=2):
    return [
        Peer(
            f"e{n}",
            f"10.0.0.{n}:7443",
            (f"zone/z{n % 2}", f"node/n{n % nodes}", f"gpu/g{n % (nodes * gpus)}"),
        )
        for n in range(count)
    ]


def names(peers):
    return [peer.executor for peer in peers]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(PeerPolicy.NONE, set(), id="none"),
        pytest.param(
            PeerPolicy.ANY, {"same gpu", "same node", "same zone", "elsewhere", "unknown"}, id="any"
        ),
        pytest.param(PeerPolicy.OTHER_GPU, {"same node", "same zone", "elsewhere"}, id="another GPU"),
        pytest.param(PeerPolicy.OTHER_NODE, {"same zone", "elsewhere"}, id="another node"),
        pytest.param(PeerPolicy.OTHER_ZONE, {"elsewhere"}, id="another zone"),
    ],
)
def test_a_policy_says_how_far(policy, expected):
    peers = [
        Peer("me", "a", ("zone/1", "node/1", "gpu/1")),
        Peer("same gpu", "a", ("zone/1", "node/1", "gpu/1")),
        Peer("same node", "a", ("zone/1", "node/1", "gpu/2")),
        Peer("same zone", "a", ("zone/1", "node/2")),
        Peer("elsewhere", "a", ("zone/2", "node/3", "gpu/1")),
        Peer("unknown", "a"),
    ]
    assert set(names(choose_peers("me", peers, policy, 9))) == expected


def test_who_does_not_know_where_it_is_has_no_peer_on_another_node():
    peers = [Peer("me", "a"), Peer("other", "b", ("node/2",))]
    assert choose_peers("me", peers, PeerPolicy.OTHER_NODE, 1) == ()
    assert names(choose_peers("me", peers, PeerPolicy.ANY, 1)) == ["other"]


def test_the_order_of_the_list_does_not_matter():
    peers = pool(20)
    forwards = choose_peers("e3", peers, PeerPolicy.OTHER_NODE, 3)
    assert choose_peers("e3", reversed(peers), PeerPolicy.OTHER_NODE, 3) == forwards
    assert len(forwards) == 3


def test_copies_spread_over_the_pool():
    peers = pool(200, nodes=50)
    taken = Counter(choose_peers(p.executor, peers, PeerPolicy.OTHER_NODE, 1)[0].executor for p in peers)
    assert max(taken.values()) <= 7


def test_who_leaves_moves_only_the_copies_it_had():
    peers = pool(40)
    before = {p.executor: choose_peers(p.executor, peers, PeerPolicy.ANY, 1)[0].executor for p in peers}
    rest = [p for p in peers if p.executor != "e7"]
    for peer in rest:
        after = choose_peers(peer.executor, rest, PeerPolicy.ANY, 1)[0].executor
        assert after == before[peer.executor] or before[peer.executor] == "e7"


def test_executors_without_an_address_get_nothing():
    peers = [Peer("me", "a"), Peer("nowhere", ""), Peer("there", "b")]
    assert names(choose_peers("me", peers, PeerPolicy.ANY, 5)) == ["there"]
