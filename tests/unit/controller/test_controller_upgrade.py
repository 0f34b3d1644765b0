"""UpdateFeatures with kraft.version, whose part the quorum does first (KIP-853)."""

import asyncio
from datetime import timedelta

from controller_shell_rig import E, NotLeader, Setting

from wire.apis import ApiKey
from wire.errors import KafkaError
from wire.messages import request_module


async def update_features(setting, *updates, validate_only=False):
    """Updates are (feature, level, upgrade type)."""
    module = request_module(ApiKey.UPDATE_FEATURES, 2)
    return await setting.ask(
        ApiKey.UPDATE_FEATURES,
        2,
        feature_updates=tuple(
            module.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ),
        timeout=timedelta(seconds=5),
        validate_only=validate_only,
    )


UPGRADE = ("kraft.version", 1, 1)


def test_kraft_version_is_raised_by_the_quorum_before_the_rest():
    async def story():
        async with Setting() as setting:
            setting.lead()
            quorum = setting.quorum
            asked = asyncio.ensure_future(
                update_features(setting, ("metadata.version", 26, 1), UPGRADE)
            )
            await quorum.upgrade_asked.wait()
            assert quorum.upgrades == [(1, False)]
            assert setting.shell.image.metadata_version == 25
            quorum.may_upgrade.set()
            assert (await asked).error_code is E.none
            assert setting.shell.image.metadata_version == 26
            assert setting.shell.core.image.kraft_version == 1
            # It is there now: nothing is left to ask for.
            assert (await update_features(setting, UPGRADE)).error_code is E.none
            assert quorum.upgrades == [(1, False)]
            down = await update_features(setting, ("kraft.version", 0, 2))
            assert down.error_code is E.invalid_update_version
            assert "it is at 1 and never goes down" in down.error_message

    asyncio.run(story())


def test_an_upgrade_of_kraft_version_that_is_only_validated():
    async def story():
        async with Setting() as setting:
            setting.lead().quorum.may_upgrade.set()
            tried = await update_features(
                setting, ("metadata.version", 26, 1), UPGRADE, validate_only=True
            )
            assert tried.error_code is E.none
            assert setting.quorum.upgrades == [(1, True)]
            assert setting.quorum.kraft_version == 0
            assert setting.shell.image.metadata_version == 25

    asyncio.run(story())


def test_what_the_quorum_refuses_refuses_all():
    async def story():
        async with Setting() as setting:
            quorum = setting.lead().quorum
            quorum.may_upgrade.set()
            quorum.upgrade_refused = KafkaError(E.invalid_update_version, "voter 2 is too old")
            refused = await update_features(setting, ("metadata.version", 26, 1), UPGRADE)
            assert (refused.error_code, refused.error_message) == (
                E.invalid_update_version,
                "voter 2 is too old",
            )
            assert setting.shell.image.metadata_version == 25
            wrong = await update_features(setting, ("metadata.version", 99, 1), UPGRADE)
            assert wrong.error_code is E.invalid_update_version
            assert quorum.upgrades == [(1, False)], "nothing is asked for what can't be done"
            quorum.upgrade_refused = NotLeader(E.not_leader_or_follower, "no more")
            gone = await update_features(setting, UPGRADE)
            assert gone.error_code is E.not_controller

    asyncio.run(story())


def test_an_upgrade_of_kraft_version_ends_with_the_leadership():
    async def story():
        async with Setting() as setting:
            setting.lead()
            asked = asyncio.ensure_future(update_features(setting, UPGRADE))
            await setting.quorum.upgrade_asked.wait()
            assert setting.shell.core.waiting == 1
            setting.shell.on_leader_change(1, 2)
            assert (await asked).error_code is E.not_controller
            # The quorum's late answer means nothing any more.
            setting.quorum.may_upgrade.set()
            await asyncio.sleep(0.01)
            assert setting.shell.core.waiting == 0

    asyncio.run(story())


def test_a_broker_that_lacks_kraft_version_stands_in_its_way():
    async def story():
        async with Setting() as setting:
            setting.lead()
            await setting.register()
            refused = await update_features(setting, UPGRADE)
            assert refused.error_code is E.invalid_update_version
            assert "broker 1 does not support this feature" in refused.error_message
            assert setting.quorum.upgrades == []

    asyncio.run(story())
