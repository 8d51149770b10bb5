// Checks an agent with the official JavaScript SDK 0.3.x. Arguments: base URL, --binding NAME, --skip NAMES,
// --talk, --push, --text.

import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  CREDENTIALS, TEXT, TOKEN, collect, collectWhile, expect, load, rejects, runChecks, show, skip, withWebhook,
} from './common.mjs';

const { client: sdk, grpc, grpcClient } = await load('js03');
const { ClientFactory, DefaultAgentCardResolver, TaskNotCancelableError, TaskNotFoundError } = sdk;
const transports = {
  jsonrpc: sdk.JsonRpcTransportFactory,
  rest: sdk.RestTransportFactory,
  grpc: grpcClient.GrpcTransportFactory,
};

const text = (value) => ({ kind: 'text', text: value });
const request = (parts, { message, ...configuration } = {}) => ({
  message: { kind: 'message', messageId: randomUUID(), role: 'user', parts, ...message },
  configuration,
});
const texts = (parts = []) => parts.filter((p) => p.kind === 'text').map((p) => p.text).join('');

async function connect(url, { binding }) {
  const card = await new DefaultAgentCardResolver().resolve(url);
  expect(card.name && card.version, `name or version missing: ${show(card)}`);
  expect(card.protocolVersion?.startsWith('0.3'), `protocolVersion is ${card.protocolVersion}`);
  const client = await new ClientFactory({ transports: [new transports[binding]()] }).createFromAgentCard(card);
  return { client, binding };
}

/** Sends without streaming and gives the message sent and the task that came back. */
async function sendFor({ client }, parts, options) {
  const sent = request(parts, options);
  const task = await client.sendMessage(sent);
  expect(task.kind === 'task', `expected a task, got ${show(task)}`);
  return [sent.message, task];
}

const expectState = ({ status }, ...states) => expect(states.includes(status?.state), `state is ${status?.state}`);

const hold = (agent) => sendFor(agent, [text('hold')], { blocking: false });

// How an error that the SDK has no class for shows that it comes from the agent, and not from the way to it.
const isAnswer = {
  jsonrpc: (e) => e.errorResponse?.error.code < 0,
  rest: (e) => e.message.startsWith('REST error: ') || e.name === 'UnsupportedOperationError',
  grpc: (e) => ![undefined, grpc.status.UNKNOWN, grpc.status.UNAVAILABLE].includes(e.cause?.code),
};

const isStreamAnswer = ({ binding }) => (e) => isAnswer[binding](e) || /\(Code: -\d+\)/.test(e.message);

