"""How many epochs the blocks of a fit have, by how long they take."""

import weakref
from collections.abc import Hashable

# Epochs of a block, unless more are asked for: with validation, and without.
_MOST_VALIDATED, _MOST = 128, 1024
# Seconds of a block that is over at once, and of the longest that blocks are lengthened to; and the
# share of a block that may go into moving states.
_SHORT, _LONG, _LONG_VALIDATED, _IDLE = 0.1, 4.0, 0.5, 0.05
_TIMES = 8  # a block has at most so many times as many epochs as the one before
# Seconds of a block of which nobody sees anything meanwhile; an interruption waits for its end.
_UNSEEN = 0.5

# Seconds of an epoch of a round, by the program that trains and by what it was called with.
_taken: weakref.WeakKeyDictionary[object, dict[Hashable, float]] = weakref.WeakKeyDictionary()
_KEPT = 64  # kinds of calls of a program


class Pace:
    """Lengthens blocks that are over at once, and those whose states take long to move.

    - ``epochs``: of the next block
    - ``longest``: the most epochs that a block ever has

    Blocks stay shorter where members may stop early, and grow more slowly. Where they may not, and
    it is not ``watched``, nothing is to be seen between two blocks: they are longer, and the first
    is as long as it may be by what one like it took before.
    """

    def __init__(self, epochs: int, *, validated: bool, watched: bool = True):
        self.epochs = self._shortest = epochs
        self.longest = max(epochs, _MOST_VALIDATED if validated else _MOST)
        self._validated, self._unseen = validated, not (validated or watched)
        self._short = _UNSEEN if self._unseen else _SHORT
        self._before, self._kind, self._known, self._most = dict[Hashable, float](), None, False, 0

    def begin(self, program: object, kind: Hashable, rounds: int) -> None:
        """Choose the first block's length by what this program took for the like, if it did.

        - ``kind``: what decides, beside the program, how long a round takes
        - ``rounds``: that it is about to go through, on all lanes at the same time
        """
        self._before, self._kind = _taken.setdefault(program, {}), kind
        self._known = kind in self._before
        if self._unseen and self._known:
            epochs = int(self._short / max(rounds * self._before[kind], 1e-9))
            self.epochs = min(max(epochs, self._shortest), self.longest)

    def keep(self, rounds: int, epochs: int, seconds: float) -> None:
        """Keep how long a block of so many rounds and epochs took, if no longer one has told more.

        The first of its kind may have been compiled meanwhile, and tells nothing.
        """
        if self._known and epochs >= self._most:
            while len(self._before) >= _KEPT:
                del self._before[next(iter(self._before))]
            self._most, self._before[self._kind] = epochs, seconds / (rounds * epochs)
        self._known = True

    def adapt(self, seconds: float, moving: float) -> None:
        """After a block that took so long in all, and so long to move states."""
        longest = _LONG_VALIDATED if self._validated else _LONG
        idle = seconds < self._short or moving > _IDLE * seconds
        if idle and 2 * seconds < longest:
            room = 2 if self._validated else int(min(_TIMES, self._short / max(seconds, 1e-9)))
            self.epochs = min(max(2, room) * self.epochs, self.longest)
        elif seconds > 2 * longest:
            self.epochs = max(self.epochs // 2, self._shortest)
