"""A restarted broker replays the past first, and must not act on it."""

import asyncio

from broker_fakes import cluster, until
from test_broker_end_to_end import batch, fetch, produce, values_of

from broker.broker import Broker


def test_an_image_of_the_past_sets_nothing_aside(tmp_path, monkeypatch):
    async def main():
        async with cluster(tmp_path) as c:
            c.controller.create_topic("t")
            await until(lambda: len(c.brokers[1].replicas) == 1)
            past = c.controller.image
            c.controller.delete_topic("t")
            c.controller.create_topic("t")
            new_id = c.controller.image.topic("t").id
            await until(lambda: [r.topic_id for r in c.brokers[1].replicas] == [new_id])
            answer = await produce(await c.connect(1), "t", 0, batch(b"of the new topic"))
            assert answer.error_code == 0
            await c.stop_broker(1)

            # As a node does that begins from a snapshot taken before the topic was made anew.
            on_image = Broker.on_image

            def past_first(self, image, delta=None):
                monkeypatch.undo()
                self.on_image(past)
                on_image(self, image, delta)

            monkeypatch.setattr(Broker, "on_image", past_first)
            await c.start_broker(1)
            answer = await fetch(await c.connect(1), "t", 0, 0)
            assert answer.error_code == 0
            assert values_of(answer.records) == [b"of the new topic"]
            assert not [
                name
                for name in c.brokers[1].env.disk.list_dir(f"{c.path}/broker-1")
                if "stray" in name
            ]

    asyncio.run(main())