const checks = {
  async send(agent) {
    const [sent, task] = await sendFor(agent, [text('hello')]);
    expectState(task, 'completed');
    expect(task.id && task.contextId, `an id is missing: ${show(task)}`);
    expect(task.artifacts?.length === 1, `artifacts are ${show(task.artifacts)}`);
    expect(texts(task.artifacts[0].parts).includes('hello'), `artifact is ${show(task.artifacts[0])}`);
    const found = (task.history ?? []).filter((m) => m.messageId === sent.messageId);
    expect(found.length === 1, `history is ${show(task.history)}`);
    expect(found[0].role === 'user' && texts(found[0].parts) === 'hello', `history is ${show(found)}`);
  },

  async stream(agent) {
    const events = await collect(agent.client.sendMessageStream(request([text('hello')])));
    const kinds = events.map((e) => e.kind);
    expect(kinds[0] === 'task', `events are ${kinds}`);
    const states = events.filter((e) => e.status).map((e) => e.status.state);
    expect(states.includes('working') && states.at(-1) === 'completed', `states are ${states}`);
    const artifacts = events.filter((e) => e.kind === 'artifact-update').map((e) => e.artifact);
    expect(texts(artifacts[0]?.parts).includes('hello'), `artifacts are ${show(artifacts)}`);
    expect(kinds.at(-1) === 'status-update' && events.at(-1).final === true, `the last event is ${show(events.at(-1))}`);
    expect(events.slice(1).every((e) => e.taskId === events[0].id), `events are ${show(events)}`);
  },

  async get(agent) {
    const [, task] = await sendFor(agent, [text('hello')]);
    const again = await agent.client.getTask({ id: task.id });
    expect(again.id === task.id && again.contextId === task.contextId, `got ${show(again)}`);
    expectState(again, 'completed');
    expect(again.artifacts?.length === 1, `artifacts are ${show(again.artifacts)}`);
  },

  async history_zero(agent) {
    if (agent.binding === 'grpc') skip('0.3 over gRPC cannot say 0');
    const [, task] = await sendFor(agent, [text('hello')]);
    const again = await agent.client.getTask({ id: task.id, historyLength: 0 });
    expect(!again.history?.length, `history has ${again.history?.length} messages`);
  },

  list_tasks: () => skip('0.3 has no such operation'),

  not_found: (agent) =>
    rejects(agent.client.getTask({ id: randomUUID() }), (e) => e instanceof TaskNotFoundError, 'TaskNotFoundError'),

  async refused_stream(agent) {
    // For an error in an event of a stream the SDK has no class, only its code in the message.
    const isNotFound = (e) => e instanceof TaskNotFoundError || e.message.includes('(Code: -32001)');
    await rejects(collect(agent.client.resubscribeTask({ id: randomUUID() })), isNotFound, 'TaskNotFoundError');
    const [, { id: taskId, contextId }] = await sendFor(agent, [text('hello')]);
    const more = request([text('more')], { message: { taskId, contextId } });
    await rejects(collect(agent.client.sendMessageStream(more)), isStreamAnswer(agent), 'an error of the agent');
  },

  async cancel(agent) {
    const [, task] = await hold(agent);
    expectState(task, 'submitted', 'working');
    expectState(await agent.client.cancelTask({ id: task.id }), 'canceled');
    expectState(await agent.client.getTask({ id: task.id }), 'canceled');
  },

  async cancel_again(agent) {
    const [, task] = await hold(agent);
    await agent.client.cancelTask({ id: task.id });
    await rejects(
      agent.client.cancelTask({ id: task.id }),
      (e) => e instanceof TaskNotCancelableError,
      'TaskNotCancelableError',
    );
  },

  async finished(agent) {
    const [, { id: taskId, contextId }] = await sendFor(agent, [text('hello')]);
    // 0.3 does not say which error.
    await rejects(
      agent.client.sendMessage(request([text('more')], { message: { taskId, contextId } })),
      isAnswer[agent.binding],
      'an error of the agent',
    );
  },

  async parts(agent) {
    // Beyond JSON-RPC the SDK has no place for the name of a file, and over gRPC it cannot write null.
    const nothing = agent.binding === 'grpc' ? [] : [null];
    const data = { kind: 'data', data: { n: 1, deep: { list: [1, 'two', true, ...nothing] } } };
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('base64');
    const name = agent.binding === 'jsonrpc' ? { name: 'all.bin' } : {};
    const file = { kind: 'file', file: { bytes, mimeType: 'application/octet-stream', ...name } };
    const [sent, task] = await sendFor(agent, [text('hello'), data, file]);
    expectState(task, 'completed');
    const kept = task.history?.find((m) => m.messageId === sent.messageId)?.parts;
    expect(isDeepStrictEqual(kept?.slice(1), [data, file]), `parts came back as ${show(kept)}`);
  },

  async subscribe(agent) {
    const [, task] = await hold(agent);
    const [events, canceled] = await collectWhile(agent.client.resubscribeTask({ id: task.id }), () =>
      agent.client.cancelTask({ id: task.id }),
    );
    expectState(canceled, 'canceled');
    expect(events.at(-1)?.kind === 'status-update', `events are ${events.map((e) => e.kind)}`);
    expectState(events.at(-1), 'canceled');
  },
};

