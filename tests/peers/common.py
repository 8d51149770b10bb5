"""What the Python peers share; it knows nothing of any SDK, as each peer has its own."""

import argparse
import asyncio
import contextlib
import sys


class Failed(Exception):
    """A check found something other than it should."""


class Skipped(Exception):
    """A check does not apply."""


def expect(true, why):
    """Like assert, but it still holds under python -O and says what was found."""
    if not true:
        raise Failed(why)


def run_checks(connect, checks, talk, flags=()):
    """Runs the checks one after the other, prints a line for each, exits with 1 if one failed.

    connect(url, options) is an async context manager giving the object the checks work on;
    what goes wrong in it is the failure of the check named card. checks is a list of
    coroutine functions; the name of a check is the name of its function. Those in talk are for
    agents that ask back and answer with a bare message, and run with --talk only.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument('url', help='base URL of the agent')
    parser.add_argument('--skip', default='', help='names of checks to leave out, comma separated')
    parser.add_argument('--talk', action='store_true', help='check the texts ask and message as well')
    for flag, text in flags:
        parser.add_argument(flag, action='store_true', help=text)
    options = parser.parse_args()
    skip = set(filter(None, options.skip.split(',')))
    failed = []

    def failure(name, why):
        # One line per check, whatever the message holds.
        text = ' '.join(str(why).split()) or 'no message'
        print(f'FAIL {name}: {text if isinstance(why, Failed) else f"{type(why).__name__}: {text}"}', flush=True)
        failed.append(name)

    async def all_checks():
        async with connect(options.url.rstrip('/'), options) as agent:
            print('ok card', flush=True)
            for check in checks + (talk if options.talk else []):
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
        # before something happens, so after a while we go on without.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(first.wait(), 3)
        result = await action()
        await reader
        return items, result
    finally:
        reader.cancel()


def serve(app, port):
    """Serves an ASGI app and says so on stdout once the port is open."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            print(f'listening on {port}', flush=True)

    # When told to end it must not wait for streams that are still open.
    Server(uvicorn.Config(
        app, host='127.0.0.1', port=port, log_level='error', log_config=None, timeout_graceful_shutdown=1,
    )).run()
