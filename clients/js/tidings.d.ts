// The types of requests and responses, named as in openapi.json. docs/api.md describes the fields.

export type Id = string | number;
export type Ids = Id | readonly Id[];
export type Point = readonly [longitude: number, latitude: number] | readonly number[];
export type Mark = 'seen' | 'read' | 'unread' | 'archive' | 'restore';
export type Route = 'never' | 'immediate' | 'batch' | 'digest';

export interface Actor {
  id: string;
  name?: string;
  url?: string;
  image?: string;
}

interface EventFields {
  type: string;
  objects: Ids;
  except?: Ids;
  key?: string;
  batch_key?: string;
  actor?: Id | Actor;
  notify_actor?: boolean;
  brand?: string;
  text?: string | null;
  data?: unknown;
  at?: string | null;
}

/** An event. Its audience is exactly one of `to`, `followers_of` and `near`. */
export type Event = EventFields &
  (
    | { to: Ids; followers_of?: never; near?: never }
    | { to?: never; followers_of: Ids; near?: never }
    | { to?: never; followers_of?: never; near: { point: Point; km: number } }
  );

export interface Receipt {
  id: string;
  duplicate: boolean;
  warnings?: string[];
}

export interface Progress {
  id: string;
  type: string;
  objects: string[];
  batch_key: string | null;
  at: string;
  day: string;
  state: 'pending' | 'done';
  counts: { people: number; pushed: number; capped: number };
}

export interface Digest {
  cadence?: 'never' | 'daily' | 'weekly' | null;
  weekday?: 'mon' | 'tue' | 'wed' | 'thu' | 'fri' | 'sat' | 'sun' | null;
  hour?: number | null;
}

export interface TypeChoice {
  route: Route;
  window?: string | null;
}

export interface User {
  email?: string | null;
  name?: string | null;
  confirmed?: boolean | null;
  tz?: string | null;
  quiet?: Quiet | null;
  locale?: string | null;
  brand?: string | null;
  loc?: Point | null;
  digest?: Digest | null;
  types?: Record<string, TypeChoice | null> | null;
  suppressed?: boolean | null;
  unsubscribed?: boolean | null;
}

export interface UserWithId extends User {
  id: Id;
}

export interface UserPatch {
  email?: string | null;
  name?: string | null;
  confirmed?: boolean | null;
  tz?: string | null;
  quiet?: Quiet | null;
  locale?: string | null;
  brand?: string | null;
  loc?: Point | null;
  digest?: Digest;
  types?: Record<string, TypeChoice | null>;
  suppressed?: boolean | null;
  unsubscribed?: boolean;
}

export interface UserView {
  id: string;
  email: string | null;
  name: string | null;
  confirmed: boolean;
  tz: string | null;
  quiet: Quiet | null;
  locale: string | null;
  brand: string | null;
  loc: number[] | null;
  digest: Digest | null;
  types: Record<string, TypeChoice> | null;
  suppressed: boolean | null;
  unsubscribed: boolean | null;
}

export interface Preferences {
  digest?: Digest;
  tz?: string | null;
  quiet?: Quiet | null;
  types?: Record<string, TypeChoice | null>;
}

export interface TypeView {
  heading: string;
  category: string | null;
  route: Route;
  window: string | null;
  chosen: boolean;
  mandatory: string | null;
  feed: boolean;
}

export interface PreferencesView {
  digest: Digest;
  tz: string;
  quiet: Quiet | null;
  types: Record<string, TypeView>;
  categories: { name: string | null; types: string[] }[];
}

/** Quiet hours in the user's time zone, such as `22:00`. */
export interface Quiet {
  from: string;
  to: string;
}

export interface Mute {
  until?: string | null;
  title?: string | null;
}

export interface Mutes {
  mutes: { subject: string; title: string | null; at: string; until: string | null }[];
}

export interface Follow {
  user: Id;
  key: string;
}

export interface ObjectFields {
  notifiable?: boolean;
  title?: string | null;
  url?: string | null;
  image?: string | null;
  by?: string | null;
  at?: string | null;
  place?: Point | null;
  data?: unknown;
}

export interface ObjectWithId extends ObjectFields {
  id: string;
}

