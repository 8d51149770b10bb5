// What the JavaScript peers share; it knows nothing of any SDK version, as each peer has its own.

import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';
import { parseArgs, inspect } from 'node:util';

// Where tests/peers/setup has put the SDKs; see there why they come through an entry file.
const peers = process.env.NUNCIO_PEERS
  ? pathToFileURL(`${process.env.NUNCIO_PEERS}/`)
  : new URL('../../.cache/peers/', import.meta.url);
export const load = (folder) => import(new URL(`${folder}/entry.mjs`, peers));

/** The bindings by our names for them, with the names that cards have for them. */
export const BINDINGS = { jsonrpc: 'JSONRPC', rest: 'HTTP+JSON', grpc: 'GRPC' };

// Proxy variables of the machine must not come between two local processes; gRPC heeds these.
for (const name of ['grpc_proxy', 'https_proxy', 'http_proxy']) delete process.env[name];

class Failed extends Error {}
class Skipped extends Error {}

/** Fails the check, with what was found, unless the condition holds. */
export function expect(condition, why) {
  if (!condition) throw new Failed(why);
}

export function skip(why) {
  throw new Skipped(why);
}

/** A value on one line, for a message. */
export const show = (value) => inspect(value, { depth: 6, breakLength: Infinity });

/** Fails unless the action is rejected with an error that passes the test. */
export async function rejects(action, test, expected) {
  let result;
  try {
    result = await action;
  } catch (error) {
    expect(test(error), `expected ${expected}, got ${error.name}: ${error.message}`);
    return;
  }
  throw new Failed(`expected ${expected}, got ${show(result)}`);
}

// What the agent of the check named text says, in pieces.
export const TEXT = Array.from({ length: 400 }, (_, n) => `token ${n} `).join('');

// What the webhooks of the checks are given. Some SDKs show the one and some the other.
export const TOKEN = 't0ken';
export const CREDENTIALS = 's3cret';

/** Opens a webhook for an action, which is given its address and a function for the next that is posted to it. */
export async function withWebhook(action) {
  const posts = [];
  let arrived = () => {};
  const server = createServer(async (request, response) => {
    const { 'x-a2a-notification-token': token, authorization } = request.headers;
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    const known = (token ?? authorization) !== undefined;
    const good = known && (token ?? TOKEN) === TOKEN && (authorization ?? `Bearer ${CREDENTIALS}`) === `Bearer ${CREDENTIALS}`;
    if (good) posts.push(JSON.parse(body));
    response.writeHead(good ? 204 : 401, { connection: 'close' }).end();
    arrived();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const next = async () => {
    while (posts.length === 0) await new Promise((resolve) => { arrived = resolve; });
    return posts.shift();
  };
  try {
    return await action(`http://127.0.0.1:${server.address().port}/hook`, next);
  } finally {
    server.close();
  }
}

export async function collect(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** Reads a stream while something else is done, and gives what both brought. */
export async function collectWhile(stream, action) {
  const items = [];
  let opened;
  // The first event is the sign that the stream is open. A 0.3 server may send none before
  // something happens, so after a while we go on without. Not after a multiple of half a second:
  // then the Python 0.3 server looks up from its queue and may lose an event.
  const first = new Promise((resolve) => {
    opened = resolve;
    setTimeout(resolve, 2750);
  });
  const reader = (async () => {
    for await (const item of stream) {
      items.push(item);
      opened();
    }
  })().finally(opened);
  reader.catch(() => {}); // it may fail while nobody waits for it yet
  await first;
  const result = await action();
  await reader;
  return [items, result];
}

/**
 * Runs the checks one after the other, prints a line for each, exits with 1 if one failed.
 * connect(url, options) gives the object the checks work on; what goes wrong in it is the
 * failure of the check named card. checks maps names to functions. Those in talk are for agents
 * that ask back and answer with a bare message, and run with --talk only; those in push are for agents with
 * webhooks, and run with --push only. Those in long are for an agent that says a long text in pieces, and run with
 * --text alone.
 */
export async function runChecks(connect, checks, talk, push, long, flags = {}) {
  const { values: options, positionals } = parseArgs({
    options: {
      binding: { type: 'string', default: 'jsonrpc' },
      skip: { type: 'string', default: '' },
      talk: { type: 'boolean', default: false },
      push: { type: 'boolean', default: false },
      text: { type: 'boolean', default: false },
      ...flags,
    },
    allowPositionals: true,
  });
  if (positionals.length !== 1 || !(options.binding in BINDINGS)) {
    console.error(`needed: the base URL of the agent, and as --binding one of ${Object.keys(BINDINGS)}`);
    process.exit(2);
  }
  const left = new Set(options.skip.split(','));
  let failed = false;

  async function check(name, action) {
    let timer;
    try {
      if (left.has(name)) throw new Skipped('as asked');
      // A server that never answers is a failure, not a hang.
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Failed('nothing after 20 s')), 20_000);
      });
      const result = await Promise.race([action(), late]);
      console.log(`ok ${name}`);
      return result;
    } catch (error) {
      if (error instanceof Skipped) {
        console.log(`skip ${name}: ${error.message}`);
        return;
      }
      failed = true;
      const kind = error instanceof Failed ? '' : `${error.name}: `;
      const cause = error.cause ? ` (${error.cause.message})` : ''; // fetch says the reason only there
      // One line per check, whatever the message holds.
      console.log(`FAIL ${name}: ${kind}${error.message}${cause}`.replace(/\s+/g, ' '));
    } finally {
      clearTimeout(timer);
    }
  }

  // With the slash, as the SDK resolves the path of the card against this URL.
  const base = positionals[0].replace(/\/*$/, '/');
  const agent = await check('card', () => connect(base, options));
  const usual = { ...checks, ...(options.talk && talk), ...(options.push && push) };
  const wanted = Object.entries(options.text ? long : usual);
  if (agent) for (const [name, action] of wanted) await check(name, () => action(agent));
  process.exit(failed ? 1 : 0); // streams that still hang must not keep us
}

/**
 * Serves an agent over HTTP on this port and over gRPC on another one, and says so on stdout once both are
 * open. build(grpcServer, grpcPort) adds the services to the one and gives the express app for the other;
 * it is called with the port, as the card has to name it.
 */
export function serve(grpc, port, build) {
  const grpcServer = new grpc.Server({ 'grpc.so_reuseport': 0 });
  grpcServer.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, grpcPort) => {
    if (error) throw error;
    build(grpcServer, grpcPort).listen(port, '127.0.0.1', (error) => {
      if (error) throw error;
      console.log(`listening on ${port}`);
    });
  });
}
