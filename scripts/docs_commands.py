"""Write ``docs/commands.md`` from the help of the commands.

    python scripts/docs_commands.py

A test compares the page with what this makes.
"""

import inspect
import re
from collections import Counter
from pathlib import Path

import click

from forecaster.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"

HEAD = """# Command line

<!-- Written by scripts/docs_commands.py from the help of the commands. -->

The ending of a file gives the format: `.csv`, `.json`, `.parquet` or `.xlsx` (`pip install
"forecaster-swarm[excel]"`) for tables, `.png`, `.svg` or `.pdf` for pictures, `.html` for pages.
An existing file is replaced only with `--overwrite`, and a missing folder is an error; both are
checked before the work begins. A pipe gets CSV unless `--format` says otherwise.
"""

FOOT = """## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | an error in data, model, store or network |
| 2 | wrong usage |
| 3 | done for some series; the others are named, with the reason |
| 4 | done, with alarms (`daily`), or over a limit (`risk`) |
| 130 | interrupted by Ctrl-C |
| 143 | stopped by SIGTERM, as batch systems and containers send it |
| 129 | stopped by SIGHUP, when a terminal is closed (not under `nohup`) |

After Ctrl-C, SIGTERM or SIGHUP `fit` keeps the progress for `--resume`, `ingest` keeps what has
arrived, and no half-written file stays. `kill -9` may leave a file or folder `.tmp-...`, which no
command reads.

## Environment

| variable | meaning |
|---|---|
| `FORECASTER_HOME` | the folder for data and models, as `--home` |
| `FORECASTER_CACHE` | `off`: no compiled programs are kept on disk; a folder: `forecaster.swarm` keeps its programs there |
| `FORECASTER_KERNEL` | `off`: no compiled code for recurrences; `plain`, `avx2`, `avx512`, `avx512-bf16`, `amx`: at most this instruction set; `amx-emulated`: \
the results of matrix units, computed by AVX-512 |
"""  # noqa: E501


def page() -> str:
    """Return the whole page; options that two commands or more share are described once.

    A shared option names its commands if an option of other commands has the same name.
    """
    rows = {name: options(command) for name, command in main.commands.items()}
    users: dict[str, list[str]] = {}
    for name, lines in rows.items():
        for line in lines:
            users.setdefault(line, []).append(name)
    parts = [HEAD]
    for name, command in main.commands.items():
        own = [line for line in rows[name] if len(users[line]) == 1]
        shared = [name_of(line) for line in rows[name] if len(users[line]) > 1]
        parts.append(section(f"## {name}", command, own, shared))
        for below, inner in getattr(command, "commands", {}).items():
            parts.append(f"### {name} {below}\n\n{said(inner)[0]}\n")  # its examples are above
    heads = Counter(name_of(line) for line in users)
    common = [
        f"{line} (`{'`, `'.join(names)}`)" if heads[name_of(line)] > 1 else line
        for line, names in users.items()
        if len(names) > 1
    ]
    parts += ["## Options of several commands\n", *common, "", FOOT]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def section(title: str, command: click.Command, own: list[str], shared: list[str]) -> str:
    """Return what a command does, its examples and its options."""
    text, shown = said(command)
    parts = [title, text, f"```\n{shown}\n```" if shown else "", "\n".join(own)]
    if shared:
        parts.append(f"[Shared options](#options-of-several-commands): {', '.join(shared)}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def said(command: click.Command) -> tuple[str, str]:
    """Return what the help of a command says, and its examples."""
    text, _, examples = (
        inspect.cleandoc(command.help or "").replace("\b\n", "").partition("Example")
    )
    return text.strip(), inspect.cleandoc(examples.partition("\n")[2])


def options(command: click.Command) -> list[str]:
    """Return a line of Markdown for each option."""
    return [
        line(each) for each in command.params if isinstance(each, click.Option) and not each.hidden
    ]


def line(option: click.Option) -> str:
    """Return the names of an option, what it takes, and what it does."""
    names = "` / `".join([*option.opts, *option.secondary_opts])
    takes = "" if option.is_flag else f" `{option.metavar or kind(option.type)}`"
    text = " ".join((option.help or "").split()).replace("<", "&lt;")
    if option.show_default is True:
        default = option.default if isinstance(option.default, tuple) else (option.default,)
        text += f" [default: {', '.join(map(str, default))}]"
    return f"- **`{names}`**{takes}: {text.strip()}"


def name_of(line: str) -> str:
    """Return the names of an option from its line of Markdown."""
    return line.split("**")[1]


def kind(type_: click.ParamType) -> str:
    """Return what an option takes, such as ``INTEGER`` or its choices."""
    if isinstance(type_, click.DateTime):
        return "YYYY-MM-DD"
    return (
        "|".join(type_.choices)
        if isinstance(type_, click.Choice)
        else type_.name.split()[0].upper()
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
