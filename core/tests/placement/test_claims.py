import pytest

from superinfer_core.api.v1alpha1.chipletpool import ChipletShape
from superinfer_core.placement.claims import claim_spec

UUID = "GPU-3b045efb-6e2d-53fe-a095-951cc3be1c7e"
MIG = "MIG-285413d0-da5e-5720-b77e-db766c3fab1a"


@pytest.mark.parametrize(
    ("shape", "uuids", "device_class"),
    [
        (ChipletShape.GPU, [UUID, UUID[:-1] + "f"], "gpu.nvidia.com"),
        (ChipletShape.MIG, [MIG], "mig.nvidia.com"),
    ],
    ids=["two GPUs", "an instance"],
)
def test_every_device_is_a_request(shape: ChipletShape, uuids: list[str], device_class: str) -> None:
    requests = claim_spec(uuids, shape)["devices"]["requests"]
    assert [request["exactly"]["deviceClassName"] for request in requests] == [device_class] * len(uuids)
    assert len({request["name"] for request in requests}) == len(uuids)
    for request, uuid in zip(requests, uuids, strict=True):
        assert request["exactly"]["count"] == 1
        assert uuid in request["exactly"]["selectors"][0]["cel"]["expression"]


@pytest.mark.parametrize(
    ("uuids", "shape", "told"),
    [
        ([], ChipletShape.GPU, "once each"),
        ([UUID, UUID], ChipletShape.GPU, "once each"),
        ([UUID], ChipletShape.CPU, "no devices to claim"),
        ([f"{UUID}:3g.71gb:4"], ChipletShape.MIG, "no UUID"),
        ([f'{UUID}" || true || "'], ChipletShape.GPU, "no UUID"),
    ],
    ids=["none", "twice", "no shape for it", "not made yet", "not a UUID"],
)
def test_what_cannot_be_claimed_is_refused(uuids: list[str], shape: ChipletShape, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        claim_spec(uuids, shape)
