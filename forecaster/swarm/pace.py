"""How many epochs the blocks of a fit have, by how long they take."""

# Epochs of a block, unless more are asked for: with validation, and without.
_MOST_VALIDATED, _MOST = 128, 1024
# Seconds of a block that is over at once, and of the longest that blocks are lengthened to; and the
# share of a block that may go into moving states.
_SHORT, _LONG, _LONG_VALIDATED, _IDLE = 0.1, 4.0, 0.5, 0.05
_TIMES = 8  # a block has at most so many times as many epochs as the one before


class Pace:
    """Lengthens blocks that are over at once, and those whose states take long to move.

    - ``epochs``: of the next block
    - ``longest``: the most epochs that a block ever has

    Blocks stay shorter where members may stop early, and grow more slowly.
    """

    def __init__(self, epochs: int, *, validated: bool):
        self.epochs = self._shortest = epochs
        self.longest = max(epochs, _MOST_VALIDATED if validated else _MOST)
        self._validated = validated

    def adapt(self, seconds: float, moving: float) -> None:
        """After a block that took so long in all, and so long to move states."""
        longest = _LONG_VALIDATED if self._validated else _LONG
        idle = seconds < _SHORT or moving > _IDLE * seconds
        if idle and 2 * seconds < longest:
            room = 2 if self._validated else int(min(_TIMES, _SHORT / max(seconds, 1e-9)))
            self.epochs = min(max(2, room) * self.epochs, self.longest)
        elif seconds > 2 * longest:
            self.epochs = max(self.epochs // 2, self._shortest)
