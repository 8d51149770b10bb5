"""What the Python peers share; it knows nothing of any SDK, as each peer has its own."""

import argparse
import asyncio
import contextlib
import json
import sys


# The bindings by our names for them, with the names that cards have for them.
BINDINGS = {'jsonrpc': 'JSONRPC', 'rest': 'HTTP+JSON', 'grpc': 'GRPC'}


class Failed(Exception):
    """A check found something other than it should."""


class Skipped(Exception):
    """A check does not apply."""


def expect(true, why):
    """Like assert, but it still holds under python -O and says what was found."""
    if not true:
        raise Failed(why)


# 0.3 numbers its errors over JSON-RPC only. These are what servers answer with over the other bindings.
STATUS = {'TaskNotFoundError': [404], 'TaskNotCancelableError': [409]}
CODE = {'TaskNotFoundError': ['NOT_FOUND'], 'TaskNotCancelableError': ['UNIMPLEMENTED', 'FAILED_PRECONDITION']}


def expect_status(found, error):
    """The HTTP status of an answer, or the name of its gRPC code, is of this error of 0.3, or of any if None;
    trouble on the way to the agent is not an answer of it."""
    if isinstance(found, int):
        wanted = STATUS[error] if error else range(400, 503)
        expect(found in wanted, f'the status is {found}')
    else:
        expect(found in CODE[error] if error else found not in ('UNAVAILABLE', 'UNKNOWN'), f'the code is {found}')


# What the agent of the check named text says, in pieces.
TEXT = ''.join(f'token {n} ' for n in range(400))


def run_checks(connect, checks, talk, push, text, flags=()):
    """Runs the checks one after the other, prints a line for each, exits with 1 if one failed.

    connect(url, options) is an async context manager giving the object the checks work on;
    what goes wrong in it is the failure of the check named card. checks is a list of
    coroutine functions; the name of a check is the name of its function. Those in talk are for
    agents that ask back and answer with a bare message, and run with --talk only; those in push are for
    agents with webhooks, and run with --push only. Those in text are for an agent that says a long text in pieces, and
    run with --text alone.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument('url', help='base URL of the agent')
    parser.add_argument('--binding', choices=BINDINGS, default='jsonrpc', help='how to talk to it')
    parser.add_argument('--skip', default='', help='names of checks to leave out, comma separated')
    parser.add_argument('--talk', action='store_true', help='check the texts ask and message as well')
    parser.add_argument('--push', action='store_true', help='check webhooks as well')
    parser.add_argument('--text', action='store_true', help='check a text in pieces, and nothing else')
    for flag, meaning in flags:
        parser.add_argument(flag, action='store_true', help=meaning)
    options = parser.parse_args()
    skip = set(filter(None, options.skip.split(',')))
    failed = []

    def failure(name, why):
        # One line per check, whatever the message holds.
        words = ' '.join(str(why).split()) or 'no message'
        print(f'FAIL {name}: {words if isinstance(why, Failed) else f"{type(why).__name__}: {words}"}', flush=True)
        failed.append(name)

    async def all_checks():
        async with connect(options.url.rstrip('/'), options) as agent:
            print('ok card', flush=True)
            wanted = checks + (talk if options.talk else []) + (push if options.push else [])
            for check in text if options.text else wanted:
                name = check.__name__
                try:
                    if name in skip:
                        raise Skipped('as asked')
                    # A server that never answers is a failure, not a hang.
                    await asyncio.wait_for(check(agent), 20)
                except asyncio.TimeoutError:
                    failure(name, Failed('nothing after 20 s'))
                except Skipped as why:
                    print(f'skip {name}: {why}', flush=True)
                except Exception as why:
                    failure(name, why)
                else:
                    print(f'ok {name}', flush=True)

    try:
        asyncio.run(all_checks())
    except Exception as why:
        failure('card', why)
    sys.exit(1 if failed else 0)


# What the webhooks of the checks are given. Some SDKs show the one and some the other.
TOKEN, CREDENTIALS = 't0ken', 's3cret'


@contextlib.asynccontextmanager
async def webhook():
    """A webhook: its address, and a queue of what is posted to it, which is taken if it shows who sends it."""
    posts = asyncio.Queue()

    async def take(reader, writer):
        head = (await reader.readuntil(b'\r\n\r\n')).decode('latin-1').split('\r\n')
        lines = [line.partition(':') for line in head[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        body = await reader.readexactly(int(headers['content-length']))
        shown = (headers.get('x-a2a-notification-token', TOKEN), headers.get('authorization', f'Bearer {CREDENTIALS}'))
        known = {'x-a2a-notification-token', 'authorization'} & set(headers)
        if known and shown == (TOKEN, f'Bearer {CREDENTIALS}'):
            posts.put_nowait(json.loads(body))
            writer.write(b'HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n')
        else:
            writer.write(b'HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(take, '127.0.0.1', 0)
    try:
        yield f'http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook', posts
    finally:
        server.close()


async def collect(stream):
    """Everything a stream gives until it ends."""
    return [item async for item in stream]


async def collect_while(stream, action):
    """Reads a stream while something else is done, and gives what both brought."""
    items, first = [], asyncio.Event()

    async def read():
        try:
            async for item in stream:
                items.append(item)
                first.set()
        finally:
            first.set()

    reader = asyncio.ensure_future(read())
    # It may fail while nobody waits for it; looking at the error keeps Python from printing it.
    reader.add_done_callback(lambda r: r.cancelled() or r.exception())
    try:
        # The first event is the sign that the stream is open. A 0.3 server may send none
        # before something happens, so after a while we go on without. Not after a multiple of
        # half a second: then the Python 0.3 server looks up from its queue and may lose an event.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(first.wait(), 2.75)
        result = await action()
        await reader
        return items, result
    finally:
        reader.cancel()


def open_channel(url):
    """A gRPC channel to an agent. Proxy variables of the machine must not come between two local processes."""
    import grpc

    return grpc.aio.insecure_channel(url, options=[('grpc.enable_http_proxy', 0)])


def serve(port, build):
    """Serves an agent over HTTP on this port and over gRPC on another one, and says so on stdout once both
    are open. build(grpc_server, grpc_port) adds the services to the one and gives the ASGI app for the other;
    it is called with the port, as the card has to name it."""
    import grpc
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            print(f'listening on {port}', flush=True)

    async def run():
        # Without the option two servers of ours could share the port that the system chooses.
        grpc_server = grpc.aio.server(options=[('grpc.so_reuseport', 0)])
        app = build(grpc_server, grpc_server.add_insecure_port('127.0.0.1:0'))
        await grpc_server.start()
        # When told to end it must not wait for streams that are still open.
        await Server(uvicorn.Config(
            app, host='127.0.0.1', port=port, log_level='error', log_config=None, timeout_graceful_shutdown=1,
        )).serve()
        await grpc_server.stop(None)

    asyncio.run(run())
