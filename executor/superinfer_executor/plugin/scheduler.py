"""The classes vLLM is given: `--scheduler-cls superinfer_executor.plugin.scheduler.SlackScheduler`.

SlackScheduler goes with synchronous scheduling (always on the CPU platform), SlackAsyncScheduler with
asynchronous scheduling (vLLM's default on GPUs).
"""

from typing import Final

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from superinfer_executor.plugin.resume import ResumeMixin
from superinfer_executor.plugin.slack import SlackMixin

SYNC_CLASS: Final = "superinfer_executor.plugin.scheduler.SlackScheduler"
ASYNC_CLASS: Final = "superinfer_executor.plugin.scheduler.SlackAsyncScheduler"


class SlackScheduler(ResumeMixin, SlackMixin, Scheduler):  # type: ignore[misc]
    """vLLM's scheduler, ordered and bounded by slack; resumes requests exactly."""


class SlackAsyncScheduler(ResumeMixin, SlackMixin, AsyncScheduler):  # type: ignore[misc]
    """The same over vLLM's asynchronous scheduler."""


def scheduler_cls_for(platform: str) -> str:
    """Path of the class for a platform: "cpu", or anything else for a GPU."""
    return SYNC_CLASS if platform == "cpu" else ASYNC_CLASS
