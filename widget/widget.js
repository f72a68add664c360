// <tidings-inbox>: a bell, a badge and a panel with a user's feed (docs/widget.md).
// The server computes the counts. A mark changes items at once, and counts after the response.
// The texts come from `widget.json`. Until it is loaded, the element shows their names.

const ICONS = {
  bell: 'M6 9a6 6 0 0 1 12 0c0 6 3 8 3 8H3s3-2 3-8M10 20h4',
  close: 'm6 6 12 12M18 6 6 18',
  archive: 'M3 4h18v5H3zM5 9v11h14V9', preferences: 'M4 7h9M19 7h1M4 17h1M11 17h9M16 4v6M8 14v6',
};
// Variables with `--_` (accent, ink, paper, dim, line, hover) are private to the shadow tree.
const CSS = `
:host{display:inline-block}
:host([inline]){display:block}
[hidden],:host([hidden]),:host([inline]) :is(.bell,.close){display:none!important}
.bell,.panel{--_a:var(--tidings-accent,light-dark(#2b57d6,#8fabff));--_i:var(--tidings-ink,CanvasText);--_p:var(--tidings-paper,Canvas);
--_d:var(--tidings-dim,color-mix(in srgb,var(--_i) 65%,var(--_p)));--_l:var(--tidings-line,color-mix(in srgb,var(--_i) 12%,var(--_p)));
--_h:color-mix(in srgb,currentColor 7%,transparent);font:14px/20px var(--tidings-font,system-ui,sans-serif);
text-align:start;text-transform:none;white-space:normal;letter-spacing:0}
*{box-sizing:border-box;margin:0}
button{font:inherit;color:inherit;background:none;border:0;border-radius:8px;cursor:pointer}
:focus-visible{outline:2px solid var(--_a);outline-offset:-2px}
svg{display:block;width:21px;fill:none;stroke:currentColor;stroke-width:1.75;stroke-linecap:round}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;opacity:0}
.bell,.icon{padding:11.5px}
.bell{position:relative;border-radius:50%;anchor-name:--_b}
.badge{position:absolute;white-space:pre;top:0;inset-inline-start:26px;min-width:20px;padding:0 6px;border-radius:12px;
background:var(--tidings-badge,#cc2b43);color:#fff;font-size:12px;font-weight:600;box-shadow:0 0 0 2px var(--tidings-ring,Canvas)}
.panel{padding:0;width:min(var(--tidings-width,400px),100vw - 16px);max-height:min(640px,100% - 16px);overflow:hidden;flex-direction:column;
color:var(--_i);background:var(--_p);border:1px solid var(--_l);border-radius:var(--tidings-radius,12px);box-shadow:0 8px 32px #0004}
.panel:popover-open,:host([inline]) .panel{display:flex}
:host([inline]) .panel{width:auto;max-height:none;margin:0;box-shadow:none}
@supports (position-area:top){.panel{inset:auto;margin:8px;position-anchor:--_b;position-area:block-end span-inline-start;
position-try:most-block-size flip-block,block-end,block-start}}
.panel{outline:0}
.header,.bar,.tabs{display:flex;flex-wrap:wrap;padding:4px 8px}
.header{border-bottom:1px solid var(--_l)}
.bar{border-top:1px solid var(--_l)}
.title,.note{flex:1;padding:12px 8px;font-size:16px}
.tabs{width:100%;padding:0}
.tabs :last-child{margin-inline-start:auto}
.act{padding:12px 16px;color:var(--_a);font-weight:600}
[aria-pressed=false]{font-weight:400}
[aria-pressed=false],.icon,.picture,.meta,.bar,.read .main{color:var(--_d)}
button:hover,.icon:hover,.row:hover,:host([open]) .bell{background:var(--_h)}
.body{overflow:auto}
.row{position:relative;display:flex;gap:12px;padding:12px 16px}
.fresh .row{background:color-mix(in srgb,var(--_a) 7%,transparent)}
.picture{position:relative;flex:none;width:44px;height:44px;border-radius:12px;overflow:hidden;
background:var(--_h);font-size:16px;line-height:44px;font-weight:600;text-align:center}
.who,.dot{border-radius:50%}
img,.link::after{content:"";position:absolute;inset:0}
img{width:100%;height:100%;object-fit:cover}
.main,::slotted([slot*='.']){flex:1;min-width:0;padding-inline-end:32px;overflow-wrap:anywhere}
.what,.text{font:inherit;max-height:60px;overflow:hidden}
.link{color:inherit;text-decoration:none}
.link bdi{font-weight:600}
.text,.meta{margin-top:4px}
.meta{font-size:12px}
.read .sr,.read .dot{display:none}
.dot{position:absolute;inset-inline-end:22px;top:12px;border:4px solid var(--_a)}
.archive{position:absolute;inset-inline-end:4px;bottom:4px}
@media(hover:hover){.item:not(:hover,:focus-within) .archive{opacity:0}}
.main .act{position:relative;margin-inline-start:-16px}
.more{width:100%}
.empty{padding:48px 32px;text-align:center}
`;

