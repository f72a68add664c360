// The demo's page: shows one user's bell, publishes, sends the digests, and shows the emails.
// Everything it shows comes from the server. It parses no text as HTML.
import '/widget.js';

const TITLES = ['A Window Left Open', 'Two Kilometers of Rain', 'The Second Harbour', 'Letters to a Lighthouse', 'Plain Bread, Blue Cloth', 'What the River Kept'];
const WORKS_SHOWN = 12, EMAILS_SHOWN = 8;

const $ = id => document.getElementById(id);
const form = $('publish');
let scene, me, told = [], published = 0, all = false, emails;

const el = (name, attrs, ...kids) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attrs ?? {})) {
    if (typeof value === 'function') node.addEventListener(key, value);
    else if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...kids);
  return node;
};
// Replaces the children and keeps the focus at its place.
const renew = (node, kids) => {
  const at = [...node.children].findIndex(kid => kid.contains(document.activeElement));
  node.replaceChildren(...kids);
  const kid = node.children[at];
  (kid?.querySelector('button') ?? kid)?.focus();
};
const pictureOf = id => `/demo/pictures/${id}`;
const portrait = (id, size) => el('img', { src: pictureOf(id), alt: '', width: size, height: size });
const madeOf = ({ medium, year }) => (year ? `${medium}, ${year}` : medium);
const person = id => scene.people.find(one => one.id === id);
const list = names => new Intl.ListFormat('en').format(names);

