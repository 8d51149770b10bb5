"""Talks to an agent with the official Python SDK 1.x: py1_chat.py URL MESSAGE...

Each message follows the one before, in the conversation that the agent has begun. For each it prints a line of JSON: the
state of its task, the texts as they came on the stream, and the texts of the parts of its artifacts.
"""

import asyncio
import json
import sys
import uuid

import httpx

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import get_artifact_text, new_text_part
from a2a.types import GetTaskRequest, Message, Role, SendMessageRequest, TaskState


async def chat(url, said):
    # Proxy variables of the machine must not come between two local processes.
    async with httpx.AsyncClient(timeout=15, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        config = ClientConfig(streaming=True, httpx_client=http, supported_protocol_bindings=['JSONRPC'])
        client, context = ClientFactory(config).create(card), ''
        for text in said:
            message = Message(
                message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[new_text_part(text)], context_id=context,
            )
            events = [e async for e in client.send_message(SendMessageRequest(message=message))]
            pieces = [get_artifact_text(e.artifact_update.artifact) for e in events if e.HasField('artifact_update')]
            task = await client.get_task(GetTaskRequest(id=events[0].task.id))
            context = task.context_id
            print(json.dumps({
                'state': TaskState.Name(task.status.state),
                'pieces': pieces,
                'parts': [part.text for artifact in task.artifacts for part in artifact.parts],
            }), flush=True)


asyncio.run(chat(sys.argv[1].rstrip('/'), sys.argv[2:]))
