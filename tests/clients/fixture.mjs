// Helpers for the JavaScript client's tests. run.py starts tidings and a proxy and sets their URLs.
// By default, a client has a fake clock, so no test waits.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';

import { Tidings } from '../../clients/js/tidings.js';

export const { TIDINGS_URL, TIDINGS_KEY, TIDINGS_SECRET, PROXY_URL, PROXY_CONTROL_URL } =
  process.env;
export const control = async (command, faults = []) => {
  const response = await fetch(`${PROXY_CONTROL_URL}/${command}`, {
    method: 'POST',
    body: JSON.stringify(faults),
  });
  return response.json();
};
export const reset = (...faults) => control('reset', faults);
export const resetIdle = (...faults) => control('idle', faults);
export const requests = () => control('requests');
export const bodies = async () => (await requests()).map(({ body }) => JSON.parse(body));
export const requestLines = async () =>
  (await requests()).map(({ method, target }) => `${method} ${target}`);

// Sends a request to the server without the proxy.
export const callServer = async (method, path, body) => {
  const headers = { authorization: `Bearer ${TIDINGS_KEY}`, 'content-type': 'application/json' };
  const response = await fetch(TIDINGS_URL + path, {
    method,
    headers,
    body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, path);
  return response.status === 204 ? undefined : response.json();
};
export const unread = async user =>
  (await callServer('GET', `/v1/users/${user}/feed/count`)).unread;
export const until = async condition => {
  for (let end = Date.now() + 20_000; !(await condition());) {
    assert.ok(Date.now() < end, 'the condition was not met in time');
    await new Promise(done => {
      setTimeout(done, 50);
    });
  }
};

let users = 0;
export const newUser = () => `js-${process.pid}-${users++}`;
export const event = (user, fields) => ({
  type: 'Comment',
  objects: ['Comment:c1'],
  to: [user],
  ...fields,
});
// Publishes events without the proxy, and waits until they are in the feed. Returns the object ids.
export const publishToFeed = async (user, count, fields) => {
  const before = await unread(user),
    ids = Array.from({ length: count }, (_, index) => `Comment:${before + index}`);
  await callServer(
    'POST',
    '/v1/events',
    ids.map(id => event(user, { objects: [id], ...fields })),
  );
  await until(async () => (await unread(user)) === before + count);
  return ids;
};

export const userToken = (user, seconds = 600) => {
  const now = Math.floor(Date.now() / 1e3),
    claims = { sub: user, aud: 'tidings', iat: now - 3600, exp: now + seconds };
  const text = [{ alg: 'HS256', typ: 'JWT' }, claims]
    .map(part => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  return `${text}.${createHmac('sha256', TIDINGS_SECRET).update(text).digest('base64url')}`;
};

// Returns a client and its fake clock. `clock.random` is the random number of the backoff.
export const fakeClient = (token = TIDINGS_KEY, settings = {}) => {
  const clock = { now: 1000, random: 0, sleeps: [], onSleep: () => {} };
  const sleep = async seconds => {
    clock.sleeps.push(seconds);
    clock.now += seconds;
    await clock.onSleep();
  };
  return [
    new Tidings(PROXY_URL, token, {
      sleep,
      now: () => clock.now,
      random: () => clock.random,
      ...settings,
    }),
    clock,
  ];
};
export const errorOf = async promise => {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return assert.fail('the call did not fail');
};
export const take = async (values, count) => {
  const first = [];
  for await (const value of values) if (first.push(value) === count) break;
  return first;
};
