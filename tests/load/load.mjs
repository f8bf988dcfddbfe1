// Mixed load on a server of the bundled pair: chats streamed and whole, completions, tools, long
// prompts, slow readers, clients that leave, requests that are wrong. Needs node alone.
// usage: load.mjs PROGRAM [--minutes N] [--clients N] [--seed N] [--metrics FILE]
//        --metrics: where the last /metrics are written
// Prints what it did as a table and what it checked; the last line is "N passed, M failed".
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const program = process.argv[2];
const option = (name, otherwise) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const minutes = Number(option('--minutes', 3));
const clients = Number(option('--clients', 16));
const metricsFile = option('--metrics', '');
if (!program || !(minutes > 0) || !(clients > 0)) {
  console.error('usage: load.mjs PROGRAM [--minutes N] [--clients N] [--seed N] [--metrics FILE]');
  process.exit(2);
}

// Numbers in [0, 1) that the seed decides (mulberry32).
let state = Number(option('--seed', 1)) >>> 0;
function random() {
  state = (state + 0x6D2B79F5) >>> 0;
  let t = state;
  t = Math.imul(t ^ (t >>> 15), t | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// ---- What happened

const failures = []; // sentences; the first few are printed
const fail = (kind, text) => failures.push(`${kind}: ${text}`);
const kinds = new Map(); // name -> { count, first: [ms to the first byte], all: [ms] }
let requests = 0;
let completed = 0; // generations whose whole answer came
let leftMidway = 0; // generations left after their first bytes
let leftEarly = 0; // left before any byte: the server may or may not have begun
let open = 0;
let mostOpen = 0;
let openSeconds = 0;

function note(kind, first, all) {
  const entry = kinds.get(kind) ?? { count: 0, first: [], all: [] };
  kinds.set(kind, entry);
  entry.count += 1;
  if (first !== undefined) entry.first.push(first);
  if (all !== undefined) entry.all.push(all);
  requests += 1;
}

// ---- The server

const child = spawn(program, ['serve', `${root}models/laguna-nano-nvfp4`, '--port', '0',
  '--served-model-name', 'nano', '--max-model-len', '4K', '--read-timeout', '5',
  '--max-response-store-bytes', '1M',
  '--speculative-config',
  JSON.stringify({ method: 'dflash', model: `${root}models/laguna-nano-dflash-nvfp4` })]);
let log = '';
child.stderr.on('data', (data) => { log = (log + data).slice(-20000); });
const ended = new Promise((resolve) => {
  child.on('close', (code, signal) => resolve({ code, signal }));
});
const port = await new Promise((resolve, reject) => {
  let text = '';
  child.stdout.on('data', (data) => {
    text += data;
    const match = /Serving nano on http:\/\/127\.0\.0\.1:(\d+)/.exec(text);
    if (match) resolve(Number(match[1]));
  });
  ended.then(() => reject(new Error(`the server did not start: ${log}`)));
});
let alive = true;
ended.then(() => { alive = false; });

function memory() {
  const match = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'));
  return Number(match[1]) / 1024;
}

const agent = new http.Agent({ keepAlive: true });

// Sends a request; resolves with { status, text, first, all } or, where `leave` says so, with
// { left: true } after it has closed the connection. `leave(bytes)` is asked before the answer
// (0 bytes) and after each piece; `pause` is how long a slow reader waits between pieces, in ms.
function send(method, path, body, { leave = () => false, pause = 0 } = {}) {
  return new Promise((resolve, reject) => {
    const begun = performance.now();
    let first;
    let text = '';
    const request = http.request({
      host: '127.0.0.1', port, method, path, agent,
      headers: body === undefined ? {} : { 'content-type': 'application/json' },
    });
    let left = false;
    const leaveNow = () => {
      left = true;
      request.destroy();
      resolve({ left: true, first });
    };
    request.on('error', (error) => { if (!left) reject(error); });
    request.on('response', (response) => {
      first = performance.now() - begun;
      response.setEncoding('utf8');
      response.on('data', (piece) => {
        text += piece;
        if (leave(text.length)) {
          leaveNow();
        } else if (pause > 0) {
          response.pause();
          setTimeout(() => response.resume(), pause);
        }
      });
      response.on('end', () => resolve({
        status: response.statusCode, text, first, all: performance.now() - begun,
      }));
      response.on('error', (error) => { if (!left) reject(error); });
    });
    request.end(body === undefined || typeof body === 'string' ? body : JSON.stringify(body));
    const early = leave(0);
    if (early) setTimeout(leaveNow, early);
  });
}

// ---- Requests

const words = 'river stone cloud paper lamp garden window bridge forest candle'.split(' ');
const sentence = (n) => Array.from({ length: n }, () => pick(words)).join(' ');
const questions = ['capital of France? one word', 'What is 17 + 25?', 'Name a colour.',
  'def add(a, b):', 'Write one line about the sea.'];
const chat = (more) => ({
  model: 'nano',
  messages: [{ role: 'user', content: pick(questions) }],
  max_tokens: 2 + below(12),
  temperature: pick([0, 0.7, 1]),
  ...more,
});
const tools = [{
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}];

// What is wrong with a stream of events; '' for nothing.
function streamFault(text) {
  const events = text.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'));
  if (events.pop() !== 'data: [DONE]') return `it does not end with [DONE]: ${text.slice(-200)}`;
  let finished = 0;
  for (const event of events) {
    if (!event.startsWith('data: ')) return `an event is no data: ${event.slice(0, 200)}`;
    const json = JSON.parse(event.slice(6));
    if (json.error) return `an error event: ${event.slice(0, 200)}`;
    finished += json.choices.filter((choice) => choice.finish_reason).length;
  }
  return finished === 1 ? '' : `${finished} finish reasons`;
}

// The same for messages and responses, whose last event says that all is there.
function endFault(text, last) {
  const event = text.trimEnd().split('\n\n').at(-1);
  return event.startsWith(`event: ${last}\ndata: {"type":"${last}"`)
    ? '' : `it ends with ${event.slice(0, 200)}`;
}

const messagesPath = '/v1/messages';
const responsesPath = '/v1/responses';
const fault = (path, text) => {
  if (path === messagesPath) return endFault(text, 'message_stop');
  if (path === responsesPath) return endFault(text, 'response.completed');
  return streamFault(text);
};
const isComplete = (path, answer) => {
  if (path === messagesPath) return answer.stop_reason;
  if (path === responsesPath) return ['completed', 'incomplete'].includes(answer.status);
  return answer.choices[0].finish_reason;
};

// A generation whose whole answer is read.
async function generation(kind, path, body, options) {
  if (body.stream) {
    open += 1;
    mostOpen = Math.max(mostOpen, open);
  }
  const begun = performance.now();
  const answer = await send('POST', path, body, options);
  if (body.stream) {
    open -= 1;
    openSeconds += (performance.now() - begun) / 1000;
  }
  note(kind, answer.first, answer.all);
  if (answer.status !== 200) {
    fail(kind, `status ${answer.status}: ${answer.text.slice(0, 200)}`);
    return;
  }
  completed += 1;
  if (body.stream) {
    const wrong = fault(path, answer.text);
    if (wrong) fail(kind, wrong);
  } else if (!isComplete(path, JSON.parse(answer.text))) {
    fail(kind, 'no finish reason');
  }
}

const chatPath = '/v1/chat/completions';
const wrong = [
  ['POST', chatPath, '{"model": "nano", ', 400],
  ['POST', chatPath, '[]', 400],
  ['POST', chatPath, '', 400],
  ['POST', chatPath, '{"model":"nano"}', 400],
  ['POST', chatPath, '{"model":"nano","messages":"text"}', 400],
  ['POST', chatPath, `${'['.repeat(2000)}${']'.repeat(2000)}`, 400],
  ['POST', chatPath, { ...chat(), model: 'other' }, 404],
  ['POST', chatPath, { ...chat(), temperature: -1 }, 400],
  ['POST', chatPath, { ...chat(), max_tokens: 1e9 }, 400],
  ['POST', chatPath, { ...chat(), messages: [{ role: 'user', content: 'word '.repeat(40000) }] },
    400],
  ['POST', '/v1/completions', { model: 'nano', prompt: 7 }, 400],
  ['POST', messagesPath, '{"messages": [', 400],
  ['POST', messagesPath, { max_tokens: 5, messages: [{ role: 'user', content: [{ type: 'x' }] }] }, 400],
  ['POST', responsesPath, { input: [{ type: 'item_reference', id: 'x' }] }, 400],
  ['POST', responsesPath, { input: 'x', previous_response_id: 'x' }, 404],
  ['GET', chatPath, undefined, 405],
  ['GET', '/v1/nothing', undefined, 404],
];

async function malformed() {
  const [method, path, body, status] = pick(wrong);
  const answer = await send(method, path, body);
  note('malformed', answer.first, answer.all);
  if (answer.status !== status) {
    fail('malformed', `${method} ${path} ${JSON.stringify(body)?.slice(0, 80)} gave `
      + `${answer.status} in place of ${status}: ${answer.text.slice(0, 200)}`);
  }
}

// Bytes that are no request, or only its beginning.
function garbage() {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    const finish = () => {
      socket.destroy();
      note('garbage');
      resolve();
    };
    socket.on('error', finish);
    socket.on('close', finish);
    const text = pick(['\x16\x03\x01\x02\x00', 'GET\r\n\r\n', 'POST /v1/completions HTTP/1.1\r\n',
      'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{"a"', `${'x'.repeat(100000)}`]);
    socket.write(text, () => setTimeout(finish, 20));
    socket.resume();
  });
}

