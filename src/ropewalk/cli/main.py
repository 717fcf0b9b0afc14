"""The command `ropewalk`."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli import (
    config,
    data,
    doctor,
    estimate,
    eval,
    export,
    generate,
    init,
    lab,
    listing,
    plot,
    quickstart,
    train,
    verify,
)
from ropewalk.cli.compare import command as compare
from ropewalk.cli.extend import command as extend
from ropewalk.cli.help import Commands
from ropewalk.cli.inspect import command as inspect
from ropewalk.cli.output import examples

app = Commands(
    name="ropewalk",
    help=(
        "Transformer position encodings: inspect, test, train and extend them.\n\n"
        "Exit codes: 0 success, 1 found a problem, 2 wrong usage, 3 bad input, 5 something is not installed or not "
        "available. Set ROPEWALK_TRACEBACK=1 to get the traceback of an error."
    ),
    epilog=examples(
        "ropewalk list encodings", "ropewalk config show model.encoding=alibi", "ropewalk config show --help"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(listing.app, name="list")
app.add_typer(config.app, name="config")
app.command(name="inspect", epilog=inspect.EPILOG)(inspect.inspect)
app.command(name="eval", epilog=eval.EPILOG)(eval.evaluate)
app.command(epilog=extend.EPILOG)(extend.extend)
app.command(epilog=generate.EPILOG)(generate.generate)
app.command(epilog=export.EPILOG)(export.export)
app.command(epilog=verify.EPILOG)(verify.verify)
app.command(epilog=plot.EPILOG)(plot.plot)
app.command(epilog=lab.EPILOG)(lab.lab)
app.command(epilog=compare.EPILOG)(compare.compare)
app.command(epilog=quickstart.EPILOG)(quickstart.quickstart)
app.command(epilog=train.EPILOG)(train.train)
app.command(epilog=estimate.EPILOG)(estimate.estimate)
app.add_typer(data.app, name="data")
app.command(epilog=doctor.EPILOG)(doctor.doctor)
app.add_typer(init.app, name="init")


def _version(asked: bool) -> None:
    if asked:
        from ropewalk import __version__

        typer.echo(f"ropewalk {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
