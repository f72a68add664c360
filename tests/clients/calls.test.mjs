// Tests of the requests, iterators, polls and signals of the JavaScript client.
// Keep them in line with python_calls.py, which tests the Python client.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';

import { Tidings } from '../../clients/js/tidings.js';
import {
  PROXY_URL,
  TIDINGS_KEY,
  bodies,
  control,
  errorOf,
  event,
  fakeClient,
  newUser,
  publishToFeed,
  requestLines,
  requests,
  reset,
  resetIdle,
  take,
  unread,
  until,
} from './fixture.mjs';

// Names that a client must escape in paths.
const SPECIAL_NAMES = [
  'a/b',
  '%2F',
  'é',
  '?',
  'a?b=c&d#e',
  'a b+c',
  'a/../b',
  '...',
  '%2e%2e',
  '🦆',
  '\\',
  ';',
];

test('every event is sent with an idempotency key', async () => {
  const [client] = fakeClient(),
    user = newUser();
  await reset();

  await client.publish(event(user));
  await client.publish(event(user));
  await client.publish(event(user, { key: `event ${user}` }));
  await client.publish(event(user), { key: `call ${user}` });

  const keys = (await bodies()).map(([{ key }]) => key);
  assert.equal(new Set(keys).size, 4);
  assert.deepEqual(keys.slice(2), [`event ${user}`, `call ${user}`]);
});

test('publishMany sends at most 1000 events per request', async () => {
  const [client] = fakeClient(TIDINGS_KEY, { timeout: 100, deadline: 999 });
  const events = Array.from({ length: 2500 }, (_, index) =>
    event('unused', { objects: [`Comment:${index}`] }),
  );
  await resetIdle('pass', 'lose');

  const receipts = await client.publishMany(new Set(events));

  const [first, lost, retried, last] = await bodies();
  assert.deepEqual(
    [first, lost, retried, last].map(({ length }) => length),
    [1000, 1000, 1000, 500],
  );
  assert.deepEqual(lost, retried);
  assert.equal(new Set([...first, ...retried, ...last].map(({ key }) => key)).size, 2500);
  assert.equal(new Set(receipts.map(({ id }) => id)).size, 2500);
  assert.deepEqual(
    receipts.map(({ duplicate }) => duplicate),
    receipts.map((_, index) => index >= 1000 && index < 2000),
  );
  assert.deepEqual((await client.event(receipts[1700].id)).objects, ['Comment:1700']);
  assert.equal(events[0].key, undefined, 'publishMany does not change its arguments');
  assert.deepEqual(await client.publishMany([]), []);
});

test('large records are split by size', async () => {
  const objects = Array.from({ length: 20 }, (_, index) => ({
    id: `Big:${index}`,
    data: 'é'.repeat(450_000),
  }));
  await reset(...Array(2).fill({ status: 200, body: { taken: 1 } }));
  assert.equal(await fakeClient()[0].putObjects(objects), 2);
  assert.deepEqual(
    (await bodies()).map(({ length }) => length),
    [17, 3],
  );
});

test('a poll yields changes and sends the last ETag', async () => {
  const [client, clock] = fakeClient(),
    user = newUser(),
    yielded = [];
  let rounds = 0;
  clock.onSleep = async () => {
    if (++rounds === 2) await publishToFeed(user, 1);
  };
  await reset();

  for await (const counts of client.poll(user)) if (yielded.push(counts.unread) === 2) break;

  const [first, second, third] = await requests();
  assert.deepEqual(yielded, [0, 1]);
  assert.deepEqual([first.status, second.status, third.status], [200, 304, 200]);
  assert.equal(first.headers['if-none-match'], undefined);
  assert.ok(second.headers['if-none-match']);
  assert.equal(second.headers['if-none-match'], third.headers['if-none-match']);
  assert.deepEqual(clock.sleeps, [+first.interval, +second.interval]);
});

test('a poll of the feed yields pages', async () => {
  const [client, clock] = fakeClient(),
    user = newUser();
  await publishToFeed(user, 3);
  clock.onSleep = () => publishToFeed(user, 1);
  const pages = await take(client.pollFeed(user, { limit: 2 }), 2);
  const ids = pages.map(({ items }) => items.map(({ object }) => object.id));
  assert.deepEqual(ids, [
    ['Comment:2', 'Comment:1'],
    ['Comment:3', 'Comment:2'],
  ]);
});

