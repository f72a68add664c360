// What the API takes and answers: openapi.json has the same names, docs/api.md says what they mean.

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
  tell_actor?: boolean;
  brand?: string;
  text?: string | null;
  data?: unknown;
  at?: string | null;
}

/** Exactly one of `to`, `followers_of` and `near` says whom it concerns. */
export type Event = EventFields &
  (
    | { to: Ids; followers_of?: never; near?: never }
    | { to?: never; followers_of: Ids; near?: never }
    | { to?: never; followers_of?: never; near: { point: Point; km: number } }
  );

export interface Receipt {
  id: string;
  known: boolean;
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
  confirmed?: boolean;
  tz?: string | null;
  quiet?: Quiet | null;
  locale?: string | null;
  brand?: string | null;
  loc?: Point | null;
  digest?: Digest | null;
  types?: Record<string, TypeChoice> | null;
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

/** By the local clock, such as 22:00. */
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
  days?: number;
  day?: string;
  about?: string;
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
  lead: { state: 'waiting' | 'mailed'; count?: number; items?: BatchItem[]; more?: number } | null;
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

/** Why a call failed. Programs go by `code`: the server's, or one of the client's own. */
export class TidingsError extends Error {
  readonly code: string;
  readonly detail: string;
  /** Left out where no answer came. */
  readonly status?: number;
  /** Where in the request, as the server says it. */
  readonly location?: string;
  /** `X-Request-Id` of the answer, where a proxy sets it. */
  readonly requestId?: string;
  /** Whether the same call may help later. */
  readonly retryable: boolean;
  /** Seconds that the server asked for. */
  readonly retryAfter?: number;
  /** Of `publish` and `publishMany`: what was accepted before. */
  readonly receipts: Receipt[];
  /** Of `publish` and `publishMany`: what may not have been, with keys. Publish it again. */
  readonly unsent: Event[];
}

/** What every call takes. Aborted, it rejects with the signal's reason. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** Aborted, a poll ends. `onError` hears what failed and will be tried again. */
export interface PollOptions extends CallOptions {
  onError?: (error: TidingsError) => void;
}

export interface ListOptions extends CallOptions {
  after?: string;
  /** Records in a request, 1 to 1,000; 1,000 if left out. */
  limit?: number;
}

export interface Settings {
  /** Seconds for one request; 20 if left out. */
  timeout?: number;
  /** Seconds for a call with all that it tries; 60 if left out. */
  deadline?: number;
  /** Requests of one call, at most; 5 if left out. */
  attempts?: number;
  fetch?: typeof fetch;
  /** For tests: how to wait so many seconds, what second it is, and a number from 0 to 1. */
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

/** Items up to a cursor, or one by one. */
type Marked =
  | (MarkedTo & { ids?: never })
  | (MarkedIds & { [field in keyof MarkedTo]?: never });

export class Tidings {
  /**
   * `token`: a server key, or what is called for a user token, and once again when it expired.
   * Left out, requests carry none: a server of yours stands between and adds it.
   */
  constructor(
    url: string | URL, token?: string | (() => string | Promise<string>), settings?: Settings,
  );

  /** Accepts an event, under `key`, or its own, or one that is made for this call. */
  publish(event: Event, options?: CallOptions & { key?: string }): Promise<Receipt>;
  /** Accepts events, 1,000 in a request; each under its `key`, or one made for this call. */
  publishMany(events: Iterable<Event>, options?: CallOptions): Promise<Receipt[]>;
  event(id: string, options?: CallOptions): Promise<Progress>;
  /** Takes back what happened to these objects up to now. */
  retract(
    type: string, objects: Ids, options?: CallOptions,
  ): Promise<{ taken: number; not_kept: number; objects: string[]; warnings?: string[] }>;

  /** All users, by id. */
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

  /** What a user has muted, by subject. */
  mutes(user: Id, options?: CallOptions): Promise<Mutes>;
  /** Mutes a thread, a document or what they follow: for good, or until a moment. */
  mute(user: Id, subject: string, mute?: Mute, options?: CallOptions): Promise<void>;
  unmute(user: Id, subject: string, options?: CallOptions): Promise<void>;

  object(model: string, id: Id, options?: CallOptions): Promise<ObjectView>;
  putObject(model: string, id: Id, object: ObjectFields, options?: CallOptions): Promise<void>;
  putObjects(objects: Iterable<ObjectWithId>, options?: CallOptions): Promise<number>;
  deleteObject(model: string, id: Id, options?: CallOptions): Promise<void>;

  feed(user: Id, query?: FeedQuery, options?: CallOptions): Promise<Page>;
  /** All items from the newest on; `limit` of them in a request. */
  items(
    user: Id, query?: FeedQuery, options?: CallOptions,
  ): AsyncGenerator<Item, void, undefined>;
  groups(user: Id, query?: FeedQuery, options?: CallOptions): Promise<GroupPage>;
  allGroups(
    user: Id, query?: FeedQuery, options?: CallOptions,
  ): AsyncGenerator<Group, void, undefined>;
  count(user: Id, options?: CallOptions): Promise<Counts>;
  /** Marks all up to a cursor (`to`), or those of it that `type` and so on say, or `ids`. */
  mark(user: Id, mark: Mark, what: Marked, options?: CallOptions): Promise<Counts>;
  /** The counts, and again whenever they change, without end. */
  poll(user: Id, options?: PollOptions): AsyncGenerator<Counts, void, undefined>;
  /** A page of the feed, and again whenever it changes, without end. */
  pollFeed(
    user: Id, query?: FeedQuery, options?: PollOptions,
  ): AsyncGenerator<Page, void, undefined>;

  batches(query?: BatchQuery, options?: CallOptions): AsyncGenerator<Batch, void, undefined>;
  batch(id: string, options?: CallOptions): Promise<Batch>;
}
