// What an operator relies on: keys, CORS, TLS, limits, draining, metrics, logs.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { run, Server, speculative, target, user, within } from './server.mjs';

const directory = mkdtempSync(path.join(tmpdir(), 'lagoon-'));
after(() => rmSync(directory, { recursive: true }));

// One request with node's own client: { status, headers, text }.
function request(options, body) {
  const client = options.protocol === 'https:' ? https : http;
  return new Promise((resolve, reject) => {
    const sent = client.request(options, (response) => {
      let text = '';
      response.on('data', (data) => { text += data; });
      response.on('end', () => resolve({
        status: response.statusCode, headers: response.headers, text,
      }));
    });
    sent.on('error', reject);
    sent.end(body);
  });
}
const at = (url, route, more = {}) => {
  const { protocol, hostname, port } = new URL(url);
  return { protocol, hostname, port, path: route, ...more };
};
const hello = { model: 'nano', messages: user('capital of France? one word'), temperature: 0 };
const story = {
  model: 'nano', messages: user('Tell me a story.'), ignore_eos: true, max_tokens: 16000,
  stream: true,
};

describe('keys, CORS, request ids and metrics', () => {
  let server;
  before(async () => {
    const keys = path.join(directory, 'keys');
    writeFileSync(keys, 'from-file\n');
    server = await Server.start(['--api-key', 'first', '--api-key-file', keys,
      '--allowed-origins', 'https://a.example', '--root-path', '/lagoon', '--log-format', 'json',
      '--speculative-config.method', 'dflash', '--speculative-config.model',
      JSON.parse(speculative(1)).model, '--enable-force-include-usage'], { env: { VLLM_LOGGING_LEVEL: 'DEBUG' } });
  });
  after(() => server.stop());

  // First of all: nothing has been asked yet.
  test('metrics are there, at 0, before the first request', async () => {
    const metrics = await server.metrics();
    for (const name of ['vllm:prompt_tokens_total', 'vllm:generation_tokens_total',
      'vllm:num_requests_running', 'vllm:num_requests_waiting', 'vllm:request_success_total',
      'vllm:spec_decode_num_drafts_total', 'vllm:spec_decode_num_accepted_tokens_per_pos_total',
      'vllm:time_to_first_token_seconds_count', 'http_requests_total',
      'http_request_duration_seconds_count', 'http_request_size_bytes_sum',
      'http_response_size_bytes_count']) {
      assert.equal(metrics[name], 0, name);
    }
    assert.ok(metrics.process_resident_memory_bytes > 1e6);
    assert.ok(metrics.process_cpu_seconds_total > 0);
    assert.ok(metrics.process_open_fds > 3);
    const started = metrics.process_start_time_seconds;
    assert.ok(Math.abs(Date.now() / 1000 - started) < 60, `${started}`);
  });

  test('the API wants a key, health and metrics do not', async () => {
    for (const route of ['/v1/models', '/v1/nothing', '/lagoon/v1/models']) {
      const refused = await request(at(server.url, route));
      assert.equal(refused.status, 401);
      assert.equal(refused.text, '{"error":"Unauthorized"}');
    }
    for (const route of ['/health', '/metrics', '/version', '/lagoon/health']) {
      assert.equal((await request(at(server.url, route))).status, 200, route);
    }
    for (const key of ['first', 'from-file']) {
      const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
      const answer = await client.chat.completions.create(hello);
      assert.equal(answer.choices[0].message.content, 'Paris');
    }
    await assert.rejects(server.client.chat.completions.create(hello),
      OpenAI.AuthenticationError);
  });

  test('scripts of one origin may ask', async () => {
    const preflight = (origin) => request(at(server.url, '/v1/chat/completions', {
      method: 'OPTIONS',
      headers: {
        Origin: origin,
        'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': 'authorization,content-type',
      },
    }));
    const allowed = await preflight('https://a.example');
    assert.equal(allowed.status, 200);
    assert.equal(allowed.headers['access-control-allow-origin'], 'https://a.example');
    assert.match(allowed.headers['access-control-allow-methods'], /POST/);
    assert.equal(allowed.headers['access-control-allow-headers'], 'authorization,content-type');
    assert.equal((await preflight('https://b.example')).status, 400);
    const refused = await request(at(server.url, '/v1/models',
      { headers: { Origin: 'https://a.example' } }));
    assert.equal(refused.headers['access-control-allow-origin'], 'https://a.example');
  });

  test('request ids come back and stand in the log', async () => {
    const named = await request(at(server.url, '/v1/chat/completions', {
      method: 'POST',
      headers: { 'X-Request-Id': 'my-request', Authorization: 'Bearer first' },
    }), JSON.stringify({ ...hello, max_tokens: 4 }));
    assert.equal(named.headers['x-request-id'], 'my-request');
    const other = await request(at(server.url, '/health'));
    assert.match(other.headers['x-request-id'], /^[0-9a-f]{32}$/);
    await within(2, () => server.stderr.includes('my-request'));
    const lines = server.stderr.trim().split('\n').map((line) => JSON.parse(line));
    const line = lines.find((entry) => entry.request_id?.includes('my-request'));
    assert.equal(line.level, 'info');
    assert.match(line.message, /POST \/v1\/chat\/completions 200/);
    assert.ok(!server.stderr.includes('capital of France'), 'prompts are not logged');
    assert.match(server.stdout, /^environment: vLLM's VLLM_LOGGING_LEVEL is ignored$/m);
  });

  test('streams end with usage where the server says so', async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'first', maxRetries: 0 });
    let last;
    for await (const chunk of await client.chat.completions.create({ ...hello, stream: true })) {
      last = chunk;
    }
    assert.deepEqual(last.choices, []);
    assert.ok(last.usage.completion_tokens > 0);
  });

  test('requests are counted by endpoint', async () => {
    await request(at(server.url, '/made/up'));
    const { text } = await request(at(server.url, '/metrics'));
    assert.match(text, /^http_requests_total\{handler="\/v1\/chat\/completions",method="POST",status="2xx"\} [1-9]/m);
    assert.match(text, /^http_requests_total\{handler="\/v1\/chat\/completions",method="POST",status="4xx"\} [1-9]/m);
    assert.match(text, /^http_requests_total\{handler="none",method="none",status="4xx"\} [1-9]/m);
    assert.ok(!text.includes('made'));
  });
});

