"""Memory of an executor: what it is made of, and what a model's own files say of it."""

import pytest
from placement_cases import ALL_3G_H100, H100, counted, cut, gpu, mig, pool, switched

from superinfer_core.contract.parse import parse_pool
from superinfer_core.placement import Constraint, Snapshot, plan
from superinfer_core.placement.memory import (
    KvShape,
    ModelMemory,
    engine_percent,
    kept_heads,
    kv_tokens_wanted,
    memory_need,
    need_of_pool,
)

LLAMA_8B = ModelMemory(weights_mib=15_317, kv_bytes_per_token=131_072)


@pytest.mark.parametrize(
    ("length", "sequences", "at_once", "tokens"),
    [
        (8192, 32, None, 32 * 8192),
        (8192, 32, 4, 4 * 8192),
        (8192, 4, 32, 4 * 8192),
        (8192, 4, 0, 8192),
    ],
    ids=["all as long as can be", "contracts allow fewer", "the engine runs fewer", "the longest must fit"],
)
def test_tokens_follow_what_can_run_at_once(
    length: int, sequences: int, at_once: int | None, tokens: int
) -> None:
    assert kv_tokens_wanted(length, sequences, at_once) == tokens


def test_the_chiplet_is_larger_than_what_the_engine_needs_of_it() -> None:
    need = memory_need(LLAMA_8B, kv_tokens=8192, engine_percent=90)
    assert need.engine_mib == 15_317 + 1024 + 2048
    assert need.chiplet_mib == 20_433
    assert "KV cache of 8192 tokens 1024 MiB" in need.describe()
    assert need.describe().endswith("a chiplet of 20433 MiB")


def test_overhead_is_needed_on_every_gpu_and_weights_once() -> None:
    one, four = (memory_need(LLAMA_8B, kv_tokens=8192, gpus=gpus) for gpus in (1, 4))
    assert four.engine_mib - one.engine_mib == 3 * 2048


@pytest.mark.parametrize(
    ("arguments", "percent"),
    [
        ([], 90),
        (["--gpu-memory-utilization", "0.5"], 50),
        (["--gpu-memory-utilization", "0.57"], 57),
        (["--gpu-memory-utilization=0.95", "--x"], 95),
        (["--gpu-memory-utilization=0.95", "--gpu-memory-utilization", "0.8"], 80),
        (["--gpu-memory-utilization"], 90),
    ],
    ids=["unset", "two words", "no whole float", "one word", "the last counts", "without a value"],
)
def test_the_engine_says_how_much_of_a_gpu_it_takes(arguments: list[str], percent: int) -> None:
    assert engine_percent(arguments) == percent


LLAMA_70B_KV = KvShape(layers=80, kv_heads=8, head_values=256)
DEEPSEEK_KV = KvShape(layers=61, kv_heads=1, head_values=512 + 64)


@pytest.mark.parametrize(
    ("shape", "value_bytes", "size"),
    [
        (LLAMA_70B_KV, 2, 327_680),
        (LLAMA_70B_KV, 1, 163_840),
        (DEEPSEEK_KV, 2, 70_272),
    ],
    ids=["grouped heads", "half the size", "latent attention"],
)
def test_a_token_takes_what_its_layers_and_heads_keep(shape: KvShape, value_bytes: int, size: int) -> None:
    assert shape.bytes_per_token(value_bytes) == size


KEPT = [
    ("one GPU", 8, 1, 8),
    ("heads are divided", 8, 4, 8),
    ("one head a GPU", 8, 8, 8),
    ("each head on two GPUs", 8, 16, 16),
    ("one head on every GPU", 1, 8, 8),
    ("what does not divide counts as the fullest GPU", 3, 2, 4),
]


@pytest.mark.parametrize(("heads", "gpus", "kept"), [case[1:] for case in KEPT], ids=[c[0] for c in KEPT])
def test_every_gpu_keeps_at_least_one_kv_head(heads: int, gpus: int, kept: int) -> None:
    assert kept_heads(heads, gpus) == kept


