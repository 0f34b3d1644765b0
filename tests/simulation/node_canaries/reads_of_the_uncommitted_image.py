RULE = "reads are answered from the active controller's uncommitted image"
CAUGHT_BY = ("admin calls are linearizable",)
SEEDS_MAX = 8


def install(replace):
    from pykraft.node import Node

    def image(self):
        if self.controller is not None and self.controller.active:
            return self.controller.core.image
        return self.publisher.image

    replace(Node, "image", property(image))