describe('limits', () => {
  let server;
  before(async () => {
    server = await Server.start(['--max-body-bytes', '2000', '--read-timeout', '1',
      '--max-connections', '8', '--enable-log-requests', '--max-log-len', '20']);
  });
  after(() => server.stop());

  test('a body that is too large', async () => {
    const large = await server.post('/v1/completions', 'x'.repeat(2001));
    assert.equal(large.status, 413);
    assert.equal((await large.json()).error.code, 413);
  });

  test('a client that does not go on, and one connection too many', async () => {
    const { port } = new URL(server.url);
    const sockets = Array.from({ length: 12 }, () => net.connect(port, '127.0.0.1'));
    const answers = await Promise.all(sockets.map((socket) => new Promise((resolve) => {
      let text = '';
      socket.write('POST /v1/completions HTTP/1.1\r\nHost: x\r\n');
      socket.on('data', (data) => { text += data; });
      socket.on('error', () => {});
      socket.on('close', () => resolve(text));
    })));
    const having = (status) => answers.filter((text) => text.startsWith(`HTTP/1.1 ${status}`));
    assert.ok(having(408).length >= 7, answers.join('\n'));
    assert.ok(having(503).length >= 4, answers.join('\n'));
    assert.match(having(503)[0], /Retry-After: 1/);
    assert.equal((await request(at(server.url, '/health'))).status, 200);
  });

  test('bodies are logged where asked for, and not to their end', async () => {
    await server.post('/v1/completions', { model: 'nano', prompt: 'one two three', max_tokens: 2 });
    assert.match(server.stderr, /POST \/v1\/completions with \d+ bytes: \{"model":"nano","pro\.\.\.\n/);
    assert.match(server.stdout, /^prompts are logged/m);
  });
});

describe('the end', () => {
  test('SIGTERM lets running requests end and refuses new ones', async () => {
    const server = await Server.start(['--speculative-config', speculative(3)]);
    const stream = await server.client.chat.completions.create({ ...story, max_tokens: 400 });
    const chunks = stream[Symbol.asyncIterator]();
    await chunks.next();
    const stopped = server.stop();
    assert.ok(await within(2, async () => (
      (await request(at(server.url, '/v1/models'))).status === 503)));
    const [health, chat, metrics] = await Promise.all(['/health', '/v1/chat/completions',
      '/metrics'].map((route) => request(at(server.url, route))));
    for (const refused of [health, chat]) {
      assert.equal(refused.status, 503);
      assert.ok(Number(refused.headers['retry-after']) > 0);
    }
    assert.equal(metrics.status, 200);
    let last;
    for (let step = await chunks.next(); !step.done; step = await chunks.next()) last = step.value;
    assert.equal(last.choices[0].finish_reason, 'length');
    assert.equal((await stopped).code, 0);
  });

  test('after --shutdown-timeout, or a second signal, it ends at once', async () => {
    for (const [args, second] of [[['--shutdown-timeout', '1'], false], [[], true]]) {
      const server = await Server.start(args);
      const stream = await server.client.chat.completions.create(story);
      const chunks = stream[Symbol.asyncIterator]();
      await chunks.next();
      const stopped = server.stop();
      if (second) {
        await within(2, () => server.stderr.includes('stopping'));
        server.child.kill('SIGINT');
      } else {
        // It is told why its answer ends.
        await assert.rejects(async () => {
          while (!(await chunks.next()).done);
        }, /shutting down/);
      }
      const { code, signal, seconds } = await stopped;
      assert.ok(second ? signal === 'SIGINT' : code === 0, `${code} ${signal}`);
      assert.ok(seconds < 3, `took ${seconds} s`);
    }
  });

  test('a Unix socket, and what kill -9 leaves of it', async () => {
    const socketPath = path.join(directory, 'socket');
    const listen = ['--uds', socketPath];
    const first = await Server.start([], { listen });
    assert.equal(first.url, `unix:${socketPath}`);
    const { status } = await request({ socketPath, path: '/v1/models' });
    assert.equal(status, 200);
    const { code, stderr } = await run(['serve', target, ...listen]);
    assert.equal(code, 1);
    assert.match(stderr, new RegExp(`in use by lagoon \\(process ${first.child.pid}\\)`));
    await first.stop('SIGKILL');
    assert.ok(existsSync(socketPath));
    const second = await Server.start([], { listen });
    await second.stop();
    assert.ok(!existsSync(socketPath));
  });
});

test('HTTPS, with and without certificates of clients', async () => {
  const key = path.join(directory, 'key.pem');
  const certificate = path.join(directory, 'cert.pem');
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256',
    '-nodes', '-keyout', key, '-out', certificate, '-days', '2', '-subj', '/CN=localhost',
    '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'], { stdio: 'ignore' });
  const pem = (file) => execFileSync('cat', [file]);
  const trust = { ca: pem(certificate) };
  const files = ['--ssl-certfile', certificate, '--ssl-keyfile', key];
  const wrong = await run(['serve', target, '--ssl-certfile', certificate, '--ssl-keyfile',
    certificate]);
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /^lagoon: --ssl-keyfile [^\n]*\n$/);
  // A key of another type than the certificate's.
  const other = path.join(directory, 'rsa.pem');
  execFileSync('openssl', ['genrsa', '-out', other, '2048'], { stdio: 'ignore' });
  const alien = await run(['serve', target, '--ssl-certfile', certificate, '--ssl-keyfile', other]);
  assert.equal(alien.code, 1);
  assert.match(alien.stderr, /^lagoon: --ssl-keyfile [^\n]*\n$/);

  const server = await Server.start(files);
  assert.match(server.url, /^https:/);
  const body = JSON.stringify({ ...hello, stream: true });
  const chat = await request(at(server.url, '/v1/chat/completions', { method: 'POST', ...trust }),
    body);
  assert.equal(chat.status, 200);
  const pieces = [...chat.text.matchAll(/"content":"([^"]*)"/g)].map((match) => match[1]);
  assert.equal(pieces.join(''), 'Paris');
  assert.match(chat.text, /data: \[DONE\]\n\n$/);
  // Large both ways: more than a record, and more than one read.
  const large = await request(at(server.url, '/v1/completions', { method: 'POST', ...trust }),
    JSON.stringify({ model: 'nano', prompt: 'x'.repeat(300000) }));
  assert.equal(large.status, 400);
  await assert.rejects(request(at(server.url, '/health')), /self-signed|self signed/);
  const plain = await request({ ...at(server.url, '/health'), protocol: 'http:' })
    .catch((error) => error);
  assert.ok(plain instanceof Error, 'plain HTTP gets no answer');
  assert.equal((await request(at(server.url, '/health', trust))).status, 200);
  await server.stop();

  const strict = await Server.start([...files, '--ssl-cert-reqs', '2', '--ssl-ca-certs',
    certificate]);
  await assert.rejects(request(at(strict.url, '/health', trust)));
  const known = await request(at(strict.url, '/health',
    { ...trust, cert: pem(certificate), key: pem(key) }));
  assert.equal(known.status, 200);
  await strict.stop();
});

