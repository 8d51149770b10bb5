"""Checks an agent with the official Python SDK 1.x.
Arguments: base URL, --binding NAME, --skip NAMES, --talk, --push, --text, --v03."""

import contextlib
import sys
import uuid

import grpc
import httpx

from google.protobuf.json_format import ParseDict

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.compat.v0_3 import conversions, types as types_v03
from a2a.helpers.proto_helpers import (
    get_artifact_text,
    get_data_parts,
    get_message_text,
    get_raw_parts,
    new_data_part,
    new_raw_part,
    new_text_part,
)
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    MethodNotFoundError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.proto_utils import validate_proto_required_fields

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

WORKING, COMPLETED, CANCELED = (
    TaskState.TASK_STATE_WORKING,
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_CANCELED,
)


class Agent:
    def __init__(self, card, http, options):
        def client(streaming):
            config = ClientConfig(
                streaming=streaming,
                httpx_client=http,
                grpc_channel_factory=open_channel,
                supported_protocol_bindings=[BINDINGS[options.binding]],
            )
            return ClientFactory(config).create(card)

        # The SDK has one send method; whether it streams is settled when the client is made.
        self.plain, self.live = client(False), client(True)
        self.v03, self.binding = options.v03, options.binding

    async def send(self, text, return_immediately=False, **fields):
        """Sends without streaming and gives the message sent and the task that came back."""
        request = new_request(text, **fields)
        request.configuration.return_immediately = return_immediately
        [event] = await collect(self.plain.send_message(request))
        expect(event.HasField('task'), f'expected a task, got {event}')
        return request.message, event.task


def new_request(text, **fields):
    fields.setdefault('parts', [new_text_part(text)])
    return SendMessageRequest(message=Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, **fields))


