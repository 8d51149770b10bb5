// Serves @copilotkit/aimock until it is killed, and prints its address first: serve.mjs FOLDER
//
// A provider in both dialects that does what a real one does not do on demand. What a message says is what happens.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';

const { LLMock } = createRequire(join(process.argv[2], 'package.json'))('@copilotkit/aimock');

const mock = new LLMock({ port: 0, logLevel: 'silent', chunkSize: 4 });
const busy = { error: { message: 'slow down', type: 'rate_limit_error' }, status: 429, retryAfter: 0 };
const gone = { error: { message: 'the model is too busy', type: 'overloaded_error' }, status: 503 };

mock.on({ userMessage: 'busy twice', sequenceIndex: 0 }, busy);
mock.on({ userMessage: 'busy twice', sequenceIndex: 1 }, busy);
mock.on({ userMessage: 'busy twice', sequenceIndex: 2 }, { content: 'at last' });
mock.on({ userMessage: 'busy for an hour' }, { ...busy, retryAfter: 3600 });
mock.on({ userMessage: 'overloaded' }, gone);
mock.on({ userMessage: 'cut' }, { content: 'this is cut in its middle' }, { truncateAfterChunks: 4, latency: 20 });
mock.on({ userMessage: 'refuse' }, { content: 'I will not.', finishReason: 'content_filter' });
mock.on({ userMessage: 'decline' }, { content: 'I will not.', finishReason: 'refusal' });
mock.on({ userMessage: 'long' }, { content: 'a beginning', finishReason: 'length' });
mock.on({ userMessage: 'think' }, { content: 'yes', reasoning: 'hmm, let me see' });
mock.on({ userMessage: 'wrong' }, { error: { message: 'prompt is too long', type: 'invalid_request_error' }, status: 400 });
mock.on({ userMessage: 'call', hasToolResult: false }, {
  content: 'Let me ask.',
  toolCalls: [{ id: 'call_1', name: 'agents_echo', arguments: '{"message":"are you there?"}' }],
});
mock.on({ userMessage: 'call', hasToolResult: true }, { content: 'It is there.' });

await mock.start();
console.log(mock.url);
