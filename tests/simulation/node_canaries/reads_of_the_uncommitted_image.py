RULE = "reads are answered from the active controller's uncommitted image, nobody is asked"
CAUGHT_BY = ("admin calls are linearizable",)
SEEDS_MAX = 80


def install(replace):
    from pykraft.node import Node

    def image(self):
        if self.controller is not None and self.controller.active:
            return self.controller.core.image
        return self.publisher.image

    async def confirm_read(self):
        return self.image.last_offset

    replace(Node, "image", property(image))
    replace(Node, "confirm_read", confirm_read)
