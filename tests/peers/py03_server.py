"""Echo agent on the official Python SDK 0.3.x, in all bindings. Argument: port."""

import argparse
import asyncio
import base64
import logging
import sys

import httpx

from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server as add_service
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Task,
    TaskState,
    TaskStatus,
    TextPart,
)
from a2a.utils import new_agent_text_message

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from common import serve  # noqa: E402


def answer(text, message):
    """The text, or for "file" the size of the file in bytes and the file itself."""
    file = next((p for p in message.parts if p.root.kind == 'file'), None)
    if text != 'file' or not file:
        return [Part(root=TextPart(text=text))]
    size = len(base64.b64decode(file.root.file.bytes, validate=True))
    return [Part(root=TextPart(text=str(size))), file]


class Echo(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        follow_up = context.current_task is not None
        if text.startswith('message') and not follow_up:
            await event_queue.enqueue_event(new_agent_text_message(text, context_id=context.context_id))
            return

        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        if not follow_up:
            await event_queue.enqueue_event(Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.submitted),
                history=[context.message],
            ))
        await task.start_work()
        if text == 'ask' and not follow_up:
            question = task.new_agent_message([Part(root=TextPart(text='What shall I echo?'))])
            await task.requires_input(question, final=True)
            return
        if text.startswith('hold') and not follow_up:
            try:
                await asyncio.Event().wait()  # the SDK cancels us here
            except asyncio.CancelledError:
                # What cancel() below writes reaches only the caller of tasks/cancel, as the SDK
                # (0.3.26) gives it a queue apart. Those who have subscribed read this one.
                await task.cancel()
                raise
        await task.add_artifact(answer(text, context.message), name='echo', last_chunk=True)
        await task.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


parser = argparse.ArgumentParser()
parser.add_argument('port', type=int)
options = parser.parse_args()
logging.disable(logging.WARNING)


def build(grpc_server, grpc_port):
    url = f'http://127.0.0.1:{options.port}'
    card = AgentCard(
        name='Echo (Python SDK 0.3.x)',
        description='Echoes what it is sent.',
        version='1.0.0',
        url=f'{url}/',
        preferred_transport='JSONRPC',
        additional_interfaces=[
            AgentInterface(transport='JSONRPC', url=f'{url}/'),
            AgentInterface(transport='HTTP+JSON', url=f'{url}/rest'),
            AgentInterface(transport='GRPC', url=f'127.0.0.1:{grpc_port}'),
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
        push_config_store=webhooks,
        # Proxy variables of the machine must not come between two local processes.
        push_sender=BasePushNotificationSender(httpx.AsyncClient(trust_env=False), webhooks),
    )
    add_service(GrpcHandler(card, handler), grpc_server)
    app = A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build(rpc_url='/rest')
    A2AStarletteApplication(agent_card=card, http_handler=handler).add_routes_to_app(app)
    return app


serve(options.port, build)
