// A client for tidings, for Node 20, Deno, Bun and browsers. See docs/clients.md of tidings.
// Every request can be repeated safely, so temporary failures are retried.

const GROUPED = { group: 'about' };
const MIN_SECONDS = 0.05; // seconds that must remain for another request

// A failed call. `code` is an error code of the server or of this client.
export class TidingsError extends Error {
  constructor(code, detail, { cause, ...more } = {}) {
    super([more.status, `${code}:`, detail].filter(Boolean).join(' '), { cause });
    this.name = 'TidingsError';
    Object.assign(this, { code, detail, retryable: false, receipts: [], unsent: [], ...more });
  }
}

// Builds the path and query. Names must not be empty, `.` or `..`: HTTP clients resolve them.
const buildPath = (names, query = {}) => {
  for (const name of names) {
    if (name != null && !/^\.{0,2}$/.test(name)) continue;
    throw new TidingsError('invalid_parameter', `"${name}" cannot be a part of a path`);
  }
  const pairs = Object.entries(query).filter(([, value]) => value != null);
  const search = pairs.map(pair => pair.map(encodeURIComponent).join('=')).join('&');
  return `/v1/${names.map(encodeURIComponent).join('/')}${search && `?${search}`}`;
};

// Splits records into bodies of at most 1,000 records and 15 MiB each. The server accepts 16 MiB.
function* split(records) {
  const encoder = new TextEncoder();
  let chunk = [], size = 0;
  for (const record of records) {
    const json = JSON.stringify(record), bytes = encoder.encode(json).length + 1;
    if (chunk.length === 1000 || (chunk.length && size + bytes > 15 << 20)) {
      yield `[${chunk}]`;
      [chunk, size] = [[], 0];
    }
    chunk.push(json);
    size += bytes;
  }
  if (chunk.length) yield `[${chunk}]`;
}

// Returns the seconds of `Retry-After`. A date is compared with the `Date` of the response.
const parseRetryAfter = headers => {
  const value = headers.get('retry-after') ?? '';
  if (/^\d+$/.test(value)) return +value;
  const now = Date.parse(headers.get('date')) || Date.now();
  const seconds = /GMT$/.test(value) ? (Date.parse(value) - now) / 1e3 : NaN;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
};

const errorFrom = ({ status, headers }, text) => {
  let problem;
  try { problem = JSON.parse(text); } catch {} // such as an HTML page of a proxy
  const { code, detail, location } = problem ?? {};
  return new TidingsError(code ?? 'no_code', detail ?? 'no detail was given', {
    status, location, requestId: headers.get('x-request-id') ?? undefined,
    retryable: [429, 502, 503, 504].includes(status), retryAfter: parseRetryAfter(headers),
  });
};

const parse = ({ status, text }) => {
  if (status === 204) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    const detail = 'the answer is not JSON; is this the address of tidings?';
    throw new TidingsError('invalid_answer', detail, { status });
  }
};

const checkToken = token => {
  const bare = typeof token === 'string' ? token.trim() : '';
  if (/^[\x21-\x7e]+$/.test(bare)) return bare;
  throw new TidingsError('invalid_token', 'a token is text of visible ASCII characters');
};

const newKey = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
};

// Calls `stop` after `seconds`, or when `signal` is aborted. The returned function cancels it.
const startTimer = (seconds, signal, stop) => {
  const aborted = () => stop(signal.reason), timer = setTimeout(stop, seconds * 1e3);
  signal?.addEventListener('abort', aborted);
  return () => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', aborted);
  };
};

const sleepFor = async (seconds, signal) => {
  signal?.throwIfAborted();
  let off;
  await new Promise(done => { off = startTimer(seconds, signal, done); });
  off();
  signal?.throwIfAborted();
};

export class Tidings {
  #url; #callback; #token; #renewal; #timeout; #deadline; #attempts; #fetch; #sleep; #now; #random;

