"""Small simulated data and a model fitted on them once, shared by the tests.

Types and shapes of the modules that are dense with arrays are checked at each call, by jaxtyping
and beartype. ``FORECASTER_TEST_TYPES=all`` checks the whole engine, which takes a third longer;
``off`` checks nothing, for instance to time something.

Compiling is most of the work, so it is done without XLA's optimisations: results are the same but
for rounding, in half the time. An ``XLA_FLAGS`` of your own is taken as it is, an empty one too.
"""

import gc
import importlib.util
import mmap
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import jaxtyping
import pandas as pd
import pytest
from click.testing import CliRunner


def known_flags(*flags: str) -> str:
    """Those that the installed XLA has; it ends the process over any other."""
    spec = importlib.util.find_spec("jaxlib")
    assert spec and spec.submodule_search_locations
    known = set()
    for library in Path(spec.submodule_search_locations[0]).glob("*jax_common.*"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as m:
            # Between zeros as a flag; XLA also keeps the names of flags that it no longer has.
            known |= {
                flag for flag in flags if m.find(b"\0%s\0" % flag.split("=")[0].encode()) >= 0
            }
    return " ".join(f"--{flag}" for flag in flags if flag in known)


QUICKLY = known_flags("xla_backend_optimization_level=0", "xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", QUICKLY)  # workers and other processes inherit it

WINDOWS = [f"forecaster.forecasting.{name}" for name in ("bands", "windows")]
DENSE = [
    f"forecaster.swarm.{name}"
    for name in (
        "native", "recurrence", "arrays", "checkpoints",
        "execution.result", "training.examples", "training.keys",
    )
]  # fmt: skip
CHECKED = {"off": [], "": [*WINDOWS, *DENSE], "all": [*WINDOWS, "forecaster.swarm"]}[
    os.environ.get("FORECASTER_TEST_TYPES", "")
]
PACKAGE = Path(__file__).parents[1]
for module in CHECKED:  # of one that has moved nothing would be checked
    place = PACKAGE / module.replace(".", "/")
    assert place.is_dir() or place.with_suffix(".py").exists(), f"{module} has moved"
# An int will do for a float, as for static checkers.
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
if CHECKED:  # before anything imports them
    jaxtyping.install_import_hook(CHECKED, CHECKER)

import forecaster as fc  # noqa: E402
from forecaster import swarm  # noqa: E402
from forecaster.cli import main  # noqa: E402

# A full collection looks at all objects of JAX, for a second or more.
gc.set_threshold(50_000, 20, 50)

TICKERS = ["AAPL", "MSFT", "KO", "IBM", "XOM"]


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory):
    """The folder of compiled programs, which serve all tests, and the processes that they start.

    With ``FORECASTER_TEST_CACHE=FOLDER`` they also serve the next run.
    """
    folder = tmp_path_factory.getbasetemp() / "compiled"
    if "PYTEST_XDIST_WORKER" in os.environ:  # shared by all workers
        folder = folder.parent.parent / "compiled"
    folder = Path(os.environ.get("FORECASTER_TEST_CACHE") or folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    swarm.keep_compiled(folder)
    swarm.use_all_cores()  # as the first fit does, whichever test comes first
    with pytest.MonkeyPatch.context() as patch:
        # JAX keeps to the first folder that it uses, which must not be the home of some test.
        patch.setattr(swarm, "keep_compiled", lambda folder: None)
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
        yield folder


@pytest.fixture(scope="module")
def quick_collections():
    """What earlier tests left is not looked at by the collections after each shard."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Tables are as wide as where there is no terminal, whatever runs the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def as_for_users(monkeypatch):
    """Members are compiled with all optimisations.

    Only then are the bits the same in programs of unlike shapes, which is what users are promised.
    """
    import jax

    from forecaster.swarm.devices.lanes import over_lanes
    from forecaster.swarm.execution import schedule

    options = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
    known = {name: value for name, value in options.items() if name in QUICKLY}
    jit = jax.jit

    def optimised(*args, compiler_options=None, **options):
        return jit(*args, compiler_options=known | (compiler_options or {}), **options)

    for compiled in (schedule.compiled, over_lanes):
        compiled.cache_clear()
    if known and os.environ["XLA_FLAGS"] == QUICKLY:
        monkeypatch.setattr(jax, "jit", optimised)
    yield
    for compiled in (schedule.compiled, over_lanes):
        compiled.cache_clear()


@pytest.fixture
def unchecked():
    """Types are not checked: for tests of the errors that users see, who have no such checker."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def panel() -> fc.Panel:
    """Five tickers of about 750 simulated sessions."""
    return fc.load_panel("simulated", TICKERS, start="2023-01-01")


@pytest.fixture(scope="session")
def config() -> fc.Config:
    """Small enough to train in a second."""
    return fc.Config(
        hidden=4, lookback=30, burn_in=10, horizon=3, validation=100, epochs=4, patience=4,
        learning_rate=1e-2, start="independent", members=1,
    )  # fmt: skip


@pytest.fixture(scope="session")
def model(panel, config) -> fc.Model:
    return fc.fit(panel, config, seed=1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; tests that need it are skipped without."""
    folder = os.environ.get("FORECASTER_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FORECASTER_TEST_DATA names no folder with real data")
    return Path(folder)


def prices(
    name: str = "AAA", rows: int = 400, start: str = "2020-01-01", **columns
) -> pd.DataFrame:
    """A plain table of one ticker in the prices layout, for tests of readers."""
    import numpy as np

    random = np.random.default_rng([len(name), *name.encode(), rows])
    close = 100 * np.exp(np.cumsum(random.normal(0, 0.01, rows)))
    table = pd.DataFrame(
        {
            "ticker": name,
            "date": pd.bdate_range(start, periods=rows).strftime("%Y-%m-%d"),
            "open": close * 0.999,
            "high": close * 1.01,
            "low": close * 0.99,
            "close": close,
            "volume": random.integers(1_000, 9_000, rows),
        }
    )
    return table.assign(**columns)


FAST = """
hidden = 4
lookback = 30
start = "independent"
members = 1
burn_in = 10
horizon = 3
validation = 100
epochs = 4
learning_rate = 1e-2
"""


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "fast.toml"
    path.write_text(FAST)
    return str(path)


@pytest.fixture(scope="session")
def home(tmp_path_factory, settings):
    """A home with five fitted tickers and one that was too short."""
    folder = tmp_path_factory.mktemp("home")
    tickers = folder / "tickers.txt"
    tickers.write_text("\n".join(TICKERS))
    result = run(
        "fit", "--tickers", tickers, "--source", "simulated", "--start", "2023-01-01",
        "--config", settings, "--home", folder,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return folder


def script(name: str) -> ModuleType:
    """Import a file of ``scripts/``, which is no package."""
    path = PACKAGE / "scripts" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its classes are looked up there
    spec.loader.exec_module(module)
    return module


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of code of a page that are in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def run(*args):
    return CliRunner().invoke(main, [str(a) for a in args], catch_exceptions=False)


def error(*args, code: int) -> str:
    result = run(*args)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stderr


@pytest.fixture(scope="module", params=["amx", "avx512-bf16"])
def units(request):
    """What computes products of bfloat16, AVX-512 in the place of matrix units; gives its name."""
    from forecaster.swarm.native import library

    swarm.use_all_cores()
    if library.kernel_status()[0] is None:
        pytest.skip(f"no compiled kernel: {library.kernel_status()[1]}")
    name = request.param
    if name == "amx" and library.why_no_bfloat16(name):
        name = "amx-emulated"
    if why := library.why_no_bfloat16(name):
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "bfloat16_status", lambda: (name, ""))
        yield name


@pytest.fixture
def compilations():
    """Return a list that grows by one with every program that XLA compiles."""
    import jax

    compiled = []

    def listen(event, *_, **__):
        if "backend_compile" in event:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield compiled
    jax.monitoring.unregister_event_duration_listener(listen)
