// <tidings-inbox>: a bell, a badge and a panel with a user's feed (docs/widget.md).
// The server computes the counts. A mark shows at once, until the server's counts replace it.

const TEXTS = {
  bell: 'Notifications', new: '{n} new', unread: 'Unread:', 'read-all': 'Mark all as read', preferences: 'Preferences', close: 'Close',
  more: 'Show more', rest: '+{n} more', archive: 'Archive', archived: 'Archived.', undo: 'Undo', empty: 'All caught up',
  error: 'Cannot be loaded right now.', expired: 'Please sign in again.', refused: 'Not available.', retry: 'Try again',
};
const ICONS = {
  bell: 'M6 9a6 6 0 0 1 12 0c0 6 3 8 3 8H3s3-2 3-8M10 20h4',
  close: 'm6 6 12 12M18 6 6 18',
  archive: 'M3 4h18v5H3zM5 9v11h14V9M10 13h4', preferences: 'M4 7h9M19 7h1M4 17h1M11 17h9M16 4v6M8 14v6',
};
// Variables with the prefix `--_` (accent, ink, dim, line, paper, hover) are private. They are set
// inside the shadow tree, so pages cannot change them.
const CSS = `
:host(:not([hidden])){display:inline-block}
.bell,.panel{--_a:var(--tidings-accent,light-dark(#2b57d6,#8fabff));--_i:var(--tidings-ink,light-dark(#1a1b20,#ededf1));
--_d:var(--tidings-dim,light-dark(#5f616c,#a3a5b0));--_l:var(--tidings-line,light-dark(#e7e7ec,#34353c));
--_p:var(--tidings-paper,light-dark(#fff,#1d1e22));--_h:color-mix(in srgb,currentColor 7%,transparent);
font:14px/20px var(--tidings-font,system-ui,sans-serif);text-align:start;text-transform:none;white-space:normal;letter-spacing:0}
[hidden]{display:none!important}
*{box-sizing:border-box;margin:0}
button{font:inherit;color:inherit;background:none;border:0;border-radius:8px;cursor:pointer}
:focus-visible{outline:2px solid var(--_a);outline-offset:-2px}
svg{display:block;width:21px;fill:none;stroke:currentColor;stroke-width:1.75;stroke-linecap:round;stroke-linejoin:round}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;opacity:0}
.bell,.icon{padding:11.5px}
.bell{position:relative;border-radius:50%}
.badge{position:absolute;top:0;inset-inline-start:26px;min-width:19px;padding:0 5px;border-radius:10px;
background:var(--tidings-badge,#cc2b43);color:#fff;font-size:11px;line-height:19px;font-weight:600;box-shadow:0 0 0 2px var(--tidings-ring,Canvas)}
.panel{inset:auto;padding:0;width:min(var(--tidings-width,400px),100vw - 16px);margin:8px 0;overflow:hidden;flex-direction:column;
color:var(--_i);background:var(--_p);border:1px solid var(--_l);border-radius:var(--tidings-radius,14px);
box-shadow:0 12px 40px -8px #0004;outline:0}
.panel:popover-open{display:flex}
.header,.bar,.top{display:flex;align-items:start}
.header,.bar{padding:4px;padding-inline-start:16px;border-bottom:1px solid var(--_l)}
.title,.note{flex:auto;padding:12px 0}
.top{flex:1;flex-wrap:wrap}
.top .act{margin-inline-start:-8px;text-align:start}
.title{font-size:16px}
.icon{color:var(--_d)}
button:hover,.icon:hover,.row:hover,:host([open]) .bell{background:var(--_h)}
.body{overflow:auto;overscroll-behavior:contain}
[aria-busy=true]{height:160px}
.item{outline:0}
[data-day]::before{content:attr(data-day);display:block;padding:12px 16px 4px;font-size:12px;font-weight:600;color:var(--_d)}
.row{position:relative;display:flex;gap:12px;padding:12px 16px}
.fresh .row{background:color-mix(in srgb,var(--_a) 7%,var(--_p))}
.item:focus-visible .row{outline:2px solid var(--_a);outline-offset:-2px;border-radius:10px}
.picture{position:relative;flex:none;width:44px;height:44px;border-radius:10px;overflow:hidden;
background:var(--_h);font-size:17px;line-height:44px;font-weight:600;text-align:center}
.who{border-radius:50%}
img{position:absolute;inset:0;width:100%;height:100%;object-fit:cover}
.main{flex:1;min-width:0;padding-inline-end:32px;overflow-wrap:anywhere}
.what,.text{font:inherit;display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:3;overflow:hidden}
.link{color:inherit;text-decoration:none}
.link::after{content:"";position:absolute;inset:0}
.text{margin-top:4px;padding-inline-start:10px;border-inline-start:2px solid var(--_l)}
.meta{margin-top:4px;font-size:12px}
.picture,.meta,.bar,.read .main,.empty svg{color:var(--_d)}
.read .sr,.read .dot{display:none}
.dot{position:absolute;inset-inline-end:22px;top:13px;border:4px solid var(--_a);border-radius:50%}
.archive{position:absolute;inset-inline-end:4px;bottom:4px}
@media(hover:hover){.item:not(:hover,:focus-within) .archive{opacity:0}}
.more,.act{padding:12px 8px;color:var(--_a);font-weight:600}
.main .act{position:relative;margin:0 -8px -8px}
.more{display:block;width:calc(100% - 16px);margin:8px}
.empty{padding:48px 32px;text-align:center}
.empty svg{width:36px;margin:0 auto 12px}
.bar{border:0;border-top:1px solid var(--_l);margin-top:-1px}
`;

