// One session of each agent that runs without a display, with the real program and the bundled pair:
// asked to read a file, the pair calls the tool read_file, the agent runs it, and the file's text comes
// back to the server. Needs the agents in the folder that AGENTS names (scripts/test_agents.sh).
// Each has a home of its own, no telemetry, and a proxy that leads nowhere for all but this machine.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../..');
const agents = path.resolve(process.env.AGENTS);
const filesServer = path.join(here, 'files_server.mjs');
const text = 'import os  # the mark 4711\n';
const kLimit = 240_000;

let folder;
let server;
let log = '';

before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lagoon-agents-'));
  const models = path.join(root, 'models');
  server = spawn(path.resolve(process.env.LAGOON_BINARY), ['serve',
    path.join(models, 'laguna-nano-nvfp4'), '--served-model-name', 'nano', '--port', '0',
    '--override-generation-config', '{"temperature":0}', '--enable-log-requests',
    '--max-log-len', '1000000', '--speculative-config.method', 'dflash',
    '--speculative-config.model', path.join(models, 'laguna-nano-dflash-nvfp4')]);
  server.stderr.on('data', (data) => { log += data; });
  server.url = await new Promise((resolve, reject) => {
    let out = '';
    server.on('close', (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
    server.stdout.on('data', (data) => {
      out += data;
      const match = / on (http:\/\/\S+)\n/.exec(out);
      if (match) resolve(match[1]);
    });
  });
});
after(() => {
  server.kill();
  fs.rmSync(folder, { recursive: true, maxRetries: 5 });
});

// A session that may fail twice: prompts have dates and folders in them, and behind some the pair does
// not call.
function session(name, body) {
  test(name, async () => {
    for (let attempt = 1; ; ++attempt) {
      try {
        return await body(place(`${name}${attempt}`));
      } catch (error) {
        if (attempt === 3) throw error;
        console.log(`${name}, attempt ${attempt}: ${error.message.slice(-500)}`);
      }
    }
  });
}

// A home and a project with main.py, each empty otherwise.
function place(name) {
  const home = path.join(folder, name, 'home');
  const project = path.join(folder, name, 'project');
  fs.mkdirSync(home, { recursive: true });
  fs.mkdirSync(project);
  fs.writeFileSync(path.join(project, 'main.py'), text);
  return { home, project };
}

function write(file, content) {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
}

// The code block under a heading of docs/agents.md, for this server and its model.
function fromPage(heading) {
  const page = fs.readFileSync(path.join(root, 'docs/agents.md'), 'utf8');
  const [, section] = page.split(`\n## ${heading}\n`);
  const [, text] = /```\w+\n([^]*?)```/.exec(section);
  assert.ok(text.includes('laguna') && text.includes('http://localhost:8000'));
  return text.replaceAll('http://localhost:8000', server.url).replaceAll(/\blaguna\b/g, 'nano')
    .replaceAll('131072', '16384');
}

// Runs an agent to its end; what it printed.
async function run(program, args, { home, project }, env = {}) {
  const child = spawn(path.join(agents, 'node_modules/.bin', program), args, {
    cwd: project,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env.PATH,
      HOME: home,
      TERM: 'dumb',
      HTTP_PROXY: 'http://127.0.0.1:9',
      HTTPS_PROXY: 'http://127.0.0.1:9',
      NO_PROXY: '127.0.0.1,localhost',
      DO_NOT_TRACK: '1',
      ...env,
    },
  });
  let output = '';
  child.stdout.on('data', (data) => { output += data; });
  child.stderr.on('data', (data) => { output += data; });
  const timer = setTimeout(() => child.kill('SIGKILL'), kLimit);
  const code = await new Promise((resolve) => { child.on('close', resolve); });
  clearTimeout(timer);
  assert.equal(code, 0, output.slice(-4000));
  return output;
}

// The bodies that came to a path since `from` in the log.
function bodies(route, from) {
  const found = [];
  for (const line of log.slice(from).split('\n')) {
    const match = / POST (\S+) with \d+ bytes: (\{.*\})$/.exec(line);
    if (match?.[1] === route) found.push(JSON.parse(match[2]));
  }
  return found;
}

