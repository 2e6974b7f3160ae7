"""Programs that another process has compiled: which are found, and that they are the right ones."""

import dataclasses
import functools
import operator
import os
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import flax.training.checkpoints
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.experimental import serialize_executable

from forecaster import swarm
from forecaster.swarm import SwarmError
from forecaster.swarm.devices import compiled, programs, stored
from forecaster.swarm.devices.lanes import _spread_whole
from forecaster.swarm.estimators import recipe as recipes
from forecaster.swarm.execution import schedule
from forecaster.swarm.training.content import Unreadable, text_of
from tests.slow import rest_slow
from tests.swarm import test_sharing
from tests.swarm.test_swarm import X, Y, same


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of programs, which is new; JAX has none. Afterwards all is as before."""
    names = compiled._DIR, compiled._SECONDS, compiled._BYTES
    before = tuple(map(compiled._setting, names))
    monkeypatch.setenv("FORECASTER_CACHE", str(tmp_path))
    compiled._choose(names, (None, 1.0, 0))
    compiled.default_folder.cache_clear()
    forget()
    found = compiled.own_folder()
    assert found is not None
    yield Path(found)
    compiled._choose(names, before)
    compiled.default_folder.cache_clear()
    forget()


def forget():
    """Forget what this process has traced and compiled, as a new one has not."""
    programs.forget_programs()
    _spread_whole.cache_clear()
    schedule.compiled.cache_clear()
    recipes._recipes.clear()
    jax.clear_caches()


@pytest.fixture
def lowerings(monkeypatch):
    """Return a list that grows by one with each program that is traced and lowered."""
    made: list[str] = []
    lower = programs.Program._lower

    def counted(self, *args):
        made.append(self._name)
        return lower(self, *args)

    monkeypatch.setattr(programs.Program, "_lower", counted)
    return made


def build(rngs):
    return nnx.Sequential(nnx.Linear(3, 5, rngs=rngs), nnx.relu, nnx.Linear(5, 1, rngs=rngs))


def trained(model=build, loss=optax.squared_error):
    made = swarm.Swarm(model, 3, loss=loss, optimizer=optax.adam)
    made = made.fit(X[:3], Y[:3], epochs=2, batch_size=16)
    return made.params, made.predict(X[:3]), made.step(X[:3], Y[:3])[1], made.evaluate(X[:3], Y[:3])


def test_what_another_process_has_compiled_is_not_traced_and_has_the_same_bits(folder, lowerings):
    first = trained()
    names = {path.name for path in folder.glob("*-traced")}
    assert len(lowerings) >= 5 and len(names) >= len(lowerings)
    assert not list(folder.glob("*-cache"))  # JAX would keep them once more
    assert not list(folder.glob("*.tmp"))
    lowerings.clear()
    forget()
    assert same(trained(), first)
    assert not lowerings and {path.name for path in folder.glob("*-traced")} == names


@pytest.mark.slow
def test_another_function_other_sizes_and_other_settings_are_compiled_anew(folder, lowerings):
    changes = [
        functools.partial(trained, loss=lambda p, y: 2 * (p - y) ** 2),
        functools.partial(trained, lambda rngs: nnx.Linear(3, 1, rngs=rngs)),
        lambda: swarm.Swarm(build, 3, loss=optax.squared_error).predict(X[:3, :7]),
    ]
    trained()
    for change in changes:
        lowerings.clear()
        forget()
        change()
        assert lowerings
    lowerings.clear()
    forget()
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        trained()
    assert lowerings


def test_a_bound_function_is_not_traced_either_and_still_goes_through_jit(folder, monkeypatch):
    def bound():
        return swarm.Swarm(build, 3, loss=optax.squared_error).bind()

    first = bound()(X[:3])
    names = set(folder.glob("*-traced"))
    forget()
    compiled_here: list[str] = []
    keep = stored.compiled_and_kept

    def counted(name, *rest):
        compiled_here.append(name)
        return keep(name, *rest)

    monkeypatch.setattr(stored, "compiled_and_kept", counted)
    again = bound()
    for _ in range(2):
        np.testing.assert_array_equal(again(X[:3]), first)
    assert not compiled_here and set(folder.glob("*-traced")) == names
    np.testing.assert_array_equal(again(X[:3].astype(np.float64)), first)
    np.testing.assert_allclose(again(X[:3, :5]), first[:, :5], rtol=1e-6)
    np.testing.assert_array_equal(again(X[:3]), first)
    np.testing.assert_array_equal(again(jnp.asarray(X[:3])), first)
    np.testing.assert_allclose(jax.jit(again)(X[:3]), first, rtol=1e-6)
    slopes = jax.grad(lambda x: again(x).sum())(jnp.asarray(X[:3]))
    assert slopes.shape == X[:3].shape and np.isfinite(slopes).all()
    with pytest.raises(SwarmError, match=r"bind\(\): the model .* inputs \(32, 2\)"):
        again(X[:3, :, :2])


@pytest.mark.parametrize(
    "damage", rest_slow([lambda raw: raw[:-9], bytes.__len__, lambda raw: raw[::-1]])
)
def test_a_damaged_program_is_compiled_again_and_replaced(folder, lowerings, damage):
    first = trained()
    files = list(folder.glob("*-traced"))
    for path in files:
        damaged = damage(path.read_bytes())
        path.write_bytes(damaged if isinstance(damaged, bytes) else b"")
    forget()
    lowerings.clear()
    assert same(trained(), first) and lowerings
    forget()
    lowerings.clear()
    assert same(trained(), first) and not lowerings


@pytest.mark.parametrize("part", rest_slow(["deserialize_and_load", "serialize"]))
def test_where_jax_cannot_write_or_read_a_program_its_own_cache_serves(
    folder, lowerings, monkeypatch, part
):
    def fail(*_, **__):
        raise TypeError("unexpected keyword argument")

    first = trained()
    for path in folder.glob("*-traced"):
        path.unlink()
    forget()
    monkeypatch.setattr(serialize_executable, part, fail)
    monkeypatch.setattr(compiled, "_WORTH_OF_OURS", 0.0)
    for _ in range(3):
        assert same(trained(), first)
        forget()
    assert list(folder.glob("*-cache"))  # from the second time on


def test_types_that_cannot_be_pickled_are_left_to_jax(folder):
    class Local(dict):  # not found by its name
        pass

    jax.tree_util.register_pytree_node(
        Local, lambda own: ((own["w"],), None), lambda _, parts: Local(w=parts[0])
    )
    model = (lambda key: Local(w=jnp.ones(3)), lambda params, x: x @ params["w"])
    made = swarm.Swarm(model, 2, loss=optax.squared_error)
    assert made.predict(np.ones((2, 4, 3), np.float32))[0, 0] == 3
    files = list(folder.glob("*-traced"))
    assert files and all(stored._read(path) == stored._LEFT_TO_JAX for path in files)


@pytest.mark.slow
def test_nothing_is_kept_where_jax_has_a_folder_of_its_own_or_none_is_wanted(folder, monkeypatch):
    monkeypatch.setenv("FORECASTER_CACHE", "off")
    compiled.default_folder.cache_clear()
    trained()
    theirs = folder.parent / "theirs"
    compiled._choose((compiled._DIR,), (str(theirs),))
    forget()
    trained()
    assert not list(folder.parent.rglob("*-traced"))


def test_a_folder_that_may_only_be_read_is_read(folder, lowerings, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("read-only file system")

    first = trained()
    forget()
    lowerings.clear()
    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(stored, "_write", lambda *_: False)
    assert same(trained(), first) and not lowerings
    monkeypatch.setattr(os, "access", lambda *_: False)
    kept_by_jax: list[bool] = []
    monkeypatch.setattr(compiled, "compiled_anew", lambda: kept_by_jax.append(False))
    swarm.Swarm(build, 3, loss=optax.squared_error).predict(X[:3, :7])
    assert not kept_by_jax


class Runs:
    """Makes a file when it is unpickled, as a program of somebody else could do anything."""

    def __init__(self, made: Path):
        self.made = made

    def __reduce__(self):
        return Path.touch, (self.made,)


@pytest.fixture
def planted(folder, tmp_path):
    """Yield a function that puts a foreign program of a name there, and the file that it makes."""
    made = tmp_path / "ran"

    def plant(name: str, mode: int, user: int | None = None) -> Path:
        path = folder / f"{name}-traced"
        folder.mkdir(exist_ok=True)
        path.write_bytes(stored._packed((Runs(made),)))
        path.chmod(mode)
        if user is not None:
            os.chown(path, user, user)
        return path

    return plant, made


as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files to others"
)
OTHER = 65_534


@pytest.mark.parametrize(
    ("mode", "user"),
    [(0o666, None), (0o664, None), pytest.param(0o600, OTHER, marks=as_root)],
)
def test_a_program_that_another_user_can_have_written_is_not_unpickled(planted, mode, user):
    plant, made = planted
    assert stored._read(plant("theirs", mode, user)) is None and not made.exists()
    stored.keep_copy("theirs", "ours")  # which would be this user's
    assert stored._read(plant("theirs", mode, user).with_name("ours-traced")) is None
    assert not made.exists()
    stored._read(plant("ours", 0o600))
    assert made.exists()


def test_what_this_user_writes_is_read_whatever_the_mask(folder):
    before = os.umask(0)
    try:
        assert stored._write(folder / "new" / "one-traced", stored._packed((1,)))
    finally:
        os.umask(before)
    assert stored._read(folder / "new" / "one-traced") == (1,)
    assert (folder / "new").stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.fixture(params=["keep_compiled", "FORECASTER_CACHE", "~/.cache"])
def chosen(request, tmp_path, monkeypatch):
    """Return a folder, and a function that begins to use it and returns the one in use."""
    names = compiled._DIR, compiled._SECONDS, compiled._BYTES
    before, chosen = tuple(map(compiled._setting, names)), compiled._chosen
    compiled._choose(names, (None, 1.0, 0))
    monkeypatch.delenv("FORECASTER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "_chosen", None)
    folder = tmp_path / "forecaster" / f"swarm-{compiled.processor()}"
    if request.param == "keep_compiled":
        folder = tmp_path / "home" / "cache"
    if request.param == "FORECASTER_CACHE":
        monkeypatch.setenv("FORECASTER_CACHE", str(tmp_path / "forecaster"))

    def use() -> str | None:
        compiled._say_refused.cache_clear()
        compiled.default_folder.cache_clear()
        if request.param == "keep_compiled":
            compiled.keep_compiled(folder)
            return compiled._setting(compiled._DIR)
        return compiled.own_folder()

    yield folder, use
    compiled._choose(names, before)
    compiled.default_folder.cache_clear()
    compiled._chosen = chosen


@pytest.mark.filterwarnings("error")
def test_a_folder_of_programs_is_made_for_this_user_alone(chosen):
    folder, use = chosen
    before = os.umask(0)
    try:
        assert use() == str(folder)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_could_write_is_taken_from_them_with_what_they_may_have_put(chosen):
    folder, use = chosen
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    for name, mode in {"a-cache": 0o666, "b-traced": 0o664, "c-cache": 0o644}.items():
        (folder / name).write_bytes(stored._packed((1,)))
        (folder / name).chmod(mode)
    with (
        pytest.warns(swarm.SwarmWarning, match="the folder .*, which is made yours alone"),
        pytest.warns(swarm.SwarmWarning, match=r"2 files in .*, which are removed"),
    ):
        assert use() == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not (folder / "a-cache").exists() and not (folder / "b-traced").exists()


def test_a_folder_behind_a_link_keeps_its_mode_and_is_not_used_if_others_may_write_it(chosen):
    folder, use = chosen
    elsewhere = folder.parent.parent / "elsewhere"
    elsewhere.mkdir()
    folder.parent.mkdir(exist_ok=True)
    folder.symlink_to(elsewhere)
    elsewhere.chmod(0o775)
    with pytest.warns(swarm.SwarmWarning, match="which is not used"):
        assert use() is None
    assert elsewhere.stat().st_mode & 0o777 == 0o775
    elsewhere.chmod(0o755)
    assert use() in (str(folder), str(elsewhere))


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
def test_a_folder_of_another_user_is_not_used_and_it_is_said_once(chosen, mode, recwarn):
    folder, use = chosen
    folder.mkdir(parents=True)
    folder.chmod(mode)
    os.chown(folder, OTHER, OTHER)
    assert use() is None
    compiled.keep_compiled(folder)
    assert compiled.own_folder() != str(folder)
    assert len([one for one in recwarn if "not used" in str(one.message)]) == 1
    assert folder.stat().st_mode & 0o777 == mode and not list(folder.iterdir())


@as_root
def test_programs_of_another_user_in_a_private_folder_are_removed(chosen):
    folder, use = chosen
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    for name in ("a-cache", "b-traced"):
        (folder / name).write_bytes(b"")
        os.chown(folder / name, OTHER, OTHER)
    with pytest.warns(swarm.SwarmWarning, match="2 files"):
        assert use() == str(folder)
    assert not list(folder.glob("*-cache")) and not list(folder.glob("*-traced"))


def test_where_the_package_cannot_be_read_or_has_changed_nothing_is_kept(folder, monkeypatch):
    assert stored.name_of(lambda: "anything")  # the files that were imported are read once
    before = set(folder.glob("*-traced"))
    (folder.parent / "package").mkdir()
    monkeypatch.setattr(stored, "_TOP", folder.parent / "package")
    (folder.parent / "package" / "gone.py").symlink_to("nowhere")
    assert stored._files_of_package() == []
    assert not stored._is_unchanged()
    trained()  # in a process that has imported other files than those on disk now
    assert set(folder.glob("*-traced")) == before
    monkeypatch.setattr(stored, "_PACKAGE", [])
    assert stored.name_of(lambda: "anything") is None


def test_a_name_needs_a_text_without_addresses(folder):
    assert stored.name_of(lambda: "one", 1) not in (None, stored.name_of(lambda: "one", 2))
    assert stored.name_of(lambda: "one", object()) is None
    assert stored.name_of(lambda: None) is None


def test_equal_programs_of_unlike_functions_are_each_found(folder, lowerings):
    """The text of the second one is known, so that it is not compiled, but it has its own name."""

    def both():
        return trained(build), trained(lambda rngs: build(rngs))

    first = both()
    forget()
    lowerings.clear()
    assert same(both(), first) and not lowerings


@pytest.mark.parametrize("between", [lambda: None, forget])
def test_another_value_inside_of_a_structure_is_another_program(folder, between):
    class Meta:  # its text does not tell what it holds
        def __init__(self, scale):
            self.scale = scale

        def __repr__(self):
            return "Meta"

        def __eq__(self, other):
            return self.scale == other.scale

        def __hash__(self):
            return hash(self.scale)

    class Scaled(dict):
        scale = Meta(1.0)

    def put(meta, parts):
        made = Scaled(x=parts[0])
        made.scale = meta
        return made

    jax.tree_util.register_pytree_node(Scaled, lambda own: ((own["x"],), own.scale), put)
    for scale in (1.0, 2.0):
        given = put(Meta(scale), [np.ones((2, 4, 3), np.float32)])
        model = (lambda key: {"w": jnp.ones(3)}, lambda params, x: x["x"] @ params["w"])
        made = swarm.Swarm(model, 2, loss=optax.squared_error)
        assert made.predict(given)[0, 0] == 3
        between()


def test_files_that_were_used_last_stay(tmp_path):
    for number in range(330):
        path = tmp_path / f"{number:03d}-traced"
        path.write_bytes(b"")
        os.utime(path, (1e9 + number, 1e9 + number))
    for name in ("a-traced.tmp", "b-traced.tmp"):
        (tmp_path / name).write_bytes(b"")
    os.utime(tmp_path / "a-traced.tmp", (1e9, 1e9))
    compiled.look_after(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir() if path.name != compiled._LOOKED)
    assert left == [*(f"{number:03d}-traced" for number in range(30, 330)), "b-traced.tmp"]


def test_a_description_belongs_to_its_function_alone():
    def function(x):
        return x

    stored.described(function, lambda: "itself")
    described = stored.description_of(function)
    assert described is not None and described() == "itself"

    @functools.wraps(function)  # which copies attributes
    def other(x):
        return 2 * function(x)

    assert stored.description_of(other) is None


CASES = [
    test_sharing.clipped, test_sharing.function_attribute, test_sharing.bound_builtin,
    test_sharing.iterator, test_sharing.random_init, test_sharing.environment,
    test_sharing.named_global, test_sharing.class_body, test_sharing.dict_subclass,
    test_sharing.float_subclass, test_sharing.default_factory, test_sharing.relative_import,
    test_sharing.masked, test_sharing.objects, test_sharing.vectorized, test_sharing.metaclass,
    test_sharing.pytree_attribute, test_sharing.bound_method, test_sharing.run_time_callback,
    test_sharing.ufunc,
]  # fmt: skip


READABLE = [test_sharing.clipped, test_sharing.function_attribute, test_sharing.pytree_attribute]


@pytest.mark.parametrize("case", CASES)
def test_what_reads_something_that_changes_has_another_text_or_none(case):
    model, change = case()
    if case not in READABLE:
        with pytest.raises(Unreadable):
            text_of(model)
        return
    before = text_of(model)
    change()
    assert text_of(model) != before


def test_the_order_of_a_partial_function_s_arguments_counts():
    def sized(**sizes):
        return list(sizes)

    one, other = functools.partial(sized, a=1, b=1), functools.partial(sized, b=1, a=1)
    assert text_of(one) != text_of(other)


@pytest.mark.parametrize(
    "function",
    [
        lambda: np.lib.npyio.DataSource(".").open("weights").read(),
        lambda: flax.training.checkpoints.restore_checkpoint("weights", None),
        lambda: operator.attrgetter("random.uniform")(np)(),
        lambda: typing.get_type_hints(Points),
        lambda: jax.live_arrays(),
    ],
)
def test_functions_that_read_files_or_what_is_set_have_no_text(function):
    with pytest.raises(Unreadable):
        text_of(function)


def test_a_library_s_class_or_function_that_was_replaced_has_no_text(monkeypatch):
    def linear(rngs):
        return nnx.Linear(3, 1, rngs=rngs)

    def curved(x):
        return jax.nn.gelu(jnp.maximum(x, jnp.pi))

    text_of((linear, curved, build))
    call = nnx.Linear.__call__
    monkeypatch.setattr(nnx.Linear, "__call__", lambda self, x: 2 * call(self, x))
    with pytest.raises(Unreadable):
        text_of(linear)
    monkeypatch.setattr(jax.nn, "gelu", functools.partial(jax.nn.gelu, approximate=False))
    with pytest.raises(Unreadable):
        text_of(curved)


class Points:
    def __init__(self, w, b):
        self.w, self.b = w, b


def test_how_a_class_is_taken_apart_belongs_to_its_text():
    before = text_of(Points)
    jax.tree_util.register_pytree_node(
        Points, lambda own: ((own.w, own.b), None), lambda _, parts: Points(*parts)
    )
    assert text_of(Points) != before


def test_a_jitted_function_has_no_text():
    static = jax.jit(lambda x, n: x * n, static_argnums=1)
    with pytest.raises(Unreadable):
        text_of(lambda x: static(x, 2))
    text_of(lambda x: jax.nn.relu(x))  # one of a library


TEXTS = """
import sys
sys.path[:0] = sys.argv[1:]
from tests.swarm import test_sharing as cases
from forecaster.swarm.training.content import text_of
import functools, optax
made = [
    cases.Network, cases.Twice, cases.pinball, cases.chained, cases.build, cases.drawn,
    functools.partial(cases.Network, hidden=6), functools.partial(optax.sgd, momentum=0.9),
    cases.clipped()[0], {"b": 1, "a": {"x", "y", "z"}}, lambda x: x in {"p", "q", "r"},
]
print([text_of(each) for each in made])
"""


def test_texts_are_the_same_in_every_process():
    def texts(seed):
        root = str(Path(__file__).parents[2])
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", TEXTS, root], check=True, capture_output=True, text=True,
            env=environment,
        )  # fmt: skip
        return done.stdout

    one = texts("1")
    assert one == texts("2") and len(set(eval(one))) == len(eval(one))


SCRIPT = """
import sys
import numpy as np, optax
from flax import nnx
from forecaster.swarm import Swarm
from forecaster.swarm.devices import programs
lower = programs.Program._lower
count = [0]
def counted(self, *args):
    count[0] += 1
    return lower(self, *args)
