// Tests of the retries, deadlines, tokens and errors of the JavaScript client.
// Keep them in line with python_retries.py, which tests the Python client.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Tidings, TidingsError } from '../../clients/js/tidings.js';
import {
  PROXY_URL,
  TIDINGS_KEY,
  bodies,
  callServer,
  control,
  errorOf,
  event,
  fakeClient,
  newUser,
  requests,
  reset,
  resetIdle,
  unread,
  until,
  userToken,
} from './fixture.mjs';

const RETRYABLE = [429, 502, 503, 504];
const PERMANENT = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 500, 501];

test('a retry after a lost response sends the same key and publishes once', async () => {
  const [client] = fakeClient(),
    user = newUser();
  await reset('lose', 'lose');

  const receipt = await client.publish(event(user));

  const [first, ...retries] = await bodies();
  assert.deepEqual(retries, [first, first]);
  assert.match(first[0].key, /^[0-9a-f]{32}$/);
  assert.ok(receipt.duplicate);
  await until(() => unread(user));
  assert.deepEqual((await callServer('GET', `/v1/events/${receipt.id}`)).counts, {
    people: 1,
    pushed: 1,
    capped: 0,
  });
  assert.equal(await unread(user), 1);
});

test('temporary failures are retried', async () => {
  const user = newUser();
  for (const fault of ['drop', 'lose', ...RETRYABLE.map(status => ({ status }))]) {
    await reset(fault);
    assert.equal((await fakeClient()[0].count(user)).unread, 0);
    assert.equal((await requests()).length, 2, JSON.stringify(fault));
  }
  await reset('hold');
  assert.equal((await new Tidings(PROXY_URL, TIDINGS_KEY, { timeout: 1 }).count(user)).unread, 0);
  const [client, clock] = fakeClient(TIDINGS_KEY, {
    attempts: 3,
    fetch: () => fetch('http://127.0.0.1:1'),
  });
  const error = await errorOf(client.count(user));
  assert.deepEqual([error.code, error.status, error.retryable], ['unreachable', undefined, true]);
  assert.equal(clock.sleeps.length, 2);
});

test('permanent failures are not retried', async () => {
  const [client, clock] = fakeClient();
  for (const status of PERMANENT) {
    await reset({ status, body: { code: 'a_code', detail: 'a detail' } });
    const error = await errorOf(client.publish(event('mara')));
    assert.deepEqual(
      [error.status, error.code, error.detail, error.retryable],
      [status, 'a_code', 'a detail', false],
    );
    assert.equal((await requests()).length, 1, `${status}`);
  }
  assert.deepEqual(clock.sleeps, []);
});

test('errors have the code of the server', async () => {
  const [client] = fakeClient(),
    user = newUser(),
    key = `used ${user}`;
  await client.publish(event(user), { key });
  const failures = [
    [400, 'invalid_body', () => client.publish({ type: 'Comment', objects: ['c'] })],
    [401, 'unauthorized', () => fakeClient('a-wrong-key')[0].count(user)],
    [403, 'forbidden', () => fakeClient(userToken('another-user'))[0].count(user)],
    [404, 'unknown_user', () => client.user(user)],
    [
      409,
      'idempotency_key_reused',
      () => client.publish(event(user, { objects: ['Comment:c2'] }), { key }),
    ],
    [422, 'time_out_of_range', () => client.publish(event(user, { at: '2014-04-19T10:00:00Z' }))],
  ];
  for (const [status, code, call] of failures) {
    await reset();
    const error = await errorOf(call());
    assert.deepEqual([error.status, error.code, error.retryable], [status, code, false]);
    assert.equal((await requests()).length, 1, code);
    assert.ok(
      error instanceof TidingsError && error.message.startsWith(`${status} ${code}: `),
      error.message,
    );
  }
});

test('an error has all fields of the response', async () => {
  const body = { code: 'store_unavailable', detail: 'away', location: 'there' };
  const fault = { status: 503, body, headers: { 'X-Request-Id': 'r-17', 'Retry-After': '3' } };
  await reset(fault, fault);
  const error = await errorOf(fakeClient(TIDINGS_KEY, { attempts: 2 })[0].count('mara'));
  const { status, code, detail, location, requestId, retryable, retryAfter } = error;
  assert.deepEqual([status, code, detail, location], [503, 'store_unavailable', 'away', 'there']);
  assert.deepEqual([requestId, retryable, retryAfter], ['r-17', true, 3]);
});

