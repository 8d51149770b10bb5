"""Checks an agent with the official Python SDK 0.3.x. Arguments: base URL, --binding NAME, --skip NAMES, --talk,
--push, --text."""

import base64
import contextlib
import sys
import uuid

import grpc
import httpx

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)
from a2a.utils import get_artifact_text, get_data_parts, get_file_parts, get_message_text, get_text_parts

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from common import (  # noqa: E402
    BINDINGS,
    CREDENTIALS,
    TEXT,
    TOKEN,
    Failed,
    Skipped,
    collect,
    collect_while,
    expect,
    expect_status,
    open_channel,
    run_checks,
    webhook,
)


class Agent:
    def __init__(self, card, http, binding):
        def client(**config):
            config = ClientConfig(
                httpx_client=http,
                grpc_channel_factory=open_channel,
                supported_transports=[BINDINGS[binding]],
                **config,
            )
            return ClientFactory(config).create(card)

        # The SDK has one send method; how it sends is settled when the client is made.
        self.plain, self.live = client(streaming=False), client(streaming=True)
        self.polling = client(streaming=False, polling=True)  # polling means blocking: false
        self.binding = binding
        # A webhook along with every message.
        self.pushing = lambda config: client(streaming=False, push_notification_configs=[config])

    async def send(self, text, blocking=True, **fields):
        """Sends without streaming and gives the message sent and the task that came back."""
        message = new_message(text, **fields)
        client = self.plain if blocking else self.polling
        [event] = await collect(client.send_message(message))
        expect(isinstance(event, tuple), f'expected a task, got {event}')
        return message, event[0]


def new_message(text, **fields):
    fields.setdefault('parts', [Part(root=TextPart(text=text))])
    return Message(message_id=str(uuid.uuid4()), role=Role.user, **fields)