// `name` is `tag.class`; the class is also the CSS part. Functions in `attrs` become listeners.
const el = (name, attrs, ...kids) => {
  const [tag, part] = name.split('.'), node = document.createElement(tag);
  for (const [key, value] of Object.entries({ class: part, part, ...attrs })) {
    if (value?.call) node.addEventListener(key, value);
    else if (value != null) node.setAttribute(key, value);
  }
  node.append(...kids);
  return node;
};
const icon = name => {
  const [svg, path] = ['svg', 'path'].map(tag => document.createElementNS('http://www.w3.org/2000/svg', tag));
  path.setAttribute('d', ICONS[name]);
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.append(path);
  return svg;
};
const safe = url => {
  try {
    const { protocol, href } = new URL(url || 'x:', document.baseURI);
    if (/^https?:$/.test(protocol)) return href;
  } catch {}
};
// Statuses for which a retry does not help: 4xx except 408 and 429, and 501.
const FINAL = /^4(?!08|29)|501/;
const bare = item => JSON.stringify({ ...item, state: 0 });
const NODE = Symbol();

export class TidingsInbox extends (globalThis.HTMLElement ?? Object) {
  static observedAttributes = ['server', 'user', 'token', 'open'];

  #ui; #life; #token; #getToken; #renewal; #channel; #timer; #tick; #cut; #now; #page; #items; #next; #error; #gone;
  #fresh = new Set(); #unfolded = new Set(); #marks = 0; #pending = 0; #late; #interval = 30; #tries = 0; #loading;

  get getToken() { return this.#getToken; }
  set getToken(ask) {
    this.#getToken = ask;
    this.#start();
  }

  get #base() { return (this.getAttribute('server') ?? import.meta.url.replace(/[^/]*$/, '')).replace(/\/?$/, '/'); }
  get #size() { return `feed?limit=${+this.getAttribute('limit') || 20}${this.hasAttribute('group') ? '&group=about' : ''}`; }
  get #shown() { return this.#ui.panel.matches(':popover-open'); }
  get #lang() {
    try { return Intl.getCanonicalLocales(this.closest('[lang]').lang)[0]; } catch {}
  }

  #text(name, n) { return (this.getAttribute(`label-${name}`) ?? TEXTS[name]).replace('{n}', n?.toLocaleString(this.#lang)); }

