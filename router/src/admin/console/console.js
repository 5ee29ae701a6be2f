'use strict';
// Shows the view that the address names, keeps it live, and asks before each change.

const $ = (selector) => document.querySelector(selector);
const main = $('#main');
const state = $('#state');
let stream = null;
let isPaused = false;
let retryMs = 1000;

// Headers of every request. The token lives in this tab alone.
function headers() {
  const token = sessionStorage.getItem('token');
  const all = { 'x-llm-router-console': '1' };
  if (token) all.authorization = `Bearer ${token}`;
  return all;
}

// The query of the view in the address: #/fleet, #/route/NAME, #/requests?status=5
function query() {
  const [path, filter] = location.hash.slice(2).split('?');
  const [view, name] = path.split('/');
  const params = new URLSearchParams(filter);
  params.set('view', view || 'fleet');
  if (name) params.set('name', decodeURIComponent(name));
  return params;
}

function say(text, kind) {
  state.textContent = text;
  state.className = kind || '';
}

// Makes `from` like `to`. Elements stay the same, so focus, open details and selections stay too.
function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || key(from) !== key(to)) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.isEqualNode(to)) return;
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && name !== 'open') from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  morphChildren(from, to);
}

const key = (node) => (node.dataset ? node.dataset.key : undefined);

function morphChildren(from, to) {
  const kept = new Map();
  for (const child of from.children) if (key(child)) kept.set(key(child), child);
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const known = key(next) && kept.get(key(next));
    if (known && known !== at) {
      from.insertBefore(known, at);
      morph(known, next);
    } else if (!at || (key(next) && !known) || (key(at) && !key(next))) {
      from.insertBefore(next, at);
    } else {
      const here = at;
      at = at.nextSibling;
      morph(here, next);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function show(html) {
  const page = new DOMParser().parseFromString(html, 'text/html').body;
  morphChildren(main, page);
  const title = main.querySelector('h1');
  document.title = title ? `${title.textContent} · llm-router` : 'llm-router';
  say('live', 'ok');
}

// Reads events until the view changes, the router ends or the reader pauses.
async function follow() {
  if (stream) stream.abort();
  const mine = (stream = new AbortController());
  const asked = query();
  for (const link of document.querySelectorAll('nav a')) {
    const isHere = link.hash === `#/${asked.get('view')}`;
    if (isHere) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  try {
    const answer = await fetch(`events?${asked}`, { headers: headers(), signal: mine.signal });
    if (answer.status === 401 || answer.status === 403) return askToken(answer);
    if (!answer.ok) throw new Error(await reason(answer));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      retryMs = 1000;
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      const data = events.filter((event) => event.startsWith('data: ')).pop();
      if (data) show(JSON.parse(data.slice(6)));
    }
    if (mine.signal.aborted) return;
    say('connecting', 'bad');
  } catch (error) {
    if (mine.signal.aborted) return;
    say(error instanceof TypeError ? 'the router does not answer; trying again' : error.message, 'bad');
  }
  setTimeout(() => mine === stream && !isPaused && follow(), retryMs);
  retryMs = Math.min(retryMs * 2, 15000);
}

async function reason(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the router answered ${answer.status}`;
  }
}

async function askToken(answer) {
  const had = sessionStorage.getItem('token');
  sessionStorage.removeItem('token');
  const why = await reason(answer);
  say('no access', 'bad');
  $('#token-note').textContent = had ? 'The router refused this token.' : `${why}.`;
  if (!main.querySelector('h1')) main.replaceChildren(Object.assign(document.createElement('h1'), { textContent: 'No access' }), Object.assign(document.createElement('p'), { textContent: why }));
  login();
}

function login() {
  const dialog = $('#token');
  if (dialog.open) return;
  $('#token-field').value = '';
  dialog.onclose = () => {
    if (dialog.returnValue === 'ok' && $('#token-field').value) {
      sessionStorage.setItem('token', $('#token-field').value);
      follow();
    }
    $('#token-field').value = '';
    dialog.returnValue = '';
  };
  dialog.showModal();
}

// Asks once, then posts, then says what changed.
function confirmChange({ title, before, after, note, ttl }) {
  const dialog = $('#confirm');
  $('#confirm-title').textContent = title;
  $('#before').textContent = before;
  $('#after').textContent = after;
  $('#confirm-note').textContent = note || '';
  $('#ttl-row').hidden = !ttl;
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === 'ok');
  });
}

async function post(path) {
  try {
    const answer = await fetch(path, { method: 'POST', headers: headers() });
    toast(answer.ok ? 'Changed.' : `Not changed: ${await reason(answer)}`, answer.ok);
    if (answer.status === 401) login();
  } catch {
    toast('Not changed: the router does not answer.', false);
  }
  if (!isPaused) follow();
}

function toast(text, isGood) {
  const toast = $('#toast');
  toast.textContent = text;
  toast.className = isGood ? '' : 'bad';
  toast.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (toast.hidden = true), 6000);
}

document.addEventListener('click', async (event) => {
  const button = event.target.closest('button[data-action]');
  if (!button) return;
  const { action, title, before, after, note } = button.dataset;
  if (await confirmChange({ title, before, after, note })) post(action);
});

main.addEventListener('submit', async (event) => {
  event.preventDefault();
  const form = event.target;
  if (!form.matches('.limit')) return;
  const { action, parameter, title, before } = form.dataset;
  const value = form.elements.value.value;
  if (!(await confirmChange({ title, before, after: value, ttl: true }))) return;
  form.reset();
  post(`${action}?${new URLSearchParams({ [parameter]: value, ttl: $('#ttl').value })}`);
});

let typing = 0;
main.addEventListener('input', (event) => {
  const form = event.target.closest('.filters');
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => {
    const filled = [...new FormData(form)].filter(([, value]) => value);
    history.replaceState(null, '', `#/requests?${new URLSearchParams(filled)}`);
    refresh();
  }, 250);
});

// The same view with another filter: the form keeps its focus.
async function refresh() {
  const answer = await fetch(`view?${query()}`, { headers: headers() });
  if (answer.ok) show(await answer.text());
  if (!isPaused) follow();
  else say('paused');
}

$('#pause').addEventListener('click', () => {
  isPaused = !isPaused;
  $('#pause').setAttribute('aria-pressed', isPaused);
  $('#pause').textContent = isPaused ? 'Resume' : 'Pause';
  if (isPaused) {
    stream.abort();
    say('paused');
  } else follow();
});
const loginButton = $('#login');
if (loginButton) loginButton.addEventListener('click', login);
addEventListener('hashchange', () => {
  main.replaceChildren();
  say('connecting');
  main.focus({ preventScroll: true });
  if (isPaused) $('#pause').click();
  else follow();
});
// A hidden tab costs the router nothing.
document.addEventListener('visibilitychange', () => {
  if (isPaused) return;
  if (document.hidden) stream.abort();
  else follow();
});
follow();