@pytest.mark.parametrize(
    ("shape", "gpus", "kv_mib"),
    [
        (LLAMA_70B_KV, 1, 40_960),
        (LLAMA_70B_KV, 8, 40_960),
        (LLAMA_70B_KV, 16, 81_920),
        (DEEPSEEK_KV, 1, 8_784),
        (DEEPSEEK_KV, 8, 70_272),
    ],
    ids=["one GPU", "a head each", "two GPUs a head", "latent on one", "latent on every GPU"],
)
def test_kv_cache_counts_every_copy_of_a_head(shape: KvShape, gpus: int, kv_mib: int) -> None:
    model = ModelMemory(1, shape.bytes_per_token(2), kv_heads=shape.kv_heads)
    assert memory_need(model, kv_tokens=131_072, gpus=gpus).kv_mib == kv_mib


def test_heads_nobody_stated_are_taken_to_divide() -> None:
    assert memory_need(ModelMemory(1, 327_680), kv_tokens=131_072, gpus=16).kv_mib == 40_960


def test_a_negative_size_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="weights_mib is -1"):
        ModelMemory(-1, 0)


REFUSED = [
    ("a MIG instance", cut("a", (ALL_3G_H100,)), mig("3g.40gb", memory_mib=50_000), "40448", 50_000),
    ("a whole GPU", switched("a"), gpu(memory_mib=150_000), "143771", 150_000),
    ("two GPUs together", switched("a"), gpu(2, memory_mib=300_000), "2 x 143771", 300_000),
    ("a GPU known by labels", counted("a", product=H100, gpu=2), gpu(memory_mib=100_000), "81559", 100_000),
]


@pytest.mark.parametrize(
    ("node", "chiplet", "have", "need"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_a_chiplet_that_is_too_small_is_refused_by_node_with_what_it_has(node, chiplet, have, need) -> None:
    (unplaced,) = plan(Snapshot((node,), (pool("p", 1, chiplet),)), 0).unplaced
    (refusal,) = unplaced.refusals
    assert (refusal.constraint, refusal.nodes) == (Constraint.NOT_ENOUGH_MEMORY, ("a",))
    assert refusal.message == f"with {have} MiB a chiplet, weights and KV cache need {need} MiB"
    assert refusal.message in unplaced.message


def test_of_two_nodes_the_one_with_enough_memory_is_taken() -> None:
    nodes = (counted("a", product=H100, gpu=2), switched("b"))
    (made,) = plan(Snapshot(nodes, (pool("p", 1, gpu(memory_mib=100_000)),)), 0).create
    assert made.node == "b"


POOL = {
    "apiVersion": "superinfer.dev/v1alpha1",
    "kind": "ChipletPool",
    "metadata": {"name": "p"},
    "spec": {
        "model": {"name": "m", "memory": {"weightsMiB": 15_317, "kvBytesPerToken": 131_072}},
        "engine": {"maxModelLen": 8192, "maxNumSeqs": 32},
        "chiplet": {"shape": "GPU", "count": 2},
    },
}


def test_a_pool_needs_room_for_all_that_its_contracts_allow_at_once() -> None:
    spec = parse_pool(POOL).spec
    needs = [need_of_pool(spec, at_once=at_once, gpus=2) for at_once in (None, 4)]
    assert [need.kv_mib for need in needs if need is not None] == [32 * 1024, 4 * 1024]


def test_tokens_that_are_stated_are_taken_whatever_contracts_allow() -> None:
    memory = {**POOL["spec"]["model"]["memory"], "kvTokens": 16_384}
    spec = parse_pool({**POOL, "spec": {**POOL["spec"], "model": {"name": "m", "memory": memory}}}).spec
    need = need_of_pool(spec, at_once=4, gpus=2)
    assert need is not None
    assert (need.kv_tokens, need.overhead_mib) == (16_384, 4096)


def test_a_pool_that_says_nothing_needs_nothing() -> None:
    spec = parse_pool({**POOL, "spec": {**POOL["spec"], "model": {"name": "m"}}}).spec
    assert need_of_pool(spec, at_once=None, gpus=2) is None


def test_shapes_of_more_gpus_than_kv_heads_need_room_for_the_copies() -> None:
    memory = {"weightsMiB": 134_571, "kvBytesPerToken": 327_680, "kvHeads": 8, "kvTokens": 131_072}
    spec = parse_pool({**POOL, "spec": {**POOL["spec"], "model": {"name": "m", "memory": memory}}}).spec
    needs = [need_of_pool(spec, at_once=None, gpus=gpus) for gpus in (8, 16)]
    assert [need.kv_mib for need in needs if need is not None] == [40_960, 81_920]
