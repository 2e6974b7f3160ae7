# Short names for the commands in CONTRIBUTING.md. `just` alone lists them.

_list:
    @just --list --unsorted

# all tests but the slow ones; `just test tests/swarm` for some
test *paths:
    python -m pytest -n 2 --dist worksteal {{ paths }}

# the long set: fuzz, kills, other machines, mornings, mutants, scripts; thirty minutes, `just slow --part 1/5`: a fifth
slow *options:
    python scripts/long_set.py {{ options }}

# the linters, which a pull request must pass besides the tests
lint:
    ruff check .
    ruff format --check .
    pyright

# fix and format with ruff
fix:
    ruff check --fix .
    ruff format .

# the suite as on other processors and Pythons, in three runs that combine the variants; `just matrix --long`: each variant alone
matrix *options:
    bash scripts/matrix.sh {{ options }}

# do tests notice wrong lines? twenty minutes; `just mutants --turn 0`: a quarter of them
mutants *options:
    python scripts/mutants.py {{ options }}

# the site, into site/
docs:
    zensical build --clean --strict

# how good forecasts are, and the difference from the last table; `just scoreboard --quick` takes five minutes
scoreboard *options:
    python scripts/accuracy/scoreboard.py {{ options }}

# how fast this machine trains, beside PyTorch
bench *options:
    forecaster benchmark {{ options }}
