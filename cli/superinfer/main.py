"""The `superinfer` command: everything a person does with SuperInfer on one machine."""

from importlib.metadata import version
from typing import Annotated, Any

from typing_extensions import override

from superinfer.early_interrupt import ending_quietly

with ending_quietly():  # loading takes a second or two
    import typer
    from typer.core import TyperGroup

    from superinfer.commands import bench, contract, demo, keys, memory, plan, profile, serve, simulate
    from superinfer.output import fail

HELP = "SLO contracts for LLM inference: promises that are admitted only where they can be kept."


class _Commands(TyperGroup):
    """What holds for every command.

    One that the machine stops (a full disk, a name too long) ends with a word, not a traceback. An empty
    argument, which as a path would mean the current directory, is refused.
    """

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look at the command line before anything is done with it; what follows -- is not ours."""
        ours = args[: args.index("--")] if "--" in args else args
        for before, argument in zip(("", *ours), ours, strict=False):
            if not argument or (argument.startswith("--") and argument.endswith("=")):
                option = argument.rstrip("=") or (before if before.startswith("-") else "an argument")
                msg = f"{option} is empty; is a variable unset? Leave it out, or give a value."
                raise typer.BadParameter(msg)
        return super().parse_args(ctx, args)

    @override
    def invoke(self, ctx: Any) -> Any:
        """Run what was asked for."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read our output has gone: click ends quietly
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            fail(f"{where}{error.strerror or error}")


app = typer.Typer(
    name="superinfer",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"superinfer {version('superinfer')}")
        raise typer.Exit


@app.callback(help=HELP)
def _common(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """See HELP."""


app.command(help=serve.HELP)(serve.serve)
app.add_typer(contract.app, name="contract")
app.command(help=profile.HELP, short_help="Measure a model here, for predictions to start from.")(
    profile.profile
)
app.command(help=demo.HELP)(demo.demo)
app.command(help=bench.HELP, short_help="Send load to an OpenAI endpoint, told per contract.")(bench.bench)
app.add_typer(keys.app, name="keys")
app.command(help=plan.HELP, short_help="Tell where executors would go, and why others not.")(plan.plan)
app.command(help=memory.HELP, short_help="Tell how much GPU memory a model takes.")(memory.memory)
app.command(help=simulate.HELP, short_help="Simulate executors on a trace, before any is bought.")(
    simulate.simulate
)


if __name__ == "__main__":
    app()
