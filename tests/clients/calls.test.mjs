// The tests of the JavaScript client: what travels, walks of pages, polls, and signals.
// The rule: what is said of a request is what the proxy saw. For Python python_calls.py says it.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';

import { Tidings } from '../../clients/js/tidings.js';
import {
  PROXY_URL,
  TIDINGS_KEY,
  asked,
  bodies,
  event,
  failure,
  idle,
  reset,
  seen,
  someone,
  take,
  tell,
  timed,
  told,
  unread,
  until,
} from './caller.mjs';

// What a path must carry as it is.
const HOSTILE = [
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

test("every event has a key: its own or the call's", async () => {
  const [client] = timed(),
    user = someone();
  await reset();

  await client.publish(event(user));
  await client.publish(event(user));
  await client.publish(event(user, { key: `its own ${user}` }));
  await client.publish(event(user), { key: `the call's ${user}` });

  const keys = (await bodies()).map(([{ key }]) => key);
  assert.equal(new Set(keys).size, 4);
  assert.deepEqual(keys.slice(2), [`its own ${user}`, `the call's ${user}`]);
});

test('many events are cut into requests of 1,000', async () => {
  const [client] = timed(TIDINGS_KEY, { timeout: 100, deadline: 999 });
  const events = Array.from({ length: 2500 }, (_, at) =>
    event('nobody', { objects: [`Comment:${at}`] }),
  );
  await idle('pass', 'lose');

  const receipts = await client.publishMany(new Set(events));

  const [first, lost, again, last] = await bodies();
  assert.deepEqual(
    [first, lost, again, last].map(({ length }) => length),
    [1000, 1000, 1000, 500],
  );
  assert.deepEqual(lost, again);
  assert.equal(new Set([...first, ...again, ...last].map(({ key }) => key)).size, 2500);
  assert.equal(new Set(receipts.map(({ id }) => id)).size, 2500);
  assert.deepEqual(
    receipts.map(({ duplicate }) => duplicate),
    receipts.map((_, at) => at >= 1000 && at < 2000),
  );
  assert.deepEqual((await client.event(receipts[1700].id)).objects, ['Comment:1700']);
  assert.equal(events[0].key, undefined, 'what was given is not changed');
  assert.deepEqual(await client.publishMany([]), []);
});

test('records are cut by their size too', async () => {
  const objects = Array.from({ length: 20 }, (_, at) => ({
    id: `Big:${at}`,
    data: 'é'.repeat(450_000),
  }));
  await reset(...Array(2).fill({ status: 200, body: { taken: 1 } }));
  assert.equal(await timed()[0].putObjects(objects), 2);
  assert.deepEqual(
    (await bodies()).map(({ length }) => length),
    [17, 3],
  );
});

test('a poll yields what changed, and sends the tag of what it has', async () => {
  const [client, time] = timed(),
    user = someone(),
    heard = [];
  let rounds = 0;
  time.during = async () => {
    if (++rounds === 2) await told(user, 1);
  };
  await reset();

  for await (const counts of client.poll(user)) if (heard.push(counts.unread) === 2) break;

  const [first, second, third] = await seen();
  assert.deepEqual(heard, [0, 1]);
  assert.deepEqual([first.status, second.status, third.status], [200, 304, 200]);
  assert.equal(first.headers['if-none-match'], undefined);
  assert.ok(second.headers['if-none-match']);
  assert.equal(second.headers['if-none-match'], third.headers['if-none-match']);
  assert.deepEqual(time.slept, [+first.interval, +second.interval], 'what X-Poll-Interval says');
});

test('a poll of the feed yields pages', async () => {
  const [client, time] = timed(),
    user = someone();
  await told(user, 3);
  time.during = () => told(user, 1);
  const pages = await take(client.pollFeed(user, { limit: 2 }), 2);
  const ids = pages.map(({ items }) => items.map(({ object }) => object.id));
  assert.deepEqual(ids, [
    ['Comment:2', 'Comment:1'],
    ['Comment:3', 'Comment:2'],
  ]);
});

test('a poll waits as it is told, and yields nothing twice where tags are lost', async () => {
  const [client, time] = timed(),
    answer = (unread, headers) => ({ status: 200, body: { unread }, headers });
  const waits = [
    { 'X-Poll-Interval': '90' },
    {},
    { 'X-Poll-Interval': 'soon' },
    { 'X-Poll-Interval': '0' },
  ];
  await reset(...waits.map(headers => answer(1, headers)), answer(2, {}));
  time.chance = 1;
  assert.deepEqual(await take(client.poll('mara'), 2), [{ unread: 1 }, { unread: 2 }]);
  assert.deepEqual(time.slept, [108, 36, 36, 1.2]);
});

test('a poll goes on after errors, and ends when it is refused', async () => {
  const [client, time] = timed(),
    heard = [],
    failed = [],
    down = Array(12).fill({ status: 503 });
  const after = seconds => ({ status: 503, headers: { 'Retry-After': seconds } });
  const good = { status: 200, body: { unread: 0 }, headers: { 'X-Poll-Interval': '30' } };
  await reset(after('99'), 'drop', { status: 500 }, good, after('999999'), ...down, {
    status: 403,
  });
  time.chance = 1;

  const error = await failure(
    (async () => {
      for await (const { unread } of client.poll('mara', {
        onError: error => failed.push(error.status),
      }))
        heard.push(unread);
    })(),
  );

  assert.equal(error.status, 403);
  assert.deepEqual(heard, [0]);
  assert.deepEqual(failed.slice(0, 3), [503, undefined, 500]);
  assert.equal(failed.length, 16);
  assert.deepEqual(
    time.slept,
    [99.5, 1, 2, 36, 3600, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300],
  );
});

test('a signal ends a poll, and rejects a call with its reason', async () => {
  const user = someone(),
    real = new Tidings(PROXY_URL, TIDINGS_KEY),
    heard = [];
  const began = Date.now();
  let control = new AbortController();
  await reset();
  for await (const { unread } of real.poll(user, { signal: control.signal })) {
    heard.push(unread);
    setTimeout(() => control.abort(), 50); // while it sleeps
  }
  assert.deepEqual(heard, [0]);
  assert.deepEqual(await take(real.poll(user, { signal: control.signal }), 1), []);
  assert.equal((await seen()).length, 1);

  await reset('hold');
  control = new AbortController();
  const asking = take(real.poll(user, { signal: control.signal }), 1);
  await until(async () => (await seen()).length);
  control.abort();
  assert.deepEqual(await asking, [], 'while it asks');
  await tell('release');

  for (const faults of [['hold'], [{ status: 503, headers: { 'Retry-After': '30' } }]]) {
    control = new AbortController();
    await reset(...faults);
    const settings = { attempts: faults[0] === 'hold' ? 1 : 2 };
    const client = new Tidings(PROXY_URL, TIDINGS_KEY, settings);
    const waiting = failure(client.count(user, { signal: control.signal }));
    await until(async () => (await seen()).length);
    const reason = new Error('enough');
    control.abort(reason);
    assert.equal(await waiting, reason);
    assert.equal((await seen()).length, 1);
    await tell('release');
  }
  await reset();
  assert.equal(await failure(real.count(user, { signal: AbortSignal.abort('no') })), 'no');
  await assert.rejects(
    take(real.items(user, {}, { signal: AbortSignal.abort(new Error('no')) })),
    /no/,
  );
  assert.deepEqual(await asked(), []);
  assert.ok(Date.now() - began < 15_000, 'at once');
});

test('a poll that is left asks no more', async () => {
  const user = someone();
  await reset();
  const values = new Tidings(PROXY_URL, TIDINGS_KEY).poll(user);
  await values.next();
  await values.return();
  assert.ok((await values.next()).done);
  assert.equal((await seen()).length, 1);
});

test('all items are walked once while events arrive', async () => {
  const [client] = timed(),
    user = someone(),
    ids = await told(user, 23),
    walked = [];
  await reset();
  for await (const { object } of client.items(user, { limit: 5 })) {
    if (walked.push(object.id) % 5 === 1) await told(user, 2);
    if (walked.length > 99) break;
  }
  assert.deepEqual(walked, ids.reverse());
  assert.equal((await seen()).length, 5, 'no page was asked for twice');
});

test('groups, batches, users and follows are walked to their end', async () => {
  const [client] = timed(),
    user = someone();
  const objects = Array.from({ length: 9 }, (_, at) => ({
    id: `Comment:${at}`,
    data: { about: `thread:${at % 3}` },
  }));
  const people = Array.from({ length: 5 }, (_, at) => ({ id: `${user}/${at}` }));
  const keys = Array.from({ length: 7 }, (_, at) => `artist:${at}`);
  const emailed = {
    email: 'a@example.org',
    confirmed: true,
    types: { Comment: { route: 'batch' } },
  };
  assert.equal(await client.putObjects(objects), 9);
  assert.equal(await client.putUsers(people), 5);
  assert.equal(await client.putFollows(keys.map(key => ({ user, key }))), 7);
  await client.putUser(user, emailed);
  await told(user, 9);
  for (const key of ['acme', 'globex', 'initech']) await told(user, 1, { batch_key: key });
  await until(async () => (await take(client.batches({ user, limit: 1 }), 99)).length === 4);

  const about = (await take(client.allGroups(user, { limit: 2 }), 99)).map(group => group.about);
  const listed = (await take(client.users({ after: user, limit: 2 }), 5)).map(({ id }) => id);
  const gathered = await take(client.batches({ user, limit: 1 }), 99);

  assert.ok(
    ['thread:0', 'thread:1', 'thread:2'].every(one => about.includes(one)),
    `${about}`,
  );
  assert.equal(new Set(about).size, about.length);
  assert.deepEqual(
    listed,
    people.map(({ id }) => id),
  );
  assert.deepEqual(await take(client.follows(user, { limit: 3 }), 99), keys);
  assert.deepEqual(await take(client.follows(user, { after: 'artist:4' }), 99), keys.slice(5));
  assert.deepEqual(gathered.map(({ key }) => key).sort(), [
    'key:acme',
    'key:globex',
    'key:initech',
    'type:Comment',
  ]);
  assert.equal((await client.batch(gathered[0].id)).user, user);
});

test('nothing is left behind by a call', async () => {
  const { signal } = new AbortController();
  const [client] = timed();
  const timers = () => process.getActiveResourcesInfo().filter(one => one === 'Timeout').length;
  const before = timers();
  await reset('drop');
  await client.count('mara', { signal });
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  assert.equal(timers(), before, 'a timer would keep the process');
});

test('a page is asked for only when it is needed', async () => {
  const [client] = timed(),
    user = someone();
  await told(user, 6);
  await reset();
  const items = client.items(user, { limit: 3 });
  assert.deepEqual(await asked(), []);
  await take(items, 3);
  assert.deepEqual(await asked(), [`GET /v1/users/${user}/feed?limit=3`]);
});

test('hostile names travel unchanged', async () => {
  const [client] = timed();
  for (const name of HOSTILE) {
    const user = `${someone()}${name}`,
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
    assert.deepEqual((await asked()).slice(0, 3), [
      `PUT /v1/users/${key}`,
      `PUT /v1/users/${key}/follows/${part}`,
      `PUT /v1/objects/M${part}/${part}`,
    ]);
    const target = `GET /v1/users/${key}/feed?about=${part}&type=${part}`;
    assert.ok((await asked()).includes(target), target);
  }
});

test('names that no path can carry go by the forms for many, or not at all', async () => {
  const [client] = timed(),
    user = someone();
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
      (await asked()).map(one => one.slice(9)),
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
      assert.equal((await failure(call)).code, 'invalid_parameter');
    }
  }
  assert.deepEqual(await asked(), []);
});