export interface ObjectView {
  id: string;
  notifiable: boolean;
  title: string | null;
  url: string | null;
  image: string | null;
  by: string | null;
  at: string | null;
  place: number[] | null;
  data: unknown;
}

export interface Item {
  id: string;
  type: string;
  object: ObjectView;
  at: string;
  state: 'unseen' | 'seen' | 'read' | 'archived';
  mailed: boolean;
  actor?: Actor;
  text?: string;
  data?: unknown;
  reason?: string;
  /** With `lang`: the heading of the type. */
  heading?: string;
  /** With `lang`: a sentence with `{who}` and `{what}` in it. */
  phrase?: string;
  /** With `lang`: the title of the object's topic, for `{what}`. */
  about?: string;
}

export interface Counts {
  unseen: number;
  unread: number;
  cursor: string;
}

export interface Page {
  items: Item[];
  next: string | null;
  unseen: number;
  unread: number;
  cursor: string;
}

export interface Group {
  id: string;
  day: string;
  type: string;
  about: string;
  count: number;
  unseen: number;
  unread: number;
  at: string;
  items: Item[];
  items_url: string;
}

export interface GroupPage {
  groups: Group[];
  next: string | null;
  unseen: number;
  unread: number;
  cursor: string;
}

export interface FeedQuery {
  limit?: number;
  before?: string;
  after?: string;
  type?: string;
  category?: string;
  state?: 'current' | 'unseen' | 'unread' | 'read' | 'archived' | 'all';
  day?: string;
  about?: string;
  lang?: string;
}

export interface BatchItem {
  type: string;
  object: string;
  title: string | null;
  at: string;
}

export interface Batch {
  id: string;
  user: string;
  key: string;
  state: 'open' | 'closing' | 'closed' | 'canceled';
  count: number;
  items: BatchItem[];
  more: number;
  lead_sent: boolean;
  opened_at: string;
  last_event_at: string;
  closes_at: string;
  held_until: string | null;
  settled_at: string | null;
  delivery: { id: string; state: string; reason: string | null } | null;
}

export interface BatchQuery {
  user?: string;
  key?: string;
  state?: 'open' | 'closing' | 'closed' | 'canceled';
  limit?: number;
  before?: string;
}

/** A failed call. `code` is an error code of the server or of this client. */
export class TidingsError extends Error {
  readonly code: string;
  readonly detail: string;
  /** The HTTP status; undefined without a response. */
  readonly status?: number;
  /** The invalid part of the request, as the server names it. */
  readonly location?: string;
  /** `X-Request-Id` of the response. */
  readonly requestId?: string;
  /** Whether a later retry may succeed. */
  readonly retryable: boolean;
  /** Seconds from the `Retry-After` header. */
  readonly retryAfter?: number;
  /** For `publish` and `publishMany`: the receipts of the events accepted before the failure. */
  readonly receipts: Receipt[];
  /** For `publish` and `publishMany`: the other events, with their keys. Publish them again. */
  readonly unsent: Event[];
}

/** Options of every call. If `signal` is aborted, the call rejects with the signal's reason. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** If `signal` is aborted, the poll ends. `onError` receives failures that the poll will retry. */
export interface PollOptions extends CallOptions {
  onError?: (error: TidingsError) => void;
}

export interface ListOptions extends CallOptions {
  after?: string;
  /** Records per request, 1 to 1,000. Default: 1,000. */
  limit?: number;
}

export interface Settings {
  /** Time limit of one request, in seconds. Default: 20. */
  timeout?: number;
  /** Time limit of a call with its retries, in seconds. Default: 60. */
  deadline?: number;
  /** Maximum number of requests per call. Default: 5. */
  attempts?: number;
  fetch?: typeof fetch;
  /** For tests: waits some seconds, returns the time in seconds, returns a number from 0 to 1. */
  sleep?: (seconds: number, signal?: AbortSignal) => Promise<void>;
  now?: () => number;
  random?: () => number;
}

interface MarkedTo {
  to: string;
  type?: string;
  category?: string;
  day?: string;
  about?: string;
}

interface MarkedIds {
  ids: readonly string[];
}