async function leave(early) {
  const limit = early ? 0 : 1 + below(400);
  const begun = below(30) + 1;
  const body = chat({
    stream: random() < 0.8, max_tokens: 200, max_output_tokens: 200, input: pick(questions),
  });
  const answer = await send('POST', pick([chatPath, messagesPath, responsesPath]), body, {
    leave: (bytes) => (early ? bytes === 0 && begun : bytes >= limit),
  });
  if (answer.left) {
    if (answer.first === undefined) leftEarly += 1; else leftMidway += 1;
  } else if (answer.status === 200) {
    completed += 1;
  } else {
    fail('leaving', `status ${answer.status}`);
  }
  note(early ? 'leave early' : 'leave midway', answer.first);
}

const mix = [
  [30, () => generation('chat, stream', chatPath, chat({ stream: true }))],
  [18, () => generation('chat, whole', chatPath, chat())],
  [8, () => generation('completion', '/v1/completions',
    { model: 'nano', prompt: sentence(6), max_tokens: 8, stream: random() < 0.5 })],
  [8, () => generation('tools', chatPath, chat({
    tools, stream: random() < 0.5, max_tokens: 24,
    messages: [{ role: 'user', content: 'What is the weather in Paris?' }],
  }))],
  [8, () => generation('messages', messagesPath, chat({ stream: random() < 0.5 }))],
  // Most are kept, so that the store is full soon and must let go of as much as comes.
  [8, () => generation('responses', responsesPath, {
    model: 'nano', input: pick(questions), max_output_tokens: 8, stream: random() < 0.5,
    store: random() < 0.8,
  })],
  [2, () => generation('long prompt', chatPath, chat({
    stream: true, messages: [{ role: 'user', content: sentence(200 + below(800)) }],
  }))],
  [3, () => generation('slow reader', chatPath, chat({ stream: true, max_tokens: 32 }),
    { pause: 30 })],
  [10, () => leave(false)],
  [3, () => leave(true)],
  [12, malformed],
  [6, garbage],
];
const total = mix.reduce((sum, [weight]) => sum + weight, 0);