// `name` is `tag.class`; the class is also the CSS part. Functions in `attrs` become listeners.
const el = (name, attrs, ...kids) => {
  const [tag, part] = name.split('.'), node = /svg|path/.test(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [key, value] of Object.entries({ class: part, part, ...attrs })) {
    if (value?.call) node.addEventListener(key, value);
    else if (value != null) node.setAttribute(key, value);
  }
  node.append(...kids.flat().filter(Boolean));
  return node;
};
const icon = name => el('svg', { viewBox: '0 0 24 24' }, el('path', { d: ICONS[name] }));
// `#render` sets the label from the text `text`.
const button = (text, click, href) => el(`${href ? 'a' : 'button'}.icon ${text}`, { 'data-text': text, click, href }, icon(text));
const act = (text, click, attrs) => el(`button.act ${text}`, { 'data-text': text, click, ...attrs });
const safe = url => {
  const href = url && URL.parse(url, document.baseURI)?.href;
  return /^https?:/.test(href) ? href : null;
};
// Statuses for which a retry does not help: 4xx except 408 and 429, and 501.
const FINAL = /^4(?!08|29)|501/;
const bare = item => JSON.stringify({ ...item, state: 0 });
const NODE = Symbol();

export class TidingsInbox extends (globalThis.HTMLElement ?? Object) {
  static observedAttributes = ['server', 'user', 'lang', 'token', 'open'];

  #ui; #life; #auth; #getToken; #channel; #timer; #cut; #now; #page; #items; #next; #error; #gone; #texts; #asked; #late; #loading;
  #fresh = new Set(); #unfolded = new Set(); #marks = 0; #pending = 0; #interval = 30; #tries = 0; #state = 'current';

  get getToken() { return this.#getToken; }
  set getToken(ask) {
    this.#getToken = ask;
    this.#start(true);
  }

  get #base() { return (this.getAttribute('server') ?? new URL('.', import.meta.url).href).replace(/\/?$/, '/'); }
  get #feed() { return `feed?lang=${this.#lang}&state=`; }
  get #size() { return `${this.#feed}${this.#state}&limit=${+this.getAttribute('limit') || 20}${this.hasAttribute('group') ? '&group=about' : ''}`; }
  get #shown() { return this.#ui.panel.matches(':not([popover]),:popover-open'); }
  get #lang() {
    try { return Intl.getCanonicalLocales(this.closest('[lang]').lang)[0]; } catch { return navigator.language; }
  }

  #text(name, n) { return (this.getAttribute(`label-${name}`) ?? this.#texts?.[name] ?? name).replace('{n}', (+n).toLocaleString(this.#lang)); }