/** Items up to a cursor, or items by id. */
type Marked =
  | (MarkedTo & { ids?: never })
  | (MarkedIds & { [field in keyof MarkedTo]?: never });

export class Tidings {
  /**
   * `token` is a server key, or a callback that returns a user token. The callback is called again
   * when the token expires. Without `token`, your own proxy must add one to the requests.
   */
  constructor(
    url: string | URL, token?: string | (() => string | Promise<string>), settings?: Settings,
  );

  /** Publishes an event. Its idempotency key is `key`, the event's own key, or a generated one. */
  publish(event: Event, options?: CallOptions & { key?: string }): Promise<Receipt>;
  /** Publishes events, at most 1,000 per request. Events without a `key` get a generated one. */
  publishMany(events: Iterable<Event>, options?: CallOptions): Promise<Receipt[]>;
  event(id: string, options?: CallOptions): Promise<Progress>;
  /** Retracts the events of this type about these objects up to now. */
  retract(
    type: string, objects: Ids, options?: CallOptions,
  ): Promise<{ taken: number; omitted: number; objects: string[]; warnings?: string[] }>;

  /** All users, in the order of their ids. */
  users(options?: ListOptions): AsyncGenerator<UserView, void, undefined>;
  user(id: Id, options?: CallOptions): Promise<UserView>;
  putUser(id: Id, user: User, options?: CallOptions): Promise<void>;
  putUsers(users: Iterable<UserWithId>, options?: CallOptions): Promise<number>;
  patchUser(id: Id, patch: UserPatch, options?: CallOptions): Promise<UserView>;
  deleteUser(id: Id, options?: CallOptions): Promise<void>;

  preferences(user: Id, options?: CallOptions): Promise<PreferencesView>;
  putPreferences(user: Id, preferences: Preferences, options?: CallOptions): Promise<UserView>;

  /** All keys that a user follows. */
  follows(user: Id, options?: ListOptions): AsyncGenerator<string, void, undefined>;
  follow(user: Id, key: string, options?: CallOptions): Promise<void>;
  unfollow(user: Id, key: string, options?: CallOptions): Promise<void>;
  putFollows(follows: Iterable<Follow>, options?: CallOptions): Promise<number>;

  /** The subjects that a user muted. */
  mutes(user: Id, options?: CallOptions): Promise<Mutes>;
  /** Mutes a subject (a thread, a document or a followed key), forever or until a time. */
  mute(user: Id, subject: string, mute?: Mute, options?: CallOptions): Promise<void>;
  unmute(user: Id, subject: string, options?: CallOptions): Promise<void>;

  object(model: string, id: Id, options?: CallOptions): Promise<ObjectView>;
  putObject(model: string, id: Id, object: ObjectFields, options?: CallOptions): Promise<void>;
  putObjects(objects: Iterable<ObjectWithId>, options?: CallOptions): Promise<number>;
  deleteObject(model: string, id: Id, options?: CallOptions): Promise<void>;

  feed(user: Id, query?: FeedQuery, options?: CallOptions): Promise<Page>;
  /** All items, newest first, with `limit` items per request. */
  items(
    user: Id, query?: FeedQuery, options?: CallOptions,
  ): AsyncGenerator<Item, void, undefined>;
  groups(user: Id, query?: FeedQuery, options?: CallOptions): Promise<GroupPage>;
  allGroups(
    user: Id, query?: FeedQuery, options?: CallOptions,
  ): AsyncGenerator<Group, void, undefined>;
  count(user: Id, options?: CallOptions): Promise<Counts>;
  /** Marks the items `ids`, or the items up to the cursor `to` that match `type` and so on. */
  mark(user: Id, mark: Mark, what: Marked, options?: CallOptions): Promise<Counts>;
  /** The counts, now and after every change, without end. */
  poll(user: Id, options?: PollOptions): AsyncGenerator<Counts, void, undefined>;
  /** A page of the feed, now and after every change, without end. */
  pollFeed(
    user: Id, query?: FeedQuery, options?: PollOptions,
  ): AsyncGenerator<Page, void, undefined>;

  batches(query?: BatchQuery, options?: CallOptions): AsyncGenerator<Batch, void, undefined>;
  batch(id: string, options?: CallOptions): Promise<Batch>;
}