async function ask(path, body) {
  const init = body && { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const answer = await fetch(`/demo/${path}`, init);
  const said = await answer.json();
  if (answer.ok) return said;
  throw new Error(said.detail);
}

// Runs the action of a button, once at a time, and writes its result below the button.
async function act(button, note, doing) {
  if (button.ariaDisabled === 'true') return;
  button.ariaDisabled = 'true';
  try {
    const said = await doing();
    note.classList.remove('wrong');
    note.replaceChildren(...said);
  } catch (error) {
    note.classList.add('wrong');
    note.replaceChildren(error instanceof TypeError ? 'The server does not answer. Is it still running?' : error.message);
  } finally {
    button.ariaDisabled = 'false';
  }
}

// Shows a user's bell. The widget calls getToken when it needs a token.
async function play(id) {
  me = id;
  const { name } = person(id);
  $('as').replaceChildren(portrait(id, 30), el('span', {}, el('b', {}, name)));
  const inbox = el('tidings-inbox', { user: id, stream: '', 'phrase-reply': '{who} replied to you on {what}' });
  inbox.getToken = async () => (await ask(`people/${id}`, {})).token;
  people();
  const { preferences, unsubscribe } = await ask(`people/${id}`, {});
  if (me !== id) return;
  inbox.setAttribute('preferences', preferences);
  $('bell').replaceChildren(inbox);
  const link = (href, ...kids) => el('a', { href, target: '_blank', rel: 'noopener' }, ...kids);
  $('links').replaceChildren(
    `${name} can `, link(preferences, 'choose their emails'), ', or ', link(unsubscribe, 'unsubscribe'), ' with one click.',
  );
}

function people() {
  renew($('people'), scene.people.map(({ id, name, digest }) => el(
    'button', { type: 'button', 'aria-pressed': id === me, class: told.includes(id) ? 'told' : undefined, click: () => play(id) },
    portrait(id, 36), el('span', {}, name, el('small', {}, digest)),
  )));
}

// The users who follow the form's artist.
const audience = () => (scene.followers[form.elements.artist.value] ?? []);

function hint() {
  const names = audience().map(id => person(id).name), by = form.elements.artist.value;
  $('audience').textContent = names.length ? `${by} is followed by ${list(names)}.` : `No user follows ${by}.`;
}

function fill() {
  const { artist } = form.elements, keep = artist.value;
  artist.replaceChildren(...Object.keys(scene.followers).map(name => el('option', {}, name)));
  if (keep) artist.value = keep;
  hint();
}

function gallery() {
  renew($('works'), scene.works.slice(0, WORKS_SHOWN).map(work => el('li', {}, el(
    'button', { type: 'button', class: /^N/.test(work.id) ? 'fresh' : undefined, click: () => { location.hash = work.id; } },
    el('img', { src: pictureOf(work.id), alt: '', width: 320, height: 240 }), el('b', {}, work.title), el('span', {}, work.artist),
  ))));
}

function outbox() {
  const shown = all ? emails.emails : emails.emails.slice(0, Math.max(EMAILS_SHOWN, emails.new));
  $('emails-count').textContent = emails.emails.length;
  renew($('emails'), shown.map((email, at) => {
    const { name } = person(email.user) ?? { name: email.user };
    const time = new Date(email.at);
    const tag = at < emails.new ? [el('span', { class: 'tag' }, 'new')] : [];
    return el('li', { class: tag.length ? 'new' : undefined }, el(
      'button', { type: 'button', click: () => open(email, name) }, portrait(email.user, 32), el('b', {}, name),
      el('span', { class: 'subject' }, ...tag, email.subject),
      el('time', { datetime: email.at }, time.toLocaleDateString('en', { weekday: 'short', day: 'numeric', month: 'short' })),
    ));
  }));
  if (!shown.length) $('emails').replaceChildren(el('li', { class: 'none' }, 'No emails yet.'));
  $('more').hidden = shown.length === emails.emails.length;
}

function open(email, name) {
  $('email-subject').textContent = email.subject;
  $('email-to').textContent = `to ${name}, ${new Date(email.at).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' })}`;
  $('email-text').src = `/demo/mails/${email.number}`;
  $('email').showModal();
}

// Links in feeds and emails lead to this page, with the work's id as fragment.
function show() {
  const work = scene.works.find(one => one.id === decodeURIComponent(location.hash.slice(1)));
  if (!work) return $('shown').close();
  $('shown-title').textContent = work.title;
  $('shown-by').textContent = `${work.artist}, ${madeOf(work.data)}`;
  $('shown-picture').src = pictureOf(work.id);
  if (!$('shown').open) $('shown').showModal();
}

async function look() {
  scene = await ask('scene');
  fill();
  people();
  gallery();
}

form.addEventListener('change', hint);

form.addEventListener('submit', event => {
  event.preventDefault();
  act(form.querySelector('.act'), $('published'), async () => {
    const { artist, title } = form.elements, ids = audience();
    const { people: count } = await ask('works', { artist: artist.value, title: title.value });
    told = ids;
    published++;
    title.value = TITLES[published % TITLES.length];
    await look();
    const others = ids.length && !ids.includes(me) ? ' Open the bell of one of them.' : '';
    return [el('b', {}, `Notified ${count} ${count === 1 ? 'user' : 'users'}.`), others];
  });
});

$('send').addEventListener('click', () => act($('send'), $('sent'), async () => {
  emails = await ask('digests', {});
  outbox();
  await look();
  const count = emails.new;
  if (!count) return ['There is nothing new since the last emails. Publish something first.'];
  return [el('b', {}, `Sent ${count} ${count === 1 ? 'email' : 'emails'}.`), ' They are listed below; open one.'];
}));

$('more').addEventListener('click', () => {
  all = true;
  outbox();
});

for (const dialog of document.querySelectorAll('dialog')) {
  dialog.querySelector('.close').addEventListener('click', () => dialog.close());
  dialog.addEventListener('click', event => { if (event.target === dialog) dialog.close(); });
}
$('email').addEventListener('close', () => { $('email-text').src = 'about:blank'; });
$('shown').addEventListener('close', () => { if (location.hash) history.replaceState(null, '', location.pathname); });
addEventListener('hashchange', show);
document.addEventListener('tidings-item', event => {
  const url = new URL(event.detail.object.url);
  if (!scene.works.some(work => `#${work.id}` === url.hash)) return;
  event.preventDefault();
  location.hash = url.hash;
});
// The preferences and the unsubscribe page open in other tabs.
addEventListener('focus', () => look().catch(() => {}));

scene = await ask('scene');
emails = await ask('mails');
fill();
form.elements.artist.value = 'Ines Tavoro';
form.elements.title.value = TITLES[0];
hint();
gallery();
outbox();
await play('mara');
if (location.hash) show();
document.documentElement.dataset.ready = '';
