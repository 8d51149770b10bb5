// Checks an agent with the official JavaScript SDK 0.3.x. Arguments: base URL, --skip NAMES, --talk.

import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { collect, collectWhile, expect, load, rejects, runChecks, show } from './common.mjs';

const { client: sdk } = await load('js03');
const { ClientFactory, DefaultAgentCardResolver, TaskNotCancelableError, TaskNotFoundError } = sdk;

const text = (value) => ({ kind: 'text', text: value });
const request = (parts, { message, ...configuration } = {}) => ({
  message: { kind: 'message', messageId: randomUUID(), role: 'user', parts, ...message },
  configuration,
});
const texts = (parts = []) => parts.filter((p) => p.kind === 'text').map((p) => p.text).join('');

async function connect(url) {
  const card = await new DefaultAgentCardResolver().resolve(url);
  expect(card.name && card.version, `name or version missing: ${show(card)}`);
  expect(card.protocolVersion?.startsWith('0.3'), `protocolVersion is ${card.protocolVersion}`);
  return new ClientFactory().createFromAgentCard(card);
}

/** Sends without streaming and gives the message sent and the task that came back. */
async function sendFor(client, parts, options) {
  const sent = request(parts, options);
  const task = await client.sendMessage(sent);
  expect(task.kind === 'task', `expected a task, got ${show(task)}`);
  return [sent.message, task];
}

const expectState = ({ status }, ...states) => expect(states.includes(status?.state), `state is ${status?.state}`);

const hold = (client) => sendFor(client, [text('hold')], { blocking: false });

const checks = {
  async send(client) {
    const [sent, task] = await sendFor(client, [text('hello')]);
    expectState(task, 'completed');
    expect(task.id && task.contextId, `an id is missing: ${show(task)}`);
    expect(task.artifacts?.length === 1, `artifacts are ${show(task.artifacts)}`);
    expect(texts(task.artifacts[0].parts).includes('hello'), `artifact is ${show(task.artifacts[0])}`);
    const found = (task.history ?? []).filter((m) => m.messageId === sent.messageId);
    expect(found.length === 1, `history is ${show(task.history)}`);
    expect(found[0].role === 'user' && texts(found[0].parts) === 'hello', `history is ${show(found)}`);
  },

  async stream(client) {
    const events = await collect(client.sendMessageStream(request([text('hello')])));
    const kinds = events.map((e) => e.kind);
    expect(kinds[0] === 'task', `events are ${kinds}`);
    const states = events.filter((e) => e.status).map((e) => e.status.state);
    expect(states.includes('working') && states.at(-1) === 'completed', `states are ${states}`);
    const artifacts = events.filter((e) => e.kind === 'artifact-update').map((e) => e.artifact);
    expect(texts(artifacts[0]?.parts).includes('hello'), `artifacts are ${show(artifacts)}`);
    expect(kinds.at(-1) === 'status-update' && events.at(-1).final === true, `the last event is ${show(events.at(-1))}`);
    expect(events.slice(1).every((e) => e.taskId === events[0].id), `events are ${show(events)}`);
  },

  async get(client) {
    const [, task] = await sendFor(client, [text('hello')]);
    const again = await client.getTask({ id: task.id });
    expect(again.id === task.id && again.contextId === task.contextId, `got ${show(again)}`);
    expectState(again, 'completed');
    expect(again.artifacts?.length === 1, `artifacts are ${show(again.artifacts)}`);
  },

  async history_zero(client) {
    const [, task] = await sendFor(client, [text('hello')]);
    const again = await client.getTask({ id: task.id, historyLength: 0 });
    expect(!again.history?.length, `history has ${again.history?.length} messages`);
  },

  // No list_tasks: 0.3 has no such method over JSON-RPC.

  not_found: (client) =>
    rejects(client.getTask({ id: randomUUID() }), (e) => e instanceof TaskNotFoundError, 'TaskNotFoundError'),

  async cancel(client) {
    const [, task] = await hold(client);
    expectState(task, 'submitted', 'working');
    expectState(await client.cancelTask({ id: task.id }), 'canceled');
    expectState(await client.getTask({ id: task.id }), 'canceled');
  },

  async cancel_again(client) {
    const [, task] = await hold(client);
    await client.cancelTask({ id: task.id });
    await rejects(
      client.cancelTask({ id: task.id }),
      (e) => e instanceof TaskNotCancelableError,
      'TaskNotCancelableError',
    );
  },

  async finished(client) {
    const [, { id: taskId, contextId }] = await sendFor(client, [text('hello')]);
    // 0.3 does not say which error.
    await rejects(
      client.sendMessage(request([text('more')], { message: { taskId, contextId } })),
      (e) => e.errorResponse?.error.code < 0,
      'an error of the protocol',
    );
  },

  async parts(client) {
    const data = { kind: 'data', data: { n: 1, deep: { list: [1, 'two', true, null] } } };
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('base64');
    const file = { kind: 'file', file: { bytes, mimeType: 'application/octet-stream', name: 'all.bin' } };
    const [sent, task] = await sendFor(client, [text('hello'), data, file]);
    expectState(task, 'completed');
    const kept = task.history?.find((m) => m.messageId === sent.messageId)?.parts;
    expect(isDeepStrictEqual(kept?.slice(1), [data, file]), `parts came back as ${show(kept)}`);
  },

  async subscribe(client) {
    const [, task] = await hold(client);
    const [events, canceled] = await collectWhile(client.resubscribeTask({ id: task.id }), () =>
      client.cancelTask({ id: task.id }),
    );
    expectState(canceled, 'canceled');
    expect(events.at(-1)?.kind === 'status-update', `events are ${events.map((e) => e.kind)}`);
    expectState(events.at(-1), 'canceled');
  },
};

const talk = {
  async ask(client) {
    const [, { id, contextId, status }] = await sendFor(client, [text('ask')]);
    expectState({ status }, 'input-required');
    expect(texts(status.message?.parts), `no question: ${show(status)}`);
    const [, done] = await sendFor(client, [text('answer')], { message: { taskId: id, contextId } });
    expect(done.id === id, `another task: ${show(done)}`);
    expectState(done, 'completed');
    expect(texts(done.artifacts?.[0]?.parts).includes('answer'), `artifacts are ${show(done.artifacts)}`);
  },

  async message(client) {
    const plain = await client.sendMessage(request([text('message hello')]));
    const events = await collect(client.sendMessageStream(request([text('message hello')])));
    expect(events.length === 1, `events are ${show(events)}`);
    for (const message of [plain, events[0]]) {
      const good = message.kind === 'message' && message.role === 'agent' && texts(message.parts).includes('hello');
      expect(good, `expected a message, got ${show(message)}`);
    }
  },
};

await runChecks(connect, checks, talk);