function next() {
  let at = below(total);
  for (const [weight, run] of mix) {
    if (at < weight) return run;
    at -= weight;
  }
  return mix[0][1];
}

// ---- The run

// First the pages of the cache are written once, which takes memory for good.
const longest = () => generation('warm up', chatPath, chat({
  messages: [{ role: 'user', content: sentence(1000) }], max_tokens: 16,
}));
await Promise.all([longest(), longest(), longest(), longest(), ...mix.map(([, go]) => go())]);
await Promise.all(mix.map(([, go]) => go()));

const begun = performance.now();
const deadline = begun + minutes * 60000;
const samples = []; // { requests, memory }
let sampling = true;
const sampler = (async () => {
  while (sampling && alive) {
    samples.push({ requests, memory: memory() });
    await sleep(1000);
  }
})();

async function client() {
  while (alive && performance.now() < deadline && failures.length < 100) {
    try {
      await next()();
    } catch (error) {
      fail('connection', String(error));
    }
  }
}
await Promise.all(Array.from({ length: clients }, client));
const seconds = (performance.now() - begun) / 1000;
sampling = false;
await sampler;

// Sums of the metrics by name, and by name{reason}.
async function metrics() {
  const { text } = await send('GET', '/metrics');
  const values = {};
  for (const line of text.split('\n')) {
    const match = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$/.exec(line);
    if (!match) continue;
    const reason = /finished_reason="(\w+)"/.exec(match[2] ?? '');
    for (const name of [match[1], reason && `${match[1]}{${reason[1]}}`]) {
      if (name) values[name] = (values[name] ?? 0) + Number(match[3]);
    }
  }
  return { values, text };
}

