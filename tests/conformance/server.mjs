// Starts the real program with the bundled pair on a free port, and stops it.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import path from 'node:path';
import OpenAI from 'openai';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../..');
export const binary = path.resolve(
  here, process.env.LAGOON_BINARY ?? '../../build/test/bin/lagoon');
export const target = path.join(root, 'models/laguna-nano-nvfp4');
export const draft = path.join(root, 'models/laguna-nano-dflash-nvfp4');

// What the tests are told by LAGOON_... is no option of the program.
const environment = { ...process.env };
delete environment.LAGOON_BINARY;

export function speculative(proposals) {
  return JSON.stringify({ method: 'dflash', model: draft, num_speculative_tokens: proposals });
}

// The process of `lagoon ARGUMENTS`, once it has ended: exit code, stdout, stderr.
export function run(args, env = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(binary, args, { env: { ...environment, ...env } });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (data) => { stdout += data; });
    child.stderr.on('data', (data) => { stderr += data; });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout, stderr }));
  });
}

export class Server {
  // Resolves when the server has said that it is ready. `listen` may be a Unix socket in place of
  // the port; `url` then begins with "unix:".
  static async start(args = [], { env = {}, listen = ['--port', '0'] } = {}) {
    const server = new Server();
    server.child = spawn(binary, ['serve', target, ...listen, '--served-model-name', 'nano',
      'nano-alias', ...args], { env: { ...environment, ...env } });
    server.stdout = '';
    server.stderr = '';
    server.child.stderr.on('data', (data) => { server.stderr += data; });
    server.ended = new Promise((resolve) => {
      server.child.on('close', (code, signal) => resolve({ code, signal }));
    });
    server.url = await new Promise((resolve, reject) => {
      server.child.on('error', reject);
      server.ended.then(({ code }) => reject(new Error(`ended with ${code}: ${server.stderr}`)));
      server.child.stdout.on('data', (data) => {
        server.stdout += data;
        const match = /Application startup complete\.\n.* on ((?:https?:\/\/|unix:)\S+)\n/.exec(server.stdout);
        if (match) resolve(match[1]);
      });
    });
    server.client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
    return server;
  }

  // Sends `signal` and gives { code, signal, seconds } of the end.
  async stop(signal = 'SIGTERM') {
    const start = performance.now();
    this.child.kill(signal);
    const ended = await this.ended;
    return { ...ended, seconds: (performance.now() - start) / 1000 };
  }

  // Values of /metrics by name; of several with one name and other labels, the sum.
  async metrics() {
    const response = await fetch(`${this.url}/metrics`);
    const values = {};
    for (const line of (await response.text()).split('\n')) {
      const match = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})? (\S+)$/.exec(line);
      if (match) values[match[1]] = (values[match[1]] ?? 0) + Number(match[2]);
    }
    return values;
  }

  post(route, body) {
    return fetch(`${this.url}${route}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  }
}

export const user = (content) => [{ role: 'user', content }];

// Waits until `condition` holds; false after `seconds`.
export async function within(seconds, condition) {
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    if (await condition()) return true;
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
  return false;
}

// The schema of an object with properties { name: type }, all of them required.
export const required = (properties) => ({
  type: 'object',
  properties: Object.fromEntries(Object.entries(properties).map(([key, type]) => [key, { type }])),
  required: Object.keys(properties),
});
