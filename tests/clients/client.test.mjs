// The tests of the JavaScript client. run.py starts them, with tidings and a proxy of their own.
// The rule: what a test says of a request is what the proxy saw of it; time is told, so that nothing
// waits. python_client.py says the same of the Python client.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';

import { Tidings, TidingsError } from '../../clients/js/tidings.js';

const { TIDINGS_URL, TIDINGS_KEY, TIDINGS_SECRET, PROXY_URL, PROXY_TOLD_AT } = process.env;
const PASSING = [429, 502, 503, 504];
const REFUSED = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 500, 501];
// What a path must carry as it is.
const HOSTILE = ['a/b', '%2F', 'é', '?', 'a?b=c&d#e', 'a b+c', 'a/../b', '...', '%2e%2e', '🦆', '\\', ';'];

const tell = async (what, faults = []) => {
  const answer = await fetch(`${PROXY_TOLD_AT}/${what}`, { method: 'POST', body: JSON.stringify(faults) });
  return answer.json();
};
const reset = (...faults) => tell('reset', faults);
const seen = () => tell('seen');
const bodies = async () => (await seen()).map(({ body }) => JSON.parse(body));
const asked = async () => (await seen()).map(({ method, target }) => `${method} ${target}`);

// Past the proxy.
const ask = async (method, path, body) => {
  const headers = { authorization: `Bearer ${TIDINGS_KEY}`, 'content-type': 'application/json' };
  const answer = await fetch(TIDINGS_URL + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, path);
  return answer.status === 204 ? undefined : answer.json();
};
const unread = async user => (await ask('GET', `/v1/users/${user}/feed/count`)).unread;
const until = async what => {
  for (let end = Date.now() + 20_000; !await what();) {
    assert.ok(Date.now() < end, 'it did not come to that in time');
    await new Promise(done => { setTimeout(done, 50); });
  }
};

let users = 0;
const someone = () => `js-${users++}`;
const event = (user, more) => ({ type: 'Comment', objects: ['Comment:c1'], to: [user], ...more });
const told = async (user, count, more) => {
  const before = await unread(user), ids = Array.from({ length: count }, (_, at) => `Comment:${before + at}`);
  await ask('POST', '/v1/events', ids.map(id => event(user, { objects: [id], ...more })));
  await until(async () => await unread(user) === before + count);
  return ids;
};