  constructor(url, token, {
    timeout = 20, deadline = 60, attempts = 5, fetch = globalThis.fetch,
    sleep = sleepFor, now = () => performance.now() / 1e3, random = Math.random,
  } = {}) {
    this.#url = new URL(url, globalThis.location?.href).href.replace(/\/+$/, '');
    if (typeof token === 'function') this.#callback = token;
    else if (token != null) this.#token = checkToken(token);
    [this.#timeout, this.#deadline, this.#attempts] = [timeout, deadline, attempts];
    [this.#fetch, this.#sleep, this.#now, this.#random] = [fetch, sleep, now, random];
  }

  // Returns the token. If it is `rejected`, calls the callback once for all concurrent calls.
  async #bearer(rejected) {
    if (this.#callback && this.#token === rejected) {
      this.#renewal ??= (async () => {
        try {
          this.#token = checkToken(await this.#callback());
        } catch (cause) {
          throw new TidingsError('no_token', `${cause}`, { retryable: true, cause });
        }
      })().finally(() => { this.#renewal = undefined; });
      await this.#renewal;
    }
    return this.#token;
  }

  // Sends one request. Returns the answer or a TidingsError within `seconds`; throws on abort.
  async #send(method, path, { body, etag, keepalive, signal }, seconds, rejected) {
    const control = new AbortController(), fetch = this.#fetch;
    const off = startTimer(seconds, signal, () => control.abort());
    const over = new Promise((_, fail) => { control.signal.onabort = fail; });
    const headers = body === undefined ? {} : { 'content-type': 'application/json' };
    let token;
    try {
      token = await Promise.race([this.#bearer(rejected), over]);
      if (token !== undefined) headers.authorization = `Bearer ${token}`;
      if (etag) headers['if-none-match'] = etag;
      const answer = await fetch(this.#url + path, {
        method, headers, body, keepalive,
        signal: control.signal, redirect: 'manual', cache: 'no-store',
      });
      const { ok, status } = answer, text = await answer.text();
      if (ok || status === 304) return { status, headers: answer.headers, text };
      return { token, error: errorFrom(answer, text) };
    } catch (cause) {
      signal?.throwIfAborted();
      const timedOut = control.signal.aborted;
      if (timedOut && token === undefined) this.#renewal = undefined; // it may never settle
      if (cause instanceof TidingsError) return { error: cause };
      const causes = [cause, cause.cause].filter(Boolean).join(': ');
      const detail = timedOut ? 'no answer in time' : causes;
      const code = timedOut ? 'timeout' : 'unreachable';
      return { error: new TidingsError(code, detail, { retryable: true, cause }) };
    } finally {
      off();
    }
  }

  async #request(method, path, options = {}) {
    const { attempts = this.#attempts, signal } = options, end = this.#now() + this.#deadline;
    let lost = false, rejected;
    signal?.throwIfAborted();
    for (let tries = 1; ; tries++) {
      const seconds = Math.max(MIN_SECONDS, Math.min(this.#timeout, end - this.#now()));
      const answer = await this.#send(method, path, options, seconds, rejected);
      const { error, token } = answer;
      if (!error) return answer;
      if (lost && method === 'DELETE' && error.code === 'unknown_user') {
        return { status: 204 }; // an earlier attempt deleted the user, but its answer was lost
      }
      lost ||= error.retryable && error.status !== 429 && error.code !== 'no_token';
      const renew = error.status === 401 && this.#callback && rejected === undefined;
      const again = renew || (error.retryable && tries < attempts);
      const wait = renew ? 0 : this.#backoff(error, tries);
      if (!again || this.#now() + wait + MIN_SECONDS >= end) throw error;
      if (renew) rejected = token;
      else await this.#sleep(wait, signal);
    }
  }

  // Returns the server's `Retry-After` plus a backoff with full jitter, in seconds.
  #backoff({ retryAfter = 0 }, tries, most = 20) {
    return retryAfter + this.#random() * Math.min(most, 0.25 * 2 ** tries);
  }

  async #call(method, names, value, options, query) {
    const body = value && JSON.stringify(value);
    return parse(await this.#request(method, buildPath(names, query), { ...options, body }));
  }

  #get(names, options, query) { return this.#call('GET', names, undefined, options, query); }

  // Writes one record by its path, or by the endpoint for many for names such as `..`.
  async #put(method, names, value, many, record, options) {
    if (names.some(name => /^\.\.?$/.test(name))) await this.#postMany(many, [record], options);
    else await this.#call(method, names, value, options);
  }

  async #postMany(path, records, options) {
    let count = 0;
    for (const body of split(records)) {
      count += parse(await this.#request('POST', buildPath([path]), { ...options, body })).taken;
    }
    return count;
  }

  async *#pages(names, field, cursor, query, options) {
    for (let page; page?.next !== null;) {
      page = await this.#get(names, options, page ? { ...query, [cursor]: page.next } : query);
      yield* page[field];
    }
  }

  async *#poll(names, query, { signal, onError } = {}) {
    let etag, last, failures = 0;
    while (!signal?.aborted) {
      let change, wait;
      try {
        const path = buildPath(names, query);
        const answer = await this.#request('GET', path, { etag, signal, attempts: 1 });
        const interval = answer.headers.get('x-poll-interval') ?? '';
        wait = Math.max(1, /^\d{1,4}$/.test(interval) ? +interval : 30) * (1 + this.#random() / 5);
        failures = 0;
        if (answer.status !== 304) {
          etag = answer.headers.get('etag');
          if (answer.text !== last) change = parse(answer);
          last = answer.text;
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (!(error.retryable || error.status >= 500)) throw error;
        onError?.(error);
        wait = Math.min(3600, Math.max(1, this.#backoff(error, ++failures, 300)));
      }
      if (change) yield change;
      try {
        await this.#sleep(wait, signal);
      } catch (error) {
        if (!signal?.aborted) throw error;
      }
    }
  }

  async publish(event, { key = event.key, ...options } = {}) {
    return (await this.publishMany([{ ...event, key }], options))[0];
  }

  async publishMany(events, options) {
    const keyed = Array.from(events, event => ({ ...event, key: event.key ?? newKey() }));
    const receipts = [];
    try {
      for (const body of split(keyed)) {
        const answer = await this.#request('POST', buildPath(['events']), { ...options, body });
        receipts.push(...parse(answer).events);
      }
    } catch (error) {
      const unsent = keyed.slice(receipts.length);
      throw error instanceof TidingsError ? Object.assign(error, { receipts, unsent }) : error;
    }
    return receipts;
  }

  event(id, options) { return this.#get(['events', id], options); }
  retract(type, objects, options) {
    return this.#call('DELETE', ['events'], { type, objects }, options);
  }

  users({ after, limit = 1000, ...options } = {}) {
    return this.#pages(['users'], 'users', 'after', { after, limit }, options);
  }
  user(id, options) { return this.#get(['users', id], options); }
  putUser(id, user, options) {
    return this.#put('PUT', ['users', id], user, 'users', { ...user, id }, options);
  }
  putUsers(users, options) { return this.#postMany('users', users, options); }
  patchUser(id, patch, options) { return this.#call('PATCH', ['users', id], patch, options); }
  deleteUser(id, options) { return this.#call('DELETE', ['users', id], undefined, options); }

  preferences(user, options) { return this.#get(['users', user, 'preferences'], options); }
  putPreferences(user, preferences, options) {
    return this.#call('PUT', ['users', user, 'preferences'], preferences, options);
  }

  follows(user, { after, limit = 1000, ...options } = {}) {
    return this.#pages(['users', user, 'follows'], 'follows', 'after', { after, limit }, options);
  }
  follow(user, key, options) {
    const names = ['users', user, 'follows', key];
    return this.#put('PUT', names, undefined, 'follows', { user, key }, options);
  }
  unfollow(user, key, options) {
    return this.#call('DELETE', ['users', user, 'follows', key], undefined, options);
  }
  mutes(user, options) { return this.#get(['users', user, 'mutes'], options); }
  mute(user, subject, mute, options) {
    return this.#call('PUT', ['users', user, 'mutes', subject], mute, options);
  }
  unmute(user, subject, options) {
    return this.#call('DELETE', ['users', user, 'mutes', subject], undefined, options);
  }

  putFollows(follows, options) { return this.#postMany('follows', follows, options); }

  object(model, id, options) { return this.#get(['objects', model, id], options); }
  putObject(model, id, object, options) {
    const record = { ...object, id: `${model}:${id}` };
    return this.#put('PUT', ['objects', model, id], object, 'objects', record, options);
  }
  putObjects(objects, options) { return this.#postMany('objects', objects, options); }
  deleteObject(model, id, options) {
    const record = { id: `${model}:${id}`, notifiable: false }; // deleting withdraws an object
    return this.#put('DELETE', ['objects', model, id], undefined, 'objects', record, options);
  }

  feed(user, query, options) { return this.#get(['users', user, 'feed'], options, query); }
  items(user, query, options) {
    return this.#pages(['users', user, 'feed'], 'items', 'before', query, options);
  }
  groups(user, query, options) { return this.feed(user, { ...query, ...GROUPED }, options); }
  allGroups(user, query, options) {
    const grouped = { ...query, ...GROUPED };
    return this.#pages(['users', user, 'feed'], 'groups', 'before', grouped, options);
  }
  count(user, options) { return this.#get(['users', user, 'feed', 'count'], options); }
  mark(user, mark, what, options) {
    const withKeepalive = { keepalive: true, ...options }; // a click on a link may leave the page
    return this.#call('POST', ['users', user, 'feed', 'marks'], { mark, ...what }, withKeepalive);
  }
  poll(user, options) { return this.#poll(['users', user, 'feed', 'count'], {}, options); }
  pollFeed(user, query, options) { return this.#poll(['users', user, 'feed'], query, options); }

  batches(query, options) { return this.#pages(['batches'], 'batches', 'before', query, options); }
  batch(id, options) { return this.#get(['batches', id], options); }
}
