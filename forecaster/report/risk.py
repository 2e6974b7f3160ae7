"""The page of the risk of books: what they may lose, what carries it, and single futures."""

from pathlib import Path

import pandas as pd

from forecaster.pipeline import Limit, Risk
from forecaster.report import html

_NUMBERS: dict[str, str] = dict.fromkeys(
    ("level, %", "VaR", "±", "ES", "value", "ES alone", "part of VaR", "part of ES", "profit"),
    ",.2f",
)
_NAMED = 3  # positions beside a single future


def build_risk(found: Risk, path: Path, limit: Limit | None = None) -> Path:
    """Write the risk of books, beside a limit, as one HTML file; return its path."""
    periods = ", ".join(f"{found.origins // step:,} of {step}" for step in found.until)
    cards, sections = list[html.Card](), list[html.Section]()
    for number, (book, base) in enumerate(found.base.items()):
        whole = found.first(book).iloc[0]
        label = f"value at risk of {book} at {whole['level']:g} %, sessions: {whole['horizon']:.0f}"
        of = f"of {base:,.0f}; expected shortfall {whole['es'] / base:.2%}"
        if limit is not None:
            most = limit.money(base)
            of += f"; {'OVER' if whole['var'] > most else 'within'} the limit of {most:,.0f}"
        cards.append(html.Card(f"{whole['var'] / base:.2%}", label, of))
        tables = _measures(found, book) + _positions(found, book) + _profits(found, book)
        sections.append(html.Section(f"book-{number}", f"Risk of {book}", tables))
    return html.write_page(
        path,
        title="Risk of books",
        heading="What may be lost?",
        lead=f"Prices of {found.since}, and {found.origins} past sessions of errors; independent "
        f"periods of sessions: {periods}.",
        notices=[f"{name}: {why}" for name, why in found.problems.items()],
        cards=cards,
        sections=sections,
    )


def _measures(found: Risk, book: str) -> str:
    its = found.frame[(found.frame["book"] == book) & found.frame["level"].notna()]
    whole = its.drop_duplicates(["scenario", "horizon", "level"])  # the book is the first
    shown = pd.DataFrame({
        "scenario": whole["scenario"], "sessions": whole["horizon"],
        "level, %": whole["level"], "VaR": whole["var"], "±": whole["var_error"],
        "ES": whole["es"], "VaR of value": whole["var"] / found.base[book],
        "diversified": 1 - whole["es"] / whole["es_alone"].where(whole["es_alone"] > 0),
    })  # fmt: skip
    return html.table(shown, "Value at risk and expected shortfall", _NUMBERS)


def _positions(found: Risk, book: str) -> str:
    first = found.first(book)
    whole, its = first.iloc[0], first.iloc[1:].sort_values("es", ascending=False)
    shown = pd.DataFrame({
        "position": its["unique_id"], "value": its["value"], "ES alone": its["es_alone"],
        "part of VaR": its["var"], "part of ES": its["es"], "share of ES": its["es"] / whole["es"],
    })  # fmt: skip
    at = f"{whole['level']:g} %, sessions: {whole['horizon']:.0f}"
    return html.table(shown, f"What each position carries at {at}", _NUMBERS) if len(its) else ""


def _profits(found: Risk, book: str) -> str:
    rows = list[dict[str, object]]()
    its = found.frame[(found.frame["book"] == book) & found.frame["profit"].notna()]
    for scenario, part in its.groupby("scenario", sort=False):
        most = part[1:].sort_values("profit", key=abs, ascending=False)[:_NAMED]
        named = zip(most["unique_id"], most["profit"], strict=True)
        rows.append({
            "future": scenario, "profit": float(part["profit"].iloc[0]),
            "most by": ", ".join(f"{name} {profit:+,.2f}" for name, profit in named if profit),
        })  # fmt: skip
    return html.table(pd.DataFrame(rows), "Worst paths, moves and past days", _NUMBERS)