let passed = 0;
let failed = 0;
function check(text, fine) {
  console.log(`${fine ? 'ok    ' : 'FAILED'} ${text}`);
  if (fine) passed += 1; else failed += 1;
}

// Least squares: MB per 1,000 requests.
function slope(points) {
  const n = points.length;
  const meanX = points.reduce((sum, p) => sum + p.requests, 0) / n;
  const meanY = points.reduce((sum, p) => sum + p.memory, 0) / n;
  const over = points.reduce((sum, p) => sum + (p.requests - meanX) * (p.memory - meanY), 0);
  const under = points.reduce((sum, p) => sum + (p.requests - meanX) ** 2, 0);
  return under > 0 ? (over / under) * 1000 : 0;
}
const percentile = (list, p) => {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted.length > 0 ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] : NaN;
};

const row = (...cells) => console.log(cells.map((cell, i) => (
  i === 0 ? String(cell).padEnd(14) : String(cell).padStart(12))).join(' '));
row('kind', 'requests', 'TTFB p50 ms', 'TTFB p99 ms', 'all p50 ms');
for (const [kind, { count, first, all }] of [...kinds].sort()) {
  row(kind, count, ...[percentile(first, 0.5), percentile(first, 0.99), percentile(all, 0.5)].map(
    (value) => (Number.isNaN(value) ? '-' : value.toFixed(1))));
}
if (process.argv.includes('--samples')) {
  for (const sample of samples) console.log(`${sample.requests} ${sample.memory.toFixed(1)}`);
}
const later = samples.slice(Math.floor(samples.length / 3));
const growth = slope(later);
const firsts = [...kinds.values()].flatMap(({ first }) => first);
console.log(`${requests} requests in ${seconds.toFixed(0)} s: ${(requests / seconds).toFixed(1)} `
  + `requests/s, ${clients} clients, at most ${mostOpen} open streams (${(openSeconds / seconds)
    .toFixed(1)} on average), p99 TTFB ${percentile(firsts, 0.99).toFixed(1)} ms, memory `
  + `${samples[0].memory.toFixed(1)} to ${memory().toFixed(1)} MB`);

let last = alive ? await metrics() : { values: {}, text: '' };
for (let i = 0; i < 100 && last.values['vllm:num_requests_running'] !== 0; ++i) {
  await sleep(100);
  last = await metrics();
}
if (metricsFile) writeFileSync(metricsFile, last.text);
const { values } = last;
const ends = values['vllm:request_success_total'];

check('the server is alive', alive);
check(`every answer was as expected (${failures.length} were not)`, failures.length === 0);
for (const text of failures.slice(0, 10)) console.log(`       ${text}`);
check(`requests of every kind (${kinds.size} of 13)`, kinds.size === 13);
// Where there are few requests, an arena of the allocator more is not yet a leak.
const served = (later.at(-1).requests - later[0].requests) / 1000;
check(`memory grows by less than 1 MB per 1,000 requests over the last two thirds (${growth
  .toFixed(3)} MB over ${later.length} samples; 2 MB in all are let pass)`,
later.length > 1 && growth * served < Math.max(2, served));
check(`nothing runs or waits (${values['vllm:num_requests_running']}, ${
  values['vllm:num_requests_waiting']})`,
values['vllm:num_requests_running'] === 0 && values['vllm:num_requests_waiting'] === 0);
check(`no page of the cache is in use (${values['vllm:kv_cache_usage_perc']})`,
  values['vllm:kv_cache_usage_perc'] === 0);
check(`generations ended (${ends}) are those that were answered (${completed}) and left (${
  leftMidway}, and up to ${leftEarly} early)`,
ends >= completed + leftMidway && ends <= completed + leftMidway + leftEarly);
check(`answers came to an end of their own (stop and length ${
  values['vllm:request_success_total{stop}'] + values['vllm:request_success_total{length}']})`,
values['vllm:request_success_total{stop}'] + values['vllm:request_success_total{length}']
  >= completed);
check(`no generation failed (${values['vllm:request_success_total{error}']})`,
  values['vllm:request_success_total{error}'] === 0);

child.kill('SIGTERM');
const end = await ended;
check(`the server ended on SIGTERM (${JSON.stringify(end)})`, end.code === 0);
agent.destroy();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