const talk = {
  async ask(agent) {
    const [, { id, contextId, status }] = await sendFor(agent, [text('ask')]);
    expectState({ status }, 'input-required');
    expect(texts(status.message?.parts), `no question: ${show(status)}`);
    const [, done] = await sendFor(agent, [text('answer')], { message: { taskId: id, contextId } });
    expect(done.id === id, `another task: ${show(done)}`);
    expectState(done, 'completed');
    expect(texts(done.artifacts?.[0]?.parts).includes('answer'), `artifacts are ${show(done.artifacts)}`);
  },

  async ask_by_stream({ client }) {
    const asked = (await collect(client.sendMessageStream(request([text('ask')])))).at(-1);
    expectState(asked, 'input-required');
    const { taskId, contextId } = asked;
    const answer = request([text('answer')], { message: { taskId, contextId } });
    expectState((await collect(client.sendMessageStream(answer))).at(-1), 'completed');
  },

  async message(agent) {
    const plain = await agent.client.sendMessage(request([text('message hello')]));
    const events = await collect(agent.client.sendMessageStream(request([text('message hello')])));
    expect(events.length === 1, `events are ${show(events)}`);
    for (const message of [plain, events[0]]) {
      const good = message.kind === 'message' && message.role === 'agent' && texts(message.parts).includes('hello');
      expect(good, `expected a message, got ${show(message)}`);
    }
  },

  async file(agent) {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('base64');
    const sent = { kind: 'file', file: { bytes, mimeType: 'application/octet-stream' } };
    const [, task] = await sendFor(agent, [text('file'), sent]);
    expectState(task, 'completed');
    const [size, file] = task.artifacts[0].parts;
    expect(size.text === '256', `the agent read ${size.text} bytes`);
    expect(isDeepStrictEqual(file, sent), `the file came back as ${show(file)}`);
  },
};

const webhook = (url, id) => ({
  id, url, token: TOKEN, authentication: { schemes: ['Bearer'], credentials: CREDENTIALS },
});

const push = {
  async webhooks(agent) {
    const [, { id: taskId }] = await sendFor(agent, [text('hello')]);
    const url = 'http://receiver.example/hook';
    for (const id of ['w-1', 'w-2']) {
      const made = await agent.client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: webhook(url, id) });
      const { id: madeId, url: madeUrl } = made.pushNotificationConfig;
      expect(made.taskId === taskId && madeId === id && madeUrl === url, `made ${show(made)}`);
    }
    const one = { id: taskId, pushNotificationConfigId: 'w-1' };
    const got = await agent.client.getTaskPushNotificationConfig(one);
    expect(got.taskId === taskId && got.pushNotificationConfig.id === 'w-1', `got ${show(got)}`);
    const ids = async () => {
      const all = await agent.client.listTaskPushNotificationConfig({ id: taskId });
      return all.map((c) => c.pushNotificationConfig.id).sort();
    };
    const all = await ids();
    expect(isDeepStrictEqual(all, ['w-1', 'w-2']), `listed ${all}`);
    await agent.client.deleteTaskPushNotificationConfig(one);
    const left = await ids();
    expect(isDeepStrictEqual(left, ['w-2']), `listed ${left}`);
  },

  notified: (agent) => withWebhook(async (url, next) => {
    const [, { id }] = await sendFor(agent, [text('hello')], { pushNotificationConfig: webhook(url, 'w-1') });
    let task;
    while (task?.status.state !== 'completed') {
      task = await next();
      expect(task.kind === 'task' && task.id === id, `told ${show(task)}`);
    }
    expect(texts(task.artifacts?.[0]?.parts).includes('hello'), `artifacts are ${show(task.artifacts)}`);
  }),
};

const long = {
  async text({ client }) {
    const events = await collect(client.sendMessageStream(request([text('hello')])));
    const pieces = events.filter((e) => e.kind === 'artifact-update').map((e) => texts(e.artifact.parts));
    expect(pieces.length > 1, `${pieces.length} pieces`);
    expect(pieces.join('') === TEXT, `the pieces are ${show(pieces)}`);
    const { artifacts } = await client.getTask({ id: events[0].id });
    expect(artifacts?.length === 1 && artifacts[0].parts.length === 1, `artifacts are ${show(artifacts)}`);
    expect(artifacts[0].parts[0].text === TEXT, `the text is ${show(artifacts)}`);
  },
};

await runChecks(connect, checks, talk, push, long);
