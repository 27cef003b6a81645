"""Start vLLM in this process: configuration, AsyncLLM with its EngineCore, the OpenAI surface.

Main thread only: EngineCore dies with the thread that started it (core_process.die_with_parent).
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from superinfer_executor.engine import core_process
from superinfer_executor.engine.openai import OpenAISurface
from superinfer_proto.v1 import engine_pb2

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine."""

    llm: Any
    surface: OpenAISurface
    info: engine_pb2.EngineInfo
    max_chars_per_token: int


def is_cpu() -> bool:
    """Whether vLLM runs on the CPU here. Imports vLLM."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


async def start_engine(arguments: list[str], *, scheduler: str, progress: Progress) -> Engine:
    """An engine that has loaded its model; blocks the loop meanwhile, since nothing is served yet."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from superinfer_executor.engine.llm import StepwiseLLM

    progress("configuration")
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    validate_parsed_serve_args(args)
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config(UsageContext.OPENAI_API_SERVER)
    progress("engine")
    core_process.install()
    llm = StepwiseLLM.from_vllm_config(
        config,
        enable_log_requests=args.enable_log_requests,
        disable_log_stats=args.disable_log_stats,
    )
    progress("serving layer")
    surface = await OpenAISurface.create(llm, args)
    tokenizer = llm.renderer.tokenizer
    return Engine(
        llm=llm,
        surface=surface,
        info=_info(llm, args.served_model_name[0], scheduler),
        max_chars_per_token=0 if tokenizer is None else int(tokenizer.max_chars_per_token),
    )


def _info(llm: Any, model: str, scheduler: str) -> engine_pb2.EngineInfo:
    from vllm import __version__

    config = llm.vllm_config
    cache = config.cache_config
    return engine_pb2.EngineInfo(
        type=engine_pb2.ENGINE_TYPE_VLLM,
        version=f"vllm {__version__}",
        model=model,
        max_model_len=config.model_config.max_model_len,
        max_num_seqs=config.scheduler_config.max_num_seqs,
        max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
        block_size=cache.block_size,
        kv_total_tokens=(cache.num_gpu_blocks or 0) * cache.block_size,
        generation=uuid.uuid4().hex,
        scheduler=scheduler,
        dtype=str(config.model_config.dtype).removeprefix("torch."),
    )
