// The tests of the JavaScript client: what is tried again, what is not, and what errors say.
// The rule: what is said of a request is what the proxy saw. For Python python_retries.py says it.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Tidings, TidingsError } from '../../clients/js/tidings.js';
import {
  PROXY_URL,
  TIDINGS_KEY,
  ask,
  asked,
  bodies,
  event,
  failure,
  idle,
  reset,
  seen,
  someone,
  tell,
  timed,
  told,
  unread,
  until,
  userToken,
} from './caller.mjs';

const PASSING = [429, 502, 503, 504];
const REFUSED = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 500, 501];

test('a lost answer is asked for again with its key, and the event is there once', async () => {
  const [client] = timed(),
    user = someone();
  await reset('lose', 'lose');

  const receipt = await client.publish(event(user));

  const [first, ...again] = await bodies();
  assert.deepEqual(again, [first, first]);
  assert.match(first[0].key, /^[0-9a-f]{32}$/);
  assert.ok(receipt.duplicate);
  await until(() => unread(user));
  assert.deepEqual((await ask('GET', `/v1/events/${receipt.id}`)).counts, {
    people: 1,
    pushed: 1,
    capped: 0,
  });
  assert.equal(await unread(user), 1);
});

test('what fails in passing is tried again', async () => {
  const user = someone();
  for (const fault of ['drop', 'lose', ...PASSING.map(status => ({ status }))]) {
    await reset(fault);
    assert.equal((await timed()[0].count(user)).unread, 0);
    assert.equal((await seen()).length, 2, JSON.stringify(fault));
  }
  await reset('hold');
  assert.equal((await new Tidings(PROXY_URL, TIDINGS_KEY, { timeout: 1 }).count(user)).unread, 0);
  const [client, time] = timed(TIDINGS_KEY, {
    attempts: 3,
    fetch: () => fetch('http://127.0.0.1:1'),
  });
  const error = await failure(client.count(user));
  assert.deepEqual([error.code, error.status, error.retryable], ['unreachable', undefined, true]);
  assert.equal(time.slept.length, 2);
});

test('what is refused is not tried again', async () => {
  const [client, time] = timed();
  for (const status of REFUSED) {
    await reset({ status, body: { code: 'told', detail: 'so' } });
    const error = await failure(client.publish(event('mara')));
    assert.deepEqual(
      [error.status, error.code, error.detail, error.retryable],
      [status, 'told', 'so', false],
    );
    assert.equal((await seen()).length, 1, `${status}`);
  }
  assert.deepEqual(time.slept, []);
});

test('what tidings refuses is told by its code', async () => {
  const [client] = timed(),
    user = someone(),
    key = `used ${user}`;
  await client.publish(event(user), { key });
  const refused = [
    [400, 'invalid_body', () => client.publish({ type: 'Comment', objects: ['c'] })],
    [401, 'unauthorized', () => timed('a-wrong-key')[0].count(user)],
    [403, 'forbidden', () => timed(userToken('somebody-else'))[0].count(user)],
    [404, 'unknown_user', () => client.user(user)],
    [
      409,
      'idempotency_key_reused',
      () => client.publish(event(user, { objects: ['Comment:c2'] }), { key }),
    ],
    [422, 'time_out_of_range', () => client.publish(event(user, { at: '2014-04-19T10:00:00Z' }))],
  ];
  for (const [status, code, call] of refused) {
    await reset();
    const error = await failure(call());
    assert.deepEqual([error.status, error.code, error.retryable], [status, code, false]);
    assert.equal((await seen()).length, 1, code);
    assert.ok(
      error instanceof TidingsError && error.message.startsWith(`${status} ${code}: `),
      error.message,
    );
  }
});

test('an error says all that the answer did', async () => {
  const body = { code: 'store_unavailable', detail: 'away', location: 'there' };
  const fault = { status: 503, body, headers: { 'X-Request-Id': 'r-17', 'Retry-After': '3' } };
  await reset(fault, fault);
  const error = await failure(timed(TIDINGS_KEY, { attempts: 2 })[0].count('mara'));
  const { status, code, detail, location, requestId, retryable, retryAfter } = error;
  assert.deepEqual([status, code, detail, location], [503, 'store_unavailable', 'away', 'there']);
  assert.deepEqual([requestId, retryable, retryAfter], ['r-17', true, 3]);
});