test('marks are repeated, and hold', async () => {
  const [client] = timed(),
    user = someone();
  await told(user, 3);
  const {
    items: [{ id }],
    cursor,
  } = await client.feed(user);
  await told(user, 1);
  await reset('lose', 'pass', 'lose');

  const seenNow = await client.mark(user, 'seen', { to: cursor }),
    read = await client.mark(user, 'read', { ids: [id] });
  const other = await client.mark(user, 'seen', {
    to: read.cursor,
    type: 'Comment',
    day: id.slice(0, 8),
    about: 'Comment:none',
  });

  assert.deepEqual([seenNow.unseen, seenNow.unread], [1, 4], 'what arrived since is not marked');
  assert.deepEqual([read.unseen, read.unread, other.unseen], [1, 3, 1]);
  const [first, again] = await bodies();
  assert.deepEqual(first, { mark: 'seen', to: cursor });
  assert.deepEqual(again, first);
  assert.equal((await client.mark(user, 'archive', { ids: [id] })).unread, 3);
  assert.equal((await client.feed(user, { state: 'archived' })).items.length, 1);
  await client.mark(user, 'restore', { ids: [id] });
  assert.equal((await client.mark(user, 'unread', { ids: [id] })).unread, 4);
});

test('people, objects and preferences are put, changed and removed', async () => {
  const [client] = timed(),
    user = someone();
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
  const { warnings, ...back } = await client.retract('Comment', `Late:${user}`);
  assert.deepEqual(back, { taken: 0, omitted: 0, objects: [`Late:${user}`] });
  assert.match(warnings[0], /no record of/);
  await until(async () => (await unread(user)) === 0);
  await client.deleteUser(user);
  assert.equal((await failure(client.user(user))).code, 'unknown_user');
});

test('an address may have a path, and must be one', async () => {
  await reset(...Array(2).fill({ status: 200, body: {} }));
  await new Tidings(`${PROXY_URL}/inbox/`, TIDINGS_KEY).count('mara');
  await new Tidings(`${PROXY_URL}/`, TIDINGS_KEY).count('mara');
  assert.deepEqual(await asked(), [
    'GET /inbox/v1/users/mara/feed/count',
    'GET /v1/users/mara/feed/count',
  ]);
  assert.throws(() => new Tidings('here', TIDINGS_KEY), TypeError);
});