test('a poll obeys its interval and skips equal responses without an ETag', async () => {
  const [client, clock] = fakeClient(),
    response = (unread, headers) => ({ status: 200, body: { unread }, headers });
  const intervals = [
    { 'X-Poll-Interval': '90' },
    {},
    { 'X-Poll-Interval': 'soon' },
    { 'X-Poll-Interval': '0' },
  ];
  await reset(...intervals.map(headers => response(1, headers)), response(2, {}));
  clock.random = 1;
  assert.deepEqual(await take(client.poll('mara'), 2), [{ unread: 1 }, { unread: 2 }]);
  assert.deepEqual(clock.sleeps, [108, 36, 36, 1.2]);
});

test('a poll continues after temporary errors and ends on a permanent one', async () => {
  const [client, clock] = fakeClient(),
    yielded = [],
    errors = [],
    unavailable = Array(12).fill({ status: 503 });
  const after = seconds => ({ status: 503, headers: { 'Retry-After': seconds } });
  const ok = { status: 200, body: { unread: 0 }, headers: { 'X-Poll-Interval': '30' } };
  await reset(after('99'), 'drop', { status: 500 }, ok, after('999999'), ...unavailable, {
    status: 403,
  });
  clock.random = 1;

  const error = await errorOf(
    (async () => {
      for await (const { unread } of client.poll('mara', {
        onError: error => errors.push(error.status),
      }))
        yielded.push(unread);
    })(),
  );

  assert.equal(error.status, 403);
  assert.deepEqual(yielded, [0]);
  assert.deepEqual(errors.slice(0, 3), [503, undefined, 500]);
  assert.equal(errors.length, 16);
  assert.deepEqual(
    clock.sleeps,
    [99.5, 1, 2, 36, 3600, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300],
  );
});

test('a signal ends a poll and rejects a call with its reason', async () => {
  const user = newUser(),
    real = new Tidings(PROXY_URL, TIDINGS_KEY),
    yielded = [];
  const start = Date.now();
  let controller = new AbortController();
  await reset();
  for await (const { unread } of real.poll(user, { signal: controller.signal })) {
    yielded.push(unread);
    setTimeout(() => controller.abort(), 50); // while the poll sleeps
  }
  assert.deepEqual(yielded, [0]);
  assert.deepEqual(await take(real.poll(user, { signal: controller.signal }), 1), []);
  assert.equal((await requests()).length, 1);

  await reset('hold');
  controller = new AbortController();
  const values = take(real.poll(user, { signal: controller.signal }), 1);
  await until(async () => (await requests()).length);
  controller.abort();
  assert.deepEqual(await values, [], 'aborted during a request');
  await control('release');

  for (const faults of [['hold'], [{ status: 503, headers: { 'Retry-After': '30' } }]]) {
    controller = new AbortController();
    await reset(...faults);
    const settings = { attempts: faults[0] === 'hold' ? 1 : 2 };
    const client = new Tidings(PROXY_URL, TIDINGS_KEY, settings);
    const error = errorOf(client.count(user, { signal: controller.signal }));
    await until(async () => (await requests()).length);
    const reason = new Error('enough');
    controller.abort(reason);
    assert.equal(await error, reason);
    assert.equal((await requests()).length, 1);
    await control('release');
  }
  await reset();
  assert.equal(await errorOf(real.count(user, { signal: AbortSignal.abort('no') })), 'no');
  await assert.rejects(
    take(real.items(user, {}, { signal: AbortSignal.abort(new Error('no')) })),
    /no/,
  );
  assert.deepEqual(await requestLines(), []);
  assert.ok(Date.now() - start < 15_000, 'aborts take effect at once');
});

test('a closed poll sends no more requests', async () => {
  const user = newUser();
  await reset();
  const values = new Tidings(PROXY_URL, TIDINGS_KEY).poll(user);
  await values.next();
  await values.return();
  assert.ok((await values.next()).done);
  assert.equal((await requests()).length, 1);
});

test('items yields each item once while events arrive', async () => {
  const [client] = fakeClient(),
    user = newUser(),
    ids = await publishToFeed(user, 23),
    yielded = [];
  await reset();
  for await (const { object } of client.items(user, { limit: 5 })) {
    if (yielded.push(object.id) % 5 === 1) await publishToFeed(user, 2);
    if (yielded.length > 99) break;
  }
  assert.deepEqual(yielded, ids.reverse());
  assert.equal((await requests()).length, 5, 'no page is requested twice');
});

