// Echo agent on the official JavaScript SDK 1.x, in all bindings. Arguments: port, --v03 (answer 0.3 as well).

import { randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import { load, serve } from './common.mjs';

const { sdk, server, http, express, grpc, grpcServer, legacyGrpcServer } = await load('js1');
const { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } = sdk;
const { AgentEvent } = server;

const { values: options, positionals: [port] } = parseArgs({
  options: { v03: { type: 'boolean', default: false } },
  allowPositionals: true,
});

// The types of the SDK have no optional members; fromJSON puts the defaults into what is left out.
const status = (state, message) => ({ state: `TASK_STATE_${state}`, message, timestamp: new Date().toISOString() });
const agentMessage = (ids, text) => ({ messageId: randomUUID(), role: 'ROLE_AGENT', parts: [{ text }], ...ids });

const contexts = new Map(); // task id to context id: cancelTask is not told the context
const held = new Map(); // task id to what ends the waiting

class Echo {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const text = userMessage.parts.map((p) => (p.content?.$case === 'text' ? p.content.value : '')).join('');
    if (text.startsWith('message') && !task) {
      bus.publish(AgentEvent.message(Message.fromJSON(agentMessage({ contextId }, text))));
      bus.finished();
      return;
    }

    const ids = { taskId, contextId };
    const update = (...args) =>
      bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ ...ids, status: status(...args) })));
    contexts.set(taskId, contextId);
    if (task) {
      bus.publish(AgentEvent.task(task)); // the SDK wants a task as the first event of a follow-up too
    } else {
      const started = Task.fromJSON({ id: taskId, contextId, status: status('SUBMITTED') });
      bus.publish(AgentEvent.task({ ...started, history: [userMessage] }));
    }
    update('WORKING');
    if (text === 'ask' && !task) {
      update('INPUT_REQUIRED', agentMessage(ids, 'What shall I echo?'));
      return; // the bus stays open for the follow-up
    }
    if (text.startsWith('hold') && !task) {
      await new Promise((resolve) => held.set(taskId, resolve));
      return; // cancelTask has said the rest
    }
    const artifact = { artifactId: randomUUID(), name: 'echo', parts: [{ text }] };
    const event = TaskArtifactUpdateEvent.fromJSON({ ...ids, artifact, lastChunk: true });
    // For "file": the size of the file in bytes and the file itself.
    const file = userMessage.parts.find((p) => p.content?.$case === 'raw');
    if (text === 'file' && file) {
      event.artifact.parts[0].content.value = String(file.content.value.length);
      event.artifact.parts.push(file);
    }
    bus.publish(AgentEvent.artifactUpdate(event));
    update('COMPLETED');
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    const event = { taskId, contextId: contexts.get(taskId), status: status('CANCELED') };
    bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON(event)));
    bus.finished();
    held.get(taskId)?.();
  }
}

serve(grpc, Number(port), (services, grpcPort) => {
  const urls = {
    JSONRPC: `http://127.0.0.1:${port}/`,
    'HTTP+JSON': `http://127.0.0.1:${port}/rest`,
    GRPC: `127.0.0.1:${grpcPort}`,
  };
  const card = AgentCard.fromJSON({
    name: 'Echo (JavaScript SDK 1.x)',
    description: 'Echoes what it is sent.',
    version: '1.0.0',
    supportedInterfaces: (options.v03 ? ['1.0', '0.3'] : ['1.0']).flatMap((protocolVersion) =>
      Object.entries(urls).map(([protocolBinding, url]) => ({ url, protocolBinding, protocolVersion })),
    ),
    capabilities: { streaming: true, pushNotifications: true },
    defaultInputModes: ['text/plain', 'application/octet-stream'],
    defaultOutputModes: ['text/plain'],
    skills: [{ id: 'echo', name: 'Echo', description: 'Echoes text.', tags: ['echo'] }],
  });
  const requestHandler = new server.DefaultRequestHandler(card, new server.InMemoryTaskStore(), new Echo());
  const legacyCompat = { enabled: options.v03 };
  const common = { requestHandler, userBuilder: http.UserBuilder.noAuthentication, legacyCompat };
  services.addService(grpcServer.A2AService, grpcServer.grpcService(common));
  if (options.v03) {
    services.addService(legacyGrpcServer.LegacyA2AService, legacyGrpcServer.legacyGrpcService(common));
  }
  const app = express();
  app.use('/.well-known/agent-card.json', http.agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
  app.use('/rest', http.restHandler(common));
  app.use(http.jsonRpcHandler(common));
  return app;
});