test('a page of a proxy is an error too', async () => {
  const pages = [
    [{ status: 404, body: '<h1>Lost</h1>' }, 'no_code'],
    [{ status: 404, body: 'null' }, 'no_code'],
    [{ status: 200, body: '<h1>Sign in</h1>' }, 'invalid_answer'],
    [{ status: 302, headers: { Location: '/elsewhere' } }, 'no_code'],
  ];
  for (const [page, code] of pages) {
    await reset(page);
    const error = await failure(timed()[0].count('mara'));
    assert.deepEqual([error.status, error.code, error.retryable], [page.status, code, false]);
    assert.equal((await seen()).length, 1);
  }
});

test('Retry-After is kept, in seconds and as a date', async () => {
  const date = 'Mon, 23 Nov 2026 10:00:00 GMT';
  const waits = [
    [{ 'Retry-After': '7' }, 7],
    [{ 'Retry-After': 'Mon, 23 Nov 2026 10:00:30 GMT', Date: date }, 30],
    [{ 'Retry-After': 'Mon, 23 Nov 2026 09:00:00 GMT', Date: date }, 0],
    [{ 'Retry-After': 'Sat, 01 Jan 2000 00:00:00 GMT' }, 0],
    [{ 'Retry-After': 'soon' }, 0],
    [{ 'Retry-After': 'Jan 1 2099' }, 0],
    [{ 'Retry-After': '-5' }, 0],
  ];
  for (const status of [429, 503]) {
    for (const [headers, seconds] of waits) {
      await reset({ status, headers });
      const [client, { slept }] = timed();
      await client.count('mara');
      assert.deepEqual(slept, [seconds], JSON.stringify(headers));
    }
  }
  const [client, time] = timed();
  const soon = new Date(Date.now() + 30_000).toUTCString();
  await reset({ status: 503, headers: { 'Retry-After': soon } });
  await client.count('mara');
  const [waited] = time.slept.splice(0);
  assert.ok(waited > 0 && waited <= 30, 'from now, where the answer says no date');
  time.chance = 1;
  await reset({ status: 503, headers: { 'Retry-After': '7' } });
  await client.count('mara');
  assert.deepEqual(time.slept, [7.5], 'the jitter comes on top of it');
});

test('waits grow up to a bound, tries are counted, no wait outlasts the deadline', async () => {
  const down = Array(20).fill({ status: 503 });
  const waits = async (settings, faults, chance = 1) => {
    const [client, time] = timed(TIDINGS_KEY, settings);
    time.chance = chance;
    await reset(...faults);
    const error = await client.count('mara').catch(error => error);
    return [error, time.slept];
  };
  assert.deepEqual((await waits({}, down))[1], [0.5, 1, 2, 4]);
  assert.equal((await seen()).length, 5);
  assert.deepEqual(
    (await waits({ attempts: 9, deadline: 1000 }, down))[1],
    [0.5, 1, 2, 4, 8, 16, 20, 20],
  );
  assert.deepEqual((await waits({}, down.slice(0, 2), 0.25))[1], [0.125, 0.25]);
  assert.deepEqual((await waits({ attempts: 99, deadline: 10 }, down))[1], [0.5, 1, 2, 4]);

  const [error, slept] = await waits({}, [{ status: 503, headers: { 'Retry-After': '61' } }]);
  assert.deepEqual([error.retryAfter, slept], [61, []]);
});

test('the deadline ends what does not answer', async () => {
  for (const [fault, timeout] of [
    ['hold', 30],
    ['drip', 30],
    ['hold', 0.25],
  ]) {
    await reset(...Array(99).fill(fault));
    const began = Date.now();
    const error = await failure(
      new Tidings(PROXY_URL, TIDINGS_KEY, {
        deadline: 0.6,
        timeout,
        attempts: 99,
        random: () => 0,
      }).publish(event('mara')),
    );
    const took = Date.now() - began,
      sent = await bodies();
    await tell('release');
    assert.ok(took > 500 && took < 10_000, `${fault} ${took}`);
    assert.deepEqual([error.code, error.retryable], ['timeout', true]);
    for (const body of sent) assert.deepEqual(body, error.unsent, 'under the same key');
  }
  const began = Date.now();
  let calls = 0;
  const give = () => (calls++ ? TIDINGS_KEY : new Promise(() => {}));
  const never = new Tidings(PROXY_URL, () => new Promise(() => {}), { deadline: 0.3 });
  assert.equal((await failure(never.count('mara'))).code, 'timeout');
  assert.ok(Date.now() - began < 10_000);
  await reset();
  const client = new Tidings(PROXY_URL, give, { timeout: 1, random: () => 0 });
  assert.equal((await client.count('mara')).unread, 0, 'the next request asks anew');
});