test('iterators yield all groups, batches, users and follows', async () => {
  const [client] = fakeClient(),
    user = newUser();
  const objects = Array.from({ length: 9 }, (_, index) => ({
    id: `Comment:${index}`,
    data: { about: `thread:${index % 3}` },
  }));
  const records = Array.from({ length: 5 }, (_, index) => ({ id: `${user}/${index}` }));
  const keys = Array.from({ length: 7 }, (_, index) => `artist:${index}`);
  const profile = {
    email: 'a@example.org',
    confirmed: true,
    types: { Comment: { route: 'batch' } },
  };
  assert.equal(await client.putObjects(objects), 9);
  assert.equal(await client.putUsers(records), 5);
  assert.equal(await client.putFollows(keys.map(key => ({ user, key }))), 7);
  await client.putUser(user, profile);
  await publishToFeed(user, 9);
  for (const key of ['acme', 'globex', 'initech']) await publishToFeed(user, 1, { batch_key: key });
  await until(async () => (await take(client.batches({ user, limit: 1 }), 99)).length === 4);

  const about = (await take(client.allGroups(user, { limit: 2 }), 99)).map(group => group.about);
  const userIds = (await take(client.users({ after: user, limit: 2 }), 5)).map(({ id }) => id);
  const batches = await take(client.batches({ user, limit: 1 }), 99);

  assert.ok(
    ['thread:0', 'thread:1', 'thread:2'].every(one => about.includes(one)),
    `${about}`,
  );
  assert.equal(new Set(about).size, about.length);
  assert.deepEqual(
    userIds,
    records.map(({ id }) => id),
  );
  assert.deepEqual(await take(client.follows(user, { limit: 3 }), 99), keys);
  assert.deepEqual(await take(client.follows(user, { after: 'artist:4' }), 99), keys.slice(5));
  assert.deepEqual(batches.map(({ key }) => key).sort(), [
    'key:acme',
    'key:globex',
    'key:initech',
    'type:Comment',
  ]);
  assert.equal((await client.batch(batches[0].id)).user, user);
});

test('a call leaves no timer and no listener', async () => {
  const { signal } = new AbortController();
  const [client] = fakeClient();
  const timers = () => process.getActiveResourcesInfo().filter(one => one === 'Timeout').length;
  const before = timers();
  await reset('drop');
  await client.count('mara', { signal });
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  assert.equal(timers(), before, 'a timer would keep the process running');
});

test('pages are requested only when needed', async () => {
  const [client] = fakeClient(),
    user = newUser();
  await publishToFeed(user, 6);
  await reset();
  const items = client.items(user, { limit: 3 });
  assert.deepEqual(await requestLines(), []);
  await take(items, 3);
  assert.deepEqual(await requestLines(), [`GET /v1/users/${user}/feed?limit=3`]);
});

test('special characters in names are escaped', async () => {
  const [client] = fakeClient();
  for (const name of SPECIAL_NAMES) {
    const user = `${newUser()}${name}`,
      model = `M${name}`;
    await reset();

    await client.putUser(user, { name });
    await client.follow(user, name);
    await client.putObject(model, name, { title: name });

    assert.equal((await client.user(user)).id, user);
    assert.deepEqual(await take(client.follows(user), 99), [name]);
    assert.equal((await client.object(model, name)).id, `${model}:${name}`);
    assert.deepEqual((await client.feed(user, { about: name, type: name })).items, []);
    await client.unfollow(user, name);
    assert.deepEqual(await take(client.follows(user), 99), []);
    const [key, part] = [user, name].map(encodeURIComponent);
    assert.deepEqual((await requestLines()).slice(0, 3), [
      `PUT /v1/users/${key}`,
      `PUT /v1/users/${key}/follows/${part}`,
      `PUT /v1/objects/M${part}/${part}`,
    ]);
    const target = `GET /v1/users/${key}/feed?about=${part}&type=${part}`;
    assert.ok((await requestLines()).includes(target), target);
  }
});

test('names that are no path segments use the endpoints for many or fail', async () => {
  const [client] = fakeClient(),
    user = newUser();
  for (const name of ['.', '..']) {
    await reset();
    await client.putUser(name, { name: 'Dot' });
    await client.follow(name, 'artist:1');
    await client.follow(user, name);
    await client.putObject('Dots', name, { title: 'Dot' });
    await client.putObject(name, 'follows', { title: 'Dot' });
    await client.deleteObject('Dots', name);

    assert.deepEqual(await bodies(), [
      [{ name: 'Dot', id: name }],
      [{ user: name, key: 'artist:1' }],
      [{ user, key: name }],
      [{ title: 'Dot', id: `Dots:${name}` }],
      [{ title: 'Dot', id: `${name}:follows` }],
      [{ id: `Dots:${name}`, notifiable: false }],
    ]);
    assert.deepEqual(
      (await requestLines()).map(one => one.slice(9)),
      ['users', 'follows', 'follows', 'objects', 'objects', 'objects'],
    );
    assert.ok((await take(client.follows(user), 99)).includes(name));
  }
  await reset();
  for (const name of ['.', '..', '', undefined, null]) {
    for (const call of [
      client.user(name),
      client.deleteUser(name),
      client.unfollow(user, name),
      client.count(name),
    ]) {
      assert.equal((await errorOf(call)).code, 'invalid_parameter');
    }
  }
  assert.deepEqual(await requestLines(), []);
});

