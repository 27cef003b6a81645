"""MIG geometry: counts that are known, and no layout that could not exist."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from superinfer_core.placement.geometry import (
    COMPUTE_SLICES,
    PRODUCTS,
    GpuProduct,
    MigProfile,
    can_lie_together,
    free_starts,
    memory_of_profile,
    product_named,
)

H100 = PRODUCTS["NVIDIA H100 80GB HBM3"]


def _without(product: GpuProduct, *kinds: str) -> tuple[MigProfile, ...]:
    def kind(profile: MigProfile) -> str:
        if profile.name.endswith("+me"):
            return "me"
        return "double" if (profile.memory_slices, profile.compute_slices) == (2, 1) else "plain"

    return tuple(profile for profile in product.mig_profiles if kind(profile) not in kinds)


def _maximal_layouts(profiles: tuple[MigProfile, ...]) -> set[tuple[tuple[int, str], ...]]:
    """Every set of instances to which none of `profiles` can be added."""
    found: set[tuple[tuple[int, str], ...]] = set()
    pieces = [(profile, start) for profile in profiles for start in profile.starts]

    def extend(chosen: tuple[tuple[MigProfile, int], ...], after: int) -> None:
        if not any(can_lie_together((*chosen, piece)) for piece in pieces):
            found.add(tuple(sorted((start, profile.name) for profile, start in chosen)))
            return
        for number in range(after, len(pieces)):
            longer = (*chosen, pieces[number])
            if can_lie_together(longer):
                extend(longer, number + 1)

    extend((), 0)
    return found


FULL_LADDERS = [product for product in PRODUCTS.values() if len(product.mig_profiles) == 7]


@pytest.mark.parametrize("product", FULL_LADDERS, ids=lambda product: product.label)
@pytest.mark.parametrize(
    ("left_out", "count"), [(("double", "me"), 19), (("me",), 78)], ids=["plain", "with double-memory 1g"]
)
def test_there_are_as_many_maximal_layouts_as_real_gpus_have(
    product: GpuProduct, left_out: tuple[str, ...], count: int
) -> None:
    layouts = _maximal_layouts(_without(product, *left_out))
    assert len(layouts) == count
    assert max(len(layout) for layout in layouts) == 7


def test_two_3g_strand_a_compute_slice_and_leave_no_room_for_a_1g() -> None:
    three, one = H100.profile("3g.40gb"), H100.profile("1g.10gb")
    assert three is not None
    assert one is not None
    assert can_lie_together([(three, 0), (three, 4)])
    assert not any(can_lie_together([(three, 0), (three, 4), (one, start)]) for start in range(8))


def test_the_last_memory_slice_is_out_of_reach_of_small_profiles() -> None:
    one, two = H100.profile("1g.10gb"), H100.profile("2g.20gb")
    assert one is not None
    assert two is not None
    assert 7 not in set(free_starts(one, mask=0, compute=0))
    assert all(start + two.memory_slices <= 6 for start in free_starts(two, mask=0, compute=0))


def test_only_one_instance_with_media_extensions_fits() -> None:
    media, one = H100.profile("1g.10gb+me"), H100.profile("1g.10gb")
    assert media is not None
    assert one is not None
    assert not can_lie_together([(media, 0), (media, 1)])
    assert can_lie_together([(media, 0), (one, 1)])


@given(st.data())
def test_instances_that_may_lie_together_never_share_a_slice(data: st.DataObject) -> None:
    pieces = data.draw(
        st.lists(
            st.sampled_from(H100.mig_profiles).flatmap(
                lambda profile: st.tuples(st.just(profile), st.sampled_from(range(8)))
            ),
            max_size=6,
        )
    )
    if can_lie_together(pieces):
        slices = [
            slice_ for profile, start in pieces for slice_ in range(start, start + profile.memory_slices)
        ]
        assert len(slices) == len(set(slices))
        assert all(slice_ < 8 for slice_ in slices)
        assert sum(profile.compute_slices for profile, _ in pieces) <= COMPUTE_SLICES


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA-H200", "NVIDIA H200"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA A100-SXM4-40GB"),
        ("Tesla V100", None),
    ],
)
def test_products_are_found_by_name_and_by_label(name: str, product: str | None) -> None:
    found = product_named(name)
    assert (found.name if found is not None else None) == product


def test_rows_nobody_has_read_from_hardware_say_so() -> None:
    assert PRODUCTS["NVIDIA A100-SXM4-80GB"].verified
    assert H100.verified
    assert not any(PRODUCTS[f"NVIDIA {name}"].verified for name in ("H200", "B200", "GH200 480GB"))


def test_the_memory_of_a_profile_is_never_overstated_by_its_name_alone() -> None:
    assert memory_of_profile("1g.10gb") == 9856
    assert memory_of_profile("9g.999gb") is None