  connectedCallback() {
    if (this.#ui) this.#resume();
    else {
      this.#build();
      // A property set before this class was defined hides the setter.
      const { getToken } = this;
      delete this.getToken;
      this.getToken = getToken;
    }
    if (this.hasAttribute('open')) this.attributeChangedCallback('open');
  }

  connectedMoveCallback() {}

  disconnectedCallback() { this.#stop(); }

  attributeChangedCallback(name, _, is) {
    if (name === 'open') this.isConnected && this.#ui && this.#ui.panel.popover && this.#ui.panel.togglePopover(is !== null);
    // A token that follows its user replaces the first request.
    else if (name === 'token' && !this.#error && this.#now?.cursor) this.#auth.token = is;
    else this.#start(name !== 'lang');
  }

  #build() {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(CSS);
    const root = this.attachShadow({ mode: 'open' }), href = safe(this.getAttribute('preferences')), inline = this.hasAttribute('inline');
    root.adoptedStyleSheets = [sheet];
    const ui = this.#ui = {
      name: el('span.sr'), badge: el('span.badge', { 'aria-hidden': true }), status: el('span.sr', { role: 'status' }),
      tabs: ['current', 'unread'].map(state => el('button.act tab', {
        'data-text': state, click: () => {
          this.#state = state;
          this.#start();
        },
      })),
      all: act('read-all', () => this.#mark('read')),
      feed: el('div.feed', { role: 'feed', 'aria-labelledby': 'title' }),
      empty: el('div.empty', { 'data-text': 'empty' }),
      more: act('more', () => this.#more()),
      bar: el('div.bar'),
    };
    ui.bell = el('button.bell', { 'aria-haspopup': 'dialog' }, el('slot', { name: 'bell' }, icon('bell')), ui.name, ui.badge);
    ui.panel = el('div.panel', {
      ...inline ? { role: 'region' } : { role: 'dialog', popover: '', autofocus: '' }, 'aria-labelledby': 'title', tabindex: -1,
      keydown: event => this.#key(event), toggle: event => this.#toggled(event.newState === 'open'),
    }, el('div.header', {}, el('h2.title', { id: 'title', 'data-text': 'bell' }), href && button('preferences', null, href),
      button('close', () => this.removeAttribute('open')), el('div.tabs', {}, ui.tabs, ui.all)), el('div.body', {}, ui.feed, ui.empty, ui.more), ui.bar);
    ui.bell.popoverTargetElement = ui.panel;
    root.append(ui.bell, ui.status, ui.panel);
  }

  // With `reset`, forgets the token and the items of the previous user.
  #start(reset) {
    if (reset) {
      this.#auth = { token: this.getAttribute('token') };
      this.#fresh.clear();
    }
    if (!this.#ui) return;
    this.#stop();
    this.#now = { unseen: 0, unread: 0 };
    this.#items = this.#error = this.#gone = this.#next = null;
    this.#unfolded.clear();
    this.#render();
    // Deferred, so attributes that change together cause one request.
    queueMicrotask(() => this.#resume());
  }

  #resume() {
    const user = this.getAttribute('user');
    if (!user || !this.isConnected || this.#life) return;
    const { signal } = this.#life = new AbortController(), name = `tidings ${this.#base} ${user}`;
    for (const kind of ['visibilitychange', 'online']) addEventListener(kind, () => document.hidden || this.#poll(), { signal, capture: true });
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => {
      this.#hear(data);
      this.#wait(data.live ? 60 : this.#interval * 1.3);
    };
    this.#wait();
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
  }

  async #ask(path, init, cut = AbortSignal.timeout(2e4)) {
    // Removing the element does not cancel a mark.
    const signal = init?.keepalive ? cut : AbortSignal.any([this.#life.signal, cut]), get = this.#getToken, auth = this.#auth;
    const url = `${this.#base}v1/users/${encodeURIComponent(this.getAttribute('user'))}/${path}`;
    let used = null;
    const go = async () => {
      if (get && auth.token === used) {
        auth.token = (async () => get())();
        auth.token.catch(() => { auth.token = null; });
      }
      const token = await (used = auth.token);
      return fetch(url, { ...init, signal, headers: { ...init?.headers, ...token && { authorization: `Bearer ${token}` } } });
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
      const which = { type, day, about }, path = `${this.#feed}${this.#state}&limit=200&${new URLSearchParams(which)}`;
      return count < 2 ? item : this.#unfolded.has(path) ? this.#inside(path)
        : { ...item, which, path, rest: count - 1, state: unseen ? 'unseen' : unread ? 'seen' : 'read' };
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
    if (again || !FINAL.test(this.#error?.status)) return this.#try(async () => {
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

  // Schedules the next poll, and loads missing texts.
  #wait(least = 0) {
    clearTimeout(this.#timer);
    const error = this.#error, url = `${this.#base}widget.json?lang=${this.#lang}`;
    if (this.#asked !== url) {
      fetch(this.#asked = url).then(async answer => {
        const texts = await answer.json();
        if (!answer.ok) throw answer;
        if (this.#asked !== url) return;
        this.#texts = texts;
        this.#render();
      }).catch(() => { this.#asked = null; });
    }
    if (FINAL.test(error?.status)) return;
    const seconds = error ? Math.min(300, 2 ** this.#tries) * (0.5 + Math.random()) : Math.max(least, this.#interval);
    this.#timer = setTimeout(() => {
      this.#cut?.abort();
      document.hidden || this.#poll();
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
          this.#render();
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
      // A group with a new item moves up into `items`.
      const below = data.next && at >= 0 ? old.slice(at + 1).filter(({ id, path }) => !items.some(item => item.id === id || path && item.path === path)) : [];
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
    if (more > 0 && cursor !== now.cursor) {
      this.#ui.status.textContent = this.#text('new', more);
      if (now.cursor && !document.hidden) {
        this.#inside(`${this.#feed}unseen&limit=20&after=${now.cursor}`).then(items => items[0] && this.#emit('new', items)).catch(() => {});
      }
    }
    this.#now = { unseen, unread, cursor };
    this.#render();
    if (news) this.#emit('count', { unseen, unread });
    return news;
  }

  #fail(error, life) {
    if (life !== this.#life) return;
    // Scripts cannot see why a cross-origin request failed, so the message names both causes.
    if (!this.#tries++ && !error.status && new URL(this.#base, origin).origin !== origin) console.error(`tidings-inbox: ${this.#base} is down, or server.cors_origins lacks "${origin}"`);
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
    const life = this.#life, items = item ? [item] : this.#items, states = items.map(({ state }) => state);
    for (const item of items) if (mark !== 'seen' || item.state === 'unseen') item.state = mark;
    this.#late = this.#pending++ || mark === 'restore';
    this.#marks++;
    if (mark === 'archive') this.#gone = item;
    this.#render();
    try {
      // Undo restores exactly the items that the group had.
      if (mark === 'archive' && item.which) item.ids = (await this.#inside(item.path.replace('state=unread', 'state=current'))).map(({ id }) => id);
      const ids = mark === 'restore' && item.ids || item && !item.which && [item.id];
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
      // Ignores the responses to earlier polls.
      this.#marks++;
      this.#items = this.#items.flatMap(one => one.path === item.path ? all : one);
      this.#render();
    });
  }

  #toggled(open) {
    this.toggleAttribute('open', open);
    this.#fresh.clear();
    this.#gone = null;
    if (!open) {
      if ([this, document.body].includes(document.activeElement)) this.#ui.bell.focus({ preventScroll: true });
      return;
    }
    this.#render();
    this.#emit('open');
    if (this.#life) this.#poll();
  }

  #ago(time) {
    const minutes = Math.max(0, Date.now() - time) / 6e4, [count, unit] = minutes < 60 ? [minutes, 'minute'] : minutes < 1440 ? [minutes / 60, 'hour'] : [minutes / 1440, 'day'];
    return new Intl.RelativeTimeFormat(this.#lang, { numeric: 'auto' }).format(-Math.floor(count), unit);
  }

  #article(item) {
    const { actor, object, text, id, rest } = item, image = safe(actor?.image || object.image);
    const who = actor?.name || object.by || actor?.id || '', phrase = this.getAttribute(`phrase-${item.type}`) ?? item.phrase;
    const what = phrase && item.about || object.title?.trim() || object.id, isolated = text => el('bdi', {}, text);
    const read = () => item.state === 'read' || this.#mark('read', item);
    const link = el('a.link', {
      href: safe(object.url), auxclick: event => event.button === 1 && read(), click: event => {
        read();
        if (event.ctrlKey || event.metaKey || this.#emit('item', item)) return;
        event.preventDefault();
        this.removeAttribute('open');
      },
    }, (phrase ?? '{what}').split(/\{(who|what)\}/).map((part, at) => (at % 2 ? isolated(part === 'who' ? who : what) : part)));
    const time = el('time', { datetime: item.at }), place = this.renderItem && el('div', { slot: id });
    const node = el('article.item', {
      tabindex: 0, 'aria-labelledby': `t${id}`, 'aria-describedby': `m${id}`,
    }, el('div.row', {},
      el('slot', { name: id, click: ({ target }) => target.closest('a,button') || link.click() },
        el(actor?.image ? 'div.picture who' : 'div.picture', { 'aria-hidden': true }, [...who || what][0],
          image && el('img', { alt: '', referrerpolicy: 'no-referrer', src: image, error: event => event.target.remove() })),
        el('div.main', {}, el('h3.what', { id: `t${id}` }, el('span.sr', { 'data-text': 'unread' }), ' ', link), text && el('p.text', {}, isolated(text)),
          el('p.meta', { id: `m${id}` }, !phrase && [item.heading, who].map(part => part && [isolated(part), ' · ']).flat(), time),
          rest && act('rest', () => this.#unfold(item), { 'data-n': rest, 'aria-expanded': false, 'aria-describedby': `t${id}` }))),
      el('span.dot'), button('archive', () => this.#mark('archive', item))));
    if (place) this.append(place);
    return Object.assign(node, { item, time, link, place, done: place && this.renderItem(item, place) });
  }

  #render() {
    const { name, badge, feed, empty, more, bar, all, panel, tabs } = this.#ui, { unseen, unread } = this.#now, error = this.#error;
    const items = this.#items?.filter(item => item.state !== 'archive');
    badge.hidden = !unseen;
    const max = +this.getAttribute('badge-max') || unseen;
    badge.textContent = Math.min(unseen, max).toLocaleString(this.#lang) + (unseen > max ? '+' : '');
    name.textContent = this.#text('bell') + (unseen ? ', ' + this.#text('new', unseen) : '');
    all.hidden = !unread || !items;
    if (!items || this.#shown) this.#list(items ?? []);
    feed.hidden = !items?.length;
    empty.hidden = items?.length !== 0;
    more.hidden = !this.#next || feed.hidden;
    const said = error ? error.status === 401 ? 'expired' : FINAL.test(error.status) ? 'refused' : 'error' : this.#gone && 'archived';
    bar.hidden = !said;
    if (said && bar.dataset.said !== said) {
      bar.dataset.said = said;
      bar.replaceChildren(el('span.note', { 'data-text': said }), said === 'refused' ? '' : act(error ? 'retry' : 'undo', () => {
        if (error) return this.#poll(true);
        const gone = this.#gone;
        this.#gone = null;
        panel.focus();
        this.#mark('restore', gone);
      }));
    }
    for (const tab of tabs) tab.ariaPressed = tab.dataset.text === this.#state;
    for (const node of this.shadowRoot.querySelectorAll('[data-text]')) {
      const text = this.#text(node.dataset.text, node.dataset.n);
      if (node.firstElementChild) node.ariaLabel = node.title = text;
      else if (node.textContent !== text) node.textContent = text;
    }
  }

  #list(items) {
    const { feed, panel } = this.#ui, focused = [...feed.children].findIndex(node => node.matches(':focus-within'));
    const nodes = items.map(item => item[NODE] ??= this.#article(item));
    for (const node of [...feed.children]) {
      if (nodes.includes(node)) continue;
      node.remove();
      node.place?.remove();
      node.done?.();
    }
    nodes.forEach((node, at) => {
      const { item, time } = node, date = new Date(item.at);
      if (feed.children[at] !== node) feed.insertBefore(node, feed.children[at]);
      node.className = node.part = `item ${item.state === 'read' ? 'read' : this.#fresh.has(item.id) ? 'unread fresh' : 'unread'}`;
      if (node.place) node.place.className = node.className;
      time.textContent = this.#ago(date);
      time.title = date.toLocaleString(this.#lang);
      node.ariaPosInSet = at + 1;
      node.ariaSetSize = this.#next ? -1 : nodes.length;
    });
    if (focused >= 0 && !panel.matches(':focus-within')) (feed.children[focused] ?? feed.lastChild ?? panel).focus();
  }

  #key(event) {
    const { feed, more, panel } = this.#ui, { key, ctrlKey } = event, all = [...feed.children];
    const active = event.composedPath()[0], at = all.findIndex(node => node.matches(':focus-within'));
    let to;
    // Items that the page renders may contain fields.
    if (active.closest('input,textarea,[contenteditable]')) return;
    if (key === 'PageDown') to = all[at + 1] ?? void this.#more();
    else if (key === 'PageUp') to = all[at - 1];
    else if (ctrlKey && key === 'Home') to = panel.querySelector('button:not([hidden])');
    else if (ctrlKey && key === 'End') to = more.hidden ? all.at(-1) : more;
    else if (key === 'Enter' && active === all[at]) active.link.click();
    else if (at >= 0 && /^Delete|^Backs/.test(key)) this.#mark('archive', all[at].item);
    else return;
    event.preventDefault();
    to?.focus();
  }
}

const names = globalThis.customElements;
names?.get('tidings-inbox') ?? names?.define('tidings-inbox', TidingsInbox);
