// Calls of the JavaScript client that TypeScript checks. Nothing runs them.
// Lines after @ts-expect-error must be wrong: TypeScript reports unused directives.

import { Tidings, TidingsError } from '../../clients/js/tidings.js';
import type { Counts, Event, Item, Receipt, UserView } from '../../clients/js/tidings.js';

const client = new Tidings('https://news.example.org', async () => 'token', { deadline: 5 });
const control = new AbortController();
const event: Event = { type: 'Comment', objects: ['c1'], to: ['mara'], except: [42] };
const receipt: Receipt = await client.publish(event, { key: 'comment-c1' });
const receipts: Receipt[] = await client.publishMany(new Set([event]));
const user: UserView = await client.patchUser('mara', { name: null, digest: { hour: 7 } });
for await (const item of client.items('mara', { state: 'unread' })) {
  const one: Item = item;
  console.log(one.object.title, receipt.id, receipts, user.tz);
}
const { signal } = control;
for await (const counts of client.poll('mara', { signal, onError: console.error })) {
  const now: Counts = counts;
  await client.mark('mara', 'seen', { to: now.cursor, type: 'Comment' });
}
await client.publish({ type: 'A', objects: 1, near: { point: [2.35, 48.85], km: 5 } });
try {
  await client.count(7);
} catch (error) {
  if (error instanceof TidingsError) console.log(error.code, error.retryAfter, error.unsent);
}

// @ts-expect-error: no audience
await client.publish({ type: 'A', objects: 1 });
// @ts-expect-error: two audiences
await client.publish({ type: 'A', objects: 1, to: 2, followers_of: 3 });
// @ts-expect-error: no such field
await client.publish({ type: 'A', objects: 1, to: 2, two: 2 });
// @ts-expect-error: no such mark
await client.mark('mara', 'gone', { to: 'c20140419.1' });
// @ts-expect-error: a cursor or ids
await client.mark('mara', 'seen', { to: 'c20140419.1', ids: [] });
// @ts-expect-error: the first argument is the id
await client.putUser('mara', { id: 'mara' });
// @ts-expect-error: no user
await client.count();
