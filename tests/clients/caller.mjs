// Who calls in the tests of the JavaScript client, and what run.py told of: tidings, and a proxy.
// The rule: a client's time is its own, so that nothing waits, unless a test asks for real time.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';

import { Tidings } from '../../clients/js/tidings.js';

export const { TIDINGS_URL, TIDINGS_KEY, TIDINGS_SECRET, PROXY_URL, PROXY_TOLD_AT } = process.env;
export const tell = async (what, faults = []) => {
  const answer = await fetch(`${PROXY_TOLD_AT}/${what}`, {
    method: 'POST',
    body: JSON.stringify(faults),
  });
  return answer.json();
};
export const reset = (...faults) => tell('reset', faults);
export const idle = (...faults) => tell('idle', faults);
export const seen = () => tell('seen');
export const bodies = async () => (await seen()).map(({ body }) => JSON.parse(body));
export const asked = async () => (await seen()).map(({ method, target }) => `${method} ${target}`);

// Past the proxy.
export const ask = async (method, path, body) => {
  const headers = { authorization: `Bearer ${TIDINGS_KEY}`, 'content-type': 'application/json' };
  const answer = await fetch(TIDINGS_URL + path, {
    method,
    headers,
    body: body && JSON.stringify(body),
  });
  assert.ok(answer.ok, path);
  return answer.status === 204 ? undefined : answer.json();
};
export const unread = async user => (await ask('GET', `/v1/users/${user}/feed/count`)).unread;
export const until = async what => {
  for (let end = Date.now() + 20_000; !(await what());) {
    assert.ok(Date.now() < end, 'it did not come to that in time');
    await new Promise(done => {
      setTimeout(done, 50);
    });
  }
};

let users = 0;
export const someone = () => `js-${process.pid}-${users++}`;
export const event = (user, more) => ({
  type: 'Comment',
  objects: ['Comment:c1'],
  to: [user],
  ...more,
});
export const told = async (user, count, more) => {
  const before = await unread(user),
    ids = Array.from({ length: count }, (_, at) => `Comment:${before + at}`);
  await ask(
    'POST',
    '/v1/events',
    ids.map(id => event(user, { objects: [id], ...more })),
  );
  await until(async () => (await unread(user)) === before + count);
  return ids;
};

export const userToken = (user, seconds = 600) => {
  const now = Math.floor(Date.now() / 1e3),
    said = { sub: user, aud: 'tidings', iat: now - 3600, exp: now + seconds };
  const text = [{ alg: 'HS256', typ: 'JWT' }, said]
    .map(part => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  return `${text}.${createHmac('sha256', TIDINGS_SECRET).update(text).digest('base64url')}`;
};

// A client whose time is its own, and whose chance is `time.chance`.
export const timed = (token = TIDINGS_KEY, settings = {}) => {
  const time = { now: 1000, chance: 0, slept: [], during: () => {} };
  const sleep = async seconds => {
    time.slept.push(seconds);
    time.now += seconds;
    await time.during();
  };
  return [
    new Tidings(PROXY_URL, token, {
      sleep,
      now: () => time.now,
      random: () => time.chance,
      ...settings,
    }),
    time,
  ];
};
export const failure = async promise => {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return assert.fail('it did not fail');
};
export const take = async (values, count) => {
  const taken = [];
  for await (const value of values) if (taken.push(value) === count) break;
  return taken;
};