test('what was not accepted of many can be published again', async () => {
  const [client] = timed(TIDINGS_KEY, { timeout: 100, deadline: 999 });
  const events = Array.from({ length: 1500 }, (_, at) =>
    event('nobody', { objects: [`Comment:${at}`] }),
  );
  await idle('pass', 'lose', { status: 400 });

  const error = await failure(client.publishMany(events));

  assert.deepEqual([error.receipts.length, error.unsent.length], [1000, 500]);
  assert.deepEqual(error.unsent, (await bodies()).at(-1));
  assert.ok(
    (await client.publishMany(error.unsent)).every(({ duplicate }) => duplicate),
    'none is there twice',
  );
});

test('a user token is asked for again, once, when it expired', async () => {
  const user = someone(),
    tokens = [userToken(user, -300), userToken(user)];
  let calls = 0;
  const [client] = timed(async () => tokens[Math.min(calls++, 1)]);
  await reset('pass', { status: 503 });

  assert.equal((await client.count(user)).unread, 0);

  const entries = await seen();
  assert.deepEqual(
    entries.map(({ status }) => status),
    [401, 503, 200],
  );
  assert.deepEqual(
    entries.map(({ headers }) => headers.authorization),
    [0, 1, 1].map(at => `Bearer ${tokens[at]}`),
  );
  await client.count(user);
  assert.equal(calls, 2, 'it is kept');
});

test('calls at the same time share a new token', async () => {
  const user = someone();
  let calls = 0;
  const [client] = timed(async () => (calls++ ? userToken(user) : userToken(user, -300)));
  await reset();
  await Promise.all(Array.from({ length: 8 }, () => client.count(user)));
  assert.equal(calls, 2);
});

test('a token that stays refused is an error', async () => {
  const user = someone();
  let calls = 0;
  await reset();
  const error = await failure(timed(() => userToken(user, -300 - calls++))[0].count(user));
  assert.deepEqual([error.status, calls, (await seen()).length], [401, 2, 2]);
  await reset();
  assert.equal((await failure(timed(userToken(user, -300))[0].count(user))).status, 401);
  assert.equal((await seen()).length, 1);
});

test('a token that cannot be had is asked for again', async () => {
  const user = someone();
  let calls = 0;
  const give = async () => {
    if (++calls < 3) throw new Error('the session server is away');
    return userToken(user);
  };
  await reset();
  assert.equal((await timed(give)[0].count(user)).unread, 0);
  calls = 0;
  const error = await failure(timed(give, { attempts: 2 })[0].count(user));
  assert.deepEqual([error.code, error.retryable], ['no_token', true]);
  assert.match(error.detail, /the session server is away/);
});

test('a token is taken without white space, never shown, and may be left out', async () => {
  await reset();
  await timed(` ${TIDINGS_KEY}\n`)[0].count('mara');
  for (const bad of ['', 'se\ncret', 'secrét']) {
    assert.throws(
      () => new Tidings(PROXY_URL, bad),
      error => error.code === 'invalid_token' && !/secr/.test(error.message),
    );
  }
  await reset();
  assert.equal((await failure(new Tidings(PROXY_URL).count('mara'))).status, 401);
  assert.equal((await seen())[0].headers.authorization, undefined);
});

test('a removal whose answer was lost has succeeded', async () => {
  const [client] = timed(),
    user = someone();
  await client.putUser(user, { name: 'Mara' });
  await reset('lose');
  assert.equal(await client.deleteUser(user), undefined);
  assert.deepEqual(
    (await seen()).map(({ status }) => status),
    [204, 404],
  );
  for (const passing of [[], [{ status: 429 }]]) {
    await reset(...passing);
    assert.equal(
      (await failure(client.deleteUser(user))).code,
      'unknown_user',
      'there never was one',
    );
  }
});
