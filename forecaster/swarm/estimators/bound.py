"""All members as one function of inputs, for quick calls."""

from forecaster.swarm.arrays.shapes import expecting
from forecaster.swarm.devices.compiled import kept
from forecaster.swarm.estimators.recipe import Recipe
from forecaster.swarm.task import Hyperparams, Params, Tree


class Bound:
    """The members of a swarm as a function of inputs (member, example, ...).

    A call is a single dispatch of JAX. Inside ``jit``, ``grad``, ``vmap`` and ``scan`` it is an
    ordinary function.
    """

    def __init__(self, recipe: Recipe, params: Params, hyperparams: Hyperparams):
        self._call, self._placed, self._called = recipe.predict_all, (params, hyperparams), False

    def __call__(self, inputs: Tree) -> Tree:
        """Return predictions (member, example, ...), which stay on the device.

        Raises SwarmError for inputs that the model does not take.
        """
        with expecting({}, "bind()"):
            if self._called:
                return self._call(*self._placed, inputs)
            with kept():  # the first call compiles
                out = self._call(*self._placed, inputs)
        self._called = True
        return out