test('marks are retried and persist', async () => {
  const [client] = fakeClient(),
    user = newUser();
  await publishToFeed(user, 3);
  const {
    items: [{ id }],
    cursor,
  } = await client.feed(user);
  await publishToFeed(user, 1);
  await reset('lose', 'pass', 'lose');

  const seen = await client.mark(user, 'seen', { to: cursor }),
    read = await client.mark(user, 'read', { ids: [id] });
  const filtered = await client.mark(user, 'seen', {
    to: read.cursor,
    type: 'Comment',
    day: id.slice(0, 8),
    about: 'Comment:none',
  });

  assert.deepEqual([seen.unseen, seen.unread], [1, 4], 'a newer event is not marked');
  assert.deepEqual([read.unseen, read.unread, filtered.unseen], [1, 3, 1]);
  const [first, retried] = await bodies();
  assert.deepEqual(first, { mark: 'seen', to: cursor });
  assert.deepEqual(retried, first);
  assert.equal((await client.mark(user, 'archive', { ids: [id] })).unread, 3);
  assert.equal((await client.feed(user, { state: 'archived' })).items.length, 1);
  await client.mark(user, 'restore', { ids: [id] });
  assert.equal((await client.mark(user, 'unread', { ids: [id] })).unread, 4);
});

test('users, objects and preferences are written, changed and deleted', async () => {
  const [client] = fakeClient(),
    user = newUser();
  await client.putUser(user, { email: 'mara@example.org', confirmed: true });
  const patched = await client.patchUser(user, { name: 'Mara', email: null });
  assert.deepEqual([patched.name, patched.email], ['Mara', null]);
  assert.equal(
    (await client.putPreferences(user, { digest: { cadence: 'daily', hour: 7 } })).digest.hour,
    7,
  );
  assert.equal((await client.preferences(user)).digest.hour, 7);
  assert.equal(await client.follow(user, 'artist:1'), undefined);
  await client.mute(user, 'artist:1');
  await client.mute(user, 'a/b', { until: '2100-01-01T00:00:00Z', title: 'Budget' });
  await client.unmute(user, 'artist:1');
  const { mutes } = await client.mutes(user);
  assert.deepEqual(
    mutes.map(({ subject, title }) => [subject, title]),
    [['a/b', 'Budget']],
  );

  await client.putObject('Work', user, { title: 'A Work', data: { year: 1785 } });
  assert.deepEqual((await client.object('Work', user)).data, { year: 1785 });
  await client.publish(event(user, { objects: [`Work:${user}`] }));
  await until(async () => (await unread(user)) === 1);
  assert.deepEqual(
    (await client.groups(user)).groups.map(({ count }) => count),
    [1],
  );
  await client.deleteObject('Work', user);
  assert.equal((await client.object('Work', user)).notifiable, false);
  await until(async () => (await unread(user)) === 0);

  await client.publish(event(user, { objects: [`Late:${user}`] }));
  await until(async () => (await unread(user)) === 1);
  const { warnings, ...retracted } = await client.retract('Comment', `Late:${user}`);
  assert.deepEqual(retracted, { taken: 0, omitted: 0, objects: [`Late:${user}`] });
  assert.match(warnings[0], /no record of/);
  await until(async () => (await unread(user)) === 0);
  await client.deleteUser(user);
  assert.equal((await errorOf(client.user(user))).code, 'unknown_user');
});

test('the server URL may have a path and is validated', async () => {
  await reset(...Array(2).fill({ status: 200, body: {} }));
  await new Tidings(`${PROXY_URL}/inbox/`, TIDINGS_KEY).count('mara');
  await new Tidings(`${PROXY_URL}/`, TIDINGS_KEY).count('mara');
  assert.deepEqual(await requestLines(), [
    'GET /inbox/v1/users/mara/feed/count',
    'GET /v1/users/mara/feed/count',
  ]);
  assert.throws(() => new Tidings('here', TIDINGS_KEY), TypeError);
});