  connectedCallback() {
    if (this.#ui) this.#resume();
    else {
      this.#build();
      // A page may have set it before this class was defined. Then it hides the setter.
      const { getToken } = this;
      delete this.getToken;
      this.getToken = getToken;
    }
    if (this.hasAttribute('open')) this.#ui.panel.showPopover();
  }

  connectedMoveCallback() {}

  disconnectedCallback() { this.#stop(); }

  attributeChangedCallback(name, _, is) {
    if (name === 'token') this.#token = is;
    if (name === 'open') this.isConnected && this.#ui?.panel.togglePopover(is !== null);
    else if (name !== 'token' || this.#error) this.#start();
  }

  #build() {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(CSS);
    const root = this.attachShadow({ mode: 'open' }), text = name => this.#text(name), href = safe(this.getAttribute('preferences'));
    root.adoptedStyleSheets = [sheet];
    const bell = el('button.bell', { 'aria-haspopup': 'dialog', 'aria-expanded': false });
    const title = el('h2.title', { id: 'title' }, text('bell'));
    const ui = this.#ui = {
      bell, name: el('span.sr'), badge: el('span.badge', { 'aria-hidden': true }), status: el('span.sr', { role: 'status' }),
      all: el('button.act read-all', { click: () => this.#mark('read') }, text('read-all')),
      feed: el('div.feed', { role: 'feed', 'aria-labelledby': 'title' }),
      empty: el('div.empty', {}, icon('bell'), el('b', {}, text('empty'))),
      more: el('button.more', { click: () => this.#more() }, text('more')),
      bar: el('div.bar'),
    };
    const close = this.#button('close', () => ui.panel.hidePopover());
    ui.panel = el('div.panel', {
      popover: 'auto', role: 'dialog', 'aria-labelledby': 'title', tabindex: -1, autofocus: '',
      keydown: event => this.#key(event), toggle: event => this.#toggled(event.newState === 'open'),
    }, el('div.header', {}, el('div.top', {}, title, ui.all), href ? this.#button('preferences', null, href) : '', close), el('div.body', {}, ui.feed, ui.empty, ui.more), ui.bar);
    bell.append(el('slot', { name: 'bell' }, icon('bell')), ui.name, ui.badge);
    bell.popoverTargetElement = ui.panel;
    root.append(bell, ui.status, ui.panel);
  }

  #button(name, click, href) {
    const label = this.#text(name);
    return el(`${click ? 'button' : 'a'}.icon ${name}`, { 'aria-label': label, title: label, click, href }, icon(name));
  }

  #start() {
    if (!this.#ui) return;
    this.#stop();
    this.#now = { unseen: 0, unread: 0 };
    this.#items = this.#error = this.#gone = this.#page = null;
    this.#unfolded.clear();
    this.#render();
    this.#resume();
  }

  #resume() {
    const user = this.getAttribute('user');
    if (!user || !this.isConnected) return;
    const { signal } = this.#life = new AbortController(), name = `tidings ${this.#base} ${user}`;
    const on = (kinds, listen) => kinds.forEach(kind => addEventListener(kind, listen, { signal, capture: true }));
    on(['visibilitychange', 'online'], () => document.hidden || this.#poll());
    on(['resize', 'scroll'], () => this.#place());
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => {
      this.#hear(data);
      this.#wait(data.live ? 60 : this.#interval * 1.3);
    };
    this.#poll();
    const hold = () => this.#stream(signal);
    if (this.hasAttribute('stream')) (navigator.locks?.request(name, { signal }, hold) ?? hold()).catch(() => {});
  }

  #stop() {
    this.#life?.abort();
    this.#channel?.close();
    this.#life = this.#channel = null;
    this.#pending = 0;
    clearTimeout(this.#timer);
    clearInterval(this.#tick);
  }

  async #ask(path, init, cut = AbortSignal.timeout(2e4)) {
    // A mark is sent even if the element is removed meanwhile.
    const signal = init?.keepalive ? cut : AbortSignal.any([this.#life.signal, cut]), get = this.#getToken;
    const url = `${this.#base}v1/users/${encodeURIComponent(this.getAttribute('user'))}/${path}`;
    let used;
    const go = async () => {
      if (get && this.#token == used) this.#token = await (this.#renewal ??= (async () => get())().finally(() => { this.#renewal = null; }));
      used = this.#token;
      return fetch(url, { ...init, signal, headers: { ...init?.headers, ...used && { authorization: `Bearer ${used}` } } });
    };
    let answer = await go();
    if (answer.status === 401 && get) answer = await go();
    if (answer.ok) return answer;
    throw answer;
  }

  async #try(work) {
    const life = this.#life;
    try {
      await work();
    } catch (error) {
      this.#fail(error, life);
    }
  }

  async #read(answer) {
    const data = await answer.json(), { groups } = data;
    // A folded group is shown as its newest item.
    if (groups) data.items = (await Promise.all(groups.map(({ items: [item], type, day, about, count, unseen, unread }) => {
      const which = { type, day, about }, path = `feed?limit=200&${new URLSearchParams(which)}`;
      return count < 2 ? item : this.#unfolded.has(path) ? this.#inside(path)
        : { ...item, which, path, unseen, unread, rest: count - 1, state: unseen ? 'unseen' : unread ? 'seen' : 'read' };
    }))).flat();
    return data;
  }

  async #inside(path) {
    const { items, next } = await this.#read(await this.#ask(path));
    return next ? [...items, ...await this.#inside(`${path}&before=${next}`)] : items;
  }

  // With `no-cache`, browsers send the ETag of a cached response. An unchanged feed costs a 304.
  #poll(again) {
    const marks = this.#marks;
    if (!again && FINAL.test(this.#error?.status)) return;
    return this.#try(async () => {
      const answer = await this.#ask(this.#shown ? this.#size : 'feed/count', { cache: 'no-cache' }), data = await this.#read(answer);
      this.#interval = +answer.headers.get('x-poll-interval') || 30;
      this.#tries = 0;
      this.#error = null;
      if (marks === this.#marks) this.#take(data);
      else if (this.#pending) this.#late = true;
      else return this.#poll();
      this.#wait();
    });
  }

  #wait(least = 0) {
    clearTimeout(this.#timer);
    const error = this.#error;
    if (FINAL.test(error?.status)) return;
    const seconds = error ? Math.min(300, 2 ** this.#tries) * (0.5 + Math.random())
      : Math.max(least, this.#interval);
    this.#timer = setTimeout(() => {
      this.#cut?.abort();
      if (!document.hidden) this.#poll();
    }, seconds * 1e3);
  }

  // With `navigator.locks`, one tab holds the stream and shares its counts with the others.
  async #stream(signal) {
    for (let tries = 0; !signal.aborted; tries++) {
      this.#cut = new AbortController();
      try {
        const { cursor } = this.#now, headers = cursor && { 'last-event-id': cursor };
        const answer = await this.#ask('feed/stream', { cache: 'no-store', headers }, this.#cut.signal);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = '', read; !(read = await reader.read()).done;) {
          const lines = (rest + read.value).split('\n');
          rest = lines.pop();
          for (const line of lines) if (line.startsWith('data:')) this.#hear(JSON.parse(line.slice(5)));
          tries = 0;
          this.#say(true);
          this.#wait(60);
        }
      } catch (error) {
        if (FINAL.test(error.status)) return;
      }
      await new Promise(done => setTimeout(done, Math.min(60, 2 ** tries) * 1e3 * Math.random()));
    }
  }

  #say(live) { this.#channel?.postMessage({ ...this.#now, live }); }

  #hear(counts) {
    if (this.#pending) this.#late = true;
    else if (this.#count(counts) && this.#shown) this.#poll();
  }

  #take(data) {
    const { items } = data;
    if (items) {
      const old = this.#items ?? [], end = items.at(-1)?.id, at = old.findIndex(item => item.id === end);
      // A group with a new item has moved up, into `items`.
      const above = ({ id, path }) => items.some(item => item.id === id || path && item.path === path);
      const below = data.next && at >= 0 ? old.slice(at + 1).filter(item => !above(item)) : [];
      if (!below.length) this.#next = data.next;
      this.#items = [...items.map(item => {
        if (item.state === 'unseen') this.#fresh.add(item.id);
        const known = old.find(({ id }) => id === item.id);
        return known && bare(known) === bare(item) ? Object.assign(known, item) : item;
      }), ...below];
      this.#page = data.cursor;
    }
    this.#count(data);
    this.#say();
    if (items && this.#shown && !document.hidden && data.unseen) this.#mark('seen');
  }

  #count({ unseen, unread, cursor }) {
    const now = this.#now, more = unseen - now.unseen, news = more || unread !== now.unread || cursor !== now.cursor;
    if (more > 0 && cursor !== now.cursor) this.#ui.status.textContent = this.#text('new', more);
    this.#now = { unseen, unread, cursor };
    this.#render();
    return news;
  }

  #fail(error, life) {
    if (life !== this.#life) return;
    const base = this.#base;
    // Scripts cannot see why a cross-origin request failed, so the message names both causes.
    if (!this.#tries++ && !error.status && new URL(base, origin).origin !== origin) console.error(`tidings-inbox: ${base} is down, or server.cors_origins lacks "${origin}"`);
    this.#error = error;
    this.#render();
    this.#emit('error', error);
    this.#wait();
  }

  #emit(name, detail) {
    return this.dispatchEvent(new CustomEvent(`tidings-${name}`, { detail, bubbles: true, composed: true, cancelable: true }));
  }

  // Marks an item or a folded group; without `item`, all items of the page.
  async #mark(mark, item) {
    const life = this.#life, was = this.#now, { unseen, unread } = was, items = item ? [item] : this.#items;
    const states = items.map(({ state }) => state), [state] = states, one = { unseen: state === 'unseen', unread: /seen/.test(state), ...item };
    for (const item of items) if (mark !== 'seen' || item.state === 'unseen') item.state = mark;
    this.#now = { ...was, ...item ? { unseen: unseen - one.unseen, unread: unread - one.unread }
      : { unseen: 0, unread: mark === 'read' ? 0 : unread } };
    this.#late = this.#pending++ > 0 || mark === 'restore';
    this.#marks++;
    if (mark === 'archive') this.#gone = item;
    this.#render();
    try {
      // Undo restores exactly the items that the group had.
      if (item?.which && mark === 'archive') item.ids = (await this.#inside(item.path)).map(({ id }) => id);
      const ids = item && (mark === 'restore' && item.ids || !item.which && [item.id]);
      const answer = await this.#ask('feed/marks', {
        // A click on a link may leave the page before the request ends.
        method: 'POST', keepalive: true,
        headers: { 'content-type': 'application/json' }, body: JSON.stringify({ mark, ...ids ? { ids } : { to: this.#page, ...item?.which } }),
      });
      const counts = await answer.json();
      if (life !== this.#life) return;
      this.#pending--;
      this.#marks++;
      if (this.#pending) return;
      this.#count(counts);
      this.#say();
      if (this.#late) this.#poll();
    } catch (error) {
      if (life !== this.#life) return;
      this.#pending--;
      items.forEach((item, at) => { item.state = states[at]; });
      this.#now = was;
      this.#fail(error, life);
    }
  }

  async #more() {
    if (!this.#next || this.#loading) return;
    const { children } = this.#ui.feed, { length } = children;
    this.#loading = true;
    await this.#try(async () => {
      const { items, next } = await this.#read(await this.#ask(`${this.#size}&before=${this.#next}`));
      this.#items = [...this.#items, ...items];
      this.#next = next;
      this.#render();
      children[length]?.focus({ preventScroll: true });
    });
    this.#loading = false;
  }

  #unfold(item) {
    return this.#try(async () => {
      const all = await this.#inside(item.path);
      this.#unfolded.add(item.path);
      // The answers to polls that were sent before are ignored.
      this.#marks++;
      this.#items = this.#items.flatMap(one => one.path === item.path ? all : one);
      this.#render();
    });
  }

  #toggled(open) {
    this.#ui.bell.setAttribute('aria-expanded', open);
    this.toggleAttribute('open', open);
    this.#fresh.clear();
    this.#gone = null;
    clearInterval(this.#tick);
    if (!open) {
      if ([this, document.body].includes(document.activeElement)) this.#ui.bell.focus({ preventScroll: true });
      return;
    }
    this.#tick = setInterval(() => this.#render(), 6e4);
    this.#place();
    this.#render();
    this.#emit('open');
    if (this.#life) this.#poll();
  }

  #place() {
    const { bell, panel } = this.#ui, at = bell.getBoundingClientRect(), below = innerHeight - at.bottom, width = panel.offsetWidth;
    const up = below < 300 && at.top > below, left = getComputedStyle(this).direction === 'rtl' ? at.left : at.right - width;
    panel.style.cssText = `left:${Math.max(8, Math.min(left, innerWidth - width - 8))}px;${
      up ? `bottom:${innerHeight - at.top}` : `top:${at.bottom}`}px;max-height:${Math.min(640, (up ? at.top : below) - 16)}px`;
  }

  #when(time) {
    const lang = this.#lang, say = (value, unit) => new Intl.RelativeTimeFormat(lang, { numeric: 'auto' }).format(Math.min(value, 0), unit);
    const now = Date.now(), minutes = Math.ceil((time - now) / 6e4), midnight = date => new Date(date).setHours(0, 0, 0, 0);
    const days = Math.round((midnight(time) - midnight(now)) / 864e5);
    const day = days < -1 ? time.toLocaleDateString(lang, { weekday: 'long', day: 'numeric', month: 'long' }) : say(days, 'day');
    return [
      minutes > -60 ? say(minutes, minutes ? 'minute' : 'second') : minutes > -1440 ? say(Math.ceil(minutes / 60), 'hour')
        : time.toLocaleTimeString(lang, { timeStyle: 'short' }), day[0].toUpperCase() + day.slice(1),
    ];
  }

  #article(item) {
    const { actor, object, text, id } = item, href = safe(object.url), image = safe(actor?.image || object.image);
    const who = actor?.name || object.by || actor?.id || '', what = object.title?.trim() || object.id;
    const phrase = this.getAttribute(`phrase-${item.type}`);
    const parts = (phrase ?? '{what}').split(/\{(who|what)\}/).map((part, at) => (at % 2 ? el('b', {}, el('bdi', {}, part === 'who' ? who : what)) : part));
    const read = () => item.state === 'read' || this.#mark('read', item);
    const link = el('a.link', {
      href, auxclick: event => event.button === 1 && read(), click: event => {
        read();
        if (event.ctrlKey || event.metaKey || this.#emit('item', item)) return;
        event.preventDefault();
        this.#ui.panel.hidePopover();
      },
    }, ...parts);
    const picture = el(actor?.image ? 'div.picture who' : 'div.picture', { 'aria-hidden': true }, [...who || what][0]);
    if (image) picture.append(el('img', { alt: '', referrerpolicy: 'no-referrer', src: image, error: event => event.target.remove() }));
    const time = el('time', { datetime: item.at });
    const main = el('div.main', {}, el('h3.what', { id: `t${id}` }, el('span.sr', {}, this.#text('unread'), ' '), link));
    if (text) main.append(el('p.text', {}, el('bdi', {}, text)));
    main.append(el('p.meta', { id: `m${id}` }, ...who && phrase === null ? [el('bdi', {}, who), ' · '] : [], time));
    if (item.rest) main.append(el('button.act', { 'aria-expanded': false, 'aria-describedby': `t${id}`, click: () => this.#unfold(item) }, this.#text('rest', item.rest)));
    const node = el('article.item', {
      tabindex: 0, 'aria-labelledby': `t${id}`, 'aria-describedby': `m${id}`, 'aria-keyshortcuts': 'Delete',
    }, el('div.row', {}, picture, main, el('span.dot'), this.#button('archive', () => this.#mark('archive', item))));
    return Object.assign(node, { item, time, link });
  }

  #render() {
    const { name, badge, feed, empty, more, bar, all, panel } = this.#ui, { unseen, unread } = this.#now, error = this.#error, gone = this.#gone;
    const items = this.#items?.filter(item => item.state !== 'archive');
    badge.hidden = !unseen;
    const max = +this.getAttribute('badge-max') || unseen;
    badge.textContent = Math.min(unseen, max).toLocaleString(this.#lang) + (unseen > max ? '+' : '');
    name.textContent = this.#text('bell') + (unseen ? `, ${this.#text('new', unseen)}` : '');
    all.hidden = !unread || !items;
    if (items && this.#shown) this.#list(items);
    feed.setAttribute('aria-busy', !items);
    feed.hidden = items ? !items.length : error;
    empty.hidden = items?.length !== 0;
    more.hidden = !this.#next || !items?.length;
    const said = error ? error.status === 401 ? 'expired' : FINAL.test(error.status) ? 'refused' : 'error' : gone && 'archived';
    bar.hidden = !said;
    if (!said || bar.dataset.said === said) return;
    bar.dataset.said = said;
    bar.replaceChildren(el('span.note', {}, this.#text(said)), said === 'refused' ? '' : el('button.act', {
      click: () => {
        if (error) return this.#poll(true);
        this.#gone = null;
        panel.focus();
        this.#mark('restore', gone);
      },
    }, this.#text(error ? 'retry' : 'undo')));
  }

  #list(items) {
    const { feed, panel } = this.#ui, root = this.shadowRoot, focused = [...feed.children].indexOf(root.activeElement?.closest('article'));
    const nodes = items.map(item => item[NODE] ??= this.#article(item));
    for (const node of [...feed.children]) if (!nodes.includes(node)) node.remove();
    let before;
    nodes.forEach((node, at) => {
      const { item, time } = node, date = new Date(item.at), [ago, day] = this.#when(date), read = item.state === 'read';
      if (feed.children[at] !== node) feed.insertBefore(node, feed.children[at]);
      node.className = node.part = `item ${read ? 'read' : this.#fresh.has(item.id) ? 'unread fresh' : 'unread'}`;
      time.textContent = ago;
      time.title = date.toLocaleString(this.#lang);
      if (day === before) delete node.dataset.day;
      else node.dataset.day = before = day;
      node.setAttribute('aria-posinset', at + 1);
      node.setAttribute('aria-setsize', this.#next ? -1 : nodes.length);
    });
    if (focused >= 0 && !root.activeElement) (feed.children[focused] ?? feed.lastChild ?? panel).focus();
  }

  #key(event) {
    const { feed, more, panel } = this.#ui, { key, ctrlKey } = event, all = [...feed.children];
    const active = this.shadowRoot.activeElement, at = all.indexOf(active.closest('article'));
    let to = active;
    if (key === 'PageDown') to = all[at + 1] ?? (this.#more(), active);
    else if (key === 'PageUp') to = all[at - 1] ?? active;
    else if (ctrlKey && key === 'Home') to = panel.querySelector('button:not([hidden])');
    else if (ctrlKey && key === 'End') to = more.hidden ? all.at(-1) : more;
    else if (key === 'Enter' && active === all[at]) active.link.click();
    else if (at >= 0 && /^(Delete|Backspace)$/.test(key)) this.#mark('archive', all[at].item);
    else return;
    event.preventDefault();
    to?.focus();
  }
}

const names = globalThis.customElements;
names?.get('tidings-inbox') ?? names?.define('tidings-inbox', TidingsInbox);
