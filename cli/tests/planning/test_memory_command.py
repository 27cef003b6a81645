"""`superinfer memory`: a model directory in numbers, as a pool takes them, and chiplets that are enough."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from superinfer_core.contract.parse import parse_pool

Run = Callable[..., Any]
CONFIG = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
PER_TOKEN = 2 * 30 * 3 * 64 * 2


def weights(file: Path, mib: int, dtype: str = "BF16") -> None:
    """A file whose header says so much; the tensors themselves are not there, and nobody may look."""
    size = {"BF16": 2, "F32": 4, "F8_E4M3": 1}[dtype]
    shape = [mib << 20, 1] if size == 1 else [(mib << 20) // size]
    header = json.dumps({"__metadata__": {}, "w": {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}})
    file.write_bytes(struct.pack("<Q", len(header)) + header.encode())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    weights(tmp_path / "model.safetensors", 256)
    return tmp_path


def told(superinfer: Run, *arguments: object) -> dict[str, Any]:
    done = superinfer("memory", *map(str, arguments), "-o", "json")
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_numbers_of_a_directory_are_what_a_pool_states(superinfer: Run, model: Path) -> None:
    answer = told(superinfer, model, "--max-num-seqs", 16)
    assert answer["spec"] == {
        "model": {"memory": {"weightsMiB": 256, "kvBytesPerToken": PER_TOKEN, "kvHeads": 3}},
        "engine": {"maxModelLen": 8192, "maxNumSeqs": 16},
    }
    kv_mib = PER_TOKEN * 8192 * 16 // (1 << 20)
    assert answer["need"]["engine_mib"] == 256 + kv_mib + 2048
    assert answer["chiplets"]["NVIDIA-H200"] == "1g.18gb"
    assert answer["chiplets"]["NVIDIA-A100-SXM4-40GB"] == "1g.10gb"


def test_what_is_printed_can_be_pasted_into_a_pool(superinfer: Run, model: Path) -> None:
    printed = superinfer("memory", str(model), "--kv-tokens", "65536").stdout
    spec = yaml.safe_load(printed[printed.index("spec:") :])["spec"]
    memory = {"weightsMiB": 256, "kvBytesPerToken": PER_TOKEN, "kvHeads": 3, "kvTokens": 65536}
    assert spec == {"model": {"memory": memory}}
    spec["model"]["name"] = "m"
    pool = {"apiVersion": "superinfer.dev/v1alpha1", "kind": "ChipletPool", "metadata": {"name": "p"}}
    parse_pool({**pool, "spec": {**spec, "chiplet": {"shape": "GPU"}}})


@pytest.mark.parametrize(
    ("dtype", "stored", "mib"),
    [("float32", "F32", 128), ("bfloat16", "F32", 256), ("bfloat16", "F8_E4M3", 256)],
    ids=["four bytes are loaded as two", "some are kept whole", "one byte"],
)
def test_weights_count_as_they_are_loaded(superinfer: Run, model: Path, dtype, stored, mib) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, "dtype": dtype}))
    weights(model / "model.safetensors", 256, stored)
    assert told(superinfer, model)["spec"]["model"]["memory"]["weightsMiB"] == mib


def test_a_second_copy_of_the_weights_is_not_counted(superinfer: Run, model: Path) -> None:
    (model / "model.safetensors").unlink()
    for name in ("model-1.safetensors", "model-2.safetensors", "consolidated.safetensors"):
        weights(model / name, 100)
    assert told(superinfer, model)["spec"]["model"]["memory"]["weightsMiB"] == 200
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert told(superinfer, model)["spec"]["model"]["memory"]["weightsMiB"] == 100


def test_several_gpus_need_overhead_each_and_are_whole(superinfer: Run, model: Path) -> None:
    answer = told(superinfer, model, "--gpus", 3)
    assert answer["need"]["overhead_mib"] == 3 * 2048
    assert answer["chiplets"]["NVIDIA-H200"] == "3xGPU"


def test_heads_that_are_kept_on_several_gpus_count_on_each(superinfer: Run, model: Path) -> None:
    three, nine = (told(superinfer, model, "--gpus", gpus) for gpus in (3, 9))
    assert three["spec"]["model"] == nine["spec"]["model"]  # a pool states the model, whatever its shape
    assert nine["need"]["kv_mib"] == 3 * three["need"]["kv_mib"]
    assert "each head on 3 GPUs" in superinfer("memory", str(model), "--gpus", "9").stdout


def test_a_cache_too_small_for_the_longest_request_is_refused(superinfer: Run, model: Path) -> None:
    done = superinfer("memory", str(model), "--kv-tokens", "100", "--max-model-len", "200")
    assert done.exit_code == 2
    assert "--kv-tokens 100 is below --max-model-len 200" in done.output


def test_the_models_own_limit_does_not_matter_where_another_is_given(superinfer: Run, model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": "many"}))
    assert told(superinfer, model, "--kv-tokens", 4096)["need"]["kv_tokens"] == 4096
    refused = superinfer("memory", str(model))
    assert refused.exit_code == 2
    assert (
        "max_position_embeddings is 'many'; write a whole number, or give --max-model-len" in refused.output
    )


def write_index(model: Path, content: object) -> None:
    (model / "model.safetensors.index.json").write_text(json.dumps(content))


def write_header(model: Path, header: object) -> None:
    text = json.dumps(header).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)


Spoil = Callable[[Path], object]
BAD: list[tuple[str, Spoil, str]] = [
    ("no directory", lambda m: m.rename(m.with_name("gone")), "give a Hugging Face model directory"),
    ("no weights", lambda m: (m / "model.safetensors").unlink(), "write weightsMiB by hand"),
    ("not weights", lambda m: (m / "model.safetensors").write_bytes(b"x"), "not a safetensors file"),
    ("cut short", lambda m: (m / "model.safetensors").write_bytes(b"\xff\0\0\0\0\0\0\0{"), "not all of it"),
    ("header is a list", lambda m: write_header(m, []), "not a safetensors file: tensors is []"),
    ("no shape", lambda m: write_header(m, {"w": {"dtype": "F32"}}), "w.shape: Field required"),
    ("shape below 0", lambda m: write_header(m, {"w": {"dtype": "F32", "shape": [-8]}}), "w.shape[0] is -8"),
    (
        "text as shape",
        lambda m: write_header(m, {"w": {"dtype": "F32", "shape": ["8"]}}),
        "w.shape[0] is '8'",
    ),
    (
        "no machine holds that",
        lambda m: write_header(m, {"w": {"dtype": "F32", "shape": [1 << 62, 1 << 62]}}),
        "the weights come to 8112963",
    ),
    ("nothing in it", lambda m: write_header(m, {}), "the weights come to 0 MiB"),
    ("index is a list", lambda m: write_index(m, []), "not an index of weights"),
    ("no weight map", lambda m: write_index(m, {}), "weight_map: Field required"),
    (
        "weight map is a list",
        lambda m: write_index(m, {"weight_map": ["a"]}),
        "weight_map is a list of 1 items",
    ),
    ("weight map of numbers", lambda m: write_index(m, {"weight_map": {"a": 7}}), "weight_map.a is 7"),
    ("weight map is empty", lambda m: write_index(m, {"weight_map": {}}), "weight_map is {}"),
    (
        "a shard is missing",
        lambda m: write_index(m, {"weight_map": {"a": "model-2.safetensors"}}),
        "'model-2.safetensors', which is not there; is the download complete?",
    ),
    (
        "a shard elsewhere",
        lambda m: write_index(m, {"weight_map": {"a": "../model.safetensors"}}),
        "which is not there",
    ),
]


@pytest.mark.parametrize(("spoil", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_cannot_be_read_says_what_to_do(superinfer: Run, model: Path, spoil: Spoil, words: str) -> None:
    spoil(model)
    done = superinfer("memory", str(model))
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output) < 600


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--kv-cache-dtype", "banana"),
        ("--max-model-len", "0"),
        ("--max-model-len", "99999999999"),
        ("--max-num-seqs", "-1"),
        ("--kv-tokens", "nan"),
        ("--gpus", "0"),
        ("--overhead-mib", "-1"),
        ("--engine-percent", "101"),
    ],
)
def test_options_outside_what_a_pool_may_state_are_refused(
    superinfer: Run, model: Path, option: str, value: str
) -> None:
    done = superinfer("memory", str(model), option, value)
    assert done.exit_code == 2
    assert option in done.output