test('a response from another server is an error', async () => {
  const pages = [
    [{ status: 404, body: '<h1>Lost</h1>' }, 'no_code'],
    [{ status: 404, body: 'null' }, 'no_code'],
    [{ status: 200, body: '<h1>Sign in</h1>' }, 'invalid_answer'],
    [{ status: 302, headers: { Location: '/elsewhere' } }, 'no_code'],
  ];
  for (const [page, code] of pages) {
    await reset(page);
    const error = await errorOf(fakeClient()[0].count('mara'));
    assert.deepEqual([error.status, error.code, error.retryable], [page.status, code, false]);
    assert.equal((await requests()).length, 1);
  }
});

test('Retry-After is obeyed in seconds and as a date', async () => {
  const date = 'Mon, 23 Nov 2026 10:00:00 GMT';
  const cases = [
    [{ 'Retry-After': '7' }, 7],
    [{ 'Retry-After': 'Mon, 23 Nov 2026 10:00:30 GMT', Date: date }, 30],
    [{ 'Retry-After': 'Mon, 23 Nov 2026 09:00:00 GMT', Date: date }, 0],
    [{ 'Retry-After': 'Sat, 01 Jan 2000 00:00:00 GMT' }, 0],
    [{ 'Retry-After': 'soon' }, 0],
    [{ 'Retry-After': 'Jan 1 2099' }, 0],
    [{ 'Retry-After': '-5' }, 0],
  ];
  for (const status of [429, 503]) {
    for (const [headers, seconds] of cases) {
      await reset({ status, headers });
      const [client, { sleeps }] = fakeClient();
      await client.count('mara');
      assert.deepEqual(sleeps, [seconds], JSON.stringify(headers));
    }
  }
  const [client, clock] = fakeClient();
  const soon = new Date(Date.now() + 30_000).toUTCString();
  await reset({ status: 503, headers: { 'Retry-After': soon } });
  await client.count('mara');
  const [wait] = clock.sleeps.splice(0);
  assert.ok(wait > 0 && wait <= 30, 'without a Date header, the client uses its own clock');
  clock.random = 1;
  await reset({ status: 503, headers: { 'Retry-After': '7' } });
  await client.count('mara');
  assert.deepEqual(clock.sleeps, [7.5], 'the jitter is added');
});

test('backoff is capped, attempts are limited and no wait exceeds the deadline', async () => {
  const unavailable = Array(20).fill({ status: 503 });
  const waits = async (settings, faults, random = 1) => {
    const [client, clock] = fakeClient(TIDINGS_KEY, settings);
    clock.random = random;
    await reset(...faults);
    const error = await client.count('mara').catch(error => error);
    return [error, clock.sleeps];
  };
  assert.deepEqual((await waits({}, unavailable))[1], [0.5, 1, 2, 4]);
  assert.equal((await requests()).length, 5);
  assert.deepEqual(
    (await waits({ attempts: 9, deadline: 1000 }, unavailable))[1],
    [0.5, 1, 2, 4, 8, 16, 20, 20],
  );
  assert.deepEqual((await waits({}, unavailable.slice(0, 2), 0.25))[1], [0.125, 0.25]);
  assert.deepEqual((await waits({ attempts: 99, deadline: 10 }, unavailable))[1], [0.5, 1, 2, 4]);

  const [error, sleeps] = await waits({}, [{ status: 503, headers: { 'Retry-After': '61' } }]);
  assert.deepEqual([error.retryAfter, sleeps], [61, []]);
});

test('the deadline ends calls without a response', async () => {
  for (const [fault, timeout] of [
    ['hold', 30],
    ['drip', 30],
    ['hold', 0.25],
  ]) {
    await reset(...Array(99).fill(fault));
    const start = Date.now();
    const error = await errorOf(
      new Tidings(PROXY_URL, TIDINGS_KEY, {
        deadline: 0.6,
        timeout,
        attempts: 99,
        random: () => 0,
      }).publish(event('mara')),
    );
    const elapsed = Date.now() - start,
      sent = await bodies();
    await control('release');
    assert.ok(elapsed > 500 && elapsed < 10_000, `${fault} ${elapsed}`);
    assert.deepEqual([error.code, error.retryable], ['timeout', true]);
    for (const body of sent) assert.deepEqual(body, error.unsent, 'a retry sends the same key');
  }
  const start = Date.now();
  let calls = 0;
  const getToken = () => (calls++ ? TIDINGS_KEY : new Promise(() => {}));
  const never = new Tidings(PROXY_URL, () => new Promise(() => {}), { deadline: 0.3 });
  assert.equal((await errorOf(never.count('mara'))).code, 'timeout');
  assert.ok(Date.now() - start < 10_000);
  await reset();
  const client = new Tidings(PROXY_URL, getToken, { timeout: 1, random: () => 0 });
  assert.equal((await client.count('mara')).unread, 0, 'the next request calls it again');
});

