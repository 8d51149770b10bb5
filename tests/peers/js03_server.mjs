// Echo agent on the official JavaScript SDK 0.3.x, in all bindings. Argument: port.

import { randomUUID } from 'node:crypto';
import { load, serve } from './common.mjs';

const { server, http, express, grpc, grpcServer } = await load('js03');

const port = Number(process.argv[2]);
const status = (state, message) => ({ state, message, timestamp: new Date().toISOString() });
const text = (value) => ({ kind: 'text', text: value });
const agentMessage = (ids, value) => ({
  kind: 'message', messageId: randomUUID(), role: 'agent', parts: [text(value)], ...ids,
});

const held = new Map(); // task id to what ends the waiting

class Echo {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const said = userMessage.parts.filter((p) => p.kind === 'text').map((p) => p.text).join('');
    if (said.startsWith('message') && !task) {
      bus.publish(agentMessage({ contextId }, said));
      bus.finished();
      return;
    }

    const ids = { taskId, contextId };
    const update = (state, final = false, message = undefined) =>
      bus.publish({ kind: 'status-update', ...ids, status: status(state, message), final });
    if (!task) {
      bus.publish({ kind: 'task', id: taskId, contextId, status: status('submitted'), history: [userMessage] });
    }
    update('working');
    if (said === 'ask' && !task) {
      update('input-required', true, agentMessage(ids, 'What shall I echo?'));
      bus.finished();
      return;
    }
    if (said.startsWith('hold') && !task) {
      await new Promise((resolve) => held.set(taskId, resolve));
      update('canceled', true);
      bus.finished();
      return;
    }
    // For "file": the size of the file in bytes and the file itself.
    const file = said === 'file' && userMessage.parts.find((p) => p.kind === 'file');
    const parts = file ? [text(String(Buffer.from(file.file.bytes, 'base64').length)), file] : [text(said)];
    const artifact = { artifactId: randomUUID(), name: 'echo', parts };
    bus.publish({ kind: 'artifact-update', ...ids, artifact, append: false, lastChunk: true });
    update('completed', true);
    bus.finished();
  }

  // Only called for a task with a running execute(); the SDK itself cancels one that waits for input.
  async cancelTask(taskId) {
    held.get(taskId)?.();
  }
}

serve(grpc, port, (services, grpcPort) => {
  const url = `http://127.0.0.1:${port}`;
  const card = {
    name: 'Echo (JavaScript SDK 0.3.x)',
    description: 'Echoes what it is sent.',
    version: '1.0.0',
    protocolVersion: '0.3.0',
    url: `${url}/`,
    preferredTransport: 'JSONRPC',
    additionalInterfaces: [
      { transport: 'JSONRPC', url: `${url}/` },
      { transport: 'HTTP+JSON', url: `${url}/rest` },
      { transport: 'GRPC', url: `127.0.0.1:${grpcPort}` },
    ],
    capabilities: { streaming: true, pushNotifications: true },
    defaultInputModes: ['text/plain', 'application/octet-stream'],
    defaultOutputModes: ['text/plain'],
    skills: [{ id: 'echo', name: 'Echo', description: 'Echoes text.', tags: ['echo'] }],
  };
  const requestHandler = new server.DefaultRequestHandler(card, new server.InMemoryTaskStore(), new Echo());
  const common = { requestHandler, userBuilder: http.UserBuilder.noAuthentication };
  services.addService(grpcServer.A2AService, grpcServer.grpcService(common));
  const app = express();
  app.use('/.well-known/agent-card.json', http.agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/rest', http.restHandler(common));
  app.use(http.jsonRpcHandler(common));
  return app;
});
