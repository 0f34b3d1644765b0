RULE = "the controller answers when it has decided, not when that is committed"
CAUGHT_BY = (
    "admin calls are linearizable",
    "a healed cluster converges",
    "acknowledged records are kept",
)
SEEDS_MAX = 30


def install(replace):
    from controller.core import Controller
    from controller.events import Reply

    def answer(self, request, reply, admin):
        self._effects.append(Reply(request.token, reply))

    replace(Controller, "_answer_when_committed", answer)