test('unsent events can be published again', async () => {
  const [client] = fakeClient(TIDINGS_KEY, { timeout: 100, deadline: 999 });
  const events = Array.from({ length: 1500 }, (_, index) =>
    event('unused', { objects: [`Comment:${index}`] }),
  );
  await resetIdle('pass', 'lose', { status: 400 });

  const error = await errorOf(client.publishMany(events));

  assert.deepEqual([error.receipts.length, error.unsent.length], [1000, 500]);
  assert.deepEqual(error.unsent, (await bodies()).at(-1));
  assert.ok(
    (await client.publishMany(error.unsent)).every(({ duplicate }) => duplicate),
    'the first attempt published them',
  );
});

test('an expired user token is renewed once', async () => {
  const user = newUser(),
    tokens = [userToken(user, -300), userToken(user)];
  let calls = 0;
  const [client] = fakeClient(async () => tokens[Math.min(calls++, 1)]);
  await reset('pass', { status: 503 });

  assert.equal((await client.count(user)).unread, 0);

  const entries = await requests();
  assert.deepEqual(
    entries.map(({ status }) => status),
    [401, 503, 200],
  );
  assert.deepEqual(
    entries.map(({ headers }) => headers.authorization),
    [0, 1, 1].map(index => `Bearer ${tokens[index]}`),
  );
  await client.count(user);
  assert.equal(calls, 2, 'the token is cached');
});

test('concurrent calls share a renewed token', async () => {
  const user = newUser();
  let calls = 0;
  const [client] = fakeClient(async () => (calls++ ? userToken(user) : userToken(user, -300)));
  await reset();
  await Promise.all(Array.from({ length: 8 }, () => client.count(user)));
  assert.equal(calls, 2);
});

test('a renewed token that is rejected is an error', async () => {
  const user = newUser();
  let calls = 0;
  await reset();
  const error = await errorOf(fakeClient(() => userToken(user, -300 - calls++))[0].count(user));
  assert.deepEqual([error.status, calls, (await requests()).length], [401, 2, 2]);
  await reset();
  assert.equal((await errorOf(fakeClient(userToken(user, -300))[0].count(user))).status, 401);
  assert.equal((await requests()).length, 1);
});

test('a failed token callback is retried', async () => {
  const user = newUser();
  let calls = 0;
  const getToken = async () => {
    if (++calls < 3) throw new Error('the session server is down');
    return userToken(user);
  };
  await reset();
  assert.equal((await fakeClient(getToken)[0].count(user)).unread, 0);
  calls = 0;
  const error = await errorOf(fakeClient(getToken, { attempts: 2 })[0].count(user));
  assert.deepEqual([error.code, error.retryable], ['no_token', true]);
  assert.match(error.detail, /the session server is down/);
});

test('tokens are trimmed, never shown in errors and optional', async () => {
  await reset();
  await fakeClient(` ${TIDINGS_KEY}\n`)[0].count('mara');
  for (const bad of ['', 'se\ncret', 'secrét']) {
    assert.throws(
      () => new Tidings(PROXY_URL, bad),
      error => error.code === 'invalid_token' && !/secr/.test(error.message),
    );
  }
  await reset();
  assert.equal((await errorOf(new Tidings(PROXY_URL).count('mara'))).status, 401);
  assert.equal((await requests())[0].headers.authorization, undefined);
});

test('a retried delete succeeds if the first response was lost', async () => {
  const [client] = fakeClient(),
    user = newUser();
  await client.putUser(user, { name: 'Mara' });
  await reset('lose');
  assert.equal(await client.deleteUser(user), undefined);
  assert.deepEqual(
    (await requests()).map(({ status }) => status),
    [204, 404],
  );
  for (const faults of [[], [{ status: 429 }]]) {
    await reset(...faults);
    assert.equal(
      (await errorOf(client.deleteUser(user))).code,
      'unknown_user',
      'no earlier attempt can have deleted the user',
    );
  }
});
