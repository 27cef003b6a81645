"""MIG geometry: what a GPU can be cut into, and where the pieces may lie.

Promise: pure tables and pure functions over them. A GPU has 8 memory slices and 7 compute slices; an instance
takes a run of memory slices that begins at one of its profile's starts, and some compute slices. Instances
may lie together when their memory does not overlap, their compute slices sum to at most 7, and no profile has
more than its most.

`verified` tells rows read from real `nvidia-smi mig -lgip/-lgipp` output (A100, H100) from expected ones
(all others: NVIDIA's guide gives the same fractions; nobody published their placements). What the driver of
a node reports always wins over this table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

MEMORY_SLICES: Final = 8
COMPUTE_SLICES: Final = 7
MAX_INSTANCES: Final = 7


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One kind of GPU instance a GPU offers.

    Attributes:
        name: e.g. 3g.71gb.
        memory_slices, compute_slices: of 8 and of 7.
        starts: memory slices at which it may begin.
        memory_mib: memory of one instance.
        max_instances: most on one GPU.
        multiprocessors: SMs of one instance, 0 unknown (they are not n/7 of the GPU).
        profile_id: NVML's number, None unknown; device and driver specific.
        verified: read from real hardware, not expected.
    """

    name: str
    memory_slices: int
    compute_slices: int
    starts: tuple[int, ...]
    memory_mib: int
    max_instances: int = MAX_INSTANCES
    multiprocessors: int = 0
    profile_id: int | None = None
    verified: bool = False

    def mask(self, start: int) -> int:
        """The memory slices of an instance at `start`, as bits."""
        return ((1 << self.memory_slices) - 1) << start

    @property
    def whole(self) -> bool:
        """Whether it leaves nothing of the GPU to anyone else."""
        return self.memory_slices == MEMORY_SLICES


@dataclass(frozen=True, slots=True)
class GpuProduct:
    """A GPU that can be bought.

    Attributes:
        name: as NVML says it; the label nvidia.com/gpu.product has dashes for spaces.
        memory_mib, multiprocessors: of the whole GPU.
        architecture, compute_capability: e.g. hopper, (9, 0).
        mig_profiles: largest first.
        verified: whether all of its profiles are.
    """

    name: str
    memory_mib: int
    multiprocessors: int
    architecture: str
    compute_capability: tuple[int, int]
    mig_profiles: tuple[MigProfile, ...]
    _by_name: Mapping[str, MigProfile] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the profiles: planning asks for them by name all the time."""
        object.__setattr__(self, "_by_name", {profile.name: profile for profile in self.mig_profiles})

    @property
    def label(self) -> str:
        """As GPU feature discovery writes it."""
        return self.name.replace(" ", "-")

    @property
    def verified(self) -> bool:
        """Whether every row was read from real hardware."""
        return all(profile.verified for profile in self.mig_profiles)

    def profile(self, name: str) -> MigProfile | None:
        """The profile of that name, None if it has none."""
        return self._by_name.get(name)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A profile without names: what all products share."""

    profile_id: int
    memory_slices: int
    compute_slices: int
    starts: tuple[int, ...]
    max_instances: int


