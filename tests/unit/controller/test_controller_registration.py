"""A controller registers its incarnation once, and keeps trying while it is refused."""

import asyncio
import uuid
from types import SimpleNamespace

from controller.registration import ControllerRegistrar
from metadata.image import EMPTY
from metadata.records import FeatureLevelRecord, RegisterControllerRecord
from wire.errors import ErrorCode, KafkaError
from wire.messages import request_module
from world.real import real_env

ME = uuid.UUID(int=1 << 100)
LEVEL_25 = EMPTY.apply(FeatureLevelRecord(name="metadata.version", feature_level=25))


def registered(incarnation):
    return LEVEL_25.apply(
        RegisterControllerRecord(
            controller_id=7,
            incarnation_id=incarnation,
            zk_migration_ready=False,
            end_points=(),
            features=(),
        )
    )


def story(answers, images):
    """The requests sent while `answers` are given in turn; then each image is published."""
    sent = []

    async def main():
        done = asyncio.Event()

        async def call(api_key, build, timeout_ms):
            sent.append(build(0, request_module(api_key, 0)))
            answer = answers[len(sent) - 1]
            if len(sent) == len(answers):
                done.set()
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(error_code=answer)

        registrar = ControllerRegistrar(
            real_env(1), 7, ME, (("CONTROLLER", "h", 1, 0),), {"metadata.version": (7, 25)}, call
        )
        registrar.start()
        for image in images:
            registrar.on_image(image)
        async with asyncio.timeout(10):
            await done.wait()
        await registrar.close()
        return registrar.attempts

    return asyncio.run(main()), sent


def test_it_registers_until_it_is_taken():
    refused = KafkaError(ErrorCode.not_controller, "nobody")
    attempts, sent = story([refused, ErrorCode.unsupported_version, ErrorCode.none], [LEVEL_25])
    assert attempts == 3
    assert [one.incarnation_id for one in sent] == [ME] * 3
    assert [(one.name, one.host, one.port) for one in sent[0].listeners] == [("CONTROLLER", "h", 1)]


def test_another_incarnation_in_its_place_is_replaced():
    attempts, _ = story([ErrorCode.none], [registered(ME), registered(uuid.UUID(int=5 << 90))])
    assert attempts == 1


def test_an_old_metadata_version_has_no_such_record():
    old = EMPTY.apply(FeatureLevelRecord(name="metadata.version", feature_level=14))
    attempts, _ = story([ErrorCode.none], [old, LEVEL_25])
    assert attempts == 1
