"""The `superinfer` command: everything a person does with SuperInfer on one machine."""

from importlib.metadata import version
from typing import Annotated

from superinfer.early_interrupt import ending_quietly

with ending_quietly():  # loading takes a second or two
    import typer

    from superinfer.commands import bench, contract, demo, keys, memory, plan, profile, serve, simulate

HELP = "SLO contracts for LLM inference: promises that are admitted only where they can be kept."

app = typer.Typer(
    name="superinfer",
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
app.command(help=profile.HELP)(profile.profile)
app.command(help=demo.HELP)(demo.demo)
app.command(help=bench.HELP)(bench.bench)
app.add_typer(keys.app, name="keys")
app.command(help=plan.HELP)(plan.plan)
app.command(help=memory.HELP)(memory.memory)
app.command(help=simulate.HELP)(simulate.simulate)


if __name__ == "__main__":
    app()
