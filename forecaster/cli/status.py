"""``forecaster status``."""

import click

from forecaster.cli.shared import console, home_option, say


@click.command()
@home_option
def status(home) -> None:
    """Show what is stored and what was trained.

    \b
    Example:
      forecaster status --home ./here
    """
    from rich.table import Table

    from forecaster.errors import ModelError
    from forecaster.ingest.store import Store
    from forecaster.saving import load, runs

    click.echo(f"Home: {home}")
    click.echo(f"Recurrence: {_kernel()}")
    stores = Table(
        "source", "series", "rows", "first", "last", title="Prices", title_justify="left"
    )
    for store in Store.all_of(home):
        rows = store.manifest["series"].values()
        stores.add_row(
            store.manifest["source"], str(len(rows)), f"{sum(r['rows'] for r in rows):,}",
            min((str(r["first"]) for r in rows), default=""),
            max((str(r["last"]) for r in rows), default=""),
        )  # fmt: skip
    models = Table("run", "model", "series", "source", "data until", "error / naive",
                   title="Models, the latest last", title_justify="left")  # fmt: skip
    for folder in runs(home):
        try:
            model = load(folder)
        except ModelError as error:
            models.add_row(folder.name, "damaged")
            say(f"{error}")
            continue
        models.add_row(
            folder.name, f"{model.config.column} {model.config.hidden}", str(len(model.ids)),
            model.provenance["source"], model.provenance["last"],
            f"{model.report['mae_relative_to_naive'].median():.4f}",
        )  # fmt: skip
    for table, advice in (
        (stores, "No prices stored yet; `forecaster fit` or `forecaster ingest` fetches some."),
        (models, "No model yet; run `forecaster fit` first."),
    ):
        console().print(table if table.row_count else advice)


def _kernel() -> str:
    """Which code runs the LSTM, and what to do for the faster one."""
    from forecaster.swarm import use_all_cores
    from forecaster.swarm.recurrence import native

    use_all_cores()
    instructions, why = native.loaded()
    if instructions:
        return f"compiled kernel ({instructions})"
    advice = "; install a C++ compiler, then forecaster again" if "not built" in why else ""
    return f"JAX alone, slower on CPUs: {why}{advice}"
