"""What operators made of a worker, over all its lives."""


class Duty:
    """Whether it stands by, and what came of the last command.

    Attributes:
        reserve: it was started to stand by, so a scheduler may put it back.
        standby: it keeps the model loaded and takes no jobs.
        answered: the inbox entry of the last command that was obeyed or refused.
        refusal: why it was refused; empty when it was obeyed.
    """

    def __init__(self, *, standby: bool = False) -> None:
        self.reserve = self.standby = standby
        self.answered = ""
        self.refusal = ""
