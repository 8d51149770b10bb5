"""Echo agent on the official Python SDK 1.x, in all bindings. Arguments: port, --v03 (answer 0.3 as well)."""

import argparse
import asyncio
import logging
import sys

import httpx
from starlette.applications import Starlette

from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import add_A2AServiceServicer_to_server as add_compat_service
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers.proto_helpers import new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Task, TaskState, TaskStatus
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from common import serve  # noqa: E402


def answer(text, message):
    """The text, or for "file" the size of the file in bytes and the file itself."""
    file = next((p for p in message.parts if p.HasField('raw')), None)
    return [new_text_part(str(len(file.raw))), file] if text == 'file' and file else [new_text_part(text)]


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        follow_up = context.current_task is not None
        if text.startswith('message') and not follow_up:
            await event_queue.enqueue_event(new_text_message(text, context_id=context.context_id))
            return

        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        if not follow_up:
            await event_queue.enqueue_event(Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            ))
        await task.start_work()
        if text == 'ask' and not follow_up:
            await task.requires_input(task.new_agent_message([new_text_part('What shall I echo?')]))
            return
        if text.startswith('hold') and not follow_up:
            await asyncio.Event().wait()  # the SDK cancels us here
        await task.add_artifact(answer(text, context.message), name='echo', last_chunk=True)
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


parser = argparse.ArgumentParser()
parser.add_argument('port', type=int)
parser.add_argument('--v03', action='store_true', help='answer 0.3 as well')
options = parser.parse_args()
logging.disable(logging.WARNING)
# When it is ended the SDK leaves tasks of its own unfinished, and these two write pages about it.
for name in ('asyncio', 'opentelemetry.context'):
    logging.getLogger(name).disabled = True


def build(grpc_server, grpc_port):
    urls = {
        'JSONRPC': f'http://127.0.0.1:{options.port}/',
        'HTTP+JSON': f'http://127.0.0.1:{options.port}/rest',
        'GRPC': f'127.0.0.1:{grpc_port}',
    }
    card = AgentCard(
        name='Echo (Python SDK 1.x)',
        description='Echoes what it is sent.',
        version='1.0.0',
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
            for version in (['1.0', '0.3'] if options.v03 else ['1.0'])
            for binding, url in urls.items()
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=['text/plain', 'application/octet-stream'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='echo', name='Echo', description='Echoes text.', tags=['echo'])],
    )
    webhooks = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Echo(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=webhooks,
        # Proxy variables of the machine must not come between two local processes.
        push_sender=BasePushNotificationSender(httpx.AsyncClient(trust_env=False), webhooks),
    )
    add_service(GrpcHandler(handler), grpc_server)
    if options.v03:
        add_compat_service(CompatGrpcHandler(handler), grpc_server)
    return Starlette(routes=[
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, '/', enable_v0_3_compat=options.v03),
        *create_rest_routes(handler, path_prefix='/rest', enable_v0_3_compat=options.v03),
    ])


serve(options.port, build)