@contextlib.asynccontextmanager
async def connect(url, options):
    # Proxy variables of the machine must not come between two local processes.
    async with httpx.AsyncClient(timeout=15, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        expect(card.name and card.version, f'name or version missing: {card}')
        expect(card.protocol_version.startswith('0.3'), f'protocol version is {card.protocol_version}')
        yield Agent(card, http, options.binding)


def expect_state(task, *states):
    expect(task.status.state in states, f'state is {task.status.state}')


@contextlib.asynccontextmanager
async def raises(error=None, stream=False):
    """An answer of the agent with this error, or with any. Over REST the SDK does not look at the status of a stream:
    for it an answer that is no event stream is a 400."""
    name = error and error.__name__
    try:
        yield
    except A2AClientJSONRPCError as why:
        code = error and error.model_fields['code'].default
        expect(code in (None, why.error.code), f'code is {why.error.code}, not {code}')
    except A2AClientHTTPError as why:
        expect_status(why.status_code, None if stream and why.status_code == 400 else name)
    except grpc.aio.AioRpcError as why:  # the SDK lets it through
        expect_status(why.code().name, name)
    else:
        raise Failed('no error')


async def send(agent):
    sent, task = await agent.send('hello')
    expect_state(task, TaskState.completed)
    expect(task.id and task.context_id, f'an id is missing: {task}')
    expect(len(task.artifacts or []) == 1, f'artifacts are {task.artifacts}')
    expect('hello' in ''.join(get_text_parts(task.artifacts[0].parts)), f'artifact is {task.artifacts[0]}')
    found = [m for m in task.history or [] if m.message_id == sent.message_id]
    expect(len(found) == 1, f'history is {task.history}')
    expect(found[0].role == Role.user and get_message_text(found[0]) == 'hello', f'history is {found[0]}')


async def stream(agent):
    # Events are pairs: the task as the SDK has put it together so far, and the update, which is
    # None for the task itself. The SDK changes that task in place, so only its id is looked at here.
    events = await collect(agent.live.send_message(new_message('hello')))
    kinds = [type(update).__name__ if update else 'Task' for _, update in events]
    expect(kinds[:1] == ['Task'], f'events are {kinds}')
    updates = [update for _, update in events[1:]]
    states = [u.status.state for u in updates if isinstance(u, TaskStatusUpdateEvent)]
    expect(TaskState.working in states and states[-1] == TaskState.completed, f'states are {states}')
    artifacts = [u.artifact for u in updates if isinstance(u, TaskArtifactUpdateEvent)]
    expect(artifacts and 'hello' in ''.join(get_text_parts(artifacts[0].parts)), f'artifacts are {artifacts}')
    expect(isinstance(updates[-1], TaskStatusUpdateEvent) and updates[-1].final, f'events are {kinds}')
    expect({u.task_id for u in updates} == {events[0][0].id}, f'updates are {updates}')


async def get(agent):
    _, task = await agent.send('hello')
    again = await agent.plain.get_task(TaskQueryParams(id=task.id))
    expect(again.id == task.id and again.context_id == task.context_id, f'got {again}')
    expect_state(again, TaskState.completed)
    expect(len(again.artifacts or []) == 1, f'artifacts are {again.artifacts}')


async def history_zero(agent):
    if agent.binding == 'grpc':
        raise Skipped('0.3 over gRPC cannot say 0')
    _, task = await agent.send('hello')
    again = await agent.plain.get_task(TaskQueryParams(id=task.id, history_length=0))
    expect(not again.history, f'history has {len(again.history or [])} messages')


async def list_tasks(agent):
    raise Skipped('0.3 has no such operation')


async def not_found(agent):
    async with raises(TaskNotFoundError):
        await agent.plain.get_task(TaskQueryParams(id=str(uuid.uuid4())))


async def refused_stream(agent):
    async with raises(TaskNotFoundError, stream=True):
        await collect(agent.live.resubscribe(TaskIdParams(id=str(uuid.uuid4()))))
    _, task = await agent.send('hello')
    async with raises(stream=True):
        await collect(agent.live.send_message(new_message('more', task_id=task.id, context_id=task.context_id)))


async def cancel(agent):
    _, task = await agent.send('hold', blocking=False)
    expect_state(task, TaskState.submitted, TaskState.working)
    expect_state(await agent.plain.cancel_task(TaskIdParams(id=task.id)), TaskState.canceled)
    expect_state(await agent.plain.get_task(TaskQueryParams(id=task.id)), TaskState.canceled)


async def cancel_again(agent):
    _, task = await agent.send('hold', blocking=False)
    await agent.plain.cancel_task(TaskIdParams(id=task.id))
    async with raises(TaskNotCancelableError):
        await agent.plain.cancel_task(TaskIdParams(id=task.id))


async def finished(agent):
    _, task = await agent.send('hello')
    async with raises():  # 0.3 does not say which error
        await agent.send('more', task_id=task.id, context_id=task.context_id)


async def parts(agent):
    data, raw = {'n': 1, 'deep': {'list': [1, 'two', True, None]}}, bytes(range(256))
    file = FileWithBytes(bytes=base64.b64encode(raw).decode(), mime_type='application/octet-stream', name='all.bin')
    sent, task = await agent.send('', parts=[
        Part(root=TextPart(text='hello')),
        Part(root=DataPart(data=data)),
        Part(root=FilePart(file=file)),
    ])
    expect_state(task, TaskState.completed)
    kept = next((m for m in task.history or [] if m.message_id == sent.message_id), None)
    expect(kept, f'history is {task.history}')
    expect(get_data_parts(kept.parts) == [data], f'data came back as {get_data_parts(kept.parts)}')
    expect(get_file_parts(kept.parts) == [file], f'file came back as {get_file_parts(kept.parts)}')


async def subscribe(agent):
    _, task = await agent.send('hold', blocking=False)
    events, canceled = await collect_while(
        agent.live.resubscribe(TaskIdParams(id=task.id)),
        lambda: agent.plain.cancel_task(TaskIdParams(id=task.id)),
    )
    expect_state(canceled, TaskState.canceled)
    last = events[-1][1] if events else None
    expect(isinstance(last, TaskStatusUpdateEvent), f'events are {events}')
    expect_state(last, TaskState.canceled)


async def ask(agent):
    _, task = await agent.send('ask')
    expect_state(task, TaskState.input_required)
    expect(task.status.message and get_message_text(task.status.message), f'no question: {task.status}')
    _, done = await agent.send('answer', task_id=task.id, context_id=task.context_id)
    expect(done.id == task.id, f'another task: {done}')
    expect_state(done, TaskState.completed)
    expect('answer' in ''.join(get_text_parts(done.artifacts[0].parts)), f'artifacts are {done.artifacts}')


async def ask_by_stream(agent):
    events = await collect(agent.live.send_message(new_message('ask')))
    asked = events[-1][1]
    expect_state(asked, TaskState.input_required)
    answer = new_message('answer', task_id=asked.task_id, context_id=asked.context_id)
    events = await collect(agent.live.send_message(answer))
    expect_state(events[-1][1], TaskState.completed)


async def file(agent):
    raw = base64.b64encode(bytes(range(256))).decode()
    sent = FileWithBytes(bytes=raw, mime_type='application/octet-stream', name='all.bin')
    _, task = await agent.send('', parts=[Part(root=TextPart(text='file')), Part(root=FilePart(file=sent))])
    expect_state(task, TaskState.completed)
    found = task.artifacts[0].parts
    expect(get_text_parts(found) == ['256'], f'the agent read {get_text_parts(found)} bytes')
    expect(get_file_parts(found) == [sent], f'the file came back as {get_file_parts(found)}')


async def message(agent):
    for client in agent.plain, agent.live:
        [event] = await collect(client.send_message(new_message('message hello')))
        expect(isinstance(event, Message), f'expected a message, got {event}')
        expect(event.role == Role.agent and 'hello' in get_message_text(event), f'got {event}')


def new_webhook(url, name):
    authentication = PushNotificationAuthenticationInfo(schemes=['Bearer'], credentials=CREDENTIALS)
    return PushNotificationConfig(id=name, url=url, token=TOKEN, authentication=authentication)


async def webhooks(agent):
    # All that the client has; it leaves listing and deleting out.
    _, task = await agent.send('hello')
    url = 'http://receiver.example/hook'
    config = TaskPushNotificationConfig(task_id=task.id, push_notification_config=new_webhook(url, 'w-1'))
    made = await agent.plain.set_task_callback(config)
    got = await agent.plain.get_task_callback(
        GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id='w-1'))
    for told in made, got:
        found = (told.task_id, told.push_notification_config.id, told.push_notification_config.url)
        expect(found == (task.id, 'w-1', url), f'told {told}')