test('options from a file and the environment', async () => {
  const config = path.join(directory, 'lagoon.toml');
  writeFileSync(config, 'max-model-len = "1k"\nserved-model-name = ["from-file"]\n'
    + 'kv-cache-memory-bytes = "2M"\n[default-chat-template-kwargs]\nenable_thinking = true\n');
  const { code, stderr } = await run(['serve', '--config', config], { LAGOON_PORT: '70000' });
  assert.equal(code, 2);
  assert.match(stderr, /^lagoon: [^\n]*--port[^\n]*\n$/);
  const server = await Server.start(['--config', config], { env: { LAGOON_MAX_NUM_SEQS: '2' } });
  assert.match(server.stdout, /^thinking: on/m);
  assert.match(server.stdout, /^GPU KV cache size: [\d,]+ tokens, Maximum concurrency for 1,000 tokens per request: \d+\.\d\dx \(Lagoon's\)$/m);
  assert.match(server.stdout, /^Using LAGOON NvFp4 MoE backend$/m);
  assert.match(server.stdout, /^Model loading took \d+\.\d+ GiB/m);
  assert.equal((await server.client.models.list()).data[0].max_model_len, 1000);
  await server.stop();
  const small = await run(['serve', target, '--kv-cache-memory-bytes', '100K']);
  assert.equal(small.code, 1);
  assert.match(small.stderr, /GiB KV cache is needed.*the estimated maximum model length is \d+/);
});