// A proxy to the server that calls one tool by another name on the way there and back, and ends the
// pair's answer to a result after a paragraph: else it talks until the context is full.
async function renaming(inside, outside) {
  const proxy = http.createServer((request, response) => {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', async () => {
      let body = Buffer.concat(pieces).toString().replaceAll(`"${outside}"`, `"${inside}"`);
      if (body.includes('"role":"tool"')) body = body.replace('{', '{"stop":["\\n\\n"],');
      const answer = await fetch(server.url + request.url, {
        method: request.method,
        headers: { 'content-type': 'application/json' },
        body: request.method === 'POST' ? body : undefined,
      });
      response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') });
      response.end((await answer.text()).replaceAll(`"${inside}"`, `"${outside}"`));
    });
  });
  await new Promise((resolve) => { proxy.listen(0, '127.0.0.1', resolve); });
  return proxy;
}

session('codex', async ({ home, project }) => {
  write(path.join(home, '.codex/config.toml'), `
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
${fromPage('Codex CLI')}
[analytics]
enabled = false

[mcp_servers.files]
command = "node"
args = ["${filesServer}", "${project}"]
`);
  const from = log.length;
  const output = await run('codex', ['exec', '--json', '--skip-git-repo-check', 'Read main.py'],
    { home, project });
  const items = output.split('\n').filter((line) => line.startsWith('{')).map(JSON.parse);
  const call = items.find(({ type, item }) => type === 'item.completed' && item.type === 'mcp_tool_call');
  assert.equal(call?.item.tool, 'read_file');
  assert.equal(call.item.result.content[0].text, text);
  assert.ok(items.some(({ type }) => type === 'turn.completed'));
  const outputs = bodies('/v1/responses', from).at(-1).input
    .filter(({ type }) => type === 'function_call_output');
  assert.ok(JSON.stringify(outputs).includes('the mark 4711'));
});

session('opencode', async ({ home, project }) => {
  // Its tools of an MCP server are called SERVER_TOOL: this one read_file.
  const config = JSON.parse(fromPage('opencode'));
  config.provider.lagoon.models.nano.limit.output = 2048;
  write(path.join(project, 'opencode.json'), {
    ...config,
    autoupdate: false,
    share: 'disabled',
    mcp: { read: { type: 'local', command: ['node', filesServer, project, 'file'] } },
  });
  const from = log.length;
  await run('opencode', ['run', 'Read main.py'], { home, project }, {
    OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1',
    OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
  });
  const results = bodies('/v1/chat/completions', from).at(-1).messages
    .filter(({ role }) => role === 'tool');
  assert.ok(JSON.stringify(results).includes('the mark 4711'));
});

session('cline', async ({ home, project }) => {
  // Its tools of an MCP server are called SERVER__TOOL, and the pair knows read_file alone.
  const proxy = await renaming('read_file', 'read__file');
  const env = {
    CLINE_SESSION_BACKEND_MODE: 'local',
    CLINE_GLOBAL_SETTINGS_PATH: path.join(home, 'settings.json'),
    CLINE_MCP_SETTINGS_PATH: path.join(home, 'mcp.json'),
  };
  write(env.CLINE_GLOBAL_SETTINGS_PATH, { telemetryOptOut: true, autoUpdateEnabled: false });
  write(env.CLINE_MCP_SETTINGS_PATH,
    { mcpServers: { read: { command: 'node', args: [filesServer, project, 'file'] } } });
  try {
    const [auth, task] = fromPage('Cline').replaceAll(server.url,
      `http://127.0.0.1:${proxy.address().port}`).trim().split('\n');
    await run('cline', auth.split(' ').slice(1), { home, project }, env);
    const from = log.length;
    assert.equal(task, 'cline "Read main.py"');
    // Behind its own system prompt the pair does not call.
    await run('cline', ['--json', '-s', 'You are a coding assistant.', 'Read main.py'],
      { home, project }, env);
    const results = bodies('/v1/chat/completions', from).flatMap(({ messages }) => messages)
      .filter(({ role }) => role === 'tool');
    assert.ok(JSON.stringify(results).includes('the mark 4711'));
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});