async def notified(agent):
    async with webhook() as (url, posts):
        client = agent.pushing(new_webhook(url, 'w-1'))
        [(answer, _)] = await collect(client.send_message(new_message('hello')))
        state = None
        while state != TaskState.completed:
            body = await posts.get()
            task = Task.model_validate(body)
            expect(body.get('kind') == 'task' and task.id == answer.id, f'told {body}')
            state = task.status.state
        expect('hello' in ''.join(get_text_parts(task.artifacts[0].parts)), f'artifacts are {task.artifacts}')


async def text(agent):
    pieces = []
    # As they come: the SDK appends later ones to the first, in place.
    async for task, update in agent.live.send_message(new_message('hello')):
        if isinstance(update, TaskArtifactUpdateEvent):
            pieces.append(get_artifact_text(update.artifact))
    expect(len(pieces) > 1, f'{len(pieces)} pieces')
    expect(''.join(pieces) == TEXT, f'the pieces are {pieces}')
    task = await agent.plain.get_task(TaskQueryParams(id=task.id))
    [artifact] = task.artifacts
    expect(len(artifact.parts) == 1, f'{len(artifact.parts)} parts')
    expect(get_artifact_text(artifact) == TEXT, f'the text is {get_artifact_text(artifact)}')


run_checks(
    connect,
    [send, stream, get, history_zero, list_tasks, not_found, refused_stream, cancel, cancel_again, finished, parts,
     subscribe],
    talk=[ask, ask_by_stream, message, file],
    push=[webhooks, notified],
    text=[text],
)