@contextlib.asynccontextmanager
async def connect(url, options):
    # Proxy variables of the machine must not come between two local processes.
    async with httpx.AsyncClient(timeout=15, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        expect(card.name and card.version, f'name or version missing: {card}')
        # The SDK takes the newest interface it knows, so the others have to go.
        wanted = [
            i for i in card.supported_interfaces
            if i.protocol_binding == BINDINGS[options.binding] and i.protocol_version.startswith('0.') == options.v03
        ]
        expect(wanted, f'no such interface in the card: {card.supported_interfaces}')
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(wanted)
        yield Agent(card, http, options)


def expect_state(task, *states):
    expect(task.status.state in states, f'state is {TaskState.Name(task.status.state)}')


@contextlib.asynccontextmanager
async def raises(agent, error):
    """An answer of the agent with this error; trouble with HTTP or JSON does not count."""
    try:
        yield
    except (A2AClientError, MethodNotFoundError) as why:
        # For 0.3 the SDK knows an error by its name only: over REST in a member "type", which no server sends,
        # and over gRPC before the message, as the servers in Python have it. What else it found is the cause.
        name = None if error is A2AError else error.__name__
        if agent.v03 and isinstance(why.__cause__, httpx.HTTPStatusError):
            expect_status(why.__cause__.response.status_code, name)
        elif agent.v03 and isinstance(why.__cause__, grpc.aio.AioRpcError):
            expect_status(why.__cause__.code().name, name)
        else:
            raise
    except error:
        pass
    else:
        raise Failed(f'no {error.__name__}')


async def send(agent):
    sent, task = await agent.send('hello')
    expect_state(task, COMPLETED)
    expect(task.id and task.context_id, f'an id is missing: {task}')
    expect(len(task.artifacts) == 1, f'{len(task.artifacts)} artifacts')
    expect('hello' in get_artifact_text(task.artifacts[0]), f'artifact is {task.artifacts[0]}')
    found = [m for m in task.history if m.message_id == sent.message_id]
    expect(len(found) == 1, f'history is {task.history}')
    expect(found[0].role == Role.ROLE_USER and get_message_text(found[0]) == 'hello', f'history is {found[0]}')


async def stream(agent):
    events = await collect(agent.live.send_message(new_request('hello')))
    kinds = [e.WhichOneof('payload') for e in events]
    expect(kinds[:1] == ['task'], f'events are {kinds}')
    states = [events[0].task.status.state] + [
        e.status_update.status.state for e in events if e.HasField('status_update')
    ]
    expect(WORKING in states and states[-1] == COMPLETED, f'states are {[TaskState.Name(s) for s in states]}')
    artifacts = [e.artifact_update.artifact for e in events if e.HasField('artifact_update')]
    expect(artifacts and 'hello' in get_artifact_text(artifacts[0]), f'artifacts are {artifacts}')
    expect(kinds[-1] == 'status_update' and kinds.index('artifact_update') > 0, f'events are {kinds}')
    ids = {e.status_update.task_id for e in events if e.HasField('status_update')}
    expect(ids == {events[0].task.id}, f'task ids are {ids}')


async def get(agent):
    _, task = await agent.send('hello')
    again = await agent.plain.get_task(GetTaskRequest(id=task.id))
    expect(again.id == task.id and again.context_id == task.context_id, f'got {again}')
    expect_state(again, COMPLETED)
    expect(len(again.artifacts) == 1, f'{len(again.artifacts)} artifacts')


async def history_zero(agent):
    if agent.v03 and agent.binding == 'grpc':
        raise Skipped('0.3 over gRPC cannot say 0')
    _, task = await agent.send('hello')
    again = await agent.plain.get_task(GetTaskRequest(id=task.id, history_length=0))
    expect(not again.history, f'history has {len(again.history)} messages')


async def list_tasks(agent):
    if agent.v03:
        raise Skipped('0.3 has no such operation')
    _, task = await agent.send('hello')
    # In its own context, so that the tasks of other checks do not matter.
    page = await agent.plain.list_tasks(ListTasksRequest(context_id=task.context_id))
    expect([t.id for t in page.tasks] == [task.id], f'listed {[t.id for t in page.tasks]}')
    expect_state(page.tasks[0], COMPLETED)
    expect(not page.tasks[0].artifacts, 'artifacts listed without being asked for')
    expect(page.total_size == 1, f'total_size is {page.total_size}')
    everything = await agent.plain.list_tasks(ListTasksRequest(page_size=100))
    expect(task.id in [t.id for t in everything.tasks], 'not in the list of all tasks')


async def not_found(agent):
    async with raises(agent, TaskNotFoundError):
        await agent.plain.get_task(GetTaskRequest(id=str(uuid.uuid4())))


async def refused_stream(agent):
    async with raises(agent, TaskNotFoundError):
        await collect(agent.live.subscribe(SubscribeToTaskRequest(id=str(uuid.uuid4()))))
    _, task = await agent.send('hello')
    async with raises(agent, A2AError if agent.v03 else UnsupportedOperationError):
        await collect(agent.live.send_message(new_request('more', task_id=task.id, context_id=task.context_id)))


async def cancel(agent):
    _, task = await agent.send('hold', return_immediately=True)
    expect_state(task, TaskState.TASK_STATE_SUBMITTED, WORKING)
    expect_state(await agent.plain.cancel_task(CancelTaskRequest(id=task.id)), CANCELED)
    expect_state(await agent.plain.get_task(GetTaskRequest(id=task.id)), CANCELED)


async def cancel_again(agent):
    _, task = await agent.send('hold', return_immediately=True)
    await agent.plain.cancel_task(CancelTaskRequest(id=task.id))
    async with raises(agent, TaskNotCancelableError):
        await agent.plain.cancel_task(CancelTaskRequest(id=task.id))


async def finished(agent):
    _, task = await agent.send('hello')
    # 0.3 leaves open which error.
    async with raises(agent, A2AError if agent.v03 else UnsupportedOperationError):
        await agent.send('more', task_id=task.id, context_id=task.context_id)


async def parts(agent):
    data, raw = {'n': 1, 'deep': {'list': [1, 'two', True, None]}}, bytes(range(256))
    sent, task = await agent.send('', parts=[
        new_text_part('hello'),
        new_data_part(data),
        new_raw_part(raw, media_type='application/octet-stream', filename='all.bin'),
    ])
    expect_state(task, COMPLETED)
    kept = next((m for m in task.history if m.message_id == sent.message_id), None)
    expect(kept, f'history is {task.history}')
    expect(get_data_parts(kept.parts) == [data], f'data came back as {get_data_parts(kept.parts)}')
    expect(get_raw_parts(kept.parts) == [raw], 'the bytes came back changed')
    expect(kept.parts[2].filename == 'all.bin', f'filename is {kept.parts[2].filename}')


async def subscribe(agent):
    _, task = await agent.send('hold', return_immediately=True)
    events, canceled = await collect_while(
        agent.live.subscribe(SubscribeToTaskRequest(id=task.id)),
        lambda: agent.plain.cancel_task(CancelTaskRequest(id=task.id)),
    )
    expect_state(canceled, CANCELED)
    kinds = [e.WhichOneof('payload') for e in events]
    # The task comes first since 1.0; 0.3 leaves that open.
    expect(agent.v03 or kinds[:1] == ['task'], f'events are {kinds}')
    expect(kinds[-1:] == ['status_update'], f'events are {kinds}')
    expect_state(events[-1].status_update, CANCELED)


async def ask(agent):
    _, task = await agent.send('ask')
    expect_state(task, TaskState.TASK_STATE_INPUT_REQUIRED)
    expect(get_message_text(task.status.message), f'no question: {task.status}')
    _, done = await agent.send('answer', task_id=task.id, context_id=task.context_id)
    expect(done.id == task.id, f'another task: {done}')
    expect_state(done, COMPLETED)
    expect('answer' in get_artifact_text(done.artifacts[0]), f'artifacts are {done.artifacts}')


async def ask_by_stream(agent):
    events = await collect(agent.live.send_message(new_request('ask')))
    asked = events[-1].status_update
    expect_state(asked, TaskState.TASK_STATE_INPUT_REQUIRED)
    answer = new_request('answer', task_id=asked.task_id, context_id=asked.context_id)
    events = await collect(agent.live.send_message(answer))
    expect_state(events[-1].status_update, COMPLETED)


async def file(agent):
    raw = bytes(range(256))
    sent = new_raw_part(raw, media_type='application/octet-stream', filename='all.bin')
    _, task = await agent.send('', parts=[new_text_part('file'), sent])
    expect_state(task, COMPLETED)
    found = task.artifacts[0].parts
    expect(found[0].text == '256', f'the agent read {found[0].text} bytes')
    expect(get_raw_parts(found) == [raw], f'the file came back as {found}')


async def message(agent):
    for client in agent.plain, agent.live:
        [event] = await collect(client.send_message(new_request('message hello')))
        expect(event.HasField('message'), f'expected a message, got {event}')
        expect(event.message.role == Role.ROLE_AGENT and 'hello' in get_message_text(event.message), f'got {event}')


def new_webhook(url, **fields):
    authentication = AuthenticationInfo(scheme='Bearer', credentials=CREDENTIALS)
    return TaskPushNotificationConfig(url=url, token=TOKEN, authentication=authentication, **fields)


async def webhooks(agent):
    _, task = await agent.send('hello')
    url = 'http://receiver.example/hook'
    for name in 'w-1', 'w-2':
        made = await agent.plain.create_task_push_notification_config(new_webhook(url, task_id=task.id, id=name))
        expect((made.task_id, made.id, made.url) == (task.id, name, url), f'made {made}')
    wanted = GetTaskPushNotificationConfigRequest(task_id=task.id, id='w-1')
    got = await agent.plain.get_task_push_notification_config(wanted)
    expect((got.task_id, got.id, got.url) == (task.id, 'w-1', url), f'got {got}')
    if agent.v03 and agent.binding == 'rest':
        return  # the SDK can do no more
    listing = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    page = await agent.plain.list_task_push_notification_configs(listing)
    expect(sorted(c.id for c in page.configs) == ['w-1', 'w-2'], f'listed {page}')
    await agent.plain.delete_task_push_notification_config(
        DeleteTaskPushNotificationConfigRequest(task_id=task.id, id='w-1'))
    page = await agent.plain.list_task_push_notification_configs(listing)
    expect([c.id for c in page.configs] == ['w-2'], f'listed {page}')
    async with raises(agent, TaskNotFoundError):
        await agent.plain.get_task_push_notification_config(wanted)


def read_notification(agent, body):
    """What was posted, as the types of the SDK have it; what they do not know is an error."""
    if agent.v03:
        return StreamResponse(task=conversions.to_core_task(types_v03.Task.model_validate(body)))
    event = ParseDict(body, StreamResponse())
    validate_proto_required_fields(event)
    return event


async def notified(agent):
    async with webhook() as (url, posts):
        request = new_request('hello')
        request.configuration.task_push_notification_config.CopyFrom(new_webhook(url, id='w-1'))
        [answer] = await collect(agent.plain.send_message(request))
        kinds, artifacts, state = [], [], None
        while state != COMPLETED:
            event = read_notification(agent, await posts.get())
            kinds.append(event.WhichOneof('payload'))
            told = getattr(event, kinds[-1])
            expect(getattr(told, 'task_id', '') or told.id == answer.task.id, f'told {event}')
            state = told.status.state if kinds[-1] != 'artifact_update' else state
            artifacts = [told.artifact] if kinds[-1] == 'artifact_update' else list(getattr(told, 'artifacts', artifacts))
        expect(artifacts and 'hello' in get_artifact_text(artifacts[0]), f'told {kinds}, artifacts are {artifacts}')
        # Not all servers begin with the task.
        expect(agent.v03 or kinds[-3:] == ['status_update', 'artifact_update', 'status_update'], f'told {kinds}')


async def text(agent):
    events = await collect(agent.live.send_message(new_request('hello')))
    pieces = [e.artifact_update.artifact for e in events if e.HasField('artifact_update')]
    expect(len(pieces) > 1, f'{len(pieces)} pieces')
    expect(''.join(map(get_artifact_text, pieces)) == TEXT, f'the pieces are {pieces}')
    task = await agent.plain.get_task(GetTaskRequest(id=events[0].task.id))
    [artifact] = task.artifacts
    expect(len(artifact.parts) == 1, f'{len(artifact.parts)} parts')
    expect(get_artifact_text(artifact) == TEXT, f'the text is {get_artifact_text(artifact)}')


run_checks(
    connect,
    [send, stream, get, history_zero, list_tasks, not_found, refused_stream, cancel, cancel_again,
     finished, parts, subscribe],
    talk=[ask, ask_by_stream, message, file],
    push=[webhooks, notified],
    text=[text],
    flags=[('--v03', "use the card's 0.3 interface, through the compatibility layer of the SDK")],
)