programs.Program._lower = counted
SCALE = {scale}
class Network(nnx.Module):
    def __init__(self, rngs):
        self.out = nnx.Linear(3, 1, rngs=rngs)
    def __call__(self, x):
        return self.out(x) * SCALE
x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(2, 10, 3)
made = Swarm(Network, 2, loss=optax.squared_error).fit(x, x[..., :1], epochs=3)
print(count[0], repr(made.predict(x).sum().item()))
"""


@pytest.mark.slow
def test_a_script_that_was_edited_is_compiled_anew(tmp_path):
    """A new process of the same script traces nothing; an edited one gets its own numbers."""

    def run(scale: float, cache: str) -> tuple[str, str]:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(SCRIPT).format(scale=scale))
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("JAX_")
        }
        done = subprocess.run(
            [sys.executable, str(script)], check=True, capture_output=True, text=True,
            env=environment | {"FORECASTER_CACHE": cache},
        )  # fmt: skip
        count, total = done.stdout.split()
        return count, total

    kept = str(tmp_path / "kept")
    first, again, other = run(1.0, kept), run(1.0, kept), run(2.0, kept)
    assert first[0] != "0" and again == ("0", first[1])
    assert other[0] != "0" and other[1] == run(2.0, "off")[1] != first[1]


@pytest.mark.parametrize("changed", ["loss", "optimizer", "accumulate", "compute_dtype"])
def test_each_part_of_a_recipe_belongs_to_its_description(changed):
    usual = {
        "model": build, "loss": optax.squared_error, "loss_fn": None, "optimizer": optax.adam,
        "accumulate": 1, "compute_dtype": None,
    }  # fmt: skip
    other = {
        "loss": optax.huber_loss, "optimizer": optax.sgd, "accumulate": 2,
        "compute_dtype": jnp.bfloat16,
    }  # fmt: skip
    one = recipes.recipe_of(*usual.values())
    two = recipes.recipe_of(*(usual | {changed: other[changed]}).values())
    assert one._description("step") is not None
    assert one._description("step") != two._description("step")
    assert one._description("step") != one._description("predict")
    assert dataclasses.replace(one, sharing=None)._description("step") is None