const userToken = (user, seconds = 600) => {
  const now = Math.floor(Date.now() / 1e3), said = { sub: user, aud: 'tidings', iat: now - 3600, exp: now + seconds };
  const text = [{ alg: 'HS256', typ: 'JWT' }, said].map(part => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
  return `${text}.${createHmac('sha256', TIDINGS_SECRET).update(text).digest('base64url')}`;
};

// A client whose time is its own, and whose chance is `time.chance`.
const timed = (token = TIDINGS_KEY, settings = {}) => {
  const time = { now: 1000, chance: 0, slept: [], during: () => {} };
  const sleep = async seconds => {
    time.slept.push(seconds);
    time.now += seconds;
    await time.during();
  };
  return [new Tidings(PROXY_URL, token, { sleep, now: () => time.now, random: () => time.chance, ...settings }), time];
};
const failure = async promise => {
  try { await promise; } catch (error) { return error; }
  return assert.fail('it did not fail');
};
const take = async (values, count) => {
  const taken = [];
  for await (const value of values) if (taken.push(value) === count) break;
  return taken;
};

test('a lost answer is asked for again under the same key, and the event is there once', async () => {
  const [client] = timed(), user = someone();
  await reset('lose', 'lose');

  const receipt = await client.publish(event(user));

  const [first, ...again] = await bodies();
  assert.deepEqual(again, [first, first]);
  assert.match(first[0].key, /^[0-9a-f]{32}$/);
  assert.ok(receipt.known);
  await until(() => unread(user));
  assert.deepEqual((await ask('GET', `/v1/events/${receipt.id}`)).counts, { people: 1, pushed: 1, capped: 0 });
  assert.equal(await unread(user), 1);
});

test('every event has a key: its own or the call\'s', async () => {
  const [client] = timed(), user = someone();
  await reset();

  await client.publish(event(user));
  await client.publish(event(user));
  await client.publish(event(user, { key: `its own ${user}` }));
  await client.publish(event(user), { key: `the call's ${user}` });

  const keys = (await bodies()).map(([{ key }]) => key);
  assert.equal(new Set(keys).size, 4);
  assert.deepEqual(keys.slice(2), [`its own ${user}`, `the call's ${user}`]);
});

test('what fails in passing is tried again', async () => {
  const user = someone();
  for (const fault of ['drop', 'lose', ...PASSING.map(status => ({ status }))]) {
    await reset(fault);
    assert.equal((await timed()[0].count(user)).unread, 0);
    assert.equal((await seen()).length, 2, JSON.stringify(fault));
  }
  await reset('hold');
  assert.equal((await new Tidings(PROXY_URL, TIDINGS_KEY, { timeout: 0.3 }).count(user)).unread, 0);
  const [client, time] = timed(TIDINGS_KEY, { attempts: 3, fetch: () => fetch('http://127.0.0.1:1') });
  const error = await failure(client.count(user));
  assert.deepEqual([error.code, error.status, error.retryable], ['unreachable', undefined, true]);
  assert.equal(time.slept.length, 2);
});

test('what is refused is not tried again', async () => {
  const [client, time] = timed();
  for (const status of REFUSED) {
    await reset({ status, body: { code: 'told', detail: 'so' } });
    const error = await failure(client.publish(event('mara')));
    assert.deepEqual([error.status, error.code, error.detail, error.retryable], [status, 'told', 'so', false]);
    assert.equal((await seen()).length, 1, `${status}`);
  }
  assert.deepEqual(time.slept, []);
});

test('what tidings refuses is told by its code', async () => {
  const [client] = timed(), user = someone(), key = `used ${user}`;
  await client.publish(event(user), { key });
  const refused = [
    [400, 'invalid_body', () => client.publish({ type: 'Comment', objects: ['c'] })],
    [401, 'unauthorized', () => timed('a-wrong-key')[0].count(user)],
    [403, 'forbidden', () => timed(userToken('somebody-else'))[0].count(user)],
    [404, 'unknown_user', () => client.user(user)],
    [409, 'idempotency_key_reused', () => client.publish(event(user, { objects: ['Comment:c2'] }), { key })],
    [422, 'time_out_of_range', () => client.publish(event(user, { at: '2014-04-19T10:00:00Z' }))],
  ];
  for (const [status, code, call] of refused) {
    await reset();
    const error = await failure(call());
    assert.deepEqual([error.status, error.code, error.retryable], [status, code, false]);
    assert.equal((await seen()).length, 1, code);
    assert.ok(error instanceof TidingsError && error.message.startsWith(`${status} ${code}: `), error.message);
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
    [{ status: 404, body: '<h1>Lost</h1>' }, 'no_code'], [{ status: 404, body: 'null' }, 'no_code'],
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
    [{ 'Retry-After': '7' }, 7], [{ 'Retry-After': 'Mon, 23 Nov 2026 10:00:30 GMT', Date: date }, 30],
    [{ 'Retry-After': 'Mon, 23 Nov 2026 09:00:00 GMT', Date: date }, 0],
    [{ 'Retry-After': 'Sat, 01 Jan 2000 00:00:00 GMT' }, 0], [{ 'Retry-After': 'soon' }, 0], [{ 'Retry-After': '-5' }, 0],
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
  time.chance = 1;
  await reset({ status: 503, headers: { 'Retry-After': '7' } });
  await client.count('mara');
  assert.deepEqual(time.slept, [7.5], 'the jitter comes on top of it');
});

test('waits grow up to a bound, tries are counted, and no wait goes beyond the deadline', async () => {
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
  assert.deepEqual((await waits({ attempts: 9, deadline: 1000 }, down))[1], [0.5, 1, 2, 4, 8, 16, 20, 20]);
  assert.deepEqual((await waits({}, down.slice(0, 2), 0.25))[1], [0.125, 0.25]);
  assert.deepEqual((await waits({ attempts: 99, deadline: 10 }, down))[1], [0.5, 1, 2, 4]);

  const [error, slept] = await waits({}, [{ status: 503, headers: { 'Retry-After': '61' } }]);
  assert.deepEqual([error.retryAfter, slept], [61, []]);
});

test('the deadline ends what does not answer', async () => {
  for (const fault of ['hold', 'drip']) {
    await reset(fault, fault, fault);
    const began = Date.now();
    const error = await failure(new Tidings(PROXY_URL, TIDINGS_KEY, { deadline: 0.8, timeout: 0.4, random: () => 0 }).publish(event('mara')));
    const took = Date.now() - began, sent = await bodies();
    await tell('release');
    assert.ok(took > 500 && took < 10_000, `${fault} ${took}`);
    assert.deepEqual([error.code, error.retryable], ['timeout', true]);
    assert.equal(sent.length, 2, 'the second got what was left');
    assert.deepEqual(sent[0], sent[1]);
    assert.deepEqual(error.unsent, sent[0]);
  }
  const began = Date.now();
  const never = new Tidings(PROXY_URL, () => new Promise(() => {}), { deadline: 0.3 });
  assert.equal((await failure(never.count('mara'))).code, 'timeout');
  assert.ok(Date.now() - began < 10_000);
});

test('many events are cut into requests of 1,000', async () => {
  const [client] = timed(), user = someone();
  const events = Array.from({ length: 2500 }, (_, at) => event(user, { objects: [`Comment:${at}`] }));
  await reset('pass', 'lose');

  const receipts = await client.publishMany(new Set(events));

  const [first, lost, again, last] = await bodies();
  assert.deepEqual([first, lost, again, last].map(({ length }) => length), [1000, 1000, 1000, 500]);
  assert.deepEqual(lost, again);
  assert.equal(new Set([...first, ...again, ...last].map(({ key }) => key)).size, 2500);
  assert.equal(new Set(receipts.map(({ id }) => id)).size, 2500);
  assert.deepEqual(receipts.map(({ known }) => known), receipts.map((_, at) => at >= 1000 && at < 2000));
  assert.deepEqual((await client.event(receipts[1700].id)).objects, ['Comment:1700']);
  assert.equal(events[0].key, undefined, 'what was given is not changed');
  assert.deepEqual(await client.publishMany([]), []);
});

test('what was not accepted of many can be published again', async () => {
  const [client] = timed(), user = someone();
  const events = Array.from({ length: 1500 }, (_, at) => event(user, { objects: [`Comment:${at}`] }));
  await reset('pass', 'lose', { status: 400 });

  const error = await failure(client.publishMany(events));

  assert.deepEqual([error.receipts.length, error.unsent.length], [1000, 500]);
  assert.deepEqual(error.unsent, (await bodies()).at(-1));
  assert.ok((await client.publishMany(error.unsent)).every(({ known }) => known), 'none is there twice');
});

test('records are cut by their size too', async () => {
  const objects = Array.from({ length: 20 }, (_, at) => ({ id: `Big:${at}`, data: 'é'.repeat(450_000) }));
  await reset(...Array(2).fill({ status: 200, body: { taken: 1 } }));
  assert.equal(await timed()[0].putObjects(objects), 2);
  assert.deepEqual((await bodies()).map(({ length }) => length), [17, 3]);
});

test('a poll yields what changed, and sends the tag of what it has', async () => {
  const [client, time] = timed(), user = someone(), heard = [];
  let rounds = 0;
  time.during = async () => { if (++rounds === 2) await told(user, 1); };
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
  const [client, time] = timed(), user = someone();
  await told(user, 3);
  time.during = () => told(user, 1);
  const pages = await take(client.pollFeed(user, { limit: 2 }), 2);
  const ids = pages.map(({ items }) => items.map(({ object }) => object.id));
  assert.deepEqual(ids, [['Comment:2', 'Comment:1'], ['Comment:3', 'Comment:2']]);
});

test('a poll waits as it is told, and yields nothing twice where tags are lost', async () => {
  const [client, time] = timed(), answer = (unread, headers) => ({ status: 200, body: { unread }, headers });
  const waits = [{ 'X-Poll-Interval': '90' }, {}, { 'X-Poll-Interval': 'soon' }, { 'X-Poll-Interval': '0' }];
  await reset(...waits.map(headers => answer(1, headers)), answer(2, {}));
  time.chance = 1;
  assert.deepEqual(await take(client.poll('mara'), 2), [{ unread: 1 }, { unread: 2 }]);
  assert.deepEqual(time.slept, [108, 36, 36, 1.2]);
});

test('a poll goes on after errors, and ends when it is refused', async () => {
  const [client, time] = timed(), heard = [], failed = [], down = Array(12).fill({ status: 503 });
  const after = seconds => ({ status: 503, headers: { 'Retry-After': seconds } });
  const good = { status: 200, body: { unread: 0 }, headers: { 'X-Poll-Interval': '30' } };
  await reset(after('99'), 'drop', { status: 500 }, good, after('999999'), ...down, { status: 403 });
  time.chance = 1;

  const error = await failure((async () => {
    for await (const { unread } of client.poll('mara', { onError: error => failed.push(error.status) })) heard.push(unread);
  })());

  assert.equal(error.status, 403);
  assert.deepEqual(heard, [0]);
  assert.deepEqual(failed.slice(0, 3), [503, undefined, 500]);
  assert.equal(failed.length, 16);
  assert.deepEqual(time.slept, [99.5, 1, 2, 36, 3600, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
});

test('a signal ends a poll, and rejects a call with its reason', async () => {
  const user = someone(), real = new Tidings(PROXY_URL, TIDINGS_KEY), heard = [];
  let control = new AbortController();
  await reset();
  for await (const { unread } of real.poll(user, { signal: control.signal })) {
    heard.push(unread);
    setTimeout(() => control.abort(), 50); // while it sleeps
  }
  assert.deepEqual(heard, [0]);
  assert.deepEqual(await take(real.poll(user, { signal: control.signal }), 1), []);
  assert.equal((await seen()).length, 1);

  for (const faults of [['hold'], [{ status: 503, headers: { 'Retry-After': '30' } }]]) {
    control = new AbortController();
    await reset(...faults);
    const waiting = failure(real.count(user, { signal: control.signal }));
    await until(async () => (await seen()).length);
    const reason = new Error('enough');
    control.abort(reason);
    assert.equal(await waiting, reason);
    assert.equal((await seen()).length, 1);
    await tell('release');
  }
  await reset();
  assert.equal(await failure(real.count(user, { signal: AbortSignal.abort('no') })), 'no');
  await assert.rejects(take(real.items(user, {}, { signal: AbortSignal.abort(new Error('no')) })), /no/);
  assert.deepEqual(await asked(), []);
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
  const [client] = timed(), user = someone(), ids = await told(user, 23), walked = [];
  await reset();
  for await (const { object } of client.items(user, { limit: 5 })) {
    if (walked.push(object.id) % 5 === 1) await told(user, 2);
    if (walked.length > 99) break;
  }
  assert.deepEqual(walked, ids.reverse());
  assert.equal((await seen()).length, 5, 'no page was asked for twice');
});

test('groups, batches, users and follows are walked to their end', async () => {
  const [client] = timed(), user = someone();
  const objects = Array.from({ length: 9 }, (_, at) => ({ id: `Comment:${at}`, data: { about: `thread:${at % 3}` } }));
  const people = Array.from({ length: 5 }, (_, at) => ({ id: `${user}/${at}` }));
  const keys = Array.from({ length: 7 }, (_, at) => `artist:${at}`);
  const mailed = { email: 'a@example.org', confirmed: true, types: { Comment: { route: 'batch' } } };
  assert.equal(await client.putObjects(objects), 9);
  assert.equal(await client.putUsers(people), 5);
  assert.equal(await client.putFollows(keys.map(key => ({ user, key }))), 7);
  await client.putUser(user, mailed);
  await told(user, 9);
  for (const key of ['acme', 'globex', 'initech']) await told(user, 1, { batch_key: key });
  await until(async () => (await take(client.batches({ user, limit: 1 }), 99)).length === 4);

  const about = (await take(client.allGroups(user, { limit: 2 }), 99)).map(group => group.about);
  const listed = (await take(client.users({ after: user, limit: 2 }), 5)).map(({ id }) => id);
  const gathered = await take(client.batches({ user, limit: 1 }), 99);

  assert.ok(['thread:0', 'thread:1', 'thread:2'].every(one => about.includes(one)), `${about}`);
  assert.equal(new Set(about).size, about.length);
  assert.deepEqual(listed, people.map(({ id }) => id));
  assert.deepEqual(await take(client.follows(user, { limit: 3 }), 99), keys);
  assert.deepEqual(await take(client.follows(user, { after: 'artist:4' }), 99), keys.slice(5));
  assert.deepEqual(gathered.map(({ key }) => key).sort(), ['key:acme', 'key:globex', 'key:initech', 'type:Comment']);
  assert.equal((await client.batch(gathered[0].id)).user, user);
});

test('a page is asked for only when it is needed', async () => {
  const [client] = timed(), user = someone();
  await told(user, 6);
  await reset();
  const items = client.items(user, { limit: 3 });
  assert.deepEqual(await asked(), []);
  await take(items, 3);
  assert.deepEqual(await asked(), [`GET /v1/users/${user}/feed?limit=3`]);
});

test('a user token is asked for again, once, when it expired', async () => {
  const user = someone(), tokens = [userToken(user, -300), userToken(user)];
  let calls = 0;
  const [client] = timed(async () => tokens[Math.min(calls++, 1)]);
  await reset('pass', { status: 503 });

  assert.equal((await client.count(user)).unread, 0);

  const entries = await seen();
  assert.deepEqual(entries.map(({ status }) => status), [401, 503, 200]);
  assert.deepEqual(entries.map(({ headers }) => headers.authorization), [0, 1, 1].map(at => `Bearer ${tokens[at]}`));
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

test('a token is taken without white space, never shown, and may be left to a server between', async () => {
  await reset();
  await timed(` ${TIDINGS_KEY}\n`)[0].count('mara');
  for (const bad of ['', 'se\ncret', 'secrét']) {
    assert.throws(() => new Tidings(PROXY_URL, bad), error => error.code === 'invalid_token' && !/secr/.test(error.message));
  }
  await reset();
  assert.equal((await failure(new Tidings(PROXY_URL).count('mara'))).status, 401);
  assert.equal((await seen())[0].headers.authorization, undefined);
});

test('hostile names travel unchanged', async () => {
  const [client] = timed();
  for (const name of HOSTILE) {
    const user = `${someone()}${name}`, model = `M${name}`;
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
      `PUT /v1/users/${key}`, `PUT /v1/users/${key}/follows/${part}`, `PUT /v1/objects/M${part}/${part}`,
    ]);
  }
});

test('names that no path can carry go by the forms for many, or not at all', async () => {
  const [client] = timed(), user = someone();
  for (const name of ['.', '..']) {
    await reset();
    await client.putUser(name, { name: 'Dot' });
    await client.follow(name, 'artist:1');
    await client.follow(user, name);
    await client.putObject('Dots', name, { title: 'Dot' });
    await client.putObject(name, 'follows', { title: 'Dot' });
    await client.deleteObject('Dots', name);

    assert.deepEqual(await bodies(), [
      [{ name: 'Dot', id: name }], [{ user: name, key: 'artist:1' }], [{ user, key: name }],
      [{ title: 'Dot', id: `Dots:${name}` }], [{ title: 'Dot', id: `${name}:follows` }],
      [{ id: `Dots:${name}`, notifiable: false }],
    ]);
    assert.deepEqual((await asked()).map(one => one.slice(9)), ['users', 'follows', 'follows', 'objects', 'objects', 'objects']);
    assert.ok((await take(client.follows(user), 99)).includes(name));
  }
  await reset();
  for (const name of ['.', '..', '', undefined, null]) {
    for (const call of [client.user(name), client.deleteUser(name), client.unfollow(user, name), client.count(name)]) {
      assert.equal((await failure(call)).code, 'invalid_parameter');
    }
  }
  assert.deepEqual(await asked(), []);
});

test('a removal whose answer was lost has succeeded', async () => {
  const [client] = timed(), user = someone();
  await client.putUser(user, { name: 'Mara' });
  await reset('lose');
  assert.equal(await client.deleteUser(user), undefined);
  assert.deepEqual((await seen()).map(({ status }) => status), [204, 404]);
  for (const passing of [[], [{ status: 429 }]]) {
    await reset(...passing);
    assert.equal((await failure(client.deleteUser(user))).code, 'unknown_user', 'there never was one');
  }
});

test('marks are repeated, and hold', async () => {
  const [client] = timed(), user = someone();
  await told(user, 3);
  const { items: [{ id }], cursor } = await client.feed(user);
  await told(user, 1);
  await reset('lose', 'pass', 'lose');

  const seenNow = await client.mark(user, 'seen', { to: cursor }), read = await client.mark(user, 'read', { ids: [id] });
  const other = await client.mark(user, 'seen', { to: read.cursor, type: 'Other' });

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
  const [client] = timed(), user = someone();
  await client.putUser(user, { email: 'mara@example.org', confirmed: true });
  const patched = await client.patchUser(user, { name: 'Mara', email: null });
  assert.deepEqual([patched.name, patched.email], ['Mara', null]);
  assert.equal((await client.putPreferences(user, { digest: { cadence: 'daily', hour: 7 } })).digest.hour, 7);
  assert.equal((await client.preferences(user)).digest.hour, 7);
  assert.equal(await client.follow(user, 'artist:1'), undefined);

  await client.putObject('Work', user, { title: 'A Work', data: { year: 1785 } });
  assert.deepEqual((await client.object('Work', user)).data, { year: 1785 });
  await client.publish(event(user, { objects: [`Work:${user}`] }));
  await until(async () => await unread(user) === 1);
  assert.deepEqual((await client.groups(user)).groups.map(({ count }) => count), [1]);
  await client.deleteObject('Work', user);
  assert.equal((await client.object('Work', user)).notifiable, false);
  await until(async () => await unread(user) === 0);

  await client.publish(event(user, { objects: [`Late:${user}`] }));
  await until(async () => await unread(user) === 1);
  assert.deepEqual(await client.retract('Comment', `Late:${user}`), { taken: 0, not_kept: 0 });
  await until(async () => await unread(user) === 0);
  await client.deleteUser(user);
  assert.equal((await failure(client.user(user))).code, 'unknown_user');
});

test('an address may have a path, and must be one', async () => {
  await reset(...Array(2).fill({ status: 200, body: {} }));
  await new Tidings(`${PROXY_URL}/inbox/`, TIDINGS_KEY).count('mara');
  await new Tidings(`${PROXY_URL}/`, TIDINGS_KEY).count('mara');
  assert.deepEqual(await asked(), ['GET /inbox/v1/users/mara/feed/count', 'GET /v1/users/mara/feed/count']);
  assert.throws(() => new Tidings('here', TIDINGS_KEY), TypeError);
});