_SHAPES: Final[Mapping[str, _Shape]] = MappingProxyType(
    {
        "7g": _Shape(0, 8, 7, (0,), 1),
        "4g": _Shape(5, 4, 4, (0,), 1),
        "3g": _Shape(9, 4, 3, (0, 4), 2),
        "2g": _Shape(14, 2, 2, (0, 2, 4), 3),
        "1g.double": _Shape(15, 2, 1, (0, 2, 4, 6), 4),
        "1g": _Shape(19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
        "1g+me": _Shape(20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    }
)
"""As printed by real A100 and H100 GPUs; slice 7 is out of reach of 1g and 2g."""


def _profiles(rows: Mapping[str, tuple[str, int, int]], *, verified: bool = False) -> tuple[MigProfile, ...]:
    """Profiles from shape to (name, memory in MiB, multiprocessors)."""
    made = []
    for key, (name, memory_mib, multiprocessors) in rows.items():
        shape = _SHAPES[key]
        made.append(
            MigProfile(
                name=name,
                memory_slices=shape.memory_slices,
                compute_slices=shape.compute_slices,
                starts=shape.starts,
                memory_mib=memory_mib,
                max_instances=shape.max_instances,
                multiprocessors=multiprocessors,
                profile_id=shape.profile_id,
                verified=verified,
            )
        )
    return tuple(made)


def _ladder(
    names: Sequence[str], memory_mib: Sequence[int], sms: Sequence[int]
) -> dict[str, tuple[str, int, int]]:
    """Rows of the six plain shapes: names from 7g down to 1g, memory and SMs of 7g, 4g, 3g, 2g, 1g."""
    seven, four, three, two, double, one = names
    whole, half, quarter, eighth = memory_mib
    return {
        "7g": (seven, whole, sms[0]),
        "4g": (four, half, sms[1]),
        "3g": (three, half, sms[2]),
        "2g": (two, quarter, sms[3]),
        "1g.double": (double, quarter, sms[4]),
        "1g": (one, eighth, sms[4]),
        "1g+me": (one + "+me", eighth, sms[4]),
    }


_A100_SMS: Final = (98, 56, 42, 28, 14)
_H100_PCIE_SMS: Final = (114, 62, 46, 30, 14)
_H100_SMS: Final = (132, 64, 60, 32, 16)
"""7g of H100 NVL and 1g to 3g of H200 were measured; 4g is expected."""
_B200_SMS: Final = (148, 72, 70, 36, 18)
"""1g was measured; the rest is expected."""

_A100_40: Final = _profiles(
    _ladder(
        ("7g.40gb", "4g.20gb", "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb"),
        (40192, 19968, 9856, 4864),
        _A100_SMS,
    ),
    verified=True,
)
_80GB_NAMES: Final = ("7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb")
_A100_80: Final = _profiles(_ladder(_80GB_NAMES, (80384, 40192, 19968, 9856), _A100_SMS), verified=True)
_H100_80_MIB: Final = (81152, 40448, 20096, 9984)
_H100_PCIE: Final = _profiles(_ladder(_80GB_NAMES, _H100_80_MIB, _H100_PCIE_SMS), verified=True)
_H100_SXM: Final = _profiles(_ladder(_80GB_NAMES, _H100_80_MIB, _H100_SMS), verified=True)
_H100_94: Final = _profiles(
    _ladder(
        ("7g.94gb", "4g.47gb", "3g.47gb", "2g.24gb", "1g.24gb", "1g.12gb"),
        (95232, 47616, 23680, 11776),
        _H100_SMS,
    ),
    verified=True,
)
_H200: Final = _profiles(
    _ladder(
        ("7g.141gb", "4g.71gb", "3g.71gb", "2g.35gb", "1g.35gb", "1g.18gb"),
        (143360, 71424, 35456, 16384),
        _H100_SMS,
    )
)
_B200: Final = _profiles(
    _ladder(
        ("7g.180gb", "4g.90gb", "3g.90gb", "2g.45gb", "1g.45gb", "1g.23gb"),
        (182784, 91136, 45312, 22528),
        _B200_SMS,
    )
)
_GB200: Final = _profiles(
    {
        "3g": ("3g.93gb", 94208, _B200_SMS[2]),
        "2g": ("2g.47gb", 47104, _B200_SMS[3]),
        "1g": ("1g.23gb", 23040, _B200_SMS[4]),
    }
)
_GH200_96: Final = _profiles(
    _ladder(
        ("7g.96gb", "4g.48gb", "3g.48gb", "2g.24gb", "1g.24gb", "1g.12gb"),
        (97280, 48640, 24064, 11776),
        _H100_SMS,
    )
)
_GH200_144: Final = _profiles(
    {
        "3g": ("3g.72gb", 72704, _H100_SMS[2]),
        "2g": ("2g.36gb", 36352, _H100_SMS[3]),
        "1g.double": ("1g.36gb", 36352, _H100_SMS[4]),
        "1g": ("1g.18gb", 17920, _H100_SMS[4]),
    }
)


_AMPERE: Final = ("ampere", (8, 0))
_HOPPER: Final = ("hopper", (9, 0))
_BLACKWELL: Final = ("blackwell", (10, 0))

PRODUCTS: Final[Mapping[str, GpuProduct]] = MappingProxyType(
    {
        product.name: product
        for product in (
            GpuProduct("NVIDIA A100-SXM4-40GB", 40960, 108, *_AMPERE, _A100_40),
            GpuProduct("NVIDIA A100-PCIE-40GB", 40960, 108, *_AMPERE, _A100_40),
            GpuProduct("NVIDIA A100-SXM4-80GB", 81920, 108, *_AMPERE, _A100_80),
            GpuProduct("NVIDIA A100 80GB PCIe", 81920, 108, *_AMPERE, _A100_80),
            GpuProduct("NVIDIA H100 80GB HBM3", 81559, 132, *_HOPPER, _H100_SXM),
            GpuProduct("NVIDIA H100 PCIe", 81559, 114, *_HOPPER, _H100_PCIE),
            GpuProduct("NVIDIA H100 NVL", 95830, 132, *_HOPPER, _H100_94),
            GpuProduct("NVIDIA H200", 143771, 132, *_HOPPER, _H200),
            GpuProduct("NVIDIA H200 NVL", 143771, 132, *_HOPPER, _H200),
            GpuProduct("NVIDIA GH200 480GB", 97871, 132, *_HOPPER, _GH200_96),
            GpuProduct("NVIDIA GH200 144G HBM3e", 147456, 132, *_HOPPER, _GH200_144),
            GpuProduct("NVIDIA B200", 183359, 148, *_BLACKWELL, _B200),
            GpuProduct("NVIDIA GB200", 189471, 152, *_BLACKWELL, _GB200),
        )
    }
)
"""By name as NVML says it."""

_BY_LABEL: Final = {product.label: product for product in PRODUCTS.values()}


def product_named(name: str) -> GpuProduct | None:
    """The product of a name or label value, also of a label of MIG strategy single (`...-MIG-1g.5gb`)."""
    return _BY_LABEL.get(name.replace(" ", "-").partition("-MIG-")[0])


def memory_of_profile(profile: str) -> int | None:
    """Memory of a profile by its name alone, in MiB: the least any product has, None if none has it."""
    return min(
        (p.memory_mib for product in PRODUCTS.values() for p in product.mig_profiles if p.name == profile),
        default=None,
    )


def can_lie_together(instances: Iterable[tuple[MigProfile, int]]) -> bool:
    """Whether these (profile, start) may exist on one GPU at once."""
    mask, compute, counts = 0, 0, dict[str, int]()
    for profile, start in instances:
        piece = profile.mask(start)
        if start not in profile.starts or mask & piece:
            return False
        mask |= piece
        compute += profile.compute_slices
        counts[profile.name] = counts.get(profile.name, 0) + 1
        if counts[profile.name] > profile.max_instances:
            return False
    return compute <= COMPUTE_SLICES and sum(counts.values()) <= MAX_INSTANCES


def free_starts(profile: MigProfile, *, mask: int, compute: int) -> Iterator[int]:
    """Where one more instance may begin on a GPU with memory slices `mask` and `compute` taken."""
    if compute + profile.compute_slices <= COMPUTE_SLICES:
        for start in profile.starts:
            if not mask & profile.mask(start):
                yield start
